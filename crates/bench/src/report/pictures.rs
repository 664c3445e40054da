//! The charts of a report as pictures of their own: SVG files that a document can show.
//!
//! There is one picture of each suite at each latency profile, with the speed, processor time and memory of all its rows,
//! and one of each row, of each family of rows and of each workload's way to the store, with all charts of that section of
//! the page. A picture is complete in itself: title, clients with their versions, machine, and what failed. It brings its
//! style sheet, follows light and dark, has a paper of its own because it does not know on what it is shown, and holds no
//! script, nothing to be fetched and no path of the machine that it was measured on.

use std::collections::BTreeSet;

use minijinja::{Value, context};

use super::{
    CHART_STYLE, index_of, place, render,
    sections::{self, Section},
    summary, version_of,
};
use crate::record::Report;

/// Charts of each row in the pictures of suites: speed, processor time, memory.
const SUITE_CHARTS: usize = 3;

/// A picture.
#[derive(Clone, Debug)]
pub struct Picture {
    /// A name for its file, unique among the pictures of a report: `ossfs2-read-1-lan.svg`.
    pub name: String,
    /// The file.
    pub text: String,
}

/// All pictures of `report`; none when nothing was measured.
pub fn pictures(report: &Report) -> Vec<Picture> {
    let Some(ranking) = summary::rank(report) else {
        return Vec::new();
    };
    let views = summary::rows(report);
    let subject = index_of(report, ranking.subject);
    let mut pictures = Vec::new();
    let mut names = BTreeSet::new();
    let mut add = |name: [&str; 3], title: String, sections: &[&Section<'_>]| {
        let text = draw(report, subject, title, sections);
        let stem = file_stem(&name);
        let numbered = (2..).map(|number| format!("{stem}-{number}"));
        let mut free = std::iter::once(stem.clone()).chain(numbered);
        let name = free.find(|name| names.insert(name.clone())).unwrap_or(stem);
        let name = format!("{name}.svg");
        pictures.push(Picture { name, text });
    };
    for table in &report.tables {
        let suite = table.suite.as_str();
        let sections = sections::of(table, &views);
        let drawn: Vec<_> = sections.iter().filter(|it| !it.charts.is_empty()).collect();
        let profiles: BTreeSet<&str> = drawn.iter().map(|section| section.tag).collect();
        for profile in profiles {
            let rows = drawn.iter().copied();
            let rows = rows.filter(|it| it.tag == profile && it.rows.len() == 1);
            let rows: Vec<_> = rows.collect();
            if rows.len() > 1 {
                let title = format!("Suite {suite} · {profile}");
                add([suite, profile, ""], title, &rows);
            }
        }
        for section in drawn {
            let name = [suite, section.name, section.tag];
            add(name, section.title.clone(), &[section]);
        }
    }
    pictures
}

/// The picture of `sections`: all charts of one, the first of several.
fn draw(
    report: &Report,
    subject: Option<usize>,
    title: String,
    sections: &[&Section<'_>],
) -> String {
    let alone = sections.first().filter(|_| sections.len() == 1);
    let mut head = vec![("title", 22, title)];
    head.extend(alone.map(|section| {
        let runs = section.runs.as_deref().unwrap_or_default();
        let parts = [section.name, section.tag, runs].join(" · ");
        ("soft", 13, format!("{parts} {}", section.rest))
    }));
    let bands = sections.iter().map(|section| match alone {
        Some(_) => context! { charts => section.charts },
        None => context! {
            heading => without_paths(&format!("{} · {}", section.title, section.name)),
            charts => section.charts.iter().take(SUITE_CHARTS).collect::<Vec<_>>(),
        },
    });
    let clients = report.clients.iter();
    let clients = clients.filter(|client| client.missing.is_none());
    let clients = clients.map(|client| format!("{} {}", client.name, version_of(client)));
    let clients: Vec<String> = clients.collect();
    let notes = sections.iter().flat_map(|section| {
        let notes = section.notes.iter();
        notes.map(|note| match alone {
            Some(_) => note.clone(),
            None => format!("{note} ({})", section.name),
        })
    });
    let notes = notes.chain([clients.join(" · "), place(report)]);
    let values = context! {
        subject,
        style => CHART_STYLE,
        columns => alone.map_or(SUITE_CHARTS, |section| section.charts.len().min(SUITE_CHARTS)),
        head => head.into_iter().map(|(class, size, text)| (class, size, without_paths(&text))).collect::<Vec<_>>(),
        bands => bands.collect::<Vec<Value>>(),
        notes => notes.map(|note| without_paths(&note)).collect::<Vec<_>>(),
    };
    render("picture.svg", values)
}

/// `parts` as a name that every file system and every URL takes.
fn file_stem(parts: &[&str]) -> String {
    let plain = |c: char| match c {
        'a'..='z' | '0'..='9' | '.' | '_' => c,
        'A'..='Z' => c.to_ascii_lowercase(),
        _ => '-',
    };
    let stem = parts.join("-");
    let stem: String = stem.trim_end_matches('-').chars().map(plain).collect();
    stem.trim_start_matches('.').to_owned()
}

/// `text` with `…` for each word, or the end of one, that is a path of this machine.
pub(super) fn without_paths(text: &str) -> String {
    let words = text.split_inclusive(char::is_whitespace);
    let shorten = |word: &str| match path_in(word) {
        Some(at) => {
            let end = word.trim_end().len();
            format!("{}…{}", &word[..at], &word[end..])
        }
        None => word.to_owned(),
    };
    words.map(shorten).collect()
}

/// Where in `word` a path begins: at a slash that follows no letter and no digit, as those of units and URLs do.
fn path_in(word: &str) -> Option<usize> {
    let is_path = |at: &usize| {
        let before = word[..*at].chars().next_back();
        let starts = before.is_none_or(|c| !c.is_alphanumeric() && c != '/');
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
        let name = word[at + 1..].chars().take_while(|c| is_name(*c)).count();
        starts && name > 1
    };
    let mut slashes = word.match_indices('/').map(|(at, _)| at);
    word.find("file://").or_else(|| slashes.find(is_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_hold_no_path_of_this_machine() {
        let cases = [
            ("failed: cannot open /tmp/a b", "failed: cannot open … b"),
            ("(/mnt) log=/var/log/x\n", "(… log=…\n"),
            ("~/x.y, ../../up and file:///srv/a", "~… ..… and …"),
            (
                "120 MiB/s, 16 /s, 1/50, and/or",
                "120 MiB/s, 16 /s, 1/50, and/or",
            ),
            (
                "https://oss.example.com/a/b s3://x/y",
                "https://oss.example.com/a/b s3://x/y",
            ),
        ];
        for (text, shown) in cases {
            assert_eq!(without_paths(text), shown);
        }
        assert_eq!(file_stem(&["..", "/etc"]), "--etc");
    }
}
