//! A report on a terminal of a given width: one table for each row of the benchmark, clients down, figures across.
//!
//! [`row`] shows a single row, so that a runner can print each as soon as it is complete; [`write`] shows all of them and the
//! summary; [`progress`] is the line in between. What is wide is given up in this order: spreads of all figures but the
//! speed, then columns from the right ([`grid`]). The best of each column carries a `*`, and colour only when it was asked
//! for. Names and errors come from other programs: control characters in them are replaced, so none reaches the terminal.

pub mod grid;
mod progress;
pub mod text;

use std::fmt::Write as _;

use self::{
    grid::{Column, Grid, Line, Word},
    text::{clean, truncate, wrap},
};
use crate::{
    record::{Report, Row, Table},
    report::{
        figure::{Aspect, Figure},
        ranking::{self, Ranking},
        units::{self, Unit},
        view::{ClientView, RowView},
    },
};

pub use self::progress::{Progress, progress};

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

impl Default for Options {
    fn default() -> Self {
        Self {
            width: 80,
            colour: false,
            boxes: false,
        }
    }
}

/// All of `report`: the conditions, each row, the summary.
#[must_use]
pub fn write(report: &Report, options: &Options) -> String {
    let mut out = conditions(report, options);
    for table in &report.tables {
        let _ = write!(out, "\n{}\n", heading(table, options));
        for entry in &table.rows {
            out.push('\n');
            out.push_str(&row(report, table, entry, options));
        }
    }
    out.push_str(&summary(report, options));
    out
}

/// One row: its title, its table, its notes.
#[must_use]
pub fn row(report: &Report, table: &Table, row: &Row, options: &Options) -> String {
    let view = RowView::new(report, table, row);
    let repeats = view
        .repeats()
        .map_or(String::new(), |count| format!(", runs: {count}"));
    let description = clean(&row.description);
    let title = format!("{} ({description}{repeats})", clean(&view.title()));
    let mut out = paragraph(&title, options, "");
    if let Some(reason) = &row.unavailable {
        out.push_str(&paragraph(
            &format!("not available: {}", clean(reason)),
            options,
            "  ",
        ));
        return out;
    }
    out.push_str(&body(&view, options));
    for note in notes(&view) {
        out.push_str(&paragraph(&note, options, "  "));
    }
    out
}

/// Who is first, where, and by how much; and the way to the other forms of the report is the caller's to tell.
#[must_use]
pub fn summary(report: &Report, options: &Options) -> String {
    let Some(ranking) = ranking::rank(report) else {
        return "\nNothing could be measured.\n".to_owned();
    };
    let mut out = format!("\n{}\n", title(&ranking.headline(), options));
    for sentence in ranking.sentences() {
        out.push_str(&paragraph(&sentence, options, "  "));
    }
    out.push_str(&defeats(&ranking, options));
    out
}

fn defeats(ranking: &Ranking<'_>, options: &Options) -> String {
    let losses = ranking.loss_lines().into_iter().chain(ranking.absences());
    let lines: Vec<String> = losses
        .map(|line| paragraph(&clean(&line), options, "  - "))
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    format!(
        "Where {} is behind:\n{}",
        clean(ranking.subject),
        lines.concat()
    )
}

fn conditions(report: &Report, options: &Options) -> String {
    let machine = &report.machine;
    let memory = Figure::PeakMemory.unit_for(machine.memory_bytes as f64);
    let shared = if report.endpoint.same_machine {
        ", which shares the processors"
    } else {
        ""
    };
    let mut text = format!(
        "{}, {} × {}, {}, {}, Linux {}; against {}{shared}.",
        report.started,
        machine.processors,
        machine.processor,
        memory.quantity(machine.memory_bytes as f64),
        machine.system,
        machine.kernel,
        report.endpoint.description,
    );
    for client in &report.clients {
        if let Some(reason) = &client.missing {
            let _ = write!(text, " {} is missing: {reason}.", client.name);
        }
    }
    paragraph(&clean(&text), options, "")
}

fn heading(table: &Table, options: &Options) -> String {
    let scale = match table.scale {
        1.0 => String::new(),
        scale => format!(", sizes are {} of the source's", units::scale(scale)),
    };
    let text = format!("Suite {}{scale}", table.suite);
    title(&text, options)
}

fn title(text: &str, options: &Options) -> String {
    let lines = wrap(&clean(text), options.width.max(LEAST_WIDTH));
    let painted = lines
        .iter()
        .map(|line| grid::paint(Word::Title, line, options.colour));
    painted.collect::<Vec<_>>().join("\n")
}

/// `text` in lines of at most the terminal's width, indented like `lead`, which begins the first.
fn paragraph(text: &str, options: &Options, lead: &str) -> String {
    let width = options.width.clamp(LEAST_WIDTH, TEXT_WIDTH);
    let indent = " ".repeat(lead.chars().count());
    let lines = wrap(text, width.saturating_sub(indent.len()));
    let numbered = lines.iter().enumerate();
    let lines = numbered.map(|(index, line)| {
        let lead = if index == 0 { lead } else { &indent };
        format!("{lead}{line}\n")
    });
    lines.collect()
}

