//! What is shown of a suite, and in which order.
//!
//! Rows of one workload stand together. Rows whose names differ only in the number at their end (`random-read-4`,
//! `random-read-8`, ...) are a *family* when there are at least three of them: they become curves, where the first of them
//! would stand. What the number counts is taken from the descriptions: the word that follows the number in each ("4 threads
//! read ...": threads). A workload that ran at several latency profiles is followed by curves along its *distance* to the
//! store.
//!
//! All three are a [`Section`]: charts under a heading with their notes, and the numbers of the rows that they show as
//! [`RowText`]. Each writer turns the same sections into its own form.

use std::{collections::BTreeSet, time::Duration};

use serde::Serialize;

use crate::{
    record::{Published, Row, Table},
    report::{
        chart::{self, Chart, ELSEWHERE, Series},
        figure::{Aspect, Figure, Percentile},
        published,
        statistics::Summary,
        summary::{ClientView, Outcome, RowView},
        units,
    },
    settings,
};

/// Two points are two bars; a curve begins at three.
const FAMILY_MIN: usize = 3;
/// Two profiles are a difference worth a line.
const DISTANCE_MIN: usize = 2;

#[derive(Debug, Default, Serialize)]
pub(super) struct Section<'a> {
    /// What is done: the first sentence of a description, or "Random read: 4 to 1,024 threads".
    pub(super) title: String,
    pub(super) rest: &'a str,
    /// The workload, or what the names of a family have in common.
    pub(super) name: &'a str,
    /// The latency profile, or "by distance".
    pub(super) tag: &'a str,
    pub(super) runs: Option<String>,
    pub(super) charts: Vec<Chart>,
    /// What failed, what was disturbed, who did not run.
    pub(super) notes: Vec<String>,
    pub(super) rows: Vec<RowText<'a>>,
}

#[derive(Debug, Serialize)]
pub(super) struct RowText<'a> {
    pub(super) title: String,
    pub(super) repeats: Option<String>,
    pub(super) row: &'a Row,
    pub(super) columns: Vec<Column>,
    pub(super) lines: Vec<Line<'a>>,
    /// The columns of what others published.
    pub(super) elsewhere: BTreeSet<&'a str>,
}

#[derive(Debug, Serialize)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) short_name: String,
    pub(super) unit: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct Line<'a> {
    pub(super) client: &'a str,
    pub(super) class: String,
    pub(super) notes: Vec<String>,
    /// Why there are no figures.
    pub(super) absence: Option<String>,
    /// One for each column, where the client has the figure.
    pub(super) cells: Vec<Option<Number>>,
}

#[derive(Debug, Serialize)]
pub(super) struct Number {
    pub(super) number: String,
    pub(super) spread: String,
    pub(super) best: bool,
}

impl<'a> RowText<'a> {
    pub(super) fn of(view: &RowView<'a>) -> Self {
        Self::with(view, &view.figures())
    }

    /// `view` with these figures; the clients are in the order of their speed.
    pub(super) fn with(view: &RowView<'a>, figures: &[Figure]) -> Self {
        let clients = view.sorted_by(view.figure(Aspect::Speed)).into_iter();
        let elsewhere = view.row.published.iter().flat_map(|it| it.figures.keys());
        let lines = clients.map(|client| Line::of(view, client, figures));
        let column = |figure: &Figure| Column {
            name: figure.name(),
            short_name: figure.short_name(),
            unit: figure.unit_for(view.greatest(*figure).unwrap_or(0.0)).name,
        };
        Self {
            title: view.title(),
            repeats: view.repeats(),
            row: view.row,
            columns: figures.iter().map(column).collect(),
            lines: lines.collect(),
            elsewhere: elsewhere.map(String::as_str).collect(),
        }
    }
}

