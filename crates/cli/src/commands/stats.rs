//! `penstock stats [MOUNTPOINT]`: what mounts do right now.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_base::clock;

use crate::{
    command_line,
    commands::umount,
    control::{Metric, Phase, ServedRule, Status, client},
    environment::Environment,
    failure::{Failure, Outcome},
    options::duration,
    output, places, sharing, text_table,
};

/// How often `--watch` looks.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn command() -> Command {
    let watch = command_line::flag("watch", "Go on, once a second, with rates")
        .short('w')
        .requires("mountpoint")
        .conflicts_with("json");
    Command::new("stats")
        .about("Show what mounts do: requests, bytes, memory")
        .long_about(
            "Shows requests, bytes and memory of one mount, and of one that was unmounted there \
             before and still saves. Without a mount point, lists the mounts of the user who runs \
             it. Does not touch the mount itself, so it works while a store hangs.",
        )
        .arg(
            Arg::new("mountpoint")
                .value_name("MOUNTPOINT")
                .value_parser(value_parser!(PathBuf))
                .help("Where the bucket is mounted; without it, all mounts are listed"),
        )
        .arg(command_line::flag("json", "Print JSON"))
        .arg(watch)
}

pub(crate) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let place = places::sockets(environment);
    let as_json = matches.get_flag("json");
    let Some(path) = matches.get_one::<PathBuf>("mountpoint") else {
        let mounts = client::all(&place).into_iter().map(|found| found.status);
        return list(&mounts.collect::<Vec<_>>(), as_json);
    };
    let mountpoint = umount::resolve(path)?;
    let sockets = sharing::sockets_at(&place, &mountpoint)?;
    let answering: Vec<_> = sockets
        .iter()
        .filter_map(|socket| Some((socket, client::status(socket).ok()?)))
        .collect();
    let Some((socket, newest)) = answering.first() else {
        // Why the present one does not answer is what is of interest.
        return ask(&sockets[0], &mountpoint).map(|_| ());
    };
    if matches.get_flag("watch") {
        return watch(socket, WATCH_INTERVAL);
    }
    if as_json {
        return output::print_json(newest);
    }
    let described = answering.iter().map(|(_, status)| describe(status, None));
    output::print(&described.collect::<Vec<_>>().join("\n"))
}

fn ask(socket: &Path, mountpoint: &Path) -> Outcome<Status> {
    client::status(socket).map_err(|error| silence(mountpoint, &error))
}

/// Why a mount gives no answer.
pub(crate) fn silence(mountpoint: &Path, error: &io::Error) -> Failure {
    let shown = mountpoint.display();
    match error.kind() {
        // The last three come from a mount that is just leaving.
        io::ErrorKind::NotFound
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::InvalidData => Failure::new(
            format!("no mount of this user answers for `{shown}`"),
            "`penstock stats` lists the mounts",
        ),
        _ => Failure::new(
            format!("the mount on `{shown}` does not answer: {error}"),
            "look into its log",
        ),
    }
}

fn list(mounts: &[Status], as_json: bool) -> Outcome {
    if as_json {
        return output::print_json(&mounts);
    }
    if mounts.is_empty() {
        return output::print_line("nothing is mounted");
    }
    let head = ["MOUNTPOINT", "SOURCE", "PID", "STATE", "UPTIME", "MEMORY"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(mounts.iter().map(|mount| {
        vec![
            sharing::shown(mount),
            mount.source.clone(),
            mount.pid.to_string(),
            state(mount).to_owned(),
            duration::display(Duration::from_secs(mount.uptime)),
            text_table::bytes(mount.memory.resident),
        ]
    }));
    output::print(&text_table::columns(&rows))
}

/// The phase of a mount for people. One that was unmounted and has nothing unsaved waits for programs that
/// use it, if it does not end at once.
fn state(status: &Status) -> &'static str {
    let has_unsaved = status.unsaved.is_none_or(|unsaved| unsaved.files > 0);
    match status.phase {
        Phase::Saving if !has_unsaved => "ending",
        phase => phase.word(),
    }
}

/// Shows a mount again and again, with what changed in between.
pub(crate) fn watch(socket: &Path, interval: Duration) -> Outcome {
    let mut before: Option<Status> = None;
    loop {
        let status = ask(socket, socket)?;
        let clear = if io::stdout().is_terminal() {
            "\x1b[H\x1b[2J"
        } else {
            ""
        };
        output::print(&format!("{clear}{}", describe(&status, before.as_ref())))?;
        before = Some(status);
        clock::pause(interval);
    }
}

/// A mount in words and numbers; with an earlier look also how fast counters grow.
pub(crate) fn describe(status: &Status, before: Option<&Status>) -> String {
    let memory = status.memory;
    let facts = [
        ("mount point", sharing::shown(status)),
        ("source", status.source.clone()),
        (
            "process",
            format!("{}, version {}", status.pid, status.version),
        ),
        ("state", state(status).to_owned()),
        (
            "uptime",
            duration::display(Duration::from_secs(status.uptime)),
        ),
        (
            "memory",
            format!(
                "{} of {} used, {} at most; the process occupies {}",
                text_table::bytes(memory.used),
                text_table::bytes(memory.total),
                text_table::bytes(memory.peak),
                text_table::bytes(memory.resident)
            ),
        ),
    ];
    let facts: Vec<_> = facts
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    let served = served(status);
    let earlier = before.map(|before| (by_name(before), status.uptime - before.uptime));
    let rows: Vec<_> = status
        .metrics
        .iter()
        .filter(|metric| metric.value > 0)
        .map(|metric| row(metric, earlier.as_ref()))
        .collect();
    format!(
        "{}\n{served}{}",
        text_table::columns(&facts),
        text_table::columns(&rows)
    )
}

