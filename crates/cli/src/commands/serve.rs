//! `penstock serve SOURCE --listen ADDRESS` and `penstock serve --config FILE`: NFS mount targets.

use std::path::PathBuf;

use clap::{ArgMatches, Command};

use super::mount::{source_argument, start_logging};
use crate::{
    command_line,
    daemon::{self, Announcer, Plan},
    doors::DoorKind,
    environment::Environment,
    failure::{Failure, Outcome},
    logging::LogFile,
    options::{Scope, Values, config_file, table},
    output, places,
    serving::{self, Serving},
};

const AFTER_HELP: &str = "\
Examples:
  penstock serve file:///srv/bucket --listen 127.0.0.1:12049
  penstock serve fileset://home --listen 10.0.0.5:2049 --clients 10.0.0.0/8
  mount -t nfs -o vers=3,tcp,port=12049,mountport=12049,nolock 127.0.0.1:/ /mnt/data
  penstock serve fileset://home --listen 10.0.0.5:2049 --portmap 10.0.0.5:111
  mount -t nfs -o vers=3 10.0.0.5:/ /mnt/home
  penstock serve --check --config /etc/penstock/serve.toml
  penstock serve --config /etc/penstock/serve.toml

A file names several volumes, mount targets and exports:
  [volume.home]
  source = \"fileset://home\"

  [target.lan]
  listen = \"10.0.0.5:2049\"
  portmap = \"10.0.0.5:111\"
  type = \"hpmt-20\"

  [[export]]
  path = \"/home\"
  volume = \"home\"
  targets = [\"lan\"]               # may be left out where there is one

  [[export.rule]]                 # the first rule that is for a client counts
  source = \"10.0.0.7\"             # an address, a network, or a list of them; all without
  access = \"read-only\"            # or read-write
  identity-squash = \"root\"        # none, root or all
  anonymous-uid = 65534
  anonymous-gid = 65534
  require-privileged-source-port = false
  allowed-auth = [\"sys\", \"none\"]

Whom no rule of an export is for is refused; an export without a rule is for everybody. Of several
exports a client mounts the one with the longest path that its own begins with. The file is read again
on SIGHUP and when it changes: exports, rules and types are applied at once, and connections go on.
What is faulty, or asks for another volume or address, changes nothing and is told in the log and
by `penstock stats`. --check tells all faults of the file, and serves nothing, asks no store and listens
nowhere; it ends with 0 if there are none, else with 2.

The command stays in the foreground until SIGTERM or SIGINT, and saves everything then. Every option
may also stand in the environment (PENSTOCK_LISTEN for --listen) or in the file that --config names.

Clients say who their users are, and nothing is encrypted: keep the address where only clients that
you trust reach it, with --clients and a firewall. Without --portmap mount with `nolock`.";

/// The flag that asks for faults alone.
const CHECK: &str = "check";

pub(crate) fn command() -> Command {
    Command::new("serve")
        .about("Serve buckets and filesets to NFS clients")
        .long_about(
            "Makes a bucket, a prefix of one, or a fileset an NFS version 3 mount target, which any NFS \
             client finds at the address, with nothing to install there; or, with a file, several of \
             them several mount targets.",
        )
        .arg(source_argument().required(false).help(
            "s3://BUCKET[/PREFIX], oss://BUCKET[/PREFIX], file:///DIRECTORY or fileset://NAME; without \
             it the file of --config says what is served",
        ))
        .arg(command_line::flag(
            CHECK,
            "Tell all faults of what is to be served, and serve nothing",
        ))
        .args(command_line::option_arguments(Scope::Serve))
        .after_long_help(AFTER_HELP)
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let serving = match matches.get_one::<String>("source") {
        Some(source) => of_source(source, matches, environment)?,
        None => of_file(matches, environment)?,
    };
    if matches.get_flag(CHECK) {
        let (title, summary) = (&serving.title, serving.summary());
        return output::print_line(&format!("`{title}` has no faults: {summary}"));
    }
    serve(serving, environment)
}

fn of_source(source: &str, matches: &ArgMatches, environment: &Environment) -> Outcome<Serving> {
    let values = command_line::values_without_words(matches, Scope::Serve, environment)?;
    check_file(&values)?;
    Serving::of_source(source, &values, environment)
}

/// Refuses a file whose exports nobody would have.
fn check_file(values: &Values) -> Outcome {
    let Some(path) = values.path(&table::CONFIG) else {
        return Ok(());
    };
    let (file, _) = config_file::read_all(path)?;
    match file.has_exports() {
        true => Err(Failure::usage(
            format!(
                "`{}` says what is exported, and so does SOURCE",
                path.display()
            ),
            "leave SOURCE out, or name a file without [target.NAME] and [[export]]",
        )),
        false => Ok(()),
    }
}

fn of_file(matches: &ArgMatches, environment: &Environment) -> Outcome<Serving> {
    let given = command_line::given_by_name(matches, Scope::Serve);
    let given = command_line::with_environment(given, environment);
    let path = command_line::config_path(&given).ok_or_else(|| {
        Failure::usage(
            "there is nothing to serve",
            "name a SOURCE and --listen, or a file with exports with --config",
        )
    })?;
    let path = std::path::absolute(&path).unwrap_or(path);
    let read = Serving::of_file(&path, given, environment);
    read.map_err(|faults| serving::told(&faults, &path))
}

fn serve(serving: Serving, environment: &Environment) -> Outcome {
    let log = serving.values.path(&table::LOG_FILE).map(PathBuf::from);
    let log = log.map(|path| LogFile::open(&path)).transpose()?;
    let plan = Plan {
        volume: serving.process(),
        door: DoorKind::Nfs(Box::new(serving)),
        log,
        place: places::sockets(environment),
        line: None,
        guardian: None,
    };
    start_logging(&plan);
    daemon::run(&plan, Announcer::Foreground(None))
}
