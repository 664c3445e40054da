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
//! a change may be theirs ([`conditions`]). Then what stopped or began to work, then figures, the greatest change first,
//! then rows and clients that only one of the two has.

mod conditions;
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

/// Whether a row came out the same twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing differs beyond the spreads.
    Agrees,
    /// Something does.
    Differs,
    /// Nothing differs by much, and the spreads are unknown.
    Unknown,
}

impl Verdict {
    /// As a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs => "DIFFERS",
            Self::Unknown => "unknown",
        }
    }
}

/// A row that both reports have.
#[derive(Clone, Debug, Serialize)]
pub struct RowVerdict {
    /// The suite.
    pub suite: String,
    /// The workload.
    pub workload: String,
    /// The latency profile.
    pub profile: String,
    /// Whether it agrees.
    pub verdict: Verdict,
    /// Figures that were compared, of all clients.
    pub figures: usize,
    /// Who differs in what.
    pub differing: Vec<Differing>,
}

/// A client that differs in a row.
#[derive(Clone, Debug, Serialize)]
pub struct Differing {
    /// The client.
    pub client: String,
    /// Figures, and "fails" or "works".
    pub what: Vec<String>,
}

impl Differing {
    /// "s3fs: Bandwidth, Client CPU".
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.client, self.what.join(", "))
    }
}

impl Change {
    /// By what the first was multiplied; infinite when it was zero.
    pub fn factor(&self) -> f64 {
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
    /// Whether nothing is different, the conditions apart.
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
                None => {
                    let lost = format!("{} in {}", client.name, name(before));
                    self.vanished.push(lost);
                }
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
            (Outcome::NotRun, Outcome::Measured | Outcome::Failed(_)) => {
                self.appeared.push(place.title());
                Vec::new()
            }
            (Outcome::Measured | Outcome::Failed(_), Outcome::NotRun) => {
                self.vanished.push(place.title());
                Vec::new()
            }
            (Outcome::Failed(_), Outcome::Failed(_)) | (Outcome::NotRun, Outcome::NotRun) => {
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
