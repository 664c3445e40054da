//! Rows that make a curve: the same workload at several sizes of one thing.
//!
//! Rows of one suite and profile whose names differ only in the number at their end (`random-read-4`, `random-read-8`, ...)
//! are a family when there are at least [`LEAST_MEMBERS`] of them. What the number counts is taken from the descriptions: the
//! word that follows the number in each ("4 threads read ...": threads). A workload that runs at several latency profiles is
//! a family too, along the distance to the store.

use crate::report::view::RowView;

/// Two points are two bars; a curve begins at three.
const LEAST_MEMBERS: usize = 3;

/// Rows that differ in one number.
#[derive(Clone, Debug)]
pub struct Family<'v, 'a> {
    /// What the members' names have in common: `random-read`.
    pub name: &'a str,
    /// What the number counts: "threads".
    pub of: String,
    /// The members by their numbers, ascending.
    pub members: Vec<(f64, &'v RowView<'a>)>,
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
            Some(family) => family.members.push((number, row)),
            None => families.push(Family {
                name,
                of: String::new(),
                members: vec![(number, row)],
            }),
        }
    }
    families.retain(|family| family.members.len() >= LEAST_MEMBERS);
    for family in &mut families {
        family.members.sort_by(|a, b| a.0.total_cmp(&b.0));
        family.of = family.counted_thing();
    }
    families
}

impl<'v, 'a> Family<'v, 'a> {
    fn takes(&self, name: &str, row: &RowView<'_>) -> bool {
        let first = self.members.first().map(|(_, row)| row);
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
            .any(|(_, member)| std::ptr::eq(member.row, row.row))
    }

    /// The latency profile of all members.
    #[must_use]
    pub fn profile(&self) -> &'a str {
        self.members
            .first()
            .map_or("", |(_, member)| &member.row.profile)
    }

    /// The word behind the number in every description, in its plural; else the members' common name.
    fn counted_thing(&self) -> String {
        let words = self
            .members
            .iter()
            .map(|(number, member)| word_after(&member.row.description, *number));
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
        let numbers: Vec<f64> = families[0]
            .members
            .iter()
            .map(|(number, _)| *number)
            .collect();
        assert_eq!(numbers, [4.0, 16.0, 64.0, 256.0, 1024.0]);
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
