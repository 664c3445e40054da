//! Where the subject stands against the best of the others: one line for each row, one column for each question.

use super::paper::{HEADING, NOTE, Paper, SOFT, TITLE};
use crate::{
    record::Report,
    report::{
        charts::{
            advantage,
            chart::{fit, fit_name, label, width},
            colour,
            markup::{Markup, Px},
        },
        figure::Aspect,
        ranking::{Place, RankedRow, Ranking},
    },
};

/// The lane of names.
const NAMES: f64 = 176.0;
/// A bar, and the words under it.
const CELL: f64 = 156.0;
/// Between cells.
const GUTTER: f64 = 20.0;
/// From row to row.
const STEP: f64 = 38.0;
const COLUMNS: f64 = Aspect::ALL.len() as f64;
const WIDTH: f64 = NAMES + COLUMNS * (CELL + GUTTER) - GUTTER;

const NOTE_TEXT: &str = "To the right of the line it is better, to the left worse; grey is level within the noise. Under \
    each bar: how many times, and against whom.";

/// The overview as a file; none when the subject can be compared with nobody.
pub(super) fn draw(report: &Report, ranking: &Ranking<'_>) -> Option<String> {
    let compared = ranking.compared();
    if compared.is_empty() {
        return None;
    }
    let subject = ranking.subject;
    let index = report
        .clients
        .iter()
        .position(|client| client.name == subject);
    let class = colour::class(index.unwrap_or(0));
    let title = format!("{subject} against the best of the others");
    let mut paper = Paper::new(WIDTH);
    paper.write(TITLE, &title);
    paper.write(SOFT, &format!("{}. {NOTE_TEXT}", ranking.headline()));
    if let Some(caution) = ranking.caution() {
        paper.write(SOFT, caution);
    }
    paper.skip(16.0);
    head(&mut paper);
    let reach = advantage::reach(&compared);
    let mut suite = "";
    for row in compared {
        if row.view.table.suite != suite {
            suite = &row.view.table.suite;
            paper.skip(10.0);
            paper.write(HEADING, &format!("Suite {suite}"));
            paper.skip(4.0);
        }
        paper.rule("hair");
        let corner = paper.corner();
        paper.markup.within("g", &[("class", &class)], |page| {
            line(page, row, reach, corner);
        });
        paper.skip(STEP);
    }
    let missing = report
        .clients
        .iter()
        .filter(|client| client.missing.is_some());
    let missing: Vec<&str> = missing.map(|client| client.name.as_str()).collect();
    if !missing.is_empty() {
        paper.write(NOTE, &format!("Not measured: {}.", missing.join(", ")));
    }
    let measured = report
        .clients
        .iter()
        .filter(|client| client.missing.is_none());
    let measured: Vec<&str> = measured.map(|client| client.name.as_str()).collect();
    paper.conditions(report, &measured);
    Some(paper.finish(report, subject, &title))
}

/// Where the column of the question at `index` begins.
fn column(left: f64, index: usize) -> f64 {
    left + NAMES + index as f64 * (CELL + GUTTER)
}

fn head(paper: &mut Paper) {
    let (left, top) = paper.corner();
    for (index, aspect) in Aspect::ALL.into_iter().enumerate() {
        let at = (column(left, index), top + 13.0);
        label(&mut paper.markup, "caption", at, aspect.name());
    }
    paper.skip(20.0);
    paper.rule("strong");
}

fn line(page: &mut Markup, row: &RankedRow<'_>, reach: f64, (left, top): (f64, f64)) {
    let row_name = fit(&row.view.row.workload, NAMES - 12.0);
    label(page, "first", (left, top + 16.0), &row_name);
    label(page, "mention", (left, top + 31.0), &row.view.row.profile);
    if let (Some(absence), true) = (&row.absence, row.places.is_empty()) {
        let text = fit(absence, WIDTH - NAMES);
        return label(page, "absent", (column(left, 0), top + 16.0), &text);
    }
    for (index, aspect) in Aspect::ALL.into_iter().enumerate() {
        let at = (column(left, index), top);
        match row.place(aspect) {
            Some(place) => cell(page, place, reach, at),
            None => label(page, "quiet", (at.0, at.1 + 16.0), "–"),
        }
    }
}

fn cell(page: &mut Markup, place: &Place<'_>, reach: f64, (x, y): (f64, f64)) {
    let (left, top, wide, high) = (Px(x), Px(y + 7.0), Px(CELL), Px(advantage::HEIGHT));
    let attributes: &[(&'static str, &dyn std::fmt::Display)] = &[
        ("x", &left),
        ("y", &top),
        ("width", &wide),
        ("height", &high),
    ];
    advantage::draw(page, place, reach, attributes);
    let verdict = advantage::verdict(place);
    let free = CELL - width(verdict.chars().count()) - 6.0;
    label(page, "verdict", (x, y + 31.0), &verdict);
    label(
        page,
        "rival",
        (x + CELL, y + 31.0),
        &fit_name(place.rival, free),
    );
}
