//! A sheet: a title, charts in columns under their captions, notes, conditions.

use super::paper::{self, HEADING, NOTE, Paper, SENTENCE, SOFT, TITLE};
use crate::{
    record::Report,
    report::{
        charts::{
            chart::{Chart, WIDTH, label},
            markup::{Markup, Px},
        },
        view::RowView,
    },
};

/// Between charts.
const GUTTER: f64 = 36.0;
/// Under charts.
const FOOT: f64 = 18.0;
/// Notes under charts are in type of this size.
const NOTE_SIZE: f64 = 12.0;
/// More notes than this are counted, not written: the pictures of rows have them.
const NOTES_MAX: usize = 8;
/// From line to line of a caption.
const CAPTION_STEP: f64 = 16.0;
/// How wide a letter of a chart's title is.
const CAPTION_LETTER: f64 = 8.0;
/// What stands above the numbers of runs that were repeated.
const SPREAD: &str =
    "Medians; whiskers reach over all runs, ± is how far off another series may be.";

/// What a sheet shows.
pub(super) struct Sheet<'s> {
    pub(super) title: String,
    /// Under it, in small type.
    pub(super) subtitle: String,
    /// What the charts say.
    pub(super) sentence: Option<String>,
    pub(super) bands: Vec<Band<'s>>,
    pub(super) notes: Vec<String>,
}

/// Charts that belong together, side by side.
pub(super) struct Band<'s> {
    /// Above them; empty on a sheet that has one band.
    pub(super) heading: String,
    /// Behind the heading: the row's name.
    pub(super) mention: String,
    pub(super) charts: Vec<Chart<'s>>,
}

impl<'s> Band<'s> {
    /// The only band of a sheet.
    pub(super) fn alone(charts: Vec<Chart<'s>>) -> Self {
        Self {
            heading: String::new(),
            mention: String::new(),
            charts,
        }
    }
}

impl Sheet<'_> {
    /// The sheet as a file, about `rows` of `report`.
    pub(super) fn draw(&self, report: &Report, subject: &str, rows: &[&RowView<'_>]) -> String {
        let columns = self.columns();
        let width = columns as f64 * (WIDTH + GUTTER) - GUTTER;
        let mut paper = Paper::new(width);
        paper.write(TITLE, &self.title);
        paper.write(SOFT, &self.subtitle);
        if let Some(sentence) = &self.sentence {
            paper.skip(4.0);
            paper.write(SENTENCE, sentence);
        }
        for band in &self.bands {
            paper.skip(FOOT);
            band.draw(&mut paper, columns);
        }
        self.write_notes(&mut paper);
        if rows
            .iter()
            .any(|row| row.repeats().is_some_and(|runs| runs != "1"))
        {
            paper.write(NOTE, SPREAD);
        }
        paper.conditions(report, &clients(rows));
        paper.finish(report, subject, &self.title)
    }

    fn write_notes(&self, paper: &mut Paper) {
        let shown = self.notes.iter().take(NOTES_MAX);
        shown.for_each(|note| paper.write(NOTE, note));
        if self.notes.len() > NOTES_MAX {
            let more = self.notes.len() - NOTES_MAX;
            paper.write(NOTE, &format!("and {more} more notes in the report"));
        }
    }

    /// Four charts make a square, others lines of three.
    fn columns(&self) -> usize {
        let most = self.bands.iter().map(|band| band.charts.len()).max();
        match most.unwrap_or(0) {
            few @ 0..=2 => few.max(1),
            4 => 2,
            _ => 3,
        }
    }
}

impl Band<'_> {
    fn draw(&self, paper: &mut Paper, columns: usize) {
        if !self.heading.is_empty() {
            paper.rule("strong");
            paper.skip(6.0);
            paper.write(HEADING, &format!("{} · {}", self.heading, self.mention));
            paper.skip(4.0);
        }
        for charts in self.charts.chunks(columns) {
            let captions: Vec<_> = charts.iter().map(Caption::of).collect();
            let lines = captions.iter().map(|caption| caption.lines.len()).max();
            let head = (lines.unwrap_or(0) + 1) as f64 * CAPTION_STEP + 10.0;
            let (left, top) = paper.corner();
            for (index, (chart, caption)) in charts.iter().zip(&captions).enumerate() {
                let x = left + index as f64 * (WIDTH + GUTTER);
                caption.draw(&mut paper.markup, (x, top));
                place(&mut paper.markup, chart, (x, top + head));
            }
            let highest = charts.iter().map(|chart| chart.height).fold(0.0, f64::max);
            paper.skip(head + highest + FOOT);
        }
    }
}

/// The clients of `rows`, in the report's order within each.
fn clients<'a>(rows: &[&RowView<'a>]) -> Vec<&'a str> {
    let clients = rows.iter().flat_map(|row| &row.clients);
    clients.map(|client| client.name).collect()
}

fn place(page: &mut Markup, chart: &Chart<'_>, (x, y): (f64, f64)) {
    let (x, y, width, height) = (Px(x), Px(y), Px(WIDTH), Px(chart.height));
    let attributes: &[(&'static str, &dyn std::fmt::Display)] = &[
        ("x", &x),
        ("y", &y),
        ("width", &width),
        ("height", &height),
        ("overflow", &"visible"),
    ];
    chart.drawing(page, attributes);
}

/// A chart's title with its note behind it, or in lines under it.
struct Caption<'c> {
    title: &'c str,
    behind: &'c str,
    lines: Vec<String>,
}

impl<'c> Caption<'c> {
    fn of(chart: &'c Chart<'_>) -> Self {
        let (title, note) = (chart.title.as_str(), chart.note.as_str());
        let free = WIDTH - (title.chars().count() + 1) as f64 * CAPTION_LETTER;
        let lines = paper::broken(note, free.max(1.0), NOTE_SIZE);
        if lines.len() < 2 {
            return Self {
                title,
                behind: note,
                lines: Vec::new(),
            };
        }
        Self {
            title,
            behind: "",
            lines: paper::broken(note, WIDTH, NOTE_SIZE),
        }
    }

    fn draw(&self, page: &mut Markup, (x, y): (f64, f64)) {
        crate::report::charts::chart::line(page, "rule", (x, y), (x + WIDTH, y));
        let (left, base) = (Px(x), Px(y + CAPTION_STEP + 2.0));
        let attributes: &[(&'static str, &dyn std::fmt::Display)] =
            &[("class", &"caption"), ("x", &left), ("y", &base)];
        page.within("text", attributes, |page| {
            page.text(self.title);
            if !self.behind.is_empty() {
                page.leaf(
                    "tspan",
                    &[("class", &"caption-note")],
                    &format!(" {}", self.behind),
                );
            }
        });
        for (index, text) in self.lines.iter().enumerate() {
            let y = y + (index as f64 + 2.0) * CAPTION_STEP + 2.0;
            label(page, "caption-note", (x, y), text);
        }
    }
}
