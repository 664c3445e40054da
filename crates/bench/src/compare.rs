//! What changed between two reports, beyond the noise.
//!
//! Rows are matched by suite, workload and profile, clients by name. Of each client in each row every figure is compared by
//! the one rule of [`crate::report::statistics`]: with at least two runs on both sides the ranges of the runs must not
//! overlap, and the medians be further apart than both printed spreads together and than 5 %; where one side ran once the
//! noise is unknown and only more than 20 % is shown, marked so. What of a row does not differ so agrees ([`Verdict`]). Changes too small to speak of (less than 1 MiB of memory or disk) are left out.
//!
//! Conditions come first: when machine, endpoint, scale, versions or commands differ, each difference is a warning, for then
//! a change may be theirs. Then what stopped or began to work, then figures, the greatest change first, then rows and clients
//! that only one of the two has.

mod conditions;
mod text;
mod verdict;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    record::{Report, Row},
    report::{
        figure::{Counts, Figure},
        statistics::Summary,
        view::{self, ClientView, Outcome, RowView},
    },
};

use verdict::Findings;
pub use verdict::{Differing, RowVerdict, Verdict};

/// What is different in the second of two reports.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Comparison {
    /// Conditions that differ, one sentence each.
    pub warnings: Vec<String>,
    /// How many runs foreign load disturbed, in a sentence, if any.
    pub disturbed: Option<String>,
    /// Whether each row that both have agrees.
    pub rows: Vec<RowVerdict>,
    /// Clients that stopped or began to fail, one for each row.
    pub outcomes: Vec<OutcomeChange>,
    /// Figures that changed, the greatest change first.
    pub changes: Vec<Change>,
    /// What only the second report has: rows, and clients in rows.
    pub appeared: Vec<String>,
    /// What only the first report has.
    pub vanished: Vec<String>,
    /// Figures that were compared.
    pub compared: usize,
    /// How many of them were measured more than once on both sides.
    #[serde(skip)]
    knowing: usize,
}

/// A client in a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The suite.
    pub suite: String,
    /// The workload.
    pub workload: String,
    /// The latency profile.
    pub profile: String,
    /// The client.
    pub client: String,
}

/// A client that began or stopped to work.
#[derive(Clone, Debug, Serialize)]
pub struct OutcomeChange {
    /// Where.
    pub place: Place,
    /// The reason of the failure.
    pub reason: String,
    /// Whether it works now and failed before.
    pub mended: bool,
}

/// A figure that changed.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// Where.
    pub place: Place,
    /// What.
    pub figure: Figure,
    /// In the first report.
    pub before: Summary,
    /// In the second report.
    pub after: Summary,
    /// Whether the second is the better.
    pub better: bool,
    /// Whether both sides were run more than once.
    pub knows_noise: bool,
}

impl Change {
    /// By what the first was multiplied; infinite when it was zero.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.after.median / self.before.median
    }

    /// How great the change is, whichever way: doubling and halving are the same.
    fn size(&self) -> f64 {
        self.factor().ln().abs()
    }
}

/// What changed from `a` to `b`.
#[must_use]
pub fn compare(a: &Report, b: &Report) -> Comparison {
    let (before, after) = (view::rows(a), view::rows(b));
    let mut comparison = Comparison {
        warnings: conditions::differences(a, b),
        disturbed: conditions::disturbed(a, b),
        ..Comparison::default()
    };
    for row in &before {
        match after.iter().find(|other| is_same_row(row, other)) {
            Some(other) => comparison.add_row(row, other),
            None => comparison.vanished.push(name(row)),
        }
    }
    let new = after
        .iter()
        .filter(|row| !before.iter().any(|other| is_same_row(row, other)));
    comparison.appeared.extend(new.map(name));
    comparison.changes.sort_by(|x, y| {
        y.size()
            .total_cmp(&x.size())
            .then_with(|| x.place.cmp(&y.place))
    });
    comparison
}

