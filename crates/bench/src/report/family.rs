//! Rows that make a curve: the same workload at several sizes of one thing.
//!
//! Rows of one suite and profile whose names differ only in the number at their end (`random-read-4`, `random-read-8`, ...)
//! are a family when there are at least [`LEAST_MEMBERS`] of them. What the number counts is taken from the descriptions: the
//! word that follows the number in each ("4 threads read ...": threads).
//!
//! A workload that runs at several latency profiles is a family of another kind: [`distances`], along the way to the store.

use std::time::Duration;

use crate::{
    report::{units, view::RowView},
    settings,
};

/// Two points are two bars; a curve begins at three.
const LEAST_MEMBERS: usize = 3;

/// Two profiles are a difference worth a line.
const LEAST_PROFILES: usize = 2;

/// Rows that differ in one thing.
#[derive(Clone, Debug)]
pub struct Family<'v, 'a> {
    /// What the members' names have in common: `random-read`.
    pub name: &'a str,
    /// What the members differ in: "threads".
    pub of: String,
    /// How the members lie on an axis.
    pub spacing: Spacing,
    /// The members in the order of the axis.
    pub members: Vec<Member<'v, 'a>>,
}

/// How the members of a family lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// By the logarithm of their numbers.
    Logarithmic,
    /// At even steps; their numbers only count them.
    Even,
}

/// A row and its place in its family.
#[derive(Clone, Debug)]
pub struct Member<'v, 'a> {
    /// Its place on the axis.
    pub at: f64,
    /// What the axis calls it: "1,024", "far".
    pub label: String,
    /// The row.
    pub row: &'v RowView<'a>,
}

/// The families among `rows`, in the order of their first members.
#[must_use]
pub fn families<'v, 'a>(rows: &'v [RowView<'a>]) -> Vec<Family<'v, 'a>> {
    let mut families: Vec<Family<'v, 'a>> = Vec::new();
    for row in rows {
        let Some((name, number)) = split(&row.row.workload) else {
            continue;
        };
        match families.iter_mut().find(|family| family.takes(name, row)) {
            Some(family) => family.members.push(numbered(number, row)),
            None => families.push(Family {
                name,
                of: String::new(),
                spacing: Spacing::Logarithmic,
                members: vec![numbered(number, row)],
            }),
        }
    }
    families.retain(|family| family.members.len() >= LEAST_MEMBERS);
    for family in &mut families {
        family.members.sort_by(|a, b| a.at.total_cmp(&b.at));
        family.of = family.counted_thing();
    }
    families
}

fn numbered<'v, 'a>(number: f64, row: &'v RowView<'a>) -> Member<'v, 'a> {
    let label = units::thousands(number);
    Member {
        at: number,
        label,
        row,
    }
}

/// The workloads of one suite's `rows` that run at several latency profiles, the nearest first.
#[must_use]
pub fn distances<'v, 'a>(rows: &'v [RowView<'a>]) -> Vec<Family<'v, 'a>> {
    let mut families: Vec<Family<'v, 'a>> = Vec::new();
    for row in rows.iter().filter(|row| row.has_begun()) {
        let (name, label) = (&row.row.workload, row.row.profile.clone());
        match families.iter_mut().find(|family| family.name == *name) {
            Some(family) => family.members.push(Member {
                at: 0.0,
                label,
                row,
            }),
            None => families.push(Family {
                name,
                of: "latency profile".to_owned(),
                spacing: Spacing::Even,
                members: vec![Member {
                    at: 0.0,
                    label,
                    row,
                }],
            }),
        }
    }
    families.retain(|family| family.members.len() >= LEAST_PROFILES);
    for family in &mut families {
        family
            .members
            .sort_by_key(|member| latency_of(&member.label));
        let places = family.members.iter_mut().zip(0_u32..);
        places.for_each(|(member, place)| member.at = f64::from(place));
    }
    families
}

impl<'v, 'a> Family<'v, 'a> {
    fn takes(&self, name: &str, row: &RowView<'_>) -> bool {
        let first = self.members.first().map(|member| member.row);
        self.name == name
            && first.is_some_and(|first| {
                first.table.suite == row.table.suite && first.row.profile == row.row.profile
            })
    }