/// The mount targets with what they export, if there are any, and what there is to know of the file that says so.
fn served(status: &Status) -> String {
    let mut text = String::new();
    if let Some(configuration) = &status.configuration {
        let applied = UNIX_EPOCH + Duration::from_secs(configuration.applied);
        let path = configuration.path.display();
        text += &format!(
            "served since {} as `{path}` says\n",
            text_table::timestamp(applied)
        );
        if let Some(fault) = &configuration.fault {
            text += &format!("it is not served as it is now: {fault}\n");
        }
        text.push('\n');
    }
    if status.targets.is_empty() {
        return text;
    }
    let head = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let mut targets = vec![head(&["TARGET", "ADDRESS", "TYPE", "CONNECTIONS"])];
    let mut exports = vec![head(&["EXPORT", "TARGET", "VOLUME", "CLIENTS"])];
    for target in &status.targets {
        let name = named(&target.name);
        targets.push(vec![
            name.clone(),
            target.address.clone(),
            target.target_type.clone(),
            target.connections.to_string(),
        ]);
        exports.extend(target.exports.iter().map(|export| {
            let rules: Vec<_> = export.rules.iter().map(rule).collect();
            let volume = named(&export.volume);
            vec![export.path.clone(), name.clone(), volume, rules.join(", ")]
        }));
    }
    text + &format!(
        "{}\n{}\n",
        text_table::columns(&targets),
        text_table::columns(&exports)
    )
}

fn named(name: &str) -> String {
    match name {
        "" => "-".to_owned(),
        name => name.to_owned(),
    }
}

/// A rule in a few words, such as `10.0.0.0/8 read-only squash=all`.
fn rule(rule: &ServedRule) -> String {
    let mut words = match rule.source.is_empty() {
        true => vec!["all".to_owned()],
        false => rule.source.clone(),
    };
    words.push(rule.access.clone());
    words.push(format!("squash={}", rule.identity_squash));
    if rule.require_privileged_source_port {
        words.push("privileged-port".to_owned());
    }
    if rule.allowed_auth.len() == 1 {
        words.push(format!("auth={}", rule.allowed_auth[0]));
    }
    words.join(" ")
}

type Earlier = (BTreeMap<String, u64>, u64);

fn row(metric: &Metric, earlier: Option<&Earlier>) -> Vec<String> {
    let name = full_name(metric);
    let mut row = vec![name.clone(), shown(metric, metric.value)];
    if let Some((values, seconds)) = earlier
        && metric.counter
    {
        let grown = metric.value - values.get(&name).copied().unwrap_or(0).min(metric.value);
        if grown > 0 {
            row.push(format!("{}/s", shown(metric, grown / seconds.max(&1))));
        }
    }
    row
}

fn by_name(status: &Status) -> BTreeMap<String, u64> {
    let metrics = status.metrics.iter();
    metrics
        .map(|metric| (full_name(metric), metric.value))
        .collect()
}

/// The name with its labels.
fn full_name(metric: &Metric) -> String {
    if metric.labels.is_empty() {
        return metric.name.clone();
    }
    let labels = metric.labels.iter();
    let labels: Vec<_> = labels
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    format!("{} {}", metric.name, labels.join(" "))
}

fn shown(metric: &Metric, value: u64) -> String {
    if metric.name.contains("_bytes") {
        text_table::bytes(value)
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Memory, Phase};

    fn status(uptime: u64, requests: u64) -> Status {
        Status {
            version: "1.0".to_owned(),
            pid: 7,
            source: "file:///a".to_owned(),
            mountpoint: "/mnt/x".into(),
            phase: Phase::Mounted,
            started: 1,
            uptime,
            unsaved: None,
            sharing: None,
            memory: Memory {
                used: 1 << 20,
                peak: 2 << 20,
                total: 512 << 20,
                resident: 30 << 20,
            },
            targets: Vec::new(),
            configuration: None,
            metrics: vec![Metric {
                name: "object_requests_total".to_owned(),
                counter: true,
                labels: BTreeMap::from([("operation".to_owned(), "get".to_owned())]),
                value: requests,
            }],
        }
    }

    #[test]
    fn a_look_shows_memory_and_counters() {
        assert_eq!(
            describe(&status(61, 5), None),
            "mount point  /mnt/x\n\
             source       file:///a\n\
             process      7, version 1.0\n\
             state        mounted\n\
             uptime       1m1s\n\
             memory       1.00 MiB of 512 MiB used, 2.00 MiB at most; the process occupies 30.0 MiB\n\
             \n\
             object_requests_total operation=get  5\n"
        );
    }

    #[test]
    fn a_second_look_shows_rates() {
        let text = describe(&status(63, 25), Some(&status(61, 5)));
        assert!(
            text.ends_with("object_requests_total operation=get  25  10/s\n"),
            "{text}"
        );
    }
}
