//! What a report comes to: each row with its clients, and who is first, where, and by how much.
//!
//! A [`RowView`] joins a row with the clients that were to run it. Only runs without fault count. A client none of whose
//! runs counts has a reason instead of figures, so it can neither win nor vanish; clients that could not be run at all are
//! left out of rows and named once for the whole report.
//!
//! Each row asks four questions ([`Aspect`]). A client is *first* in one when no other has a better median and it differs
//! from each of them beyond the noise ([`Summary::differs_from`]); it is *level* when the best of the others, or it itself
//! when behind, is within the noise; else it is *behind*. The others are other programs, not other modes of the same one,
//! unless only those ran. A [`Ranking`] is told about one client, the **subject**: the first that was asked for and could
//! be measured. Losses are listed before wins are explained.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    record::{Cell, Report, Row, Sample, Table},
    report::{
        figure::{Aspect, Counts, Figure, Percentile},
        statistics::Summary,
        units,
    },
};

/// How the reason begins of a run that was not even tried.
const NOT_AVAILABLE: &str = "not available: ";

/// One row, ready to be shown.
#[derive(Clone, Debug)]
pub(crate) struct RowView<'a> {
    pub(crate) table: &'a Table,
    pub(crate) row: &'a Row,
    pub(crate) counts: Counts,
    /// Each client that was to run it, in the report's order.
    pub(crate) clients: Vec<ClientView<'a>>,
}

#[derive(Clone, Debug)]
pub(crate) struct ClientView<'a> {
    pub(crate) name: &'a str,
    /// Its place among [`Report::clients`], which decides its colour.
    pub(crate) index: usize,
    /// What its program says of itself. Two modes of one program say the same.
    program: Option<&'a str>,
    samples: &'a [Sample],
}

/// What became of a client in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome<'a> {
    Measured,
    /// All runs failed; the reason of the first.
    Failed(&'a str),
    NotRun,
}

/// Every row of `report` that can be run, in its order.
pub(crate) fn rows(report: &Report) -> Vec<RowView<'_>> {
    let tables = report.tables.iter();
    let rows = tables.flat_map(|table| table.rows.iter().map(move |row| (table, row)));
    rows.filter(|(_, row)| row.unavailable.is_none())
        .map(|(table, row)| RowView::new(report, table, row))
        .collect()
}

impl<'a> RowView<'a> {
    pub(crate) fn new(report: &'a Report, table: &'a Table, row: &'a Row) -> Self {
        let clients = report.clients.iter().enumerate();
        let clients = clients.filter_map(|(index, client)| {
            let cell = row.cells.iter().find(|cell| cell.client == client.name);
            let samples = cell.map_or(&[][..], |cell: &Cell| &cell.samples);
            let shown = client.missing.is_none() || !samples.is_empty();
            shown.then_some(ClientView {
                name: &client.name,
                index,
                program: client.version.as_deref(),
                samples,
            })
        });
        Self {
            table,
            row,
            counts: Counts::of(row),
            clients: clients.collect(),
        }
    }

    pub(crate) fn title(&self) -> String {
        format!("{} · {}", self.row.workload, self.row.profile)
    }

