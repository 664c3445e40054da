//! A comparison as text: for a terminal, and as Markdown.

use super::{Change, Comparison, OutcomeChange, RowVerdict, Verdict, verdict::Differing};
use crate::report::{
    markdown::escape::plain,
    statistics::Summary,
    terminal::{
        Options,
        grid::{self, Column, Grid, Line, Word},
        text::{clean, wrap},
    },
    units,
};

const METHOD: &str = "A figure differs when the ranges of its runs do not overlap and the medians are further apart than \
    both spreads (±) together and than 5 %; where one side ran once the noise is unknown and only more than 20 % is shown. \
    Two series of runs of the same thing are that far apart in 3 of 100 figures by chance.";

impl Comparison {
    /// For a terminal.
    #[must_use]
    pub fn terminal(&self, options: &Options) -> String {
        let mut out = self.verdict(options);
        if let Some(disturbed) = &self.disturbed {
            out.push_str(&lines(disturbed, options, ""));
        }
        let lists = [
            (
                "The conditions differ, so changes may be theirs:",
                self.warnings.clone(),
            ),
            ("What works or fails now:", self.outcome_lines()),
        ];
        let ends = [
            ("Only in the second:", self.appeared.clone()),
            ("Only in the first:", self.vanished.clone()),
        ];
        out.extend(
            lists
                .into_iter()
                .map(|(title, lines)| list(title, &lines, options)),
        );
        out.push_str(&self.row_lines(options));
        if !self.changes.is_empty() {
            out.push('\n');
            out.push_str(&self.grid(options).draw(options));
        }
        out.extend(
            ends.into_iter()
                .map(|(title, lines)| list(title, &lines, options)),
        );
        out.push('\n');
        out.push_str(&lines(METHOD, options, ""));
        out
    }

    /// As Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = format!("# What changed\n\n**{}**\n", self.sentence());
        if let Some(disturbed) = &self.disturbed {
            out.push_str(&format!("\n{disturbed}\n"));
        }
        out.push_str(&bullets(
            "The conditions differ, so changes may be theirs:",
            &self.warnings,
        ));
        out.push_str(&bullets("What works or fails now:", &self.outcome_lines()));
        if !self.rows.is_empty() {
            out.push_str(
                "\n| row | verdict | figures | what differs |\n| --- | --- | ---: | --- |\n",
            );
            out.extend(self.rows.iter().map(markdown_verdict));
        }
        if !self.changes.is_empty() {
            out.push_str("\n| where | figure | before | after | change |  |\n| --- | --- | ---: | ---: | ---: | --- |\n");
            out.extend(self.changes.iter().map(markdown_row));
        }
        out.push_str(&bullets("Only in the second:", &self.appeared));
        out.push_str(&bullets("Only in the first:", &self.vanished));
        format!("{out}\n{METHOD}\n")
    }

    /// "1 client fails where it worked. Of 120 figures 3 are better and 1 worse, beyond the noise."
    fn sentence(&self) -> String {
        let broken = self.outcomes.iter().filter(|change| !change.mended).count();
        let alarm = match broken {
            0 => String::new(),
            1 => "1 client fails where it worked. ".to_owned(),
            count => format!("{count} clients fail where they worked. "),
        };
        alarm + &self.rows_sentence() + &self.figures_sentence()
    }

    /// "11 of 12 rows agree, 1 differs. "
    fn rows_sentence(&self) -> String {
        let count = |verdict| {
            self.rows
                .iter()
                .filter(|row| row.verdict == verdict)
                .count()
        };
        let (agree, differ) = (count(Verdict::Agrees), count(Verdict::Differs));
        let mut parts = vec![format!("{agree} of {} rows agree", self.rows.len())];
        if differ > 0 {
            parts.push(format!(
                "{differ} differ{}",
                if differ == 1 { "s" } else { "" }
            ));
        }
        if count(Verdict::Unknown) > 0 {
            parts.push(format!(
                "{} ran too seldom to tell",
                count(Verdict::Unknown)
            ));
        }
        if self.rows.is_empty() {
            return "The reports have no row in common. ".to_owned();
        }
        parts.join(", ") + ". "
    }

    fn figures_sentence(&self) -> String {
        let better = self.changes.iter().filter(|change| change.better).count();
        let worse = self.changes.len() - better;
        let compared = units::thousands(self.compared as f64);
        match self.changes.len() {
            0 => format!("Nothing changed beyond the noise in {compared} figures."),
            _ => format!(
                "Of {compared} figures {better} are better and {worse} worse, beyond the noise."
            ),
        }
    }

    /// A line for each row, with the figures that differ where the terminal is wide enough.
    fn row_lines(&self, options: &Options) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let names = |differing: &Differing| differing.client.clone();
        let generous = self.row_grid(Differing::sentence, "; ");
        let fits = generous.natural_width(options.boxes) <= options.width;
        let grid = if fits {
            generous
        } else {
            self.row_grid(names, ", ")
        };
        format!("\n{}", grid.draw(options))
    }

    fn row_grid(&self, show: fn(&Differing) -> String, separator: &str) -> Grid {
        let mut grid = Grid::new(vec![
            Column::left("row", ""),
            Column::left("verdict", ""),
            Column::left("what differs", ""),
        ]);
        grid.lines.extend(self.rows.iter().map(|row| {
            let word = match row.verdict {
                Verdict::Agrees => Word::Best,
                Verdict::Differs => Word::Bad,
                Verdict::Unknown => Word::Plain,
            };
            let title = format!("{} · {}", row.workload, row.profile);
            let differing: Vec<_> = row.differing.iter().map(show).collect();
            Line::Cells(vec![
                (Word::Plain, clean(&title)),
                (word, row.verdict.name().to_owned()),
                (Word::Plain, clean(&differing.join(separator))),
            ])
        }));
        grid
    }

    fn verdict(&self, options: &Options) -> String {
        let text = lines(&self.sentence(), options, "");
        grid::paint(Word::Title, text.trim_end(), options.colour) + "\n"
    }

    fn outcome_lines(&self) -> Vec<String> {
        let line = |change: &OutcomeChange| {
            let word = if change.mended {
                "works now; before"
            } else {
                "FAILS now"
            };
            format!("{} {word}: {}", change.place.title(), change.reason)
        };
        self.outcomes.iter().map(line).collect()
    }

    /// With the spreads of both sides where the terminal is wide enough for them.
    fn grid(&self, options: &Options) -> Grid {
        let generous = self.grid_of(values);
        let fits = generous.natural_width(options.boxes) <= options.width;
        if fits {
            generous
        } else {
            self.grid_of(medians)
        }
    }

    fn grid_of(&self, show: fn(&Change) -> (String, String)) -> Grid {
        let mut grid = Grid::new(vec![
            Column::left("where", ""),
            Column::right("change", ""),
            Column::left("figure", ""),
            Column::left("before → after", ""),
        ]);
        grid.lines.extend(
            self.changes
                .iter()
                .map(|change| grid_line(change, show(change))),
        );
        grid
    }
}

