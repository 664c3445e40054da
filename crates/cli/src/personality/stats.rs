//! `ossfs2 stats`: the counters of one mount, found by its process.

use std::time::Duration;

use super::{ForeignOption, Meaning::Own, Program, flags, switch, value};
use crate::{
    commands::stats as ours,
    control,
    environment::Environment,
    failure::{Failure, Outcome},
    output, places,
};

static OPTIONS: &[ForeignOption] = &[
    value("p", "", Own("the process")),
    value("pid", "", Own("the process")),
    switch("l", "", Own("go on")),
    switch("live", "", Own("go on")),
    value("i", "1", Own("seconds")),
    value("interval", "1", Own("seconds")),
    value("f", "", Own("which counters")),
    value("filter", "", Own("which counters")),
];

static PROGRAM: Program = Program {
    name: "ossfs2 stats",
    introduction: "",
    options: OPTIONS,
    defaults: &[],
    run: |_, _| Ok(()),
};

pub(super) fn run(arguments: &[String], environment: &Environment) -> Outcome {
    let parsed = flags::parse_arguments(&PROGRAM, arguments)?;
    let find = |short: &str, long: &str| {
        let mut settings = parsed.settings.iter().rev();
        let found = settings.find(|setting| setting.name == short || setting.name == long);
        found.map(|setting| setting.text.as_str())
    };
    match parsed.positionals.first().map(String::as_str) {
        Some("set") => output::print_line("every counter is always counted"),
        Some("show") => {
            let pid = find("p", "pid").and_then(|pid| pid.parse().ok());
            let seconds = find("i", "interval").and_then(|text| text.parse().ok());
            let live = find("l", "live").is_some();
            let interval = live.then(|| Duration::from_secs(seconds.unwrap_or(1)));
            show(pid, interval, environment)
        }
        _ => Err(Failure::usage(
            "`ossfs2 stats` needs `show` or `set`",
            "write `ossfs2 stats show -p PID`",
        )),
    }
}

fn show(pid: Option<u32>, interval: Option<Duration>, environment: &Environment) -> Outcome {
    let place = places::sockets(environment);
    let mounts = control::client::all(&place);
    let found = mounts
        .iter()
        .find(|mount| pid.is_none_or(|pid| mount.status.pid == pid));
    let Some(mount) = found else {
        return Err(Failure::new(
            "there is no such mount",
            "`penstock stats` lists the mounts and their processes",
        ));
    };
    match interval {
        Some(interval) => ours::watch(&mount.socket, interval),
        None => output::print(&ours::describe(&mount.status, None)),
    }
}