    pub(crate) fn client(&self, name: &str) -> Option<&ClientView<'a>> {
        self.clients.iter().find(|client| client.name == name)
    }

    /// Whom `client` is compared with: other programs. Other modes of its own only when no other program
    /// is there.
    fn rivals(&self, client: &ClientView<'a>) -> Vec<&ClientView<'a>> {
        let is_mode =
            |other: &ClientView<'_>| client.program.is_some() && client.program == other.program;
        let mut rivals = self.others(client);
        if !rivals.iter().all(|other| is_mode(other)) {
            rivals.retain(|other| !is_mode(other));
        }
        rivals
    }

    fn others(&self, client: &ClientView<'a>) -> Vec<&ClientView<'a>> {
        let clients = self.clients.iter();
        clients.filter(|other| other.name != client.name).collect()
    }

    pub(crate) fn figure(&self, aspect: Aspect) -> Figure {
        aspect.figure(self.counts)
    }

    pub(super) fn percentiles(&self) -> BTreeSet<Percentile> {
        let samples = self.clients.iter().flat_map(ClientView::counted);
        let names = samples.flat_map(|sample| sample.latency_seconds.keys());
        names.filter_map(|name| Percentile::parse(name)).collect()
    }

    /// The figures that say something here, the row's own speed and cost first.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let mut figures = Aspect::ALL.map(|aspect| self.figure(aspect)).to_vec();
        if self.counts == Counts::Operations {
            figures.splice(1..1, [Figure::Bandwidth]);
            figures.splice(4..4, [Figure::CpuPerGib]);
            if self.has(Figure::Stored) {
                figures.splice(1..1, [Figure::Duration]);
                figures.push(Figure::BytesPerOperation);
            }
        }
        figures.extend([Figure::Amplification, Figure::PeakDisk]);
        figures.extend(self.percentiles().into_iter().map(Figure::Latency));
        figures.retain(|figure| self.has(*figure));
        figures
    }

    /// Whether `figure` says in bytes what the row says in operations.
    pub(crate) fn says_again(&self, figure: Figure) -> bool {
        self.counts == Counts::Operations && matches!(figure, Figure::Bandwidth | Figure::CpuPerGib)
    }

    /// Whether some client has `figure`, and for disk space that any was used.
    pub(super) fn has(&self, figure: Figure) -> bool {
        let greatest = self.greatest(figure);
        greatest.is_some_and(|value| figure != Figure::PeakDisk || value > figure.negligible())
    }

    fn summaries(&self, figure: Figure) -> impl Iterator<Item = Summary> {
        let clients = self.clients.iter();
        clients.filter_map(move |client| client.summary(figure))
    }

    /// The greatest value that any run has, which decides the unit of the column.
    pub(crate) fn greatest(&self, figure: Figure) -> Option<f64> {
        let highs = self.summaries(figure).map(|summary| summary.high);
        highs.max_by(f64::total_cmp)
    }

    /// Whether `client` has the best median of `figure`, and somebody has a worse one.
    pub(crate) fn is_best(&self, client: &ClientView<'_>, figure: Figure) -> bool {
        let medians = || self.summaries(figure).map(|summary| summary.median);
        let best = medians().reduce(|a, b| if figure.is_better(b, a) { b } else { a });
        let own = client.summary(figure).map(|own| own.median);
        own.is_some() && own == best && medians().any(|median| Some(median) != best)
    }

    /// The clients, best first by `figure`; those without it last, in the report's order.
    pub(crate) fn sorted_by(&self, figure: Figure) -> Vec<&ClientView<'a>> {
        let sign = if figure.more_is_better() { -1.0 } else { 1.0 };
        let key = |client: &ClientView<'_>| {
            let own = client.summary(figure);
            own.map_or(f64::INFINITY, |own| sign * own.median)
        };
        let mut sorted: Vec<_> = self.clients.iter().collect();
        sorted.sort_by(|a, b| key(a).total_cmp(&key(b)));
        sorted
    }

    /// How many runs each client has, as "3" or "2–3"; `None` before the first.
    pub(crate) fn repeats(&self) -> Option<String> {
        let counts = self.clients.iter().map(|client| client.samples.len());
        let counts: BTreeSet<usize> = counts.filter(|count| *count > 0).collect();
        let (least, most) = (counts.first()?, counts.last()?);
        Some(match least == most {
            true => format!("{most}"),
            false => format!("{least}–{most}"),
        })
    }

    /// "3 runs each", or that a single one does not tell the noise; `None` before the first.
    pub(super) fn runs(&self) -> Option<String> {
        Some(match self.repeats()?.as_str() {
            "1" => "one run each, noise unknown".to_owned(),
            runs => format!("{runs} runs each"),
        })
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.clients.iter().any(|client| !client.samples.is_empty())
    }
}

impl<'a> ClientView<'a> {
    /// The runs that count.
    pub(crate) fn counted(&self) -> impl Iterator<Item = &'a Sample> + use<'a> {
        let samples = self.samples.iter();
        samples.filter(|sample| sample.fault().is_none())
    }

