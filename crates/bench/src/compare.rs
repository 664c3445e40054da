//! What changed between two reports, beyond the noise, and whether they agree row by row.
//!
//! Rows are matched by suite, workload and profile, clients by name. Of each client in each row every figure is compared by
//! the one rule of [`crate::report::statistics`]: with at least two runs on both sides the ranges of the runs must not
//! overlap, and the medians be further apart than both printed spreads together and than 5 %; where one side ran once the
//! noise is unknown and only more than 20 % is shown, marked so. Changes too small to speak of (less than 1 MiB of memory or
//! disk) are left out.
//!
//! A row *agrees* when no figure of any of its clients differs, and nobody began or stopped to work. Where all that was
//! compared had run only once on a side, nothing is known but large differences: the row is *unknown* unless there is one.
//!
//! Conditions come first: when machine, endpoint, scale, versions or commands differ, each difference is a warning, for then
//! a change may be theirs. Then what stopped or began to work, then figures, the greatest change first,
//! then rows and clients that only one of the two has.

mod text;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    record::Report,
    report::{
        figure::Figure,
        statistics::Summary,
        summary::{self, ClientView, Outcome, RowView},
    },
};

/// What is different in the second of two reports.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Comparison {
    /// Conditions that differ, one sentence each.
    pub(crate) warnings: Vec<String>,
    /// How many runs foreign load disturbed, in a sentence, if any.
    pub(crate) disturbed: Option<String>,
    /// Whether each row that both have agrees.
    pub(crate) rows: Vec<RowVerdict>,
    /// Clients that stopped or began to fail, one for each row.
    pub(crate) outcomes: Vec<OutcomeChange>,
    /// Figures that changed, the greatest change first.
    pub(crate) changes: Vec<Change>,
    /// What only the second report has: rows, and clients in rows.
    pub(crate) appeared: Vec<String>,
    pub(crate) vanished: Vec<String>,
    pub(crate) compared: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Place {
    pub(crate) suite: String,
    pub(crate) workload: String,
    pub(crate) profile: String,
    pub(crate) client: String,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct OutcomeChange {
    pub(crate) place: Place,
    pub(crate) reason: String,
    /// Whether it works now and failed before.
    pub(crate) mended: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Change {
    pub(crate) place: Place,
    pub(crate) figure: Figure,
    pub(crate) before: Summary,
    pub(crate) after: Summary,
    pub(crate) better: bool,
    pub(crate) knows_noise: bool,
}

/// Whether a row came out the same twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Nothing differs beyond the spreads.
    Agrees,
    Differs,
    /// Nothing differs by much, and the spreads are unknown.
    Unknown,
}

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs => "DIFFERS",
            Self::Unknown => "unknown",
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RowVerdict {
    pub(crate) suite: String,
    pub(crate) workload: String,
    pub(crate) profile: String,
    pub(crate) verdict: Verdict,
    pub(crate) figures: usize,
    pub(crate) differing: Vec<Differing>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Differing {
    pub(crate) client: String,
    /// Figures, and "fails" or "works".
    pub(crate) what: Vec<String>,
}

impl Differing {
    pub(crate) fn sentence(&self) -> String {
        format!("{}: {}", self.client, self.what.join(", "))
    }
}

impl Change {
    /// By what the first was multiplied; infinite when it was zero.
    pub(crate) fn factor(&self) -> f64 {
        self.after.median / self.before.median
    }

    /// How great the change is, whichever way: doubling and halving are the same.
    fn size(&self) -> f64 {
        self.factor().ln().abs()
    }
}

/// A client in its row, in one of the reports.
type Client<'v, 'a> = (&'v RowView<'a>, &'v ClientView<'a>);

/// What changed from `a` to `b`.
pub fn compare(a: &Report, b: &Report) -> Comparison {
    let (before, after) = (summary::rows(a), summary::rows(b));
    let mut comparison = Comparison {
        warnings: differences(a, b),
        disturbed: disturbed(a, b),
        ..Comparison::default()
    };
    for row in &before {
        match after.iter().find(|other| is_same_row(row, other)) {
            Some(other) => comparison.add_row(row, other),
            None => comparison.vanished.push(name(row)),
        }
    }
    let is_new = |row: &&RowView<'_>| !before.iter().any(|other| is_same_row(row, other));
    let new = after.iter().filter(is_new);
    comparison.appeared.extend(new.map(name));
    comparison.changes.sort_by(|x, y| {
        let by_size = y.size().total_cmp(&x.size());
        by_size.then_with(|| x.place.cmp(&y.place))
    });
    comparison
}

impl Comparison {
    /// As indented JSON.
    ///
    /// # Errors
    /// When a figure cannot be written; not for reports that were loaded.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    fn add_row(&mut self, before: &RowView<'_>, after: &RowView<'_>) {
        let mut verdict = RowVerdict {
            suite: before.table.suite.clone(),
            workload: before.row.workload.clone(),
            profile: before.row.profile.clone(),
            verdict: Verdict::Unknown,
            figures: 0,
            differing: Vec::new(),
        };
        for client in &before.clients {
            match after.client(client.name) {
                Some(other) => self.add_client((before, client), (after, other), &mut verdict),
                None => self
                    .vanished
                    .push(format!("{} in {}", client.name, name(before))),
            }
        }
        let new = after.clients.iter();
        let new = new.filter(|client| before.client(client.name).is_none());
        let new = new.map(|client| format!("{} in {}", client.name, name(after)));
        self.appeared.extend(new);
        if !verdict.differing.is_empty() {
            verdict.verdict = Verdict::Differs;
        }
        self.compared += verdict.figures;
        if verdict.figures > 0 || !verdict.differing.is_empty() {
            self.rows.push(verdict);
        }
    }

    fn add_client(&mut self, before: Client<'_, '_>, after: Client<'_, '_>, row: &mut RowVerdict) {
        let place = Place {
            suite: row.suite.clone(),
            workload: row.workload.clone(),
            profile: row.profile.clone(),
            client: before.1.name.to_owned(),
        };
        let what = match (before.1.outcome(), after.1.outcome()) {
            (Outcome::Measured, Outcome::Measured) => self.add_figures(&place, before, after, row),
            (Outcome::Measured, Outcome::Failed(reason)) => self.add_outcome(&place, reason, false),
            (Outcome::Failed(reason), Outcome::Measured) => self.add_outcome(&place, reason, true),
            (old, new) => {
                match (old == Outcome::NotRun, new == Outcome::NotRun) {
                    (true, false) => self.appeared.push(place.title()),
                    (false, true) => self.vanished.push(place.title()),
                    _ => {}
                }
                Vec::new()
            }
        };
        if !what.is_empty() {
            let client = place.client;
            row.differing.push(Differing { client, what });
        }
    }

    fn add_outcome(&mut self, place: &Place, reason: &str, mended: bool) -> Vec<String> {
        self.outcomes.push(OutcomeChange {
            place: place.clone(),
            reason: reason.trim().to_owned(),
            mended,
        });
        vec![if mended { "works" } else { "fails" }.to_owned()]
    }

    fn add_figures(
        &mut self,
        place: &Place,
        before: Client<'_, '_>,
        after: Client<'_, '_>,
        row: &mut RowVerdict,
    ) -> Vec<String> {
        let mut what = Vec::new();
        // Costs and speeds only in what the row counts, so that one cause is not told twice.
        let figures = before.0.figures().into_iter().chain(after.0.figures());
        let figures: BTreeSet<Figure> = figures.filter(|it| !before.0.says_again(*it)).collect();
        for figure in figures {
            let pair = before.1.summary(figure).zip(after.1.summary(figure));
            let Some((old, new)) = pair else {
                continue;
            };
            let knows_noise = old.knows_noise_with(&new);
            row.figures += 1;
            if knows_noise {
                row.verdict = Verdict::Agrees;
            }
            if old.differs_from(&new) && (old.median - new.median).abs() > figure.negligible() {
                what.push(figure.name());
                self.changes.push(Change {
                    place: place.clone(),
                    figure,
                    before: old,
                    after: new,
                    better: figure.is_better(new.median, old.median),
                    knows_noise,
                });
            }
        }
        what
    }
}

/// Every difference of machine, endpoint, clients, scale and commands: a change of figures may be theirs.
fn differences(a: &Report, b: &Report) -> Vec<String> {
    let (x, y) = (a.machine.memory_bytes, b.machine.memory_bytes);
    // Reboots and kernels move what the kernel reports by a little.
    let is_same_memory = x.abs_diff(y) <= x.max(y) / 50;
    let after = facts(b);
    let differences = facts(a).into_iter().filter_map(|(name, before)| {
        let (_, now) = after.iter().find(|(other, _)| *other == name)?;
        let is_same = before == *now || name == "memory" && is_same_memory;
        (!is_same).then(|| format!("{name}: {before} before, {now} now"))
    });
    differences.collect()
}

/// All conditions of `report`, by names that another report has too.
fn facts(report: &Report) -> Vec<(String, String)> {
    let (machine, endpoint) = (&report.machine, &report.endpoint);
    let place = match endpoint.same_machine {
        true => "this machine",
        false => "another machine",
    };
    let facts = [
        ("processor", machine.processor.clone()),
        ("number of processors", machine.processors.to_string()),
        ("kernel", machine.kernel.clone()),
        ("system", machine.system.clone()),
        ("endpoint", endpoint.description.clone()),
        ("place of the server", place.to_owned()),
        ("memory", format!("{} MiB", machine.memory_bytes >> 20)),
    ];
    let mut facts = facts.map(|(name, fact)| (name.to_owned(), fact)).to_vec();
    for client in &report.clients {
        let name = &client.name;
        let version = client.version.iter().cloned();
        facts.extend(version.map(|version| (format!("version of {name}"), version)));
        if client.missing.is_none() {
            facts.push((format!("mount command of {name}"), client.command.clone()));
        }
    }
    for table in &report.tables {
        let suite = &table.suite;
        facts.push((format!("scale of {suite}"), table.scale.to_string()));
        for row in &table.rows {
            let name = format!("command of {} · {} ({suite})", row.workload, row.profile);
            facts.push((name, row.commands.join("; ")));
        }
    }
    facts
}

/// How many runs of either were disturbed, if any were: that is as good a reason for a change.
fn disturbed(a: &Report, b: &Report) -> Option<String> {
    let count = |report: &Report| {
        let rows = report.tables.iter().flat_map(|table| &table.rows);
        let samples = rows
            .flat_map(|row| &row.cells)
            .flat_map(|cell| &cell.samples);
        let disturbed = samples.clone().filter(|sample| sample.disturbed.is_some());
        (disturbed.count(), samples.count())
    };
    let ((x, of_x), (y, of_y)) = (count(a), count(b));
    let text = format!("Runs disturbed by foreign load: {x} of {of_x} before, {y} of {of_y} now.");
    (x + y > 0).then_some(text)
}

fn is_same_row(a: &RowView<'_>, b: &RowView<'_>) -> bool {
    a.table.suite == b.table.suite
        && a.row.workload == b.row.workload
        && a.row.profile == b.row.profile
}

fn name(view: &RowView<'_>) -> String {
    format!("{} ({})", view.title(), view.table.suite)
}

impl Place {
    /// "s3fs in read-1 · lan (ossfs2)".
    pub(crate) fn title(&self) -> String {
        let (client, workload, profile) = (&self.client, &self.workload, &self.profile);
        format!("{client} in {workload} · {profile} ({})", self.suite)
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod record_tests;
