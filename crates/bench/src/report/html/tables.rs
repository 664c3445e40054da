//! The numbers under the charts: every figure of every client, and what others published, as printed there.

use crate::{
    record::Published,
    report::{
        charts::{
            colour,
            markup::{Attributes, Markup},
        },
        figure::{Aspect, Figure},
        units,
        view::{ClientView, Outcome, RowView},
    },
};

/// A table that may be wider than the page: it scrolls by itself.
pub(super) fn scrolling(page: &mut Markup, caption: &str, content: impl FnOnce(&mut Markup)) {
    let attributes: Attributes<'_> = &[
        ("class", &"scroll"),
        ("role", &"region"),
        ("tabindex", &"0"),
        ("aria-label", &caption),
    ];
    page.within("div", attributes, |page| {
        page.within("table", &[("class", &"numbers")], |page| {
            page.leaf("caption", &[], caption);
            content(page);
        });
    });
}

/// Every figure of `view`.
pub(super) fn measured(page: &mut Markup, view: &RowView<'_>) {
    let figures = view.figures();
    scrolling(
        page,
        &format!(
            "{}: medians ± how far off another series of runs may be",
            view.title()
        ),
        |page| {
            page.within("thead", &[], |page| {
                page.within("tr", &[], |page| {
                    page.leaf("th", &[("scope", &"col")], "client");
                    for figure in &figures {
                        head(page, view, *figure);
                    }
                });
            });
            page.within("tbody", &[], |page| {
                for client in view.sorted_by(view.figure(Aspect::Speed)) {
                    page.within("tr", &[], |page| line(page, view, client, &figures));
                }
            });
        },
    );
}

fn head(page: &mut Markup, view: &RowView<'_>, figure: Figure) {
    let unit = figure.unit_for(view.greatest(figure).unwrap_or(0.0));
    page.within("th", &[("scope", &"col")], |page| {
        page.text(&figure.name());
        page.text(" ");
        page.leaf("span", &[("class", &"faint")], unit.name);
    });
}

fn line(page: &mut Markup, view: &RowView<'_>, client: &ClientView<'_>, figures: &[Figure]) {
    page.within(
        "th",
        &[("scope", &"row"), ("class", &colour::class(client.index))],
        |page| {
            page.leaf("span", &[("class", &"dot")], "");
            page.text(client.name);
        },
    );
    if let Some(absence) = client.absence() {
        let class = if client.outcome() == Outcome::NotRun {
            "quiet"
        } else {
            "absent"
        };
        let span = figures.len().max(1);
        return page.leaf("td", &[("colspan", &span), ("class", &class)], &absence);
    }
    for figure in figures {
        cell(page, view, client, *figure);
    }
}

fn cell(page: &mut Markup, view: &RowView<'_>, client: &ClientView<'_>, figure: Figure) {
    let Some(summary) = client.summary(figure) else {
        return page.leaf("td", &[("class", &"faint")], "–");
    };
    let unit = figure.unit_for(view.greatest(figure).unwrap_or(summary.median));
    let class = if view.is_best(client, figure) {
        "best"
    } else {
        ""
    };
    page.within("td", &[("class", &class)], |page| {
        page.text(&unit.number(summary.median));
        page.leaf(
            "span",
            &[("class", &"faint")],
            &format!(" {}", units::spread(&summary)),
        );
    });
}

/// What others published, in their own words.
pub(super) fn published(page: &mut Markup, published: &[Published]) {
    let mut columns: Vec<&str> = Vec::new();
    for column in published.iter().flat_map(|entry| entry.figures.keys()) {
        if !columns.contains(&column.as_str()) {
            columns.push(column);
        }
    }
    if columns.is_empty() {
        return;
    }
    scrolling(page, "Measured elsewhere, as published", |page| {
        page.within("thead", &[], |page| {
            page.within("tr", &[], |page| {
                for column in ["client"].iter().chain(&columns) {
                    page.leaf("th", &[("scope", &"col")], column);
                }
                page.leaf("th", &[("scope", &"col"), ("class", &"prose")], "source");
            });
        });
        page.within("tbody", &[], |page| {
            for entry in published {
                page.within("tr", &[], |page| {
                    page.leaf("th", &[("scope", &"row")], &entry.client);
                    for column in &columns {
                        page.leaf(
                            "td",
                            &[],
                            entry.figures.get(*column).map_or("–", String::as_str),
                        );
                    }
                    page.leaf("td", &[("class", &"prose")], &entry.source);
                });
            }
        });
    });
}
