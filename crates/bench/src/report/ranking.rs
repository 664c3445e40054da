//! Who is first, where, and by how much: the summary of every writer.
//!
//! Each row asks four questions ([`Aspect`]). A client is *first* in one when no other has a better median and it differs
//! from each of them beyond the noise ([`Summary::differs_from`]); it is *level* when the best of the others, or it itself
//! when behind, is within the noise; else it is *behind*. The others are other programs, not other modes of the same one,
//! unless only those ran. The summary is told about one client, the **subject**: the first
//! that was asked for and could be measured. Losses are listed before wins are explained.

use crate::{
    record::Report,
    report::{
        figure::{Aspect, Figure},
        statistics::Summary,
        units,
        view::{self, ClientView, RowView},
    },
};

/// Where a client stands against the best of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Better than every other, beyond the noise.
    First,
    /// As good as the best, within the noise.
    Level,
    /// Worse than the best, beyond the noise.
    Behind,
}

/// The answer to one question in one row.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The question.
    pub aspect: Aspect,
    /// The figure that answers it.
    pub figure: Figure,
    /// How the subject stands.
    pub standing: Standing,
    /// How many times better than the best of the others; below 1 when worse.
    pub advantage: f64,
    /// The best of the others.
    pub rival: &'a str,
    /// Whether both were run more than once.
    pub knows_noise: bool,
}

/// A row and the subject's places in it.
#[derive(Clone, Debug)]
pub struct RankedRow<'a> {
    /// The row.
    pub view: RowView<'a>,
    /// Answers, where the subject and at least one other have the figure.
    pub places: Vec<Place<'a>>,
    /// Why the subject has no figures here, when it has none.
    pub absence: Option<String>,
}

/// How often the subject stands where, for one question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Rows where it is first.
    pub first: usize,
    /// Rows where it is level.
    pub level: usize,
    /// Rows where it is behind.
    pub behind: usize,
    /// Advantages over the best of the others, ascending.
    pub advantages: Vec<f64>,
}

impl Tally {
    /// Rows that were compared.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.first + self.level + self.behind
    }

    /// The middle advantage.
    #[must_use]
    pub fn median_advantage(&self) -> Option<f64> {
        Summary::of(self.advantages.iter().copied()).map(|summary| summary.median)
    }
}

/// What the whole report says about its subject.
#[derive(Clone, Debug)]
pub struct Ranking<'a> {
    /// The client that the summary is about.
    pub subject: &'a str,
    /// Every row that has begun, in the report's order.
    pub rows: Vec<RankedRow<'a>>,
}

/// Ranks `report`; `None` when no client could be measured.
#[must_use]
pub fn rank(report: &Report) -> Option<Ranking<'_>> {
    let views: Vec<_> = view::rows(report)
        .into_iter()
        .filter(RowView::has_begun)
        .collect();
    let measured = |name: &str| {
        let mut clients = views.iter().flat_map(|view| &view.clients);
        clients.any(|client| client.name == name && client.counted().next().is_some())
    };
    let subject = report
        .clients
        .iter()
        .find(|client| measured(&client.name))?;
    let rows = views
        .into_iter()
        .filter_map(|view| RankedRow::new(view, &subject.name));
    Some(Ranking {
        subject: &subject.name,
        rows: rows.collect(),
    })
}

impl<'a> RankedRow<'a> {
    fn new(view: RowView<'a>, subject: &str) -> Option<Self> {
        let own = view.clients.iter().find(|client| client.name == subject)?;
        let places = Aspect::ALL.into_iter();
        let places = places
            .filter_map(|aspect| place((&view, own), &view.rivals(own), aspect))
            .collect();
        let absence = own.absence();
        Some(Self {
            places,
            absence,
            view,
        })
    }

    /// The subject's place for `aspect`.
    #[must_use]
    pub fn place(&self, aspect: Aspect) -> Option<&Place<'a>> {
        self.places.iter().find(|place| place.aspect == aspect)
    }
}

