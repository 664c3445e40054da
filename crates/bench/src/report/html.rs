//! A report as one page that a person would rather look at than read.
//!
//! The page is a single file without network, script or foreign font. It begins with what was found, losses included
//! ([`findings`]), shows where the subject stands against the best of the others ([`overview`]), then each row and each family
//! of rows as small charts ([`rows`]); every chart has its numbers beside it and a table under it ([`tables`]). Conditions
//! come last ([`conditions`]).
//!
//! All charts are SVG within the page, drawn by [`charts`](super::charts) and coloured by the page's own variables.

mod conditions;
mod findings;
mod overview;
mod rows;
mod tables;

use crate::{
    record::Report,
    report::{
        charts::{self, colour, markup::Markup},
        ranking::{self, Ranking},
        view,
    },
};

const STYLE: &str = include_str!("html/style.css");

/// All of `report` as one HTML page.
#[must_use]
pub fn write(report: &Report) -> String {
    let ranking = ranking::rank(report);
    let title = ranking
        .as_ref()
        .map_or("Nothing could be measured".to_owned(), Ranking::headline);
    let mut page = Markup::document();
    page.within("html", &[("lang", &"en")], |page| {
        let subject = ranking.as_ref().map(|ranking| ranking.subject);
        head(page, &title, &charts::style(report, subject));
        page.within("body", &[], |page| {
            masthead(page, report, &title);
            page.within("main", &[], |page| body(page, report, ranking.as_ref()));
        });
    });
    page.finish()
}

fn head(page: &mut Markup, title: &str, charts: &str) {
    page.within("head", &[], |page| {
        page.empty("meta", &[("charset", &"utf-8")]);
        let viewport = "width=device-width, initial-scale=1";
        page.empty("meta", &[("name", &"viewport"), ("content", &viewport)]);
        page.empty(
            "meta",
            &[("name", &"color-scheme"), ("content", &"light dark")],
        );
        page.leaf("title", &[], title);
        page.within("style", &[], |page| {
            page.trusted(&format!("\n{charts}{STYLE}"));
        });
    });
}

fn masthead(page: &mut Markup, report: &Report, title: &str) {
    page.within("header", &[("class", &"masthead")], |page| {
        let day = report.started.split('T').next().unwrap_or_default();
        page.leaf(
            "p",
            &[("class", &"kicker")],
            &format!("File clients side by side · {day}"),
        );
        page.leaf("h1", &[], title);
        page.leaf("p", &[("class", &"dek")], &conditions::sentence(report));
        colour::legend(page, report);
    });
}

fn body(page: &mut Markup, report: &Report, ranking: Option<&Ranking<'_>>) {
    if let Some(ranking) = ranking {
        page.within("section", &[("class", &"findings")], |page| {
            findings::write(page, ranking);
            overview::write(page, report, ranking);
        });
    }
    let views = view::rows(report);
    for table in &report.tables {
        rows::suite(page, table, &views, ranking);
    }
    conditions::write(page, report);
}

#[cfg(test)]
mod tests;