impl<'a> Line<'a> {
    fn of(view: &RowView<'a>, client: &ClientView<'a>, figures: &[Figure]) -> Self {
        let number = |figure: &Figure| {
            let summary = client.summary(*figure)?;
            let unit = figure.unit_for(view.greatest(*figure)?);
            Some(Number {
                number: unit.number(summary.median),
                spread: units::spread(&summary),
                best: view.is_best(client, *figure),
            })
        };
        Self {
            client: client.name,
            class: chart::class(client.index),
            notes: client.notes(),
            absence: client.absence(),
            cells: figures.iter().map(number).collect(),
        }
    }
}

/// The sections of `table`, whose rows that can be run are among `views`.
pub(super) fn of<'a>(table: &Table, views: &[RowView<'a>]) -> Vec<Section<'a>> {
    let rows = views.iter().filter(|view| std::ptr::eq(view.table, table));
    let rows: Vec<&RowView<'a>> = rows.collect();
    let families = families(&rows);
    let mut shown = BTreeSet::new();
    let mut sections = Vec::new();
    for (workload, members) in grouped(&rows, 1, distance) {
        let mut alone = Vec::new();
        for (at, view) in members {
            match families.iter().find(|family| family.contains(view)) {
                Some(family) if shown.insert((family.name, &view.row.profile)) => {
                    sections.push(family.section());
                }
                Some(_) => {}
                None => {
                    sections.push(of_row(view));
                    alone.extend(view.has_begun().then_some((at, view)));
                }
            }
        }
        if alone.len() >= DISTANCE_MIN {
            let label = |_, row: &RowView<'_>| row.row.profile.clone();
            let of = "latency profile".to_owned();
            sections.push(Family::new(workload, of, alone, label).distance());
        }
    }
    sections
}

/// A workload, and how far away the store is; a profile that is not known is the farthest.
fn distance<'a>(view: &RowView<'a>) -> Option<(&'a str, f64)> {
    let latency = settings::latency(&view.row.profile).unwrap_or(Duration::MAX);
    Some((&view.row.workload, latency.as_secs_f64()))
}

fn of_row<'a>(view: &RowView<'a>) -> Section<'a> {
    let (title, rest) = title(&view.row.description);
    Section {
        title: title.to_owned(),
        rest,
        name: &view.row.workload,
        tag: &view.row.profile,
        runs: view.runs(),
        charts: charts_of(view),
        notes: notes(&[view]),
        rows: vec![RowText::of(view)],
    }
}

/// The first sentence of `description` without its stop, and the others.
fn title(description: &str) -> (&str, &str) {
    let (title, rest) = description.split_once(". ").unwrap_or((description, ""));
    (title.trim_end_matches('.'), rest)
}

/// All charts of a row: its four aspects, what else others published, disk, latency.
fn charts_of(view: &RowView<'_>) -> Vec<Chart> {
    let mut figures = Aspect::ALL.map(|aspect| view.figure(aspect)).to_vec();
    let published = &view.row.published;
    for figure in [Figure::Bandwidth, Figure::CpuPerGib] {
        let is_told = |entry: &Published| published::value(entry, figure).is_some();
        if !figures.contains(&figure) && published.iter().any(is_told) {
            figures.push(figure);
        }
    }
    figures.extend(view.has(Figure::PeakDisk).then_some(Figure::PeakDisk));
    figures.extend(view.percentiles().into_iter().map(Figure::Latency));
    let charts = figures.iter().filter_map(|it| chart::bars(view, *it));
    charts.collect()
}