impl Comparison {
    /// Whether nothing is different, the conditions apart.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.outcomes.is_empty()
            && self.changes.is_empty()
            && self.appeared.is_empty()
            && self.vanished.is_empty()
    }

    /// As indented JSON.
    ///
    /// # Errors
    /// When a figure cannot be written; not for reports that were loaded.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    fn add_row(&mut self, before: &RowView<'_>, after: &RowView<'_>) {
        let (compared, knowing) = (self.compared, self.knowing);
        let (changes, outcomes) = (self.changes.len(), self.outcomes.len());
        self.add_clients(before, after);
        let found = Findings {
            figures: self.compared - compared,
            knowing: self.knowing - knowing,
            changes: &self.changes[changes..],
            outcomes: &self.outcomes[outcomes..],
        };
        self.rows.extend(verdict::of_row(before, &found));
    }

    fn add_clients(&mut self, before: &RowView<'_>, after: &RowView<'_>) {
        for client in &before.clients {
            match after.clients.iter().find(|other| other.name == client.name) {
                Some(other) => self.add_client((before, client), (after, other)),
                None => self
                    .vanished
                    .push(format!("{} in {}", client.name, name(before))),
            }
        }
        let known = |name: &str| before.clients.iter().any(|client| client.name == name);
        let new = after.clients.iter().filter(|client| !known(client.name));
        self.appeared
            .extend(new.map(|client| format!("{} in {}", client.name, name(after))));
    }

    fn add_client(
        &mut self,
        before: (&RowView<'_>, &ClientView<'_>),
        after: (&RowView<'_>, &ClientView<'_>),
    ) {
        let place = place(before.0.row, &before.0.table.suite, before.1.name);
        match (before.1.outcome(), after.1.outcome()) {
            (Outcome::Measured, Outcome::Measured) => self.add_figures(&place, before, after),
            (Outcome::Measured, Outcome::Failed(reason)) => self.add_outcome(place, reason, false),
            (Outcome::Failed(reason), Outcome::Measured) => self.add_outcome(place, reason, true),
            (Outcome::NotRun, Outcome::Measured | Outcome::Failed(_)) => {
                self.appeared.push(place.title());
            }
            (Outcome::Measured | Outcome::Failed(_), Outcome::NotRun) => {
                self.vanished.push(place.title());
            }
            (Outcome::Failed(_), Outcome::Failed(_)) | (Outcome::NotRun, Outcome::NotRun) => {}
        }
    }

    fn add_outcome(&mut self, place: Place, reason: &str, mended: bool) {
        let reason = reason.trim().to_owned();
        self.outcomes.push(OutcomeChange {
            place,
            reason,
            mended,
        });
    }

    fn add_figures(
        &mut self,
        place: &Place,
        before: (&RowView<'_>, &ClientView<'_>),
        after: (&RowView<'_>, &ClientView<'_>),
    ) {
        for figure in figures(before.0, after.0) {
            let pair = before.1.summary(figure).zip(after.1.summary(figure));
            let Some((old, new)) = pair else {
                continue;
            };
            self.compared += 1;
            self.knowing += usize::from(old.knows_noise_with(&new));
            if old.differs_from(&new) && (old.median - new.median).abs() > figure.negligible() {
                self.changes.push(Change {
                    place: place.clone(),
                    figure,
                    before: old,
                    after: new,
                    better: figure.is_better(new.median, old.median),
                    knows_noise: old.knows_noise_with(&new),
                });
            }
        }
    }
}

/// What is compared: each figure that either row has, costs and speeds only in what the row counts, so that one cause is not
/// told twice.
fn figures(before: &RowView<'_>, after: &RowView<'_>) -> BTreeSet<Figure> {
    let all = before.figures().into_iter().chain(after.figures());
    let repeats_speed = |figure: &Figure| {
        before.counts == Counts::Operations
            && matches!(figure, Figure::Bandwidth | Figure::CpuPerGib)
    };
    all.filter(|figure| !repeats_speed(figure)).collect()
}

fn is_same_row(a: &RowView<'_>, b: &RowView<'_>) -> bool {
    a.table.suite == b.table.suite
        && a.row.workload == b.row.workload
        && a.row.profile == b.row.profile
}

fn name(view: &RowView<'_>) -> String {
    format!("{} ({})", view.title(), view.table.suite)
}

fn place(row: &Row, suite: &str, client: &str) -> Place {
    Place {
        suite: suite.to_owned(),
        workload: row.workload.clone(),
        profile: row.profile.clone(),
        client: client.to_owned(),
    }
}

impl Place {
    /// "s3fs in read-1 · lan (ossfs2)".
    #[must_use]
    pub fn title(&self) -> String {
        format!(
            "{} in {} · {} ({})",
            self.client, self.workload, self.profile, self.suite
        )
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod record_tests;