    pub(crate) fn outcome(&self) -> Outcome<'a> {
        if self.counted().next().is_some() {
            return Outcome::Measured;
        }
        let mut faults = self.samples.iter().filter_map(Sample::fault);
        faults.next().map_or(Outcome::NotRun, Outcome::Failed)
    }

    /// Why there are no figures: `failed: ...`, `not available: ...` or `not run`. `None` when there are some.
    pub(crate) fn absence(&self) -> Option<String> {
        match self.outcome() {
            Outcome::Measured => None,
            Outcome::Failed(reason) if reason.starts_with(NOT_AVAILABLE) => Some(reason.to_owned()),
            Outcome::Failed(reason) => Some(format!("failed: {}", reason.trim())),
            Outcome::NotRun => Some("not run".to_owned()),
        }
    }

    pub(crate) fn summary(&self, figure: Figure) -> Option<Summary> {
        Summary::of(self.counted().filter_map(|sample| figure.of(sample)))
    }

    /// What a reader must know about figures that are shown: some runs failed, some were disturbed.
    pub(crate) fn notes(&self) -> Vec<String> {
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

/// Where a client stands against the best of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    /// Better than every other, beyond the noise.
    First,
    /// As good as the best, within the noise.
    Level,
    /// Worse than the best, beyond the noise.
    Behind,
}

#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) aspect: Aspect,
    pub(crate) standing: Standing,
    /// How many times better than the best of the others; below 1 when worse.
    pub(crate) advantage: f64,
    pub(crate) rival: &'a str,
    pub(crate) knows_noise: bool,
}

impl<'a> Place<'a> {
    /// Where `own` stands among `rivals`; `None` when there is nothing to compare.
    fn of(
        (view, own): (&RowView<'a>, &ClientView<'a>),
        rivals: &[&ClientView<'a>],
        aspect: Aspect,
    ) -> Option<Self> {
        let figure = view.figure(aspect);
        let mine = own.summary(figure)?;
        let rivals = rivals.iter();
        let rivals = rivals.filter_map(|client| Some((client.name, client.summary(figure)?)));
        let better = |a: &(_, Summary), b: &(_, Summary)| figure.is_better(b.1.median, a.1.median);
        let (rival, best) = rivals.reduce(|a, b| if better(&a, &b) { b } else { a })?;
        let apart = (mine.median - best.median).abs() > figure.negligible();
        let standing = match mine.differs_from(&best) && apart {
            false => Standing::Level,
            true if figure.is_better(mine.median, best.median) => Standing::First,
            true => Standing::Behind,
        };
        Some(Self {
            aspect,
            standing,
            advantage: figure.advantage(mine.median, best.median),
            rival,
            knows_noise: mine.knows_noise_with(&best),
        })
    }

    /// "1.33× better", "level", "3.1× worse".
    pub(super) fn verdict(&self) -> String {
        match self.standing {
            Standing::Level => "level".to_owned(),
            Standing::First => format!("{} better", units::factor(self.advantage)),
            Standing::Behind => format!("{} worse", units::factor(1.0 / self.advantage)),
        }
    }

    /// "ossfs2 1.4× faster", "s3fs 3.1× less memory".
    fn loss(&self) -> String {
        let word = match self.aspect {
            Aspect::Speed => "faster",
            Aspect::Stored => "sooner stored",
            Aspect::Processor => "less CPU",
            Aspect::Memory => "less memory",
            Aspect::Requests => "fewer requests",
        };
        format!(
            "{} {} {word}",
            self.rival,
            units::factor(1.0 / self.advantage)
        )
    }
}

/// A row and the subject's places in it.
#[derive(Clone, Debug)]
pub(crate) struct RankedRow<'a> {
    pub(crate) view: RowView<'a>,
    /// Answers, where the subject and at least one other have the figure.
    pub(crate) places: Vec<Place<'a>>,
    /// Why the subject has no figures here, when it has none.
    pub(crate) absence: Option<String>,
}

