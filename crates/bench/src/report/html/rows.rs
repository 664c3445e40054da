//! The body of the page: suites, their workloads, and each workload's rows as small charts.
//!
//! Rows of one workload at several latency profiles stand under one heading. Rows of a family become curves, once, where the
//! first of them stands; their tables follow.

use super::{bars, curves, latency, markup::Markup, tables};
use crate::{
    record::{Report, Row, Table},
    report::{
        family::{self, Family},
        figure::{Aspect, Figure},
        ranking::{Ranking, Standing},
        units,
        view::RowView,
    },
};

/// Writes `table`, whose runnable rows are among `views`.
pub(super) fn suite(
    page: &mut Markup,
    report: &Report,
    table: &Table,
    views: &[RowView<'_>],
    ranking: Option<&Ranking<'_>>,
) {
    let own: Vec<RowView<'_>> = views
        .iter()
        .filter(|view| std::ptr::eq(view.table, table))
        .cloned()
        .collect();
    let families = family::families(&own);
    page.within("section", &[("class", &"suite")], |page| {
        page.within("div", &[("class", &"suite-head")], |page| {
            page.leaf("h2", &[], &format!("Suite {}", table.suite));
            page.leaf("p", &[("class", &"note")], &scale(report, table));
        });
        let mut heading = "";
        for view in &own {
            if let Some(family) = families.iter().find(|family| family.contains(view)) {
                let first = family
                    .members
                    .iter()
                    .all(|(_, member)| position(&own, view) <= position(&own, member));
                if first {
                    write_family(page, family);
                }
                continue;
            }
            if view.row.workload != heading {
                heading = &view.row.workload;
                page.leaf("h3", &[], &capitalised(&view.row.description));
            }
            write_row(page, view, ranking);
        }
        unavailable(page, table);
    });
}

fn position(views: &[RowView<'_>], wanted: &RowView<'_>) -> usize {
    views
        .iter()
        .position(|view| std::ptr::eq(view.row, wanted.row))
        .unwrap_or(0)
}

fn scale(report: &Report, table: &Table) -> String {
    let endpoint = &report.endpoint.description;
    match table.scale {
        1.0 => format!("Sizes as in the source; against {endpoint}."),
        scale => format!(
            "Sizes are {} of those of the source; against {endpoint}.",
            units::number(scale)
        ),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.trim().chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn write_row(page: &mut Markup, view: &RowView<'_>, ranking: Option<&Ranking<'_>>) {
    page.within("article", &[], |page| {
        row_head(page, view, ranking);
        if !view.has_begun() {
            return page.leaf("p", &[("class", &"note")], "Not run yet.");
        }
        page.within("div", &[("class", &"panels")], |page| {
            for aspect in Aspect::ALL {
                bars::write(page, view, view.figure(aspect));
            }
            if view.has(Figure::PeakDisk) {
                bars::write(page, view, Figure::PeakDisk);
            }
            latency::write(page, view);
        });
        notes(page, view);
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
            .repeats()
            .map_or(String::new(), |runs| match runs.as_str() {
                "1" => " · one run each, noise unknown".to_owned(),
                runs => format!(" · {runs} runs each"),
            });
        page.leaf("span", &[("class", &"faint")], &runs);
    });
    if let Some(sentence) = ranking.and_then(|ranking| verdict(view, ranking)) {
        page.leaf("p", &[("class", &"verdict-line")], &sentence);
    }
}

/// "penstock is first, 1.33× the speed of ossfs2." in whatever way it is true.
fn verdict(view: &RowView<'_>, ranking: &Ranking<'_>) -> Option<String> {
    let row = ranking
        .rows
        .iter()
        .find(|row| std::ptr::eq(row.view.row, view.row))?;
    let subject = ranking.subject;
    if let Some(absence) = &row.absence {
        return Some(format!("{subject} {absence}."));
    }
    let place = row.place(Aspect::Speed)?;
    let rival = place.rival;
    Some(match place.standing {
        Standing::First => format!(
            "{subject} is {} as fast as the next, {rival}.",
            units::factor(place.advantage)
        ),
        Standing::Level => format!("{subject} and {rival} are as fast, within the noise."),
        Standing::Behind => format!(
            "{rival} is {} as fast as {subject}.",
            units::factor(1.0 / place.advantage)
        ),
    })
}

fn notes(page: &mut Markup, view: &RowView<'_>) {
    let notes: Vec<String> = view
        .clients
        .iter()
        .flat_map(|client| {
            client
                .notes()
                .into_iter()
                .map(|note| format!("† {}: {note}", client.name))
        })
        .collect();
    let failures = view.clients.iter().filter_map(|client| {
        let absence = client
            .absence()
            .filter(|absence| absence.starts_with("failed"))?;
        Some(format!("{} {absence}", client.name))
    });
    let notes: Vec<String> = notes.into_iter().chain(failures).collect();
    if notes.is_empty() {
        return;
    }
    page.within("ul", &[("class", &"footnotes")], |page| {
        for note in &notes {
            page.leaf("li", &[], note);
        }
    });
}

fn commands(page: &mut Markup, row: &Row) {
    if !row.commands.is_empty() {
        let text = row.commands.join("\n");
        page.within("pre", &[("tabindex", &"0")], |page| {
            page.leaf("code", &[], &text)
        });
    }
}

fn write_family(page: &mut Markup, family: &Family<'_, '_>) {
    let (Some((first, _)), Some((last, _))) = (family.members.first(), family.members.last())
    else {
        return;
    };
    let range = format!(
        "{} to {} {}",
        units::thousands(*first),
        units::thousands(*last),
        family.of
    );
    page.leaf(
        "h3",
        &[],
        &format!("{}: {range}", capitalised(&family.name.replace('-', " "))),
    );
    page.within("article", &[], |page| {
        page.within("h4", &[], |page| {
            page.leaf("span", &[("class", &"tag")], family.profile());
            page.text(" ");
            page.leaf("code", &[], &format!("{}-…", family.name));
        });
        page.within("div", &[("class", &"panels")], |page| {
            for aspect in Aspect::ALL {
                curves::write(page, family, aspect);
            }
        });
        for (_, member) in &family.members {
            notes(page, member);
        }
        page.within("details", &[], |page| {
            page.leaf("summary", &[], "Numbers and commands");
            for (_, member) in &family.members {
                tables::measured(page, member);
                tables::published(page, member.published());
                commands(page, member.row);
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