impl<'a> Ranking<'a> {
    /// The rows in which the subject can be compared or is missing; none when it can be compared nowhere.
    #[must_use]
    pub fn compared(&self) -> Vec<&RankedRow<'a>> {
        let is_told = |row: &&RankedRow<'_>| !row.places.is_empty() || row.absence.is_some();
        let rows: Vec<_> = self.rows.iter().filter(is_told).collect();
        match rows.iter().all(|row| row.places.is_empty()) {
            true => Vec::new(),
            false => rows,
        }
    }
}

impl Ranking<'_> {
    /// "penstock is 1.33× as fast as the next, ossfs2." in whatever way it is true of `view`.
    #[must_use]
    pub fn sentence_about(&self, view: &RowView<'_>) -> Option<String> {
        let mut rows = self.rows.iter();
        let row = rows.find(|row| std::ptr::eq(row.view.row, view.row))?;
        let subject = self.subject;
        if let Some(absence) = &row.absence {
            return Some(format!("{subject} {absence}."));
        }
        let place = row.place(Aspect::Speed)?;
        let rival = place.rival;
        Some(match place.standing {
            Standing::First => {
                let times = units::factor(place.advantage);
                format!("{subject} is {times} as fast as the next, {rival}.")
            }
            Standing::Level => format!("{subject} and {rival} are as fast, within the noise."),
            Standing::Behind => {
                let times = units::factor(1.0 / place.advantage);
                format!("{rival} is {times} as fast as {subject}.")
            }
        })
    }

    /// How often the subject stands where in `aspect`.
    #[must_use]
    pub fn tally(&self, aspect: Aspect) -> Tally {
        let mut tally = Tally::default();
        for place in self.rows.iter().filter_map(|row| row.place(aspect)) {
            match place.standing {
                Standing::First => tally.first += 1,
                Standing::Level => tally.level += 1,
                Standing::Behind => tally.behind += 1,
            }
            tally.advantages.push(place.advantage);
        }
        tally.advantages.sort_by(f64::total_cmp);
        tally
    }

    /// Every place that is behind: speed before all else, and in each aspect the worst first.
    #[must_use]
    pub fn losses(&self) -> Vec<(&RankedRow<'_>, &Place<'_>)> {
        let places = self
            .rows
            .iter()
            .flat_map(|row| row.places.iter().map(move |place| (row, place)));
        let mut losses: Vec<_> = places
            .filter(|(_, place)| place.standing == Standing::Behind)
            .collect();
        losses.sort_by(|a, b| {
            let by_size = a.1.advantage.total_cmp(&b.1.advantage);
            a.1.aspect.cmp(&b.1.aspect).then(by_size)
        });
        losses
    }

    /// The finding in one sentence, for a heading.
    #[must_use]
    pub fn headline(&self) -> String {
        let tally = self.tally(Aspect::Speed);
        let subject = self.subject;
        let all = tally.rows();
        match tally.first {
            _ if all == 0 => format!("{subject} ran alone: there is nobody to compare it with"),
            _ if all == 1 && tally.level == 1 => format!("{subject} is as fast as the best"),
            _ if all == 1 && tally.behind == 1 => format!("{subject} is not the fastest"),
            first if first == all && all == 1 => format!("{subject} is the fastest"),
            first if first == all => format!("{subject} is the fastest in all {all} rows"),
            0 if tally.behind == 0 => format!("{subject} is as fast as the best in all {all} rows"),
            0 => format!("{subject} is the fastest in none of {all} rows"),
            first => format!("{subject} is the fastest in {first} of {all} rows"),
        }
    }

    /// One sentence for each aspect: how often first, level, behind, and by how much in the middle.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let aspects = Aspect::ALL
            .into_iter()
            .map(|aspect| (aspect, self.tally(aspect)));
        let told = aspects.filter(|(_, tally)| tally.rows() > 0);
        let told = told.map(|(aspect, tally)| format!("{}: {}.", aspect.name(), tally.sentence()));
        told.chain(self.caution().map(str::to_owned)).collect()
    }

    /// What must be said before all numbers: nothing was repeated, when that is so.
    #[must_use]
    pub fn caution(&self) -> Option<&'static str> {
        let mut places = self.rows.iter().flat_map(|row| &row.places).peekable();
        places.peek()?;
        let text = "Every client ran once, so the noise is unknown: what differs by less than 20 % counts as level.";
        places.all(|place| !place.knows_noise).then_some(text)
    }

    /// One line for each loss: the row, the figure, who is better and how many times.
    #[must_use]
    pub fn loss_lines(&self) -> Vec<String> {
        let line = |(row, place): (&RankedRow<'_>, &Place<'_>)| {
            // Said once for all by `caution` when no row was repeated.
            let is_doubtful = !place.knows_noise && self.caution().is_none();
            let doubt = if is_doubtful { ", noise unknown" } else { "" };
            let (title, suite) = (row.view.title(), &row.view.table.suite);
            format!("{title}: {}{doubt} (suite {suite})", place.loss())
        };
        self.losses().into_iter().map(line).collect()
    }

    /// One line for each row that the subject could not do.
    #[must_use]
    pub fn absences(&self) -> Vec<String> {
        let absent = self
            .rows
            .iter()
            .filter_map(|row| Some((row, row.absence.as_ref()?)));
        let line = |(row, absence): (&RankedRow<'_>, &String)| {
            format!(
                "{}: {absence} (suite {})",
                row.view.title(),
                row.view.table.suite
            )
        };
        absent.map(line).collect()
    }

    /// How often each client is the best, or as good as it, in each aspect: the table that does not take sides.
    #[must_use]
    pub fn scoreboard(&self) -> Vec<(&str, [usize; Aspect::ALL.len()])> {
        let mut names: Vec<&str> = Vec::new();
        for client in self.rows.iter().flat_map(|row| &row.view.clients) {
            if !names.contains(&client.name) {
                names.push(client.name);
            }
        }
        let wins = |name: &str| Aspect::ALL.map(|aspect| self.best_count(name, aspect));
        let mut board: Vec<_> = names.iter().map(|name| (*name, wins(name))).collect();
        board.sort_by_key(|(_, wins)| std::cmp::Reverse(*wins));
        board
    }

    fn best_count(&self, name: &str, aspect: Aspect) -> usize {
        let leads = |row: &&RankedRow<'_>| {
            let own = row.view.clients.iter().find(|client| client.name == name);
            own.and_then(|own| place((&row.view, own), &row.view.others(own), aspect))
                .is_some_and(|place| place.standing != Standing::Behind)
        };
        self.rows.iter().filter(leads).count()
    }
}

