//! A report on a terminal of a given width: one table for each row of the benchmark, clients down, figures across.
//!
//! [`row`] shows a single row, so that a runner can print each as soon as it is complete; [`write`] shows all of them and the
//! summary; [`progress`] is the line in between. What is wide is given up in this order: spreads of all figures but the
//! speed, then columns from the right ([`Table`](Columns)). The best of each column carries a `*`, and colour only when it was
//! asked for. Names and errors come from other programs: they lose their control characters, so none reaches the terminal.

use std::fmt::Write as _;

use penstock_base::text::{Cell, Table as Columns, clean, styled, truncate, width, wrap};

use super::{
    figure::Aspect,
    place,
    sections::{Line, Number, RowText},
    summary::{self, RowView},
    units,
};
use crate::{
    Progress,
    record::{Report, Row, Table},
};

/// How to write on a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Columns of the terminal. Tables stay within it down to [`LEAST_WIDTH`].
    pub width: usize,
    /// Whether to colour with ANSI sequences.
    pub colour: bool,
    /// Whether to draw lines between columns with box characters.
    pub boxes: bool,
}

/// The narrowest terminal that tables are made to fit.
pub const LEAST_WIDTH: usize = 40;
/// Text is not set wider than this, however wide the terminal.
const TEXT_WIDTH: usize = 110;
const NAME_WIDTH: usize = 18;

/// ANSI styles: the best of its column, a failure, what has less weight, a heading.
pub(crate) const BEST: &str = "1;32";
pub(crate) const BAD: &str = "31";
pub(crate) const FAINT: &str = "2";
const TITLE: &str = "1";

impl Default for Options {
    fn default() -> Self {
        Self {
            width: 80,
            colour: false,
            boxes: false,
        }
    }
}

impl Options {
    /// `text` in lines of at most the terminal's width, indented like `lead`, which begins the first.
    pub(crate) fn paragraph(&self, text: &str, lead: &str) -> String {
        let width = self.width.clamp(LEAST_WIDTH, TEXT_WIDTH) - lead.chars().count();
        let indent = " ".repeat(lead.chars().count());
        let lines = wrap(&clean(text), width).into_iter().enumerate();
        let lines = lines.map(|(index, line)| {
            let lead = if index == 0 { lead } else { &indent };
            format!("{lead}{}\n", truncate(&line, width))
        });
        lines.collect()
    }

    pub(crate) fn title(&self, text: &str) -> String {
        let lines = self.paragraph(text, "");
        let lines = lines.lines();
        let lines = lines.map(|line| styled(line, if self.colour { TITLE } else { "" }) + "\n");
        lines.collect()
    }

    pub(crate) fn list(&self, title: &str, items: &[String]) -> String {
        if items.is_empty() {
            return String::new();
        }
        let items = items.iter().map(|item| self.paragraph(item, "  - "));
        format!("{title}\n{}", items.collect::<String>())
    }

    /// A table under `headings`, of which the columns `numbers` stand to the right.
    pub(crate) fn columns(
        &self,
        headings: Vec<Vec<Cell>>,
        rows: impl Iterator<Item = Vec<Cell>>,
        numbers: std::ops::Range<usize>,
    ) -> Columns {
        Columns {
            headings: headings.len(),
            rows: headings.into_iter().chain(rows).collect(),
            numbers,
            indent: "  ",
            boxes: self.boxes,
            colour: self.colour,
        }
    }

    /// The first of `tables` that fits as it is, else the last, cut to fit.
    pub(crate) fn draw(&self, generous: &Columns, sparing: &Columns) -> String {
        let table = match generous.width() <= self.width {
            true => generous,
            false => sparing,
        };
        table.draw(self.width.max(LEAST_WIDTH))
    }
}

pub(crate) fn cell(text: &str, style: &'static str) -> Cell {
    Cell {
        style,
        ..Cell::from(text)
    }
}

/// All of `report`: the conditions, each row, the summary.
pub fn write(report: &Report, options: &Options) -> String {
    let mut text = place(report);
    for client in &report.clients {
        if let Some(reason) = &client.missing {
            let _ = write!(text, " {} is missing: {reason}.", client.name);
        }
    }
    let mut out = options.paragraph(&text, "");
    for table in &report.tables {
        let _ = write!(out, "\n{}", options.title(&suite(table)));
        for entry in &table.rows {
            out.push('\n');
            out.push_str(&row(report, table, entry, options));
        }
    }
    out + &summary(report, options)
}

/// Where `report` is measured and at which scale: what [`row`] does not say.
pub fn conditions(report: &Report, options: &Options) -> String {
    let suites = report
        .tables
        .iter()
        .map(|table| format!("{}.", suite(table)));
    let text = std::iter::once(place(report)).chain(suites);
    options.paragraph(&text.collect::<Vec<_>>().join(" "), "")
}

/// The name of a suite, and its scale where it is not the source's own.
fn suite(table: &Table) -> String {
    let scale = match table.scale {
        1.0 => String::new(),
        scale => format!(", sizes are {} of the source's", units::scale(scale)),
    };
    format!("Suite {}{scale}", table.suite)
}

