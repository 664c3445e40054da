//! The charts of a report as pictures of their own: SVG files that a document can show.
//!
//! There is one picture of how the subject stands against the best of the others ([`overview`]), one of each suite at each
//! latency profile with the speed, processor time and memory of all its rows, and one of each row, of each family of rows and
//! of each workload's way to the store with all their charts. They are the charts of the page, drawn by the same code.
//!
//! A picture is complete in itself: title, clients with their versions, machine, and what failed. It brings its style sheet,
//! follows light and dark, has a paper of its own because it does not know on what it is shown, and holds no script, nothing
//! to be fetched and no path of the machine that it was measured on.

use std::collections::BTreeSet;

use self::sheet::{Band, Sheet};
use crate::{
    record::{Report, Table},
    report::{
        charts,
        family::Family,
        figure::Aspect,
        notes,
        ranking::{self, Ranking},
        sections::{self, Section},
        view::{self, RowView},
    },
};

mod overview;
mod paper;
mod sheet;

/// What the pictures of suites show of each row.
const SUITE_ASPECTS: [Aspect; 3] = [Aspect::Speed, Aspect::Processor, Aspect::Memory];

/// A picture.
#[derive(Clone, Debug)]
pub struct Picture {
    /// A name for its file, unique among the pictures of a report: `ossfs2-read-1-lan.svg`.
    pub name: String,
    /// The file.
    pub text: String,
}

/// All pictures of `report`; none when nothing was measured.
#[must_use]
pub fn write(report: &Report) -> Vec<Picture> {
    let Some(ranking) = ranking::rank(report) else {
        return Vec::new();
    };
    let mut album = Album {
        report,
        ranking: &ranking,
        pictures: Vec::new(),
        names: BTreeSet::new(),
    };
    album.overview();
    let views = view::rows(report);
    for table in &report.tables {
        let own = views.iter().filter(|view| std::ptr::eq(view.table, table));
        album.suite(table, &sections::by_workload(own));
    }
    album.pictures
}

struct Album<'a> {
    report: &'a Report,
    ranking: &'a Ranking<'a>,
    pictures: Vec<Picture>,
    names: BTreeSet<String>,
}

impl Album<'_> {
    fn overview(&mut self) {
        if let Some(text) = overview::draw(self.report, self.ranking) {
            self.add(&["overview"], text);
        }
    }

    fn suite(&mut self, table: &Table, rows: &[RowView<'_>]) {
        let sections = sections::of(rows);
        for profile in profiles(rows) {
            self.profile(table, profile, &sections);
        }
        for section in &sections {
            match section {
                Section::Row(view) if view.has_begun() => self.row(table, view),
                Section::Row(_) => {}
                Section::Family(family) => self.family(table, family),
                Section::Distance(family) => self.distance(table, family),
            }
        }
    }

    /// The rows of a suite at one latency profile, without those that a family's curves show.
    fn profile(&mut self, table: &Table, profile: &str, sections: &[Section<'_, '_>]) {
        let shown = sections.iter().filter_map(|section| match section {
            Section::Row(view) if view.row.profile == profile && view.has_begun() => Some(*view),
            _ => None,
        });
        let shown: Vec<&RowView<'_>> = shown.collect();
        if shown.len() < 2 {
            return;
        }
        let bands = shown.iter().map(|view| Band {
            heading: sections::title(&view.row.description).0.to_owned(),
            mention: view.row.workload.clone(),
            charts: charts::of_aspects(view, &SUITE_ASPECTS),
        });
        let sheet = Sheet {
            title: format!("Suite {} · {profile}", table.suite),
            subtitle: sections::scale(table),
            sentence: None,
            bands: bands.collect(),
            notes: notes::merged(&shown),
        };
        let text = sheet.draw(self.report, self.ranking.subject, &shown);
        self.add(&[&table.suite, profile], text);
    }

    fn row(&mut self, table: &Table, view: &RowView<'_>) {
        let (title, rest) = sections::title(&view.row.description);
        let subtitle = [&table.suite, &view.row.workload, &view.row.profile].map(String::as_str);
        let subtitle = subtitle.into_iter().chain([rest]);
        let sheet = Sheet {
            title: title.to_owned(),
            subtitle: joined(subtitle.map(str::to_owned).chain(view.runs())),
            sentence: self.ranking.sentence_about(view),
            bands: vec![Band::alone(charts::of_row(view))],
            notes: notes::merged(&[view]),
        };
        let text = sheet.draw(self.report, self.ranking.subject, &[view]);
        let name = [&table.suite, &view.row.workload, &view.row.profile];
        self.add(&name.map(String::as_str), text);
    }

    fn family(&mut self, table: &Table, family: &Family<'_, '_>) {
        let name = [&table.suite, family.name, family.profile()];
        let title = sections::family_title(family);
        self.curves(title, &name, (family, charts::of_family(family)));
    }

    fn distance(&mut self, table: &Table, family: &Family<'_, '_>) {
        let first = family.members.first();
        let title = first.map_or("", |first| sections::title(&first.row.row.description).0);
        let name = [&table.suite, family.name, "by distance"];
        self.curves(
            title.to_owned(),
            &name,
            (family, charts::of_distance(family)),
        );
    }

    fn curves(
        &mut self,
        title: String,
        name: &[&str],
        (family, charts): (&Family<'_, '_>, Vec<charts::chart::Chart<'_>>),
    ) {
        let rows: Vec<_> = family.members.iter().map(|member| member.row).collect();
        if charts.is_empty() {
            return;
        }
        let runs = rows.first().and_then(|row| row.runs());
        let sheet = Sheet {
            title,
            subtitle: joined(name.iter().map(|&part| part.to_owned()).chain(runs)),
            sentence: None,
            bands: vec![Band::alone(charts)],
            notes: notes::merged(&rows),
        };
        let text = sheet.draw(self.report, self.ranking.subject, &rows);
        self.add(name, text);
    }

    fn add(&mut self, parts: &[&str], text: String) {
        let stem = file_stem(parts);
        let numbered = (2..).map(|number| format!("{stem}-{number}"));
        let mut free = std::iter::once(stem.clone()).chain(numbered);
        let stem = free
            .find(|name| self.names.insert(name.clone()))
            .unwrap_or(stem);
        let name = format!("{stem}.svg");
        self.pictures.push(Picture { name, text });
    }
}

/// The latency profiles of `rows`, in their order.
fn profiles<'a>(rows: &[RowView<'a>]) -> Vec<&'a str> {
    let mut profiles: Vec<&str> = Vec::new();
    for row in rows {
        if !profiles.contains(&row.row.profile.as_str()) {
            profiles.push(&row.row.profile);
        }
    }
    profiles
}

/// What is not empty, with a dot between.
fn joined(parts: impl Iterator<Item = String>) -> String {
    let told = parts.filter(|part| !part.is_empty());
    told.collect::<Vec<_>>().join(" · ")
}

/// `parts` as a name that every file system and every URL takes.
fn file_stem(parts: &[&str]) -> String {
    let plain = |c: char| match c {
        'a'..='z' | '0'..='9' | '.' | '_' => c,
        'A'..='Z' => c.to_ascii_lowercase(),
        _ => '-',
    };
    let stem: String = parts.join("-").chars().map(plain).collect();
    stem.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests;
