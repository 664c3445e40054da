//! What is shown of a suite, and in which order: rows of one workload together, rows of a family once.
//!
//! Rows of a family become curves where the first of them would stand; a workload that ran at several latency profiles is
//! followed by how the clients keep up with the distance.

use crate::{
    record::Table,
    report::{
        family::{self, Family},
        units,
        view::RowView,
    },
};

/// Something that is shown as one.
pub(super) enum Section<'v, 'a> {
    /// A workload at one latency profile.
    Row(&'v RowView<'a>),
    /// Rows that differ in a number.
    Family(Family<'v, 'a>),
    /// One workload at several latency profiles, each of which is a [`Section::Row`] too.
    Distance(Family<'v, 'a>),
}

/// The sections of a suite's rows, which are in the order of [`by_workload`].
pub(super) fn of<'v, 'a>(rows: &'v [RowView<'a>]) -> Vec<Section<'v, 'a>> {
    let families = family::families(rows);
    let distances = family::distances(rows);
    let mut sections = Vec::new();
    for view in rows {
        if let Some(family) = families.iter().find(|family| family.contains(view)) {
            let place = |row| position(rows, row);
            let mut members = family.members.iter();
            if members.all(|member| place(view) <= place(member.row)) {
                sections.push(Section::Family(family.clone()));
            }
            continue;
        }
        sections.push(Section::Row(view));
        let is_last = |distance: &&Family<'_, '_>| {
            let places = distance.members.iter();
            let last = places.map(|member| position(rows, member.row)).max();
            last == Some(position(rows, view))
        };
        sections.extend(
            distances
                .iter()
                .find(is_last)
                .cloned()
                .map(Section::Distance),
        );
    }
    sections
}

/// The rows with those of one workload together, in the order in which workloads first appear.
pub(super) fn by_workload<'v, 'a: 'v>(
    rows: impl Iterator<Item = &'v RowView<'a>>,
) -> Vec<RowView<'a>> {
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

/// How sizes relate to those of the source, in a sentence.
pub(super) fn scale(table: &Table) -> String {
    match table.scale {
        1.0 => "Sizes as in the source.".to_owned(),
        scale => format!("Sizes are {} of those of the source.", units::scale(scale)),
    }
}

/// The first sentence of `description` without its stop, and the others.
pub(super) fn title(description: &str) -> (&str, &str) {
    let (title, rest) = description.split_once(". ").unwrap_or((description, ""));
    (title.trim_end_matches('.'), rest)
}

/// "Random read: 4 to 1,024 threads".
pub(super) fn family_title(family: &Family<'_, '_>) -> String {
    let label = |member: Option<&family::Member<'_, '_>>| {
        member.map_or(String::new(), |member| member.label.clone())
    };
    let (first, last) = (label(family.members.first()), label(family.members.last()));
    let range = format!("{first} to {last} {}", family.of);
    let name = family.name.replace('-', " ");
    match name == family.of {
        true => range,
        false => format!("{}: {range}", capitalised(&name)),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.trim().chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}
