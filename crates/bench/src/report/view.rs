//! A row joined with its clients: what was measured, what failed, what must be noted.
//!
//! Only runs without fault count; their figures are summarised. A client none of whose runs counts has no figures and a
//! reason instead, so it can neither win nor vanish. Clients that could not be run at all are left out of rows and named
//! once for the whole report.

use std::collections::BTreeSet;

use crate::{
    record::{Cell, Published, Report, Row, Sample, Table},
    report::{
        figure::{Aspect, Counts, Figure, Percentile},
        statistics::Summary,
    },
};

/// One row, ready to be shown.
#[derive(Clone, Debug)]
pub struct RowView<'a> {
    /// The table that it stands in.
    pub table: &'a Table,
    /// The row itself.
    pub row: &'a Row,
    /// What its workload counts.
    pub counts: Counts,
    /// Each client that was to run it, in the report's order.
    pub clients: Vec<ClientView<'a>>,
}

/// How the reason begins of a run that was not even tried.
const NOT_AVAILABLE: &str = "not available: ";

/// One client in one row.
#[derive(Clone, Debug)]
pub struct ClientView<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its place among [`Report::clients`], which decides its colour.
    pub index: usize,
    /// What its program says of itself. Two modes of one program say the same.
    program: Option<&'a str>,
    samples: &'a [Sample],
}

/// What became of a client in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// At least one run counts.
    Measured,
    /// All runs failed; the reason of the first.
    Failed(&'a str),
    /// It has not been run.
    NotRun,
}

/// Every row of `report` that can be run, in its order.
#[must_use]
pub fn rows(report: &Report) -> Vec<RowView<'_>> {
    let tables = report.tables.iter();
    let rows = tables.flat_map(|table| table.rows.iter().map(move |row| (table, row)));
    rows.filter(|(_, row)| row.unavailable.is_none())
        .map(|(table, row)| RowView::new(report, table, row))
        .collect()
}

impl<'a> RowView<'a> {
    /// Joins `row` of `table` with the clients of `report`.
    #[must_use]
    pub fn new(report: &'a Report, table: &'a Table, row: &'a Row) -> Self {
        let clients = report.clients.iter().enumerate();
        let view = |(index, client): (usize, &'a crate::record::Client)| {
            let cell = row.cells.iter().find(|cell| cell.client == client.name);
            let samples = cell.map_or(&[][..], |cell: &Cell| &cell.samples);
            let shown = client.missing.is_none() || !samples.is_empty();
            shown.then_some(ClientView {
                name: &client.name,
                index,
                program: client.version.as_deref(),
                samples,
            })
        };
        Self {
            table,
            row,
            counts: Counts::of(row),
            clients: clients.filter_map(view).collect(),
        }
    }

