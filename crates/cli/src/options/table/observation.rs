//! How to see what goes on.

use crate::options::{Accepts, Default, Group, Kind, OptionSpec, Scope};

const OBSERVATION: OptionSpec = OptionSpec {
    group: Group::Observation,
    ..OptionSpec::COMMON
};

pub(crate) static LOG_LEVEL: OptionSpec = OptionSpec {
    name: "log-level",
    scope: Scope::Store,
    kind: Kind::Choice(&["error", "warn", "info", "debug"]),
    default: Default::Is("info"),
    help: "Least important message that is logged",
    detail: "Credentials and signatures are never logged, at any level. Commands other than mount \
             log warnings unless this is given.",
    effect: "`debug` has a line for each request to the store.",
    ..OBSERVATION
};

pub(crate) static LOG_FILE: OptionSpec = OptionSpec {
    name: "log-file",
    scope: Scope::Volume,
    kind: Kind::Path,
    default: Default::Depends(
        "standard error in the foreground; else /var/log/penstock for root and \
         ~/.local/state/penstock for others, one file per mount point",
    ),
    help: "File for log messages",
    detail: "Opened again on SIGHUP. At 64MiB it is renamed to FILE.old and begun anew.",
    ..OBSERVATION
};

pub(crate) static METRICS_ADDRESS: OptionSpec = OptionSpec {
    name: "metrics-address",
    scope: Scope::Volume,
    kind: Kind::Address,
    default: Default::Depends("no endpoint"),
    help: "Serve metrics for Prometheus at http://ADDRESS:PORT/metrics",
    detail: "Anybody who can reach the address can read them; they hold no names of files.",
    ..OBSERVATION
};

pub(crate) static CONFIG: OptionSpec = OptionSpec {
    name: "config",
    aliases: &["conf"],
    scope: Scope::Store,
    accepts: Accepts::NotInFile,
    kind: Kind::Path,
    default: Default::Depends("no file"),
    help: "TOML file with options",
    detail: "A key for each option, by its name. Options given elsewhere win over it.",
    ..OBSERVATION
};
