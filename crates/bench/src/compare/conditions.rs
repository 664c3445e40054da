//! Conditions in which two reports differ or that disturbed them, in sentences: a change of figures may be theirs.

use crate::record::{Client, Report, Row, Table};

/// Every difference of machine, endpoint, clients, scale and commands.
pub(super) fn differences(a: &Report, b: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    warnings.extend(machine(a, b));
    for (before, after) in pairs(&a.clients, &b.clients, |x, y| x.name == y.name) {
        warnings.extend(client(before, after));
    }
    for (before, after) in pairs(&a.tables, &b.tables, |x, y| x.suite == y.suite) {
        warnings.extend(table(before, after));
    }
    warnings
}

/// How many runs of either were disturbed, if any were: that is as good a reason for a change.
pub(super) fn disturbed(a: &Report, b: &Report) -> Option<String> {
    let count = |report: &Report| {
        let rows = report.tables.iter().flat_map(|table| &table.rows);
        let samples: Vec<_> = rows
            .flat_map(|row| &row.cells)
            .flat_map(|cell| &cell.samples)
            .collect();
        let disturbed = samples.iter().filter(|sample| sample.disturbed.is_some());
        (disturbed.count(), samples.len())
    };
    let (before, after) = (count(a), count(b));
    (before.0 + after.0 > 0).then(|| {
        format!(
            "Runs disturbed by foreign load: {} of {} before, {} of {} now.",
            before.0, before.1, after.0, after.1
        )
    })
}

/// The members of `a` that have a counterpart in `b`.
fn pairs<'x, T>(
    a: &'x [T],
    b: &'x [T],
    is_same: fn(&T, &T) -> bool,
) -> impl Iterator<Item = (&'x T, &'x T)> {
    a.iter()
        .filter_map(move |x| b.iter().find(|y| is_same(x, y)).map(|y| (x, y)))
}

fn machine(a: &Report, b: &Report) -> Vec<String> {
    let facts = |report: &Report| {
        let (machine, endpoint) = (&report.machine, &report.endpoint);
        let place = match endpoint.same_machine {
            true => "this machine",
            false => "another machine",
        };
        [
            ("processor", machine.processor.clone()),
            ("number of processors", machine.processors.to_string()),
            ("kernel", machine.kernel.clone()),
            ("system", machine.system.clone()),
            ("endpoint", endpoint.description.clone()),
            ("place of the server", place.to_owned()),
            ("memory", format!("{} MiB", machine.memory_bytes >> 20)),
        ]
    };
    let (x, y) = (a.machine.memory_bytes, b.machine.memory_bytes);
    // Reboots and kernels move what the kernel reports by a little.
    let is_same_memory = x.abs_diff(y) <= x.max(y) / 50;
    let pairs = facts(a).into_iter().zip(facts(b));
    let pairs = pairs.filter(|((name, _), _)| *name != "memory" || !is_same_memory);
    pairs
        .filter_map(|((name, x), (_, y))| difference(name, &x, &y))
        .collect()
}

fn client(a: &Client, b: &Client) -> Vec<String> {
    let name = &a.name;
    let versions = a.version.as_ref().zip(b.version.as_ref());
    let version = versions.and_then(|(x, y)| difference(&format!("version of {name}"), x, y));
    let both_ran = a.missing.is_none() && b.missing.is_none();
    let command = difference(&format!("mount command of {name}"), &a.command, &b.command);
    version
        .into_iter()
        .chain(command.filter(|_| both_ran))
        .collect()
}

fn table(a: &Table, b: &Table) -> Vec<String> {
    let suite = &a.suite;
    let scale = difference(
        &format!("scale of {suite}"),
        &a.scale.to_string(),
        &b.scale.to_string(),
    );
    let is_same = |x: &Row, y: &Row| x.workload == y.workload && x.profile == y.profile;
    let rows = pairs(&a.rows, &b.rows, is_same);
    let commands = rows.filter_map(|(x, y)| {
        let name = format!("command of {} · {} ({suite})", x.workload, x.profile);
        difference(&name, &x.commands.join("; "), &y.commands.join("; "))
    });
    scale.into_iter().chain(commands).collect()
}

fn difference(name: &str, before: &str, after: &str) -> Option<String> {
    (before != after).then(|| format!("{name}: {before} before, {after} now"))
}