    /// Whether `row` is one of the members.
    #[must_use]
    pub fn contains(&self, row: &RowView<'_>) -> bool {
        self.members
            .iter()
            .any(|member| std::ptr::eq(member.row.row, row.row))
    }

    /// The latency profile of all members.
    #[must_use]
    pub fn profile(&self) -> &'a str {
        self.members
            .first()
            .map_or("", |member| &member.row.row.profile)
    }

    /// The word behind the number in every description, in its plural; else the members' common name.
    fn counted_thing(&self) -> String {
        let words = self
            .members
            .iter()
            .map(|member| word_after(&member.row.row.description, member.at));
        let words: Option<Vec<&str>> = words.collect();
        let longest = words
            .as_ref()
            .and_then(|words| words.iter().max_by_key(|word| word.len()));
        let same = |longest: &str| {
            words
                .iter()
                .flatten()
                .all(|word| longest.starts_with(word.trim_end_matches('s')))
        };
        match longest {
            Some(longest) if same(longest) => (*longest).to_owned(),
            _ => format!("N of {}-N", self.name),
        }
    }
}

/// How far away the store is in a latency profile; one that is not known is the farthest.
fn latency_of(profile: &str) -> Duration {
    settings::latency(profile).unwrap_or(Duration::MAX)
}

/// `random-read-4` as `random-read` and 4.
fn split(workload: &str) -> Option<(&str, f64)> {
    let (name, number) = workload.rsplit_once('-')?;
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|_| digits && !name.is_empty())?;
    Some((name, number))
}

/// The word that follows `number` in `text`, which may separate its thousands.
fn word_after(text: &str, number: f64) -> Option<&str> {
    let mut words = text.split_whitespace();
    words.find(|word| word.replace(',', "").parse() == Ok(number))?;
    let word = words.next()?.trim_matches(|c: char| !c.is_alphanumeric());
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{specimen, view};

    #[test]
    fn rows_that_differ_in_a_number_are_a_family_in_order() {
        let report = specimen::report();
        let rows = view::rows(&report);
        let families = families(&rows);
        let names: Vec<_> = families
            .iter()
            .map(|it| (it.name, it.of.as_str()))
            .collect();
        assert_eq!(names, [("random-read", "readers"), ("targets", "targets")]);
        let numbers: Vec<f64> = families[0].members.iter().map(|member| member.at).collect();
        assert_eq!(numbers, [4.0, 16.0, 64.0, 256.0, 1024.0]);
    }

    #[test]
    fn a_workload_at_several_profiles_is_a_family_along_the_distance() {
        let report = specimen::report();
        let rows = view::rows(&report);
        let found = distances(&rows);
        let names: Vec<_> = found.iter().map(|family| family.name).collect();
        assert_eq!(names, ["write-1", "read-1"]);
        let labels: Vec<_> = found[0]
            .members
            .iter()
            .map(|member| &member.label)
            .collect();
        assert_eq!(labels, ["lan", "far"]);
    }

    #[test]
    fn a_distance_begins_near_whatever_was_run_first() {
        let mut report = specimen::report();
        report.tables[0].rows.reverse();
        let rows = view::rows(&report);
        let found = distances(&rows);
        let members = found[0].members.iter();
        let members: Vec<_> = members.map(|it| (it.label.as_str(), it.at)).collect();
        assert_eq!(members, [("lan", 0.0), ("far", 1.0)]);
    }

    #[test]
    fn names_are_split_at_a_whole_number() {
        assert_eq!(split("random-read-1024"), Some(("random-read", 1024.0)));
        for name in ["read", "read-", "-4", "read-4k", "read-+4"] {
            assert_eq!(split(name), None, "{name}");
        }
    }

    #[test]
    fn the_counted_thing_follows_the_number() {
        assert_eq!(
            word_after("1,024 readers, 100 KB files", 1024.0),
            Some("readers")
        );
        assert_eq!(word_after("reads at concurrency 4", 4.0), None);
        assert_eq!(word_after("no number", 4.0), None);
    }
}