/// The table of the clients.
fn body(view: &RowView<'_>, options: &Options) -> String {
    let generous = table(view, true);
    let fits = generous.natural_width(options.boxes) <= options.width;
    if fits { generous } else { table(view, false) }.draw(options)
}

fn table(view: &RowView<'_>, all_spreads: bool) -> Grid {
    let speed = view.figure(Aspect::Speed);
    let columns: Vec<FigureColumn> = figures(view)
        .into_iter()
        .map(|figure| FigureColumn::new(view, figure, all_spreads || figure == speed))
        .collect();
    let mut grid = Grid::new(vec![Column::left("client", "")]);
    grid.columns.extend(
        columns
            .iter()
            .map(|column| Column::right(&column.name, column.unit.name)),
    );
    for client in view.sorted_by(speed) {
        grid.lines.push(line(view, client, &columns));
    }
    grid
}

fn line(view: &RowView<'_>, client: &ClientView<'_>, columns: &[FigureColumn]) -> Line {
    let mark = if client.notes().is_empty() { "" } else { " !" };
    let name = format!("{}{mark}", truncate(&clean(client.name), NAME_WIDTH));
    if let Some(absence) = client.absence() {
        return Line::Text(name, clean(&absence));
    }
    let cells = columns.iter().map(|column| column.cell(view, client));
    Line::Cells(std::iter::once((Word::Plain, name)).chain(cells).collect())
}

/// Longer names are cut.
const NAME_WIDTH: usize = 18;

/// The aspects, which are kept longest, then everything else that the row has.
fn figures(view: &RowView<'_>) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Aspect::ALL
        .into_iter()
        .map(|aspect| view.figure(aspect))
        .collect();
    let others: Vec<Figure> = view
        .figures()
        .into_iter()
        .filter(|it| !figures.contains(it))
        .collect();
    figures.extend(others.iter().filter(|it| **it == Figure::Amplification));
    figures.extend(others.iter().filter(|it| **it == Figure::PeakDisk));
    figures.extend(others.iter().filter(|it| matches!(it, Figure::Latency(_))));
    figures.extend(
        others
            .iter()
            .filter(|it| matches!(it, Figure::Bandwidth | Figure::CpuPerGib)),
    );
    figures.retain(|figure| view.has(*figure));
    figures
}

/// A figure over all clients: one unit, spreads of one width.
struct FigureColumn {
    figure: Figure,
    name: String,
    unit: Unit,
    spread_width: usize,
}

impl FigureColumn {
    fn new(view: &RowView<'_>, figure: Figure, with_spread: bool) -> Self {
        let summaries = view.summaries(figure);
        let widths = summaries.map(|summary| units::spread(&summary).chars().count());
        Self {
            figure,
            name: short_name(figure),
            unit: figure.unit_for(view.greatest(figure).unwrap_or(0.0)),
            spread_width: widths.max().filter(|_| with_spread).unwrap_or(0),
        }
    }

    fn cell(&self, view: &RowView<'_>, client: &ClientView<'_>) -> (Word, String) {
        let Some(summary) = client.summary(self.figure) else {
            return (Word::Faint, "–  ".to_owned());
        };
        let number = self.unit.number(summary.median);
        let spread = match self.spread_width {
            0 => String::new(),
            width => format!(" {:>width$}", units::spread(&summary)),
        };
        let best = view.is_best(client, self.figure);
        let (word, mark) = if best {
            (Word::Best, " *")
        } else {
            (Word::Plain, "  ")
        };
        (word, format!("{number}{spread}{mark}"))
    }
}

/// Names that fit above numbers.
fn short_name(figure: Figure) -> String {
    match figure {
        Figure::PeakMemory => "memory".to_owned(),
        Figure::PeakDisk => "disk".to_owned(),
        Figure::CpuPerGib | Figure::CpuPerOperation | Figure::CpuTime => "CPU".to_owned(),
        Figure::Amplification => "amplif.".to_owned(),
        Figure::Latency(percentile) => format!("p{}", percentile.name()),
        other => other.name().to_lowercase(),
    }
}

fn notes(view: &RowView<'_>) -> Vec<String> {
    let clients = view.clients.iter();
    let own = clients.flat_map(|client| {
        client
            .notes()
            .into_iter()
            .map(|note| clean(&format!("! {}: {note}", client.name)))
    });
    let published = view.published().iter().map(|published| {
        let figures = published
            .figures
            .iter()
            .map(|(column, text)| format!("{column} {text}"));
        let figures: Vec<String> = figures.collect();
        clean(&format!(
            "measured elsewhere: {}: {}",
            published.client,
            figures.join(", ")
        ))
    });
    own.chain(published).collect()
}

#[cfg(test)]
mod tests;