/// One row: its title, its table, its notes.
pub fn row(report: &Report, table: &Table, row: &Row, options: &Options) -> String {
    let view = RowView::new(report, table, row);
    let repeats = view.repeats();
    let repeats = repeats.map_or(String::new(), |count| format!(", runs: {count}"));
    let title = format!("{} ({}{repeats})", view.title(), row.description);
    let mut out = options.paragraph(&title, "");
    if let Some(reason) = &row.unavailable {
        return out + &options.paragraph(&format!("not available: {reason}"), "  ");
    }
    let mut figures = view.figures();
    // What says again what another column says is given up first.
    figures.sort_by_key(|figure| view.says_again(*figure));
    let text = RowText::with(&view, &figures);
    let speed = figures
        .iter()
        .position(|figure| *figure == view.figure(Aspect::Speed));
    let generous = table_of(&text, options, |_| true);
    let sparing = table_of(&text, options, |column| Some(column) == speed);
    out.push_str(&options.draw(&generous, &sparing));
    for client in &view.clients {
        for note in client.notes() {
            out.push_str(&options.paragraph(&format!("! {}: {note}", client.name), "  "));
        }
    }
    for entry in &row.published {
        let figures = entry.figures.iter();
        let figures: Vec<String> = figures
            .map(|(column, it)| format!("{column} {it}"))
            .collect();
        let text = format!(
            "measured elsewhere: {}: {}",
            entry.client,
            figures.join(", ")
        );
        out.push_str(&options.paragraph(&text, "  "));
    }
    out
}

/// The clients of a row, with spreads in the columns that have `spreads`.
fn table_of(text: &RowText<'_>, options: &Options, spreads: impl Fn(usize) -> bool) -> Columns {
    // A mark stands behind each number.
    let head = |first: &str, of: fn(&super::sections::Column) -> &str| {
        let columns = text.columns.iter();
        let names = columns.map(|column| cell(&format!("{}  ", of(column)), FAINT));
        std::iter::once(cell(first, FAINT)).chain(names).collect()
    };
    let headings = vec![head("client", |it| &it.short_name), head("", |it| it.unit)];
    let numbers = |column: usize| {
        text.lines
            .iter()
            .filter_map(move |line| line.cells[column].as_ref())
    };
    let widths = (0..text.columns.len()).map(|column| {
        let spreads = numbers(column)
            .map(|it| it.spread.chars().count())
            .filter(|_| spreads(column));
        spreads.max().unwrap_or(0)
    });
    let widths: Vec<usize> = widths.collect();
    let rows = text.lines.iter().map(|line| row_of(line, &widths));
    options.columns(headings, rows, 1..usize::MAX)
}

fn row_of(line: &Line<'_>, widths: &[usize]) -> Vec<Cell> {
    let mark = line.notes.first().map_or("", |_| " !");
    let name = Cell::from(truncate(&clean(line.client), NAME_WIDTH) + mark);
    if let Some(absence) = &line.absence {
        let text = Cell {
            reaches_over: true,
            ..cell(&clean(absence), BAD)
        };
        return vec![name, text];
    }
    let cells = line.cells.iter().zip(widths);
    let cells = cells.map(|(number, width)| match number {
        Some(number) => number_of(number, *width),
        None => cell("–  ", FAINT),
    });
    std::iter::once(name).chain(cells).collect()
}

fn number_of(number: &Number, width: usize) -> Cell {
    let spread = match width {
        0 => String::new(),
        width => format!(" {:>width$}", number.spread),
    };
    let (style, mark) = if number.best {
        (BEST, " *")
    } else {
        ("", "  ")
    };
    cell(&format!("{}{spread}{mark}", number.number), style)
}

/// Who is first, where, and by how much; and the way to the other forms of the report is the caller's to tell.
pub fn summary(report: &Report, options: &Options) -> String {
    let Some(ranking) = summary::rank(report) else {
        return "\nNothing could be measured.\n".to_owned();
    };
    let sentences = ranking.sentences().into_iter();
    let sentences = sentences.map(|sentence| options.paragraph(&sentence, "  "));
    let behind = format!("Where {} is behind:", clean(ranking.subject));
    format!(
        "\n{}{}{}",
        options.title(&ranking.headline()),
        sentences.collect::<String>(),
        options.list(&behind, &ranking.behind())
    )
}

/// One line of at most `columns`: a bar, the count, the time left, what runs now. The time left assumes that the runs to
/// come take as long as those that are over, so it is shown from the second on.
pub fn progress(progress: &Progress<'_>, columns: usize) -> String {
    const BAR: usize = 16;
    let done = progress.done.min(progress.total);
    let filled = BAR * done / progress.total.max(1);
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR - filled));
    let line = format!("{bar} {done}/{}{}", progress.total, left(progress, done));
    let room = columns.saturating_sub(width(&line) + 2);
    match truncate(&clean(progress.current), room) {
        current if current.is_empty() => truncate(&line, columns),
        current => truncate(&format!("{line}  {current}"), columns),
    }
}

fn left(progress: &Progress<'_>, done: usize) -> String {
    if done < 2 || !progress.seconds.is_finite() {
        return String::new();
    }
    let each = progress.seconds / done as f64;
    format!(", {} left", duration(each * (progress.total - done) as f64))
}

/// "40 s", "3 min", "1 h 20 min".
fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match minutes {
        _ if seconds < 90.0 => format!("{seconds:.0} s"),
        0..90 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests;