fn grid_line(change: &Change, (before, after): (String, String)) -> Line {
    let word = if change.better { Word::Best } else { Word::Bad };
    let place = &change.place;
    let title = format!("{} · {} {}", place.workload, place.profile, place.client);
    Line::Cells(vec![
        (Word::Plain, clean(&title)),
        (word, format!("{}{}", difference(change), sign(change))),
        (Word::Plain, change.figure.name()),
        (Word::Plain, format!("{before} → {after}")),
    ])
}

/// A sign besides the colour: better, worse, and whether the noise is known.
fn sign(change: &Change) -> &'static str {
    match (change.better, change.knows_noise) {
        (true, true) => " +",
        (false, true) => " -",
        (true, false) => " +?",
        (false, false) => " -?",
    }
}

fn markdown_verdict(row: &RowVerdict) -> String {
    let title = plain(&format!(
        "{} · {} ({})",
        row.workload, row.profile, row.suite
    ));
    let verdict = match row.verdict {
        Verdict::Differs => "**differs**",
        other => other.name(),
    };
    let differing: Vec<_> = row.differing.iter().map(Differing::sentence).collect();
    let differing = plain(&differing.join("; "));
    format!("| {title} | {verdict} | {} | {differing} |\n", row.figures)
}

fn markdown_row(change: &Change) -> String {
    let (before, after) = values(change);
    let word = if change.better { "better" } else { "**worse**" };
    let noise = if change.knows_noise {
        ""
    } else {
        ", noise unknown"
    };
    let place = plain(&change.place.title());
    let figure = change.figure.name();
    format!(
        "| {place} | {figure} | {before} | {after} | {} | {word}{noise} |\n",
        difference(change)
    )
}

/// "+12 %", "-40 %"; from a doubling on "×2.3".
fn difference(change: &Change) -> String {
    let factor = change.factor();
    match factor {
        _ if !factor.is_finite() => "from 0".to_owned(),
        2.0.. => format!("×{}", units::number(factor)),
        _ if factor >= 1.0 => format!("+{}", units::percent(factor - 1.0)),
        _ => format!("-{}", units::percent(1.0 - factor)),
    }
}

/// Both in the unit of the greater, which stands behind the second alone.
fn medians(change: &Change) -> (String, String) {
    let unit = change
        .figure
        .unit_for(change.before.median.max(change.after.median));
    (
        unit.number(change.before.median),
        unit.quantity(change.after.median),
    )
}

/// Both in the unit of the greater, with their spreads.
fn values(change: &Change) -> (String, String) {
    let unit = change
        .figure
        .unit_for(change.before.median.max(change.after.median));
    let value = |summary: &Summary| {
        let text = format!(
            "{} {}",
            unit.quantity(summary.median),
            units::spread(summary)
        );
        text.trim_end().to_owned()
    };
    (value(&change.before), value(&change.after))
}

fn list(title: &str, items: &[String], options: &Options) -> String {
    if items.is_empty() {
        return String::new();
    }
    let items = items
        .iter()
        .map(|item| lines(&clean(item), options, "  - "));
    format!("\n{title}\n{}", items.collect::<String>())
}

fn lines(text: &str, options: &Options, lead: &str) -> String {
    let width = options.width.max(crate::report::terminal::LEAST_WIDTH);
    let broken = wrap(text, width - lead.len());
    let indent = " ".repeat(lead.len());
    let numbered = broken.iter().enumerate();
    numbered
        .map(|(index, line)| format!("{}{line}\n", if index == 0 { lead } else { &indent }))
        .collect()
}

fn bullets(title: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let items: String = items
        .iter()
        .map(|item| format!("- {}\n", plain(item)))
        .collect();
    format!("\n{title}\n\n{items}")
}