    /// "read-1 · lan".
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} · {}", self.row.workload, self.row.profile)
    }

    /// All clients but `client`.
    pub(super) fn others(&self, client: &ClientView<'a>) -> Vec<&ClientView<'a>> {
        let clients = self.clients.iter();
        clients.filter(|other| other.name != client.name).collect()
    }

    /// Whom `client` is compared with: other programs. Other modes of its own only when no other program
    /// is there.
    pub(super) fn rivals(&self, client: &ClientView<'a>) -> Vec<&ClientView<'a>> {
        let mut rivals = self.others(client);
        if !rivals.iter().all(|other| other.is_a_mode_like(client)) {
            rivals.retain(|other| !other.is_a_mode_like(client));
        }
        rivals
    }

    /// The figure that answers `aspect` here.
    #[must_use]
    pub fn figure(&self, aspect: Aspect) -> Figure {
        aspect.figure(self.counts)
    }

    /// The percentiles that any run has, in order.
    #[must_use]
    pub fn percentiles(&self) -> Vec<Percentile> {
        let samples = self.clients.iter().flat_map(ClientView::counted);
        let names = samples.flat_map(|sample| sample.latency_seconds.keys());
        let unique: BTreeSet<_> = names.filter_map(|name| Percentile::parse(name)).collect();
        unique.into_iter().collect()
    }

    /// The figures that say something here, the row's own speed and cost first.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures: Vec<Figure> = Aspect::ALL
            .into_iter()
            .map(|aspect| self.figure(aspect))
            .collect();
        if self.counts == Counts::Operations {
            figures.splice(1..1, [Figure::Bandwidth]);
            figures.splice(3..3, [Figure::CpuPerGib]);
        }
        figures.extend([Figure::Amplification, Figure::PeakDisk]);
        figures.extend(self.percentiles().into_iter().map(Figure::Latency));
        figures.retain(|figure| self.has(*figure));
        figures
    }

    /// Whether some client has `figure`, and for disk space that any was used.
    #[must_use]
    pub fn has(&self, figure: Figure) -> bool {
        let greatest = self.greatest(figure);
        greatest.is_some_and(|value| figure != Figure::PeakDisk || value > figure.negligible())
    }

    /// What the clients that have `figure` came to.
    pub(super) fn summaries(&self, figure: Figure) -> impl Iterator<Item = Summary> {
        let clients = self.clients.iter();
        clients.filter_map(move |client| client.summary(figure))
    }

    /// The greatest value that any run has, which decides the unit of the column.
    #[must_use]
    pub fn greatest(&self, figure: Figure) -> Option<f64> {
        let highs = self.summaries(figure).map(|summary| summary.high);
        highs.max_by(f64::total_cmp)
    }

    /// The best median. More than one client can have it.
    #[must_use]
    pub fn best(&self, figure: Figure) -> Option<f64> {
        let medians = self.summaries(figure).map(|summary| summary.median);
        medians.reduce(|a, b| if figure.is_better(b, a) { b } else { a })
    }

    /// Whether `client` has the best median of `figure`, and somebody has a worse one.
    #[must_use]
    pub fn is_best(&self, client: &ClientView<'_>, figure: Figure) -> bool {
        let mut medians = self.summaries(figure).map(|summary| summary.median);
        let best = self.best(figure);
        medians.any(|median| Some(median) != best)
            && client
                .summary(figure)
                .is_some_and(|own| Some(own.median) == best)
    }

    /// The clients, best first by `figure`; those without it last, in the report's order.
    #[must_use]
    pub fn sorted_by(&self, figure: Figure) -> Vec<&ClientView<'a>> {
        let mut sorted: Vec<_> = self.clients.iter().collect();
        let worst = if figure.more_is_better() {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        };
        let key = |client: &ClientView<'_>| client.summary(figure).map_or(worst, |own| own.median);
        sorted.sort_by(|a, b| {
            let order = key(a).total_cmp(&key(b));
            if figure.more_is_better() {
                order.reverse()
            } else {
                order
            }
        });
        sorted
    }

    /// What others published about it.
    #[must_use]
    pub fn published(&self) -> &'a [Published] {
        &self.row.published
    }

    /// How many runs each client has, as "3" or "2–3"; `None` before the first.
    #[must_use]
    pub fn repeats(&self) -> Option<String> {
        let counts = || {
            self.clients
                .iter()
                .map(|client| client.samples.len())
                .filter(|n| *n > 0)
        };
        let (least, most) = (counts().min()?, counts().max()?);
        Some(if least == most {
            format!("{most}")
        } else {
            format!("{least}–{most}")
        })
    }

    /// "3 runs each", or that a single one does not tell the noise; `None` before the first.
    #[must_use]
    pub fn runs(&self) -> Option<String> {
        let runs = self.repeats()?;
        Some(match runs.as_str() {
            "1" => "one run each, noise unknown".to_owned(),
            runs => format!("{runs} runs each"),
        })
    }

    /// Whether some client has results or failures.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.clients.iter().any(|client| !client.samples.is_empty())
    }
}

impl<'a> ClientView<'a> {
    fn is_a_mode_like(&self, other: &ClientView<'_>) -> bool {
        self.program.is_some() && self.program == other.program
    }

    /// The runs that count.
    pub fn counted(&self) -> impl Iterator<Item = &'a Sample> + use<'a> {
        self.samples
            .iter()
            .filter(|sample| sample.fault().is_none())
    }