impl Place<'_> {
    /// "ossfs2 1.4× faster", "s3fs 3.1× less memory".
    fn loss(&self) -> String {
        let times = super::units::factor(1.0 / self.advantage);
        let word = match self.aspect {
            Aspect::Speed => "faster",
            Aspect::Processor => "less CPU",
            Aspect::Memory => "less memory",
            Aspect::Requests => "fewer requests",
        };
        format!("{} {times} {word}", self.rival)
    }
}

impl Tally {
    /// "first in 9 of 11 rows, level in 1, behind in 1; in the middle 1.5× better than the best of the others".
    #[must_use]
    pub fn sentence(&self) -> String {
        let mut text = format!("first in {} of {} rows", self.first, self.rows());
        for (word, count) in [("level", self.level), ("behind", self.behind)] {
            if count > 0 {
                text.push_str(&format!(", {word} in {count}"));
            }
        }
        if let Some(middle) = self.median_advantage() {
            text.push_str(&format!("; {} of the others", against_best(middle)));
        }
        text
    }
}

/// "typically 1.5× better than the best", "typically 1.5× worse than the best", "typically level with the best".
pub(super) fn against_best(advantage: f64) -> String {
    if (advantage - 1.0).abs() < 0.005 {
        return "typically level with the best".to_owned();
    }
    let (times, word) = if advantage >= 1.0 {
        (advantage, "better")
    } else {
        (1.0 / advantage, "worse")
    };
    format!(
        "typically {} {word} than the best",
        super::units::factor(times)
    )
}

