//! Whether two reports agree, row by row: what somebody wants to know who measured the same thing
//! twice.
//!
//! A row *agrees* when no figure of any of its clients differs beyond the spreads that are printed,
//! by the rule of [`crate::report::statistics`], and nobody began or stopped to work. Where all that
//! was compared had run only once on a side, nothing is known but large differences: the row is
//! *unknown* unless there is one.

use serde::Serialize;

use super::{Change, OutcomeChange};
use crate::report::view::RowView;

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
    #[must_use]
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
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.client, self.what.join(", "))
    }
}

/// What was found in one row.
#[derive(Debug, Default)]
pub(super) struct Findings<'a> {
    /// Figures that were compared.
    pub(super) figures: usize,
    /// How many of them ran more than once on both sides.
    pub(super) knowing: usize,
    pub(super) changes: &'a [Change],
    pub(super) outcomes: &'a [OutcomeChange],
}

/// The verdict on `row`; `None` when there was nothing to compare.
pub(super) fn of_row(row: &RowView<'_>, found: &Findings<'_>) -> Option<RowVerdict> {
    let verdict = if !found.changes.is_empty() || !found.outcomes.is_empty() {
        Verdict::Differs
    } else if found.knowing > 0 {
        Verdict::Agrees
    } else {
        Verdict::Unknown
    };
    let is_empty = found.figures == 0 && found.outcomes.is_empty();
    (!is_empty).then(|| RowVerdict {
        suite: row.table.suite.clone(),
        workload: row.row.workload.clone(),
        profile: row.row.profile.clone(),
        verdict,
        figures: found.figures,
        differing: differing(row, found),
    })
}

fn differing(row: &RowView<'_>, found: &Findings<'_>) -> Vec<Differing> {
    let mut lines = Vec::new();
    for client in &row.clients {
        let outcomes = found.outcomes.iter();
        let mut what: Vec<String> = outcomes
            .filter(|outcome| outcome.place.client == client.name)
            .map(|outcome| if outcome.mended { "works" } else { "fails" }.to_owned())
            .collect();
        let changes = found.changes.iter();
        let of_client = changes.filter(|change| change.place.client == client.name);
        what.extend(of_client.map(|change| change.figure.name()));
        if !what.is_empty() {
            lines.push(Differing {
                client: client.name.to_owned(),
                what,
            });
        }
    }
    lines
}
