//! A table of text that fits a width: columns are dropped from the right until it does.
//!
//! Columns are put in order of importance by whoever makes the grid. A line may be a text instead of cells (a failure); it
//! takes the whole width behind the first column and is cut there.

use super::{
    LEAST_WIDTH, Options,
    text::{truncate, width},
};

/// One column: two lines of heading, and where its text stands.
#[derive(Clone, Debug)]
pub struct Column {
    heading: [String; 2],
    right: bool,
}

impl Column {
    /// A column of text.
    #[must_use]
    pub fn left(first: &str, second: &str) -> Self {
        Self {
            heading: [first.to_owned(), second.to_owned()],
            right: false,
        }
    }

    /// A column of numbers. The heading stands over the numbers, not over the mark behind them.
    #[must_use]
    pub fn right(first: &str, second: &str) -> Self {
        Self {
            heading: [format!("{first}  "), format!("{second}  ")],
            right: true,
        }
    }
}

/// How a piece of text is painted when colour was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// As it is.
    Plain,
    /// The best of its column.
    Best,
    /// A failure.
    Bad,
    /// Of less weight.
    Faint,
    /// A heading.
    Title,
}

/// A line of a table.
#[derive(Clone, Debug)]
pub enum Line {
    /// One text for each column.
    Cells(Vec<(Word, String)>),
    /// The first column, and a text over all others.
    Text(String, String),
}

/// A table of text.
#[derive(Clone, Debug)]
pub struct Grid {
    /// In order of importance.
    pub columns: Vec<Column>,
    /// Top to bottom.
    pub lines: Vec<Line>,
}

/// `text` painted as `word`.
#[must_use]
pub fn paint(word: Word, text: &str, colour: bool) -> String {
    let code = match word {
        _ if !colour => return text.to_owned(),
        Word::Plain => return text.to_owned(),
        Word::Best => "1;32",
        Word::Bad => "31",
        Word::Faint => "2",
        Word::Title => "1",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

impl Grid {
    /// A grid without lines.
    #[must_use]
    pub fn new(columns: Vec<Column>) -> Self {
        Self {
            columns,
            lines: Vec::new(),
        }
    }

    /// The width that it has when nothing is dropped or cut; lines of text do not count.
    #[must_use]
    pub fn natural_width(&self, boxes: bool) -> usize {
        total(&self.widths(), boxes)
    }

    /// The lines, each with a newline, none wider than `options.width` allows.
    #[must_use]
    pub fn draw(&self, options: &Options) -> String {
        let limit = options.width.max(LEAST_WIDTH);
        let mut widths = self.widths();
        while widths.len() > 2 && total(&widths, options.boxes) > limit {
            widths.pop();
        }
        let mut out = String::new();
        for index in (0..2).filter(|index| self.has_heading(*index)) {
            let names = self
                .columns
                .iter()
                .map(|column| (Word::Faint, column.heading[index].clone()));
            out.push_str(&self.cells(&names.collect::<Vec<_>>(), &widths, options));
        }
        out.push_str(&rule(&widths, options));
        for line in &self.lines {
            out.push_str(&match line {
                Line::Cells(cells) => self.cells(cells, &widths, options),
                Line::Text(name, text) => over_all(name, text, &widths, options),
            });
        }
        out
    }

    fn has_heading(&self, index: usize) -> bool {
        self.columns
            .iter()
            .any(|column| !column.heading[index].trim().is_empty())
    }

    fn widths(&self) -> Vec<usize> {
        let column = |(index, column): (usize, &Column)| {
            let texts = self.lines.iter().filter_map(|line| match line {
                Line::Cells(cells) => cells.get(index).map(|(_, text)| width(text)),
                Line::Text(name, _) => (index == 0).then(|| width(name)),
            });
            let heading = column.heading.iter().map(|text| width(text));
            texts.chain(heading).max().unwrap_or(0)
        };
        self.columns.iter().enumerate().map(column).collect()
    }

    fn cells(&self, cells: &[(Word, String)], widths: &[usize], options: &Options) -> String {
        let shown =
            cells
                .iter()
                .zip(widths)
                .zip(&self.columns)
                .map(|(((word, text), wanted), column)| {
                    let padding = " ".repeat(wanted.saturating_sub(width(text)));
                    let text = paint(*word, text, options.colour);
                    if column.right {
                        format!("{padding}{text}")
                    } else {
                        format!("{text}{padding}")
                    }
                });
        let line = shown.collect::<Vec<_>>().join(separator(options.boxes));
        format!("{INDENT}{}\n", line.trim_end())
    }
}

const INDENT: &str = "  ";

fn separator(boxes: bool) -> &'static str {
    if boxes { " │ " } else { "  " }
}

fn total(widths: &[usize], boxes: bool) -> usize {
    let gaps = separator(boxes).chars().count() * widths.len().saturating_sub(1);
    INDENT.len() + widths.iter().sum::<usize>() + gaps
}

fn rule(widths: &[usize], options: &Options) -> String {
    let (line, cross) = if options.boxes {
        ("─", "─┼─")
    } else {
        ("-", "  ")
    };
    let parts: Vec<String> = widths.iter().map(|width| line.repeat(*width)).collect();
    format!(
        "{INDENT}{}\n",
        paint(Word::Faint, &parts.join(cross), options.colour)
    )
}

fn over_all(name: &str, text: &str, widths: &[usize], options: &Options) -> String {
    let first = widths.first().copied().unwrap_or(0);
    let padding = " ".repeat(first.saturating_sub(width(name)));
    let gap = separator(options.boxes);
    let left = options
        .width
        .max(LEAST_WIDTH)
        .saturating_sub(INDENT.len() + first + gap.chars().count());
    let text = paint(Word::Bad, &truncate(text, left), options.colour);
    format!("{INDENT}{name}{padding}{gap}{text}\n")
}