/// Where `own` stands among `rivals`.
fn place<'a>(
    (view, own): (&RowView<'a>, &ClientView<'a>),
    rivals: &[&ClientView<'a>],
    aspect: Aspect,
) -> Option<Place<'a>> {
    let figure = view.figure(aspect);
    let mine = own.summary(figure)?;
    let rivals = rivals.iter();
    let rivals = rivals.filter_map(|client| Some((client.name, client.summary(figure)?)));
    let (rival, best) = rivals.reduce(|a, b| {
        if figure.is_better(b.1.median, a.1.median) {
            b
        } else {
            a
        }
    })?;
    let far_apart =
        mine.differs_from(&best) && (mine.median - best.median).abs() > figure.negligible();
    let standing = match far_apart {
        false => Standing::Level,
        true if figure.is_better(mine.median, best.median) => Standing::First,
        true => Standing::Behind,
    };
    let advantage = figure.advantage(mine.median, best.median);
    let knows_noise = mine.knows_noise_with(&best);
    Some(Place {
        aspect,
        figure,
        standing,
        advantage,
        rival,
        knows_noise,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::specimen;

    #[test]
    fn the_subject_is_the_first_client_that_was_measured() {
        let mut report = specimen::report();
        report.clients.rotate_right(1);
        report.clients[0].missing = Some("not on PATH".to_owned());
        assert_eq!(rank(&report).expect("ranked").subject, "penstock");
    }

    #[test]
    fn losses_are_told_worst_first() {
        let report = specimen::report();
        let ranking = rank(&report).expect("ranked");
        let losses = ranking.losses();
        assert!(!losses.is_empty());
        assert!(losses.iter().all(|(_, place)| place.advantage < 1.0));
        let key = |place: &Place<'_>| (place.aspect, place.advantage);
        assert!(losses.is_sorted_by(|a, b| key(a.1) <= key(b.1)));
        let lines = ranking.loss_lines();
        assert!(
            lines
                .iter()
                .any(|line| line.contains("read-1 · lan: s3fs 3.1× less memory")),
            "{lines:#?}"
        );
    }

    #[test]
    fn other_modes_of_the_same_program_are_no_rivals_unless_they_ran_alone() {
        let mut report = specimen::report();
        let own = report.clients[0].version.clone();
        let mode = report
            .clients
            .iter_mut()
            .find(|client| client.name == "s3fs");
        mode.expect("it is there").version.clone_from(&own);
        let losses = |report: &Report| rank(report).expect("ranked").loss_lines().concat();
        assert!(!losses(&report).contains("s3fs"));
        report.clients.retain(|client| client.version == own);
        assert!(losses(&report).contains("s3fs"));
    }

    #[test]
    fn a_margin_within_the_noise_is_level() {
        let report = specimen::report();
        let ranking = rank(&report).expect("ranked");
        let tally = ranking.tally(Aspect::Speed);
        assert!(tally.level > 0 && tally.first > 0, "{tally:?}");
        let sum: usize = ranking
            .rows
            .iter()
            .filter(|row| row.place(Aspect::Speed).is_some())
            .count();
        assert_eq!(tally.rows(), sum);
    }

    #[test]
    fn what_was_never_repeated_is_said_once() {
        let mut report = specimen::report();
        assert_eq!(rank(&report).and_then(|ranking| ranking.caution()), None);
        let rows = report.tables.iter_mut().flat_map(|table| &mut table.rows);
        rows.flat_map(|row| &mut row.cells)
            .for_each(|cell| cell.samples.truncate(1));
        let ranking = rank(&report).expect("ranked");
        assert!(
            ranking
                .sentences()
                .iter()
                .any(|line| line.starts_with("Every client ran once"))
        );
        assert!(!ranking.loss_lines().concat().contains("noise unknown"));
    }

    #[test]
    fn nobody_measured_is_no_ranking() {
        assert!(rank(&specimen::empty()).is_none());
    }

    #[test]
    fn a_subject_that_ran_alone_claims_nothing() {
        let mut report = specimen::report();
        report.clients.truncate(1);
        let ranking = rank(&report).expect("ranked");
        assert!(
            ranking.headline().contains("ran alone"),
            "{}",
            ranking.headline()
        );
        assert!(ranking.sentences().is_empty());
    }

    #[test]
    fn the_scoreboard_names_every_client_that_ran() {
        let report = specimen::report();
        let ranking = rank(&report).expect("ranked");
        let board = ranking.scoreboard();
        assert_eq!(board[0].0, "penstock");
        assert!(
            board
                .iter()
                .any(|(name, wins)| *name == "s3fs" && wins[2] > 0)
        );
    }
}