impl<'a> RankedRow<'a> {
    fn new(view: RowView<'a>, subject: &str) -> Option<Self> {
        let own = view.client(subject)?;
        let rivals = view.rivals(own);
        let places = Aspect::ALL.into_iter();
        let places = places.filter_map(|aspect| Place::of((&view, own), &rivals, aspect));
        Some(Self {
            places: places.collect(),
            absence: own.absence(),
            view,
        })
    }

    pub(crate) fn place(&self, aspect: Aspect) -> Option<&Place<'a>> {
        self.places.iter().find(|place| place.aspect == aspect)
    }

    fn told(&self, what: &str) -> String {
        format!(
            "{}: {what} (suite {})",
            self.view.title(),
            self.view.table.suite
        )
    }
}

/// What the whole report says about its subject.
#[derive(Clone, Debug)]
pub(crate) struct Ranking<'a> {
    pub(crate) subject: &'a str,
    /// Every row that has begun, in the report's order.
    pub(crate) rows: Vec<RankedRow<'a>>,
}

/// Ranks `report`; `None` when no client could be measured.
pub(crate) fn rank(report: &Report) -> Option<Ranking<'_>> {
    let mut views = rows(report);
    views.retain(RowView::has_begun);
    let is_measured = |name: &str| {
        let mut clients = views.iter().filter_map(|view| view.client(name));
        clients.any(|client| client.outcome() == Outcome::Measured)
    };
    let mut names = report.clients.iter().map(|client| client.name.as_str());
    let subject = names.find(|name| is_measured(name))?;
    let rows = views.into_iter();
    let rows = rows.filter_map(|view| RankedRow::new(view, subject));
    Some(Ranking {
        subject,
        rows: rows.collect(),
    })
}