/// Each note of `rows` once, with the names of the rows that it is about unless it is about all.
fn notes(rows: &[&RowView<'_>]) -> Vec<String> {
    let mut merged: Vec<(String, Vec<&str>)> = Vec::new();
    for row in rows {
        for note in notes_of(row) {
            match merged.iter_mut().find(|(known, _)| *known == note) {
                Some((_, names)) => names.push(&row.row.workload),
                None => merged.push((note, vec![&row.row.workload])),
            }
        }
    }
    let text = |(note, names): (String, Vec<&str>)| match names.len() == rows.len() {
        true => note,
        false => format!("{note} ({})", names.join(", ")),
    };
    merged.into_iter().map(text).collect()
}

fn notes_of(row: &RowView<'_>) -> Vec<String> {
    let (mut notes, mut failed, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    for client in &row.clients {
        let name = client.name;
        let marked = client.notes().into_iter();
        notes.extend(marked.map(|note| format!("† {name}: {note}")));
        match (client.outcome(), client.absence()) {
            (Outcome::Failed(_), Some(why)) => failed.push(format!("{name} {why}")),
            (Outcome::NotRun, _) => idle.push(name),
            _ => {}
        }
    }
    notes.append(&mut failed);
    notes.extend((!idle.is_empty()).then(|| format!("Not run: {}", idle.join(", "))));
    notes
}

/// Rows that have a key in common, each at its place among them.
type Group<'v, 'a, K> = (K, Vec<(f64, &'v RowView<'a>)>);

/// At least `least` rows that have the same key, each group in the order of its members' places.
fn grouped<'v, 'a, K: PartialEq>(
    rows: &[&'v RowView<'a>],
    least: usize,
    place: impl Fn(&RowView<'a>) -> Option<(K, f64)>,
) -> Vec<Group<'v, 'a, K>> {
    let mut groups: Vec<Group<'v, 'a, K>> = Vec::new();
    for row in rows {
        let Some((key, at)) = place(row) else {
            continue;
        };
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push((at, row)),
            None => groups.push((key, vec![(at, row)])),
        }
    }
    groups.retain(|(_, members)| members.len() >= least);
    for (_, members) in &mut groups {
        members.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    groups
}

/// Rows that differ in one thing, in its order.
#[derive(Debug)]
struct Family<'v, 'a> {
    /// The name of a workload, or what the members' names have in common: `random-read`.
    name: &'a str,
    /// What the members differ in: "threads".
    of: String,
    /// Each with what the axis calls it: "1,024", "far".
    members: Vec<(String, &'v RowView<'a>)>,
}

/// The families among `rows`, in the order of their first members.
fn families<'v, 'a>(rows: &[&'v RowView<'a>]) -> Vec<Family<'v, 'a>> {
    let place = |row: &RowView<'a>| {
        let (name, number) = split(&row.row.workload)?;
        Some(((name, row.row.profile.as_str()), number))
    };
    let groups = grouped(rows, FAMILY_MIN, place).into_iter();
    let families = groups.map(|((name, _), members)| {
        let of = counted_thing(&members).unwrap_or_else(|| format!("N of {name}-N"));
        Family::new(name, of, members, |number, _| units::thousands(number))
    });
    families.collect()
}

impl<'v, 'a> Family<'v, 'a> {
    fn new(
        name: &'a str,
        of: String,
        members: Vec<(f64, &'v RowView<'a>)>,
        label: fn(f64, &RowView<'_>) -> String,
    ) -> Self {
        let members = members.into_iter();
        let members = members.map(|(at, row)| (label(at, row), row)).collect();
        Self { name, of, members }
    }

    fn rows(&self) -> impl Iterator<Item = &'v RowView<'a>> {
        self.members.iter().map(|(_, row)| *row)
    }

    fn contains(&self, row: &RowView<'_>) -> bool {
        self.rows().any(|member| std::ptr::eq(member.row, row.row))
    }

    fn section(&self) -> Section<'a> {
        let rows: Vec<_> = self.rows().collect();
        let counts = Aspect::ALL.map(|aspect| rows[0].figure(aspect)).into_iter();
        let latencies = ["50", "99"].into_iter().filter_map(Percentile::parse);
        let figures = counts.chain(latencies.map(Figure::Latency));
        let charts = figures.filter_map(|figure| self.chart(figure, self.elsewhere(figure)));
        Section {
            title: self.title(),
            name: self.name,
            tag: &rows[0].row.profile,
            runs: rows[0].runs(),
            charts: charts.collect(),
            notes: notes(&rows),
            rows: rows.into_iter().map(RowText::of).collect(),
            ..Section::default()
        }
    }

    /// How the clients keep up as the store gets farther away. Its rows are sections of their own, and what others published
    /// is the same at each latency profile of ours.
    fn distance(&self) -> Section<'a> {
        let first = self.members[0].1;
        let (title, rest) = title(&first.row.description);
        let figures = [Aspect::Speed, Aspect::Processor, Aspect::Memory].into_iter();
        let charts = figures.filter_map(|aspect| self.chart(first.figure(aspect), Vec::new()));
        Section {
            title: title.to_owned(),
            rest,
            name: self.name,
            tag: "by distance",
            runs: first.runs(),
            charts: charts.collect(),
            ..Section::default()
        }
    }

    /// "Random read: 4 to 1,024 threads".
    fn title(&self) -> String {
        let label = |member: Option<&(String, _)>| member.map_or("", |it| &it.0).to_owned();
        let (first, last) = (label(self.members.first()), label(self.members.last()));
        let range = format!("{first} to {last} {}", self.of);
        let name = self.name.replace('-', " ");
        let mut letters = name.chars();
        match letters.next() {
            Some(initial) if name != self.of => {
                format!("{}{}: {range}", initial.to_uppercase(), letters.as_str())
            }
            _ => range,
        }
    }

    fn chart(&self, figure: Figure, elsewhere: Vec<Series<'_>>) -> Option<Chart> {
        let places = self.members.iter().map(|(label, _)| label.clone());
        let clients = self.rows().next()?.clients.iter();
        let series = clients.map(|client| {
            let points = self.rows().enumerate();
            let points = points.filter_map(|(place, row)| {
                Some((place, row.client(client.name)?.summary(figure)?))
            });
            Series {
                name: client.name,
                class: chart::class(client.index),
                points: points.collect(),
            }
        });
        let series = series.chain(elsewhere);
        chart::curves(figure, &self.of, places.collect(), series.collect())
    }

    fn elsewhere(&self, figure: Figure) -> Vec<Series<'a>> {
        let mut elsewhere: Vec<Series<'a>> = Vec::new();
        for (place, row) in self.rows().enumerate() {
            for entry in &row.row.published {
                let summary = published::value(entry, figure).map(|value| Summary::of([value]));
                let point = summary.flatten().map(|summary| (place, summary));
                match elsewhere.iter_mut().find(|it| it.name == entry.client) {
                    Some(known) => known.points.extend(point),
                    None => elsewhere.push(Series {
                        name: &entry.client,
                        class: ELSEWHERE.to_owned(),
                        points: point.into_iter().collect(),
                    }),
                }
            }
        }
        elsewhere
    }
}

/// `random-read-4` as `random-read` and 4.
fn split(workload: &str) -> Option<(&str, f64)> {
    let (name, number) = workload.rsplit_once('-')?;
    let is_whole = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number
        .parse()
        .ok()
        .filter(|_| is_whole && !name.is_empty())?;
    Some((name, number))
}

/// The word behind the number in every description, in its plural.
fn counted_thing(members: &[(f64, &RowView<'_>)]) -> Option<String> {
    let words = members.iter();
    let words = words.map(|(number, row)| word_after(&row.row.description, *number));
    let words: Vec<&str> = words.collect::<Option<_>>()?;
    let longest = words.iter().max_by_key(|word| word.len())?;
    let is_same = |word: &&str| longest.starts_with(word.trim_end_matches('s'));
    words.iter().all(is_same).then(|| (*longest).to_owned())
}

/// The word that follows `number` in `text`, which may separate its thousands.
fn word_after(text: &str, number: f64) -> Option<&str> {
    let mut words = text.split_whitespace();
    words.find(|word| word.replace(',', "").parse() == Ok(number))?;
    let word = words.next()?.trim_matches(|c: char| !c.is_alphanumeric());
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests;
