//! Where the subject stands against the best of the others: one line for each row, one column for each question.
//!
//! Each cell says how many times better (to the right of the middle) or worse (to the left) the subject is, by a bar on a
//! logarithmic axis that all cells share, and in words. What is level within the noise is grey.

use super::{
    colour,
    markup::{Attributes, Markup, Px},
};
use crate::{
    record::Report,
    report::{
        figure::Aspect,
        ranking::{Place, RankedRow, Ranking, Standing},
        units,
    },
};

/// Half the width of a cell's drawing.
const HALF: f64 = 100.0;
/// Bars do not grow beyond this many times.
const TIMES_MAX: f64 = 16.0;
/// The axis reaches at least this far, so that small margins look small.
const TIMES_MIN: f64 = 4.0;

/// Writes the overview; nothing when the subject could be compared with nobody.
pub(super) fn write(page: &mut Markup, report: &Report, ranking: &Ranking<'_>) {
    let compared: Vec<_> = ranking
        .rows
        .iter()
        .filter(|row| !row.places.is_empty() || row.absence.is_some())
        .collect();
    if compared.iter().all(|row| row.places.is_empty()) {
        return;
    }
    let index = report
        .clients
        .iter()
        .position(|client| client.name == ranking.subject)
        .unwrap_or(0);
    page.leaf(
        "h2",
        &[],
        &format!("{} against the best of the others", ranking.subject),
    );
    let note = "To the right of the line it is better, to the left worse; grey is level within the noise. \
        Under each bar: how many times, and against whom.";
    page.leaf("p", &[("class", &"note")], note);
    let reach = reach(&compared);
    page.within(
        "table",
        &[("class", &format!("overview {}", colour::class(index)))],
        |page| {
            head(page);
            page.within("tbody", &[], |page| {
                let mut suite = "";
                for row in compared {
                    if row.view.table.suite != suite {
                        suite = &row.view.table.suite;
                        section(page, suite);
                    }
                    line(page, row, reach);
                }
            });
        },
    );
}

fn reach(rows: &[&RankedRow<'_>]) -> f64 {
    let places = rows.iter().flat_map(|row| &row.places);
    let times = places.map(|place| place.advantage.max(1.0 / place.advantage));
    times
        .filter(|times| times.is_finite())
        .fold(TIMES_MIN, f64::max)
        .min(TIMES_MAX)
}

fn head(page: &mut Markup) {
    page.within("thead", &[], |page| {
        page.within("tr", &[], |page| {
            page.leaf("th", &[("scope", &"col")], "row");
            for aspect in Aspect::ALL {
                page.leaf("th", &[("scope", &"col")], aspect.name());
            }
        });
    });
}

fn section(page: &mut Markup, suite: &str) {
    page.within("tr", &[("class", &"suite")], |page| {
        let title = format!("Suite {suite}");
        page.leaf("th", &[("scope", &"colgroup"), ("colspan", &"5")], &title);
    });
}

fn line(page: &mut Markup, row: &RankedRow<'_>, reach: f64) {
    page.within("tr", &[], |page| {
        page.within(
            "th",
            &[("scope", &"row"), ("title", &row.view.row.description)],
            |page| {
                page.text(&row.view.row.workload);
                page.leaf(
                    "span",
                    &[("class", &"faint")],
                    &format!(" {}", row.view.row.profile),
                );
            },
        );
        if let (Some(absence), true) = (&row.absence, row.places.is_empty()) {
            page.leaf("td", &[("colspan", &"4"), ("class", &"absent")], absence);
            return;
        }
        for aspect in Aspect::ALL {
            page.within("td", &[("data-name", &aspect.name())], |page| {
                match row.place(aspect) {
                    Some(place) => cell(page, place, reach),
                    None => page.leaf("span", &[("class", &"faint")], "–"),
                }
            });
        }
    });
}

fn cell(page: &mut Markup, place: &Place<'_>, reach: f64) {
    let fraction = (place.advantage.ln() / reach.ln()).clamp(-1.0, 1.0);
    let fraction = if fraction.is_nan() { 0.0 } else { fraction };
    let class = match place.standing {
        Standing::First => "ahead",
        Standing::Level => "level",
        Standing::Behind => "behind",
    };
    let view = format!("0 0 {} 10", 2.0 * HALF);
    let attributes: Attributes<'_> = &[
        ("viewBox", &view),
        ("preserveAspectRatio", &"none"),
        ("aria-hidden", &"true"),
    ];
    page.within("svg", attributes, |page| {
        let x = HALF + HALF * fraction.min(0.0);
        let width = (HALF * fraction.abs()).max(0.6);
        page.empty(
            "rect",
            &[
                ("class", &"track"),
                ("x", &"0"),
                ("y", &"4.5"),
                ("width", &(2.0 * HALF)),
                ("height", &"1"),
            ],
        );
        page.empty(
            "rect",
            &[
                ("class", &class),
                ("x", &Px(x)),
                ("y", &"0"),
                ("width", &Px(width)),
                ("height", &"10"),
            ],
        );
        page.empty(
            "rect",
            &[
                ("class", &"middle"),
                ("x", &Px(HALF - 0.5)),
                ("y", &"0"),
                ("width", &"1"),
                ("height", &"10"),
            ],
        );
    });
    page.within("span", &[("class", &"verdict")], |page| {
        page.leaf("b", &[], &verdict(place));
        page.leaf("span", &[("class", &"faint")], &format!(" {}", place.rival));
    });
}

/// "1.33× better", "level", "3.1× worse".
fn verdict(place: &Place<'_>) -> String {
    match place.standing {
        Standing::Level => "level".to_owned(),
        Standing::First => format!("{} better", units::factor(place.advantage)),
        Standing::Behind => format!("{} worse", units::factor(1.0 / place.advantage)),
    }
}
