use super::*;
use crate::{
    record::Report,
    report::{specimen, summary},
};

#[test]
fn rows_that_differ_in_a_number_are_a_family_in_order() {
    let report = specimen::report();
    let rows = summary::rows(&report);
    let rows: Vec<_> = rows.iter().collect();
    let families = families(&rows);
    let names: Vec<_> = families
        .iter()
        .map(|it| (it.name, it.of.as_str()))
        .collect();
    assert_eq!(names, [("random-read", "readers"), ("targets", "targets")]);
    let labels: Vec<_> = families[0].members.iter().map(|it| &it.0).collect();
    assert_eq!(labels, ["4", "16", "64", "256", "1,024"]);
}

/// The workloads of the first suite along their distance, each with the places of its charts.
fn distances(report: &Report) -> Vec<(String, Vec<String>)> {
    let views = summary::rows(report);
    let sections = of(&report.tables[0], &views).into_iter();
    let found = sections.filter(|section| section.tag == "by distance");
    found
        .map(|section| (section.name.to_owned(), section.charts[0].places.clone()))
        .collect()
}

#[test]
fn a_workload_at_several_profiles_is_a_family_along_the_distance() {
    let found = distances(&specimen::report());
    let names: Vec<_> = found.iter().map(|it| it.0.as_str()).collect();
    assert_eq!(names, ["write-1", "read-1"]);
    assert_eq!(found[0].1, ["lan", "far"]);
}

#[test]
fn a_distance_begins_near_whatever_was_run_first() {
    let mut report = specimen::report();
    report.tables[0].rows.reverse();
    let found = distances(&report);
    assert_eq!(found[0].1, ["lan", "far"]);
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

#[test]
fn a_note_of_all_rows_is_told_once_and_that_of_one_names_it() {
    let mut report = specimen::report();
    let sample = &mut report.tables[2].rows[1].cells[0].samples[0];
    sample.failure = Some("it broke".to_owned());
    let rows = summary::rows(&report);
    let family: Vec<_> = rows
        .iter()
        .filter(|row| row.table.suite == "strmvol")
        .collect();
    let idle = "Not run: mount-s3, s3fs, rclone".to_owned();
    let broken = "† penstock: 1 of 3 runs failed: it broke (random-read-16)".to_owned();
    assert_eq!(notes(&family), [idle, broken]);
    assert_eq!(notes(&family[..1]).len(), 1);
}