    /// What became of it.
    #[must_use]
    pub fn outcome(&self) -> Outcome<'a> {
        if self.counted().next().is_some() {
            return Outcome::Measured;
        }
        let mut faults = self.samples.iter().filter_map(Sample::fault);
        faults.next().map_or(Outcome::NotRun, Outcome::Failed)
    }

    /// Why there are no figures: `failed: ...`, `not available: ...` or `not run`. `None` when there are some.
    #[must_use]
    pub fn absence(&self) -> Option<String> {
        match self.outcome() {
            Outcome::Measured => None,
            Outcome::Failed(reason) if reason.starts_with(NOT_AVAILABLE) => Some(reason.to_owned()),
            Outcome::Failed(reason) => Some(format!("failed: {}", reason.trim())),
            Outcome::NotRun => Some("not run".to_owned()),
        }
    }

    /// `figure` over the runs that count.
    #[must_use]
    pub fn summary(&self, figure: Figure) -> Option<Summary> {
        Summary::of(self.counted().filter_map(|sample| figure.of(sample)))
    }

    /// What a reader must know about figures that are shown: some runs failed, some were disturbed.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        if self.outcome() != Outcome::Measured {
            return Vec::new();
        }
        let failed = self.note("failed", Sample::fault);
        let disturbed = self.note("disturbed", |sample| sample.disturbed.as_deref());
        failed.into_iter().chain(disturbed).collect()
    }

    fn note(&self, word: &str, reason: fn(&Sample) -> Option<&str>) -> Option<String> {
        let reasons: Vec<&str> = self.samples.iter().filter_map(reason).collect();
        let first = reasons.first()?.trim();
        let (count, all) = (reasons.len(), self.samples.len());
        Some(format!("{count} of {all} runs {word}: {first}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::specimen;

    fn find<'a>(report: &'a Report, title: &str) -> RowView<'a> {
        let mut views = rows(report).into_iter();
        views
            .find(|view| view.title() == title)
            .expect("the specimen has this row")
    }

    fn client<'v, 'a>(view: &'v RowView<'a>, name: &str) -> &'v ClientView<'a> {
        view.clients
            .iter()
            .find(|client| client.name == name)
            .expect("the client")
    }

    #[test]
    fn a_client_that_always_failed_has_a_reason_and_no_figures() {
        let report = specimen::report();
        let view = find(&report, "read-4 · far");
        let failed = client(&view, "goofys");
        assert!(matches!(failed.outcome(), Outcome::Failed(_)));
        assert_eq!(failed.summary(Figure::Bandwidth), None);
        assert!(failed.absence().expect("a reason").starts_with("failed: "));
        assert!(failed.notes().is_empty());
    }

    #[test]
    fn a_failed_run_among_good_ones_is_noted_and_not_counted() {
        let report = specimen::report();
        let view = find(&report, "read-4 · far");
        let flaky = client(&view, "rclone");
        assert_eq!(flaky.outcome(), Outcome::Measured);
        assert_eq!(
            flaky
                .summary(Figure::Bandwidth)
                .map(|summary| summary.count),
            Some(2)
        );
        assert!(
            flaky.notes()[0].starts_with("1 of 3 runs failed: "),
            "{:?}",
            flaky.notes()
        );
    }

    #[test]
    fn missing_clients_are_not_in_rows_and_unavailable_rows_are_not_shown() {
        let report = specimen::report();
        let all = rows(&report);
        assert!(all.iter().all(|view| view.row.unavailable.is_none()));
        assert!(
            all.iter()
                .all(|view| view.clients.iter().all(|client| client.name != "juicefs"))
        );
    }

    #[test]
    fn best_and_order_follow_the_direction_of_the_figure() {
        let report = specimen::report();
        let view = find(&report, "read-1 · lan");
        assert_eq!(view.sorted_by(Figure::Bandwidth)[0].name, "penstock");
        assert_eq!(view.sorted_by(Figure::PeakMemory)[0].name, "s3fs");
        assert!(view.is_best(client(&view, "s3fs"), Figure::PeakMemory));
        assert!(!view.is_best(client(&view, "penstock"), Figure::PeakMemory));
    }

    #[test]
    fn a_row_shows_what_it_counts() {
        let report = specimen::report();
        assert_eq!(find(&report, "read-1 · lan").counts, Counts::Bytes);
        assert_eq!(
            find(&report, "small-files · lan").counts,
            Counts::Operations
        );
        assert_eq!(find(&report, "list · lan").counts, Counts::Time);
        assert!(
            find(&report, "small-files · lan")
                .figures()
                .contains(&Figure::CpuPerGib)
        );
    }
}
