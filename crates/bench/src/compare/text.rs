//! A comparison as text: for a terminal, and as Markdown.

use minijinja::context;
use penstock_base::text::{Cell, clean};

use super::{Change, Comparison, Differing, Verdict};
use crate::report::{
    self,
    statistics::Summary,
    terminal::{BAD, BEST, FAINT, Options, cell},
    units,
};

const METHOD: &str = "A figure differs when the ranges of its runs do not overlap and the medians are further apart than \
    both spreads (±) together and than 5 %; where one side ran once the noise is unknown and only more than 20 % is shown. \
    Two series of runs of the same thing are that far apart in 3 of 100 figures by chance.";
const CONDITIONS: &str = "The conditions differ, so changes may be theirs:";
const OUTCOMES: &str = "What works or fails now:";

impl Comparison {
    /// For a terminal.
    pub fn terminal(&self, options: &Options) -> String {
        let list = |title: &str, items: &[String]| match items {
            [] => String::new(),
            items => format!("\n{}", options.list(title, items)),
        };
        let mut out = options.title(&self.sentence());
        if let Some(disturbed) = &self.disturbed {
            out.push_str(&options.paragraph(disturbed, ""));
        }
        out.push_str(&list(CONDITIONS, &self.warnings));
        out.push_str(&list(OUTCOMES, &self.outcome_lines()));
        out.push_str(&self.verdicts(options));
        out.push_str(&self.figures(options));
        out.push_str(&list("Only in the second:", &self.appeared));
        out.push_str(&list("Only in the first:", &self.vanished));
        format!("{out}\n{}", options.paragraph(METHOD, ""))
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let changes = self.changes.iter().map(|change| {
            let (before, after) = values(change);
            let (place, figure) = (change.place.title(), change.figure.name());
            context! { change, place, figure, before, after, difference => difference(change) }
        });
        let values = context! {
            comparison => self,
            sentence => self.sentence(),
            changes => changes.collect::<Vec<_>>(),
            before => [(CONDITIONS, &self.warnings), (OUTCOMES, &self.outcome_lines())],
            after => [("Only in the second:", &self.appeared), ("Only in the first:", &self.vanished)],
            method => METHOD,
        };
        report::render("comparison.md", values)
    }

    /// "1 client fails where it worked. 11 of 12 rows agree, 1 differs. Of 120 figures 3 are better and 1 worse, beyond the
    /// noise."
    fn sentence(&self) -> String {
        let broken = self.outcomes.iter().filter(|change| !change.mended).count();
        let alarm = match broken {
            0 => String::new(),
            1 => "1 client fails where it worked. ".to_owned(),
            count => format!("{count} clients fail where they worked. "),
        };
        let better = self.changes.iter().filter(|change| change.better).count();
        let worse = self.changes.len() - better;
        let compared = units::thousands(self.compared as f64);
        let figures = match self.changes.len() {
            0 => format!("Nothing changed beyond the noise in {compared} figures."),
            _ => format!(
                "Of {compared} figures {better} are better and {worse} worse, beyond the noise."
            ),
        };
        alarm + &self.rows_sentence() + &figures
    }

    fn rows_sentence(&self) -> String {
        if self.rows.is_empty() {
            return "The reports have no row in common. ".to_owned();
        }
        let count = |verdict| {
            let rows = self.rows.iter();
            rows.filter(|row| row.verdict == verdict).count()
        };
        let agree = count(Verdict::Agrees);
        let differ = match count(Verdict::Differs) {
            0 => String::new(),
            1 => ", 1 differs".to_owned(),
            differ => format!(", {differ} differ"),
        };
        let unknown = match count(Verdict::Unknown) {
            0 => String::new(),
            unknown => format!(", {unknown} ran too seldom to tell"),
        };
        format!(
            "{agree} of {} rows agree{differ}{unknown}. ",
            self.rows.len()
        )
    }

    fn outcome_lines(&self) -> Vec<String> {
        let lines = self.outcomes.iter().map(|change| {
            let word = match change.mended {
                true => "works now; before",
                false => "FAILS now",
            };
            format!("{} {word}: {}", change.place.title(), change.reason)
        });
        lines.collect()
    }

    /// A line for each row, with the figures that differ where the terminal is wide enough.
    fn verdicts(&self, options: &Options) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let table = |show: fn(&Differing) -> String, separator: &str| {
            let headings = ["row", "verdict", "what differs"].map(|name| cell(name, FAINT));
            let rows = self.rows.iter().map(|row| {
                let style = match row.verdict {
                    Verdict::Agrees => BEST,
                    Verdict::Differs => BAD,
                    Verdict::Unknown => "",
                };
                let title = format!("{} · {}", row.workload, row.profile);
                let differing: Vec<_> = row.differing.iter().map(show).collect();
                let differing = clean(&differing.join(separator));
                vec![
                    clean(&title).into(),
                    cell(row.verdict.name(), style),
                    differing.into(),
                ]
            });
            options.columns(vec![headings.into()], rows, 0..0)
        };
        let generous = table(Differing::sentence, "; ");
        let sparing = table(|differing| differing.client.clone(), ", ");
        format!("\n{}", options.draw(&generous, &sparing))
    }

    /// A line for each change, with the spreads of both sides where the terminal is wide enough for them.
    fn figures(&self, options: &Options) -> String {
        if self.changes.is_empty() {
            return String::new();
        }
        let table = |show: fn(&Change) -> (String, String)| {
            let headings = ["where", "change  ", "figure", "before → after"];
            let headings = headings.map(|name| cell(name, FAINT));
            let rows = self.changes.iter().map(|change| line(change, show(change)));
            options.columns(vec![headings.into()], rows, 1..2)
        };
        format!("\n{}", options.draw(&table(values), &table(medians)))
    }
}

fn line(change: &Change, (before, after): (String, String)) -> Vec<Cell> {
    let place = &change.place;
    let title = format!("{} · {} {}", place.workload, place.profile, place.client);
    // Signs besides the colour: better, worse, and whether the noise is known.
    let (style, sign) = if change.better {
        (BEST, "+")
    } else {
        (BAD, "-")
    };
    let doubt = if change.knows_noise { "" } else { "?" };
    vec![
        clean(&title).into(),
        cell(&format!("{} {sign}{doubt}", difference(change)), style),
        change.figure.name().into(),
        format!("{before} → {after}").into(),
    ]
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
    let (before, after) = (change.before.median, change.after.median);
    let unit = change.figure.unit_for(before.max(after));
    (unit.number(before), unit.quantity(after))
}

/// Both in the unit of the greater, with their spreads.
fn values(change: &Change) -> (String, String) {
    let greater = change.before.median.max(change.after.median);
    let unit = change.figure.unit_for(greater);
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
