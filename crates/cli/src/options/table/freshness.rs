//! How long what is known about the bucket may be believed.

use std::time::Duration;

use crate::options::{Default, Group, Kind, OptionSpec};

const DAY: Duration = Duration::from_secs(24 * 3600);

const FRESHNESS: OptionSpec = OptionSpec {
    group: Group::Freshness,
    ..OptionSpec::COMMON
};

pub(crate) static ATTR_TIMEOUT: OptionSpec = OptionSpec {
    name: "attr-timeout",
    aliases: &["stat-cache-expire"],
    kind: Kind::Duration {
        min: Duration::ZERO,
        max: DAY,
    },
    default: Default::Depends(
        "60s; with mode=staged 5m, and 60s that a listed directory holds nothing else with save=close",
    ),
    help: "How long sizes, times and listings are believed",
    detail: "A change made elsewhere may stay unseen for so long. Changes made through this mount \
             are seen at once. With save=behind a directory that was listed is shown from memory for so long.",
    effect: "Longer saves requests; with 0 every stat and every lookup asks the store.",
    ..FRESHNESS
};

pub(crate) static NEGATIVE_TIMEOUT: OptionSpec = OptionSpec {
    name: "negative-timeout",
    kind: Kind::Duration {
        min: Duration::ZERO,
        max: DAY,
    },
    default: Default::Is("1s"),
    help: "How long the absence of a name is believed",
    detail: "A file made elsewhere may stay unseen for so long after its name was looked for.",
    effect: "Saves a HEAD and a LIST for each repeated look at a missing name, as search paths do.",
    ..FRESHNESS
};

pub(crate) static CLOSE_TO_OPEN: OptionSpec = OptionSpec {
    name: "close-to-open",
    help: "Ask the store at every open",
    detail: "An open then sees every write that was closed before it, on whatever machine, as on \
             NFS.",
    effect: "One HEAD request for each open.",
    ..FRESHNESS
};
