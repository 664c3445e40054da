//! The body of the page: suites, their workloads, and each workload's rows as small charts.
//!
//! Rows of one workload at several latency profiles stand under one heading. What is shown in which order is not decided
//! here but in [`sections`].

use super::tables;
use crate::{
    record::{Row, Table},
    report::{
        charts::{self, chart::Chart, markup::Markup},
        family::Family,
        notes,
        ranking::Ranking,
        sections::{self, Section},
        view::RowView,
    },
};

/// Writes `table`, whose runnable rows are among `views`.
pub(super) fn suite(
    page: &mut Markup,
    table: &Table,
    views: &[RowView<'_>],
    ranking: Option<&Ranking<'_>>,
) {
    let own = sections::by_workload(views.iter().filter(|view| std::ptr::eq(view.table, table)));
    page.within("section", &[("class", &"suite")], |page| {
        page.within("div", &[("class", &"suite-head")], |page| {
            page.leaf("h2", &[], &format!("Suite {}", table.suite));
            page.leaf("p", &[("class", &"note")], &sections::scale(table));
        });
        let mut heading = "";
        for section in sections::of(&own) {
            match section {
                Section::Row(view) => {
                    if view.row.workload != heading {
                        heading = &view.row.workload;
                        heading_of(page, &view.row.description);
                    }
                    write_row(page, view, ranking);
                }
                Section::Family(family) => write_family(page, &family),
                Section::Distance(family) => write_distance(page, &family),
            }
        }
        unavailable(page, table);
    });
}

/// The first sentence of `description` as a heading, the others under it.
fn heading_of(page: &mut Markup, description: &str) {
    let (title, rest) = sections::title(description);
    page.leaf("h3", &[], title);
    if !rest.is_empty() {
        page.leaf("p", &[("class", &"note")], rest);
    }
}

/// Charts side by side, each under its caption.
fn panels(page: &mut Markup, charts: &[Chart<'_>]) {
    page.within("div", &[("class", &"panels")], |page| {
        for chart in charts {
            page.within("figure", &[("class", &"chart")], |page| {
                page.within("figcaption", &[], |page| {
                    page.leaf("b", &[], &chart.title);
                    page.text(" ");
                    page.leaf("span", &[], &chart.note);
                });
                chart.drawing(page, &[]);
            });
        }
    });
}

/// What failed, what was disturbed, who did not run.
fn notes(page: &mut Markup, rows: &[&RowView<'_>]) {
    let notes = notes::merged(rows);
    if notes.is_empty() {
        return;
    }
    page.within("ul", &[("class", &"footnotes")], |page| {
        for note in &notes {
            page.leaf("li", &[], note);
        }
    });
}

fn write_row(page: &mut Markup, view: &RowView<'_>, ranking: Option<&Ranking<'_>>) {
    page.within("article", &[], |page| {
        row_head(page, view, ranking);
        if !view.has_begun() {
            return page.leaf("p", &[("class", &"note")], "Not run yet.");
        }
        panels(page, &charts::of_row(view));
        notes(page, &[view]);
        page.within("details", &[], |page| {
            page.leaf("summary", &[], "Numbers and commands");
            tables::measured(page, view);
            tables::published(page, view.published());
            commands(page, view.row);
        });
    });
}

fn row_head(page: &mut Markup, view: &RowView<'_>, ranking: Option<&Ranking<'_>>) {
    page.within("h4", &[], |page| {
        page.leaf("span", &[("class", &"tag")], &view.row.profile);
        page.text(" ");
        page.leaf("code", &[], &view.row.workload);
        let runs = view
            .runs()
            .map_or(String::new(), |runs| format!(" · {runs}"));
        page.leaf("span", &[("class", &"faint")], &runs);
    });
    if let Some(sentence) = ranking.and_then(|ranking| ranking.sentence_about(view)) {
        page.leaf("p", &[("class", &"verdict-line")], &sentence);
    }
}

fn commands(page: &mut Markup, row: &Row) {
    if !row.commands.is_empty() {
        let text = row.commands.join("\n");
        page.within("pre", &[("tabindex", &"0")], |page| {
            page.leaf("code", &[], &text);
        });
    }
}

/// How the clients keep up as the store gets farther away.
fn write_distance(page: &mut Markup, family: &Family<'_, '_>) {
    page.within("article", &[], |page| {
        page.within("h4", &[], |page| {
            page.leaf("span", &[("class", &"tag")], "by distance");
            page.text(" ");
            page.leaf("code", &[], family.name);
        });
        panels(page, &charts::of_distance(family));
    });
}

fn write_family(page: &mut Markup, family: &Family<'_, '_>) {
    page.leaf("h3", &[], &sections::family_title(family));
    page.within("article", &[], |page| {
        page.within("h4", &[], |page| {
            page.leaf("span", &[("class", &"tag")], family.profile());
            page.text(" ");
            page.leaf("code", &[], &format!("{}-…", family.name));
        });
        panels(page, &charts::of_family(family));
        let members: Vec<_> = family.members.iter().map(|member| member.row).collect();
        notes(page, &members);
        page.within("details", &[], |page| {
            page.leaf("summary", &[], "Numbers and commands");
            for member in &family.members {
                tables::measured(page, member.row);
                tables::published(page, member.row.published());
                commands(page, member.row.row);
            }
        });
    });
}

fn unavailable(page: &mut Markup, table: &Table) {
    let rows = table
        .rows
        .iter()
        .filter_map(|row| Some((row, row.unavailable.as_ref()?)));
    let lines: Vec<_> = rows.collect();
    if lines.is_empty() {
        return;
    }
    page.leaf("h3", &[], "Not available");
    page.within("ul", &[("class", &"plain")], |page| {
        for (row, reason) in lines {
            page.within("li", &[], |page| {
                page.leaf("b", &[], &format!("{} · {}", row.workload, row.profile));
                page.text(&format!(" {}: {reason}", row.description));
            });
        }
    });
}
