//! Where the subject stands against the best of the others: one line for each row, one column for each question.
//!
//! Each cell says how many times better (to the right of the middle) or worse (to the left) the subject is, by a bar on a
//! logarithmic axis that all cells share, and in words. What is level within the noise is grey.

use crate::{
    record::Report,
    report::{
        charts::{advantage, colour, markup::Markup},
        figure::Aspect,
        ranking::{Place, RankedRow, Ranking},
    },
};

/// Writes the overview; nothing when the subject could be compared with nobody.
pub(super) fn write(page: &mut Markup, report: &Report, ranking: &Ranking<'_>) {
    let compared = ranking.compared();
    if compared.is_empty() {
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
    let reach = advantage::reach(&compared);
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
    advantage::draw(page, place, reach, &[]);
    page.within("span", &[("class", &"verdict")], |page| {
        page.leaf("b", &[], &advantage::verdict(place));
        page.leaf("span", &[("class", &"faint")], &format!(" {}", place.rival));
    });
}