impl<'a> Ranking<'a> {
    fn places(&self, aspect: Aspect) -> impl Iterator<Item = &Place<'a>> {
        self.rows.iter().filter_map(move |row| row.place(aspect))
    }

    /// What at least one row is about.
    pub(crate) fn aspects(&self) -> Vec<Aspect> {
        let is_told = |aspect: &Aspect| self.places(*aspect).next().is_some();
        Aspect::ALL.into_iter().filter(is_told).collect()
    }

    /// In how many rows the subject is first, level and behind in `aspect`.
    pub(crate) fn tally(&self, aspect: Aspect) -> [usize; 3] {
        [Standing::First, Standing::Level, Standing::Behind].map(|standing| {
            let places = self.places(aspect);
            places.filter(|place| place.standing == standing).count()
        })
    }

    /// The rows in which the subject can be compared or is missing; none when it can be compared nowhere.
    pub(super) fn compared(&self) -> Vec<&RankedRow<'a>> {
        let is_told = |row: &&RankedRow<'_>| !row.places.is_empty() || row.absence.is_some();
        let rows: Vec<_> = self.rows.iter().filter(is_told).collect();
        match rows.iter().all(|row| row.places.is_empty()) {
            true => Vec::new(),
            false => rows,
        }
    }

    /// Every place that is behind: speed before all else, and in each aspect the worst first.
    pub(crate) fn losses(&self) -> Vec<(&RankedRow<'a>, &Place<'a>)> {
        let rows = self.rows.iter();
        let places = rows.flat_map(|row| row.places.iter().map(move |place| (row, place)));
        let is_loss = |(_, place): &(_, &Place<'_>)| place.standing == Standing::Behind;
        let mut losses: Vec<_> = places.filter(is_loss).collect();
        losses.sort_by(|(_, a), (_, b)| {
            let by_size = a.advantage.total_cmp(&b.advantage);
            a.aspect.cmp(&b.aspect).then(by_size)
        });
        losses
    }

    /// One line for each loss (the row, the figure, who is better and how many times), then one for each row that the
    /// subject could not do.
    pub(crate) fn behind(&self) -> Vec<String> {
        let is_told = self.caution().is_some();
        let losses = self.losses().into_iter().map(|(row, place)| {
            // Said once for all by `caution` when no row was repeated.
            let is_doubtful = !place.knows_noise && !is_told;
            row.told(&(place.loss() + if is_doubtful { ", noise unknown" } else { "" }))
        });
        let rows = self.rows.iter();
        let absent = rows.filter_map(|row| Some(row.told(row.absence.as_ref()?)));
        losses.chain(absent).collect()
    }

    /// The finding in one sentence, for a heading.
    pub(crate) fn headline(&self) -> String {
        let subject = self.subject;
        let [first, level, behind] = self.tally(Aspect::Speed);
        let rows = first + level + behind;
        match (first, behind) {
            _ if rows == 0 => format!("{subject} ran alone: there is nobody to compare it with"),
            (1, _) if rows == 1 => format!("{subject} is the fastest"),
            (0, 0) if rows == 1 => format!("{subject} is as fast as the best"),
            (0, _) if rows == 1 => format!("{subject} is not the fastest"),
            (first, _) if first == rows => format!("{subject} is the fastest in all {rows} rows"),
            (0, 0) => format!("{subject} is as fast as the best in all {rows} rows"),
            (0, _) => format!("{subject} is the fastest in none of {rows} rows"),
            (first, _) => format!("{subject} is the fastest in {first} of {rows} rows"),
        }
    }

    /// One sentence for each aspect: how often first, level, behind, and by how much in the middle.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let aspects = Aspect::ALL.into_iter();
        let told = aspects.filter_map(|aspect| self.sentence(aspect));
        told.chain(self.caution().map(str::to_owned)).collect()
    }

    /// "Speed: first in 9 of 11 rows, level in 1, behind in 1; typically 1.5× better than the best of the others."
    fn sentence(&self, aspect: Aspect) -> Option<String> {
        let middle = Summary::of(self.places(aspect).map(|place| place.advantage))?;
        let [first, level, behind] = self.tally(aspect);
        let rows = first + level + behind;
        let mut text = format!("{}: first in {first} of {rows} rows", aspect.name());
        for (word, count) in [("level", level), ("behind", behind)] {
            if count > 0 {
                text += &format!(", {word} in {count}");
            }
        }
        Some(format!("{text}; {}.", typically(middle.median)))
    }

    /// What must be said before all numbers: nothing was repeated, when that is so.
    pub(crate) fn caution(&self) -> Option<&'static str> {
        let mut places = self.rows.iter().flat_map(|row| &row.places).peekable();
        places.peek()?;
        let text = "Every client ran once, so the noise is unknown: what differs by less than 20 % counts as level.";
        places.all(|place| !place.knows_noise).then_some(text)
    }

    /// How often each client is the best, or as good as it, in each aspect: the table that does not take sides.
    pub(crate) fn scoreboard(&self) -> Vec<(&'a str, Vec<usize>)> {
        let aspects = self.aspects();
        let mut board: Vec<(&str, Vec<usize>)> = Vec::new();
        for view in self.rows.iter().map(|row| &row.view) {
            for client in &view.clients {
                let leads = |aspect: &Aspect| {
                    let place = Place::of((view, client), &view.others(client), *aspect);
                    place.is_some_and(|place| place.standing != Standing::Behind)
                };
                let wins = aspects.iter().map(|aspect| usize::from(leads(aspect)));
                let wins: Vec<usize> = wins.collect();
                match board.iter_mut().find(|(name, _)| *name == client.name) {
                    Some((_, sums)) => sums.iter_mut().zip(wins).for_each(|(sum, win)| *sum += win),
                    None => board.push((client.name, wins)),
                }
            }
        }
        board.sort_by(|(_, a), (_, b)| b.cmp(a));
        board
    }
}

/// "typically 1.5× better than the best of the others", or worse, or level with it.
fn typically(advantage: f64) -> String {
    let relation = match advantage {
        _ if (advantage - 1.0).abs() < 0.005 => "level with".to_owned(),
        1.0.. => format!("{} better than", units::factor(advantage)),
        _ => format!("{} worse than", units::factor(1.0 / advantage)),
    };
    format!("typically {relation} the best of the others")
}

#[cfg(test)]
mod tests;
