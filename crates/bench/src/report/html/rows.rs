//! The body of the page: suites, their workloads, and each workload's rows as small charts.
//!
//! Rows of one workload at several latency profiles stand under one heading. Rows of a family become curves, once, where the
//! first of them stands; their tables follow.

use super::{bars, curves, latency, markup::Markup, notes, tables};
use crate::{
    record::{Row, Table},
    report::{
        family::{self, Family},
        figure::{Aspect, Figure, Percentile},
        published,
        ranking::{Ranking, Standing},
        units,
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
    let own = by_workload(views.iter().filter(|view| std::ptr::eq(view.table, table)));
    let families = family::families(&own);
    let distances = family::distances(&own);
    page.within("section", &[("class", &"suite")], |page| {
        page.within("div", &[("class", &"suite-head")], |page| {
            page.leaf("h2", &[], &format!("Suite {}", table.suite));
            page.leaf("p", &[("class", &"note")], &scale(table));
        });
        let mut heading = "";
        for view in &own {
            if let Some(family) = families.iter().find(|family| family.contains(view)) {
                let first = family
                    .members
                    .iter()
                    .all(|member| position(&own, view) <= position(&own, member.row));
                if first {
                    write_family(page, family);
                }
                continue;
            }
            if view.row.workload != heading {
                heading = &view.row.workload;
                heading_of(page, &view.row.description);
            }
            write_row(page, view, ranking);
            let distance = distances.iter().find(|distance| distance.contains(view));
            let last = |distance: &&Family<'_, '_>| {
                distance
                    .members
                    .last()
                    .is_some_and(|member| std::ptr::eq(member.row.row, view.row))
            };
            if let Some(distance) = distance.filter(last) {
                write_distance(page, distance);
            }
        }
        unavailable(page, table);
    });
}

/// The first sentence of `description` as a heading, the others under it.
fn heading_of(page: &mut Markup, description: &str) {
    let (title, rest) = description.split_once(". ").unwrap_or((description, ""));
    page.leaf("h3", &[], title.trim_end_matches('.'));
    if !rest.is_empty() {
        page.leaf("p", &[("class", &"note")], rest);
    }
}

/// The rows with those of one workload together, in the order in which workloads first appear.
fn by_workload<'v, 'a: 'v>(rows: impl Iterator<Item = &'v RowView<'a>>) -> Vec<RowView<'a>> {
    let mut groups: Vec<Vec<RowView<'a>>> = Vec::new();
    for row in rows {
        let same = |group: &&mut Vec<RowView<'a>>| {
            group
                .first()
                .is_some_and(|first| first.row.workload == row.row.workload)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(row.clone()),
            None => groups.push(vec![row.clone()]),
        }
    }
    groups.concat()
}

fn position(views: &[RowView<'_>], wanted: &RowView<'_>) -> usize {
    views
        .iter()
        .position(|view| std::ptr::eq(view.row, wanted.row))
        .unwrap_or(0)
}

fn scale(table: &Table) -> String {
    match table.scale {
        1.0 => "Sizes as in the source.".to_owned(),
        scale => format!("Sizes are {} of those of the source.", units::scale(scale)),
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
            for figure in [Figure::Bandwidth, Figure::CpuPerGib] {
                if is_published_besides(view, figure) {
                    bars::write(page, view, figure);
                }
            }
            if view.has(Figure::PeakDisk) {
                bars::write(page, view, Figure::PeakDisk);
            }
            latency::write(page, view);
        });
        notes::write(page, &[view]);
        page.within("details", &[], |page| {
            page.leaf("summary", &[], "Numbers and commands");
            tables::measured(page, view);
            tables::published(page, view.published());
            commands(page, view.row);
        });
    });
}

/// Whether others published `figure` of a row whose own speed and cost are in other units.
fn is_published_besides(view: &RowView<'_>, figure: Figure) -> bool {
    let shown = Aspect::ALL
        .iter()
        .any(|aspect| view.figure(*aspect) == figure);
    !shown
        && view
            .published()
            .iter()
            .any(|entry| published::value(entry, figure).is_some())
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
        page.within("div", &[("class", &"panels")], |page| {
            for aspect in [Aspect::Speed, Aspect::Processor, Aspect::Memory] {
                curves::write(page, family, aspect);
            }
        });
    });
}

fn write_family(page: &mut Markup, family: &Family<'_, '_>) {
    let (Some(first), Some(last)) = (family.members.first(), family.members.last()) else {
        return;
    };
    let range = format!("{} to {} {}", first.label, last.label, family.of);
    let name = family.name.replace('-', " ");
    let title = if name == family.of {
        range
    } else {
        format!("{}: {range}", capitalised(&name))
    };
    page.leaf("h3", &[], &title);
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
            for percentile in ["50", "99"].into_iter().filter_map(Percentile::parse) {
                curves::write_figure(page, family, Figure::Latency(percentile));
            }
        });
        let members: Vec<_> = family.members.iter().map(|member| member.row).collect();
        notes::write(page, &members);
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
