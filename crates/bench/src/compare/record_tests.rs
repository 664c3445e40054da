//! What is made of reports that were measured: the same three rows of `smoke` three times by two
//! clients on a machine on which others worked, and once more with 24 MiB/s instead of what loopback
//! has.

use super::*;
use crate::record;

fn once() -> Report {
    record::load(include_str!("records/once.json")).expect("a report")
}

fn again() -> Report {
    record::load(include_str!("records/again.json")).expect("a report")
}

fn throttled() -> Report {
    record::load(include_str!("records/throttled.json")).expect("a report")
}

fn verdict(comparison: &Comparison, workload: &str) -> Verdict {
    let row = comparison
        .rows
        .iter()
        .find(|row| row.workload == workload)
        .expect("both have the row");
    row.verdict
}

/// The report with the runs of every client shuffled between the two halves of a longer series.
fn halves(report: &Report) -> (Report, Report) {
    let (mut even, mut odd) = (report.clone(), report.clone());
    for (half, rest) in [(&mut even, 0), (&mut odd, 1)] {
        let rows = half.tables.iter_mut().flat_map(|table| &mut table.rows);
        for cell in rows.flat_map(|row| &mut row.cells) {
            let mut index = 0;
            cell.samples.retain(|_| {
                index += 1;
                index % 2 == rest
            });
        }
    }
    (even, odd)
}

#[test]
fn the_same_thing_measured_twice_agrees_but_for_what_was_disturbed() {
    let comparison = compare(&once(), &again());
    assert_eq!(verdict(&comparison, "read-1"), Verdict::Agrees);
    assert_eq!(verdict(&comparison, "small-write"), Verdict::Agrees);
    let allowed = comparison.compared.div_ceil(20);
    assert!(
        comparison.changes.len() <= allowed,
        "{:#?}",
        comparison.changes
    );
    assert!(comparison.changes.iter().all(|change| change.knows_noise));
    let disturbed = comparison.disturbed.expect("others worked");
    assert!(disturbed.starts_with("Runs disturbed by foreign load: "));
}

#[test]
fn a_slower_network_differs_in_what_it_slows_and_in_nothing_else() {
    let comparison = compare(&once(), &throttled());
    assert_eq!(verdict(&comparison, "read-1"), Verdict::Differs);
    assert_eq!(verdict(&comparison, "small-write"), Verdict::Differs);
    assert_eq!(verdict(&comparison, "ls"), Verdict::Agrees);
    let bandwidth: Vec<_> = comparison
        .changes
        .iter()
        .filter(|change| change.figure == Figure::Bandwidth && change.place.workload == "read-1")
        .map(|change| (change.place.client.as_str(), change.better))
        .collect();
    assert_eq!(bandwidth, [("penstock", false), ("s3fs", false)]);
    let memory = |change: &Change| change.figure == Figure::PeakMemory;
    assert!(!comparison.changes.iter().any(memory));
    let back = compare(&throttled(), &once());
    assert_eq!(back.changes.len(), comparison.changes.len());
    assert!(comparison.warnings[0].contains("24 MiB/s now"));
}

#[test]
fn every_report_agrees_with_itself_in_every_row() {
    for report in [once(), again(), throttled()] {
        let comparison = compare(&report, &report);
        assert_eq!(comparison.rows.len(), 3);
        let agree = |row: &RowVerdict| row.verdict == Verdict::Agrees && row.differing.is_empty();
        assert!(comparison.rows.iter().all(agree), "{:#?}", comparison.rows);
    }
}

#[test]
fn single_runs_agree_only_as_far_as_they_can_tell() {
    let (_, single) = halves(&again());
    let (one, _) = halves(&once());
    let comparison = compare(&one, &single);
    assert!(comparison.compared > 0);
    assert!(
        comparison
            .rows
            .iter()
            .all(|row| row.verdict != Verdict::Agrees)
    );
    assert!(comparison.changes.iter().all(|change| !change.knows_noise));
    let itself = compare(&one, &one);
    assert!(
        itself
            .rows
            .iter()
            .all(|row| row.verdict == Verdict::Unknown)
    );
    let text = itself.terminal(&Default::default());
    assert!(text.contains("3 ran too seldom to tell"), "{text}");
}

#[test]
fn a_client_that_fails_in_one_of_them_makes_the_row_differ() {
    let mut broken = again();
    for sample in &mut broken.tables[0].rows[0].cells[1].samples {
        sample.failure = Some("it broke".to_owned());
    }
    let comparison = compare(&again(), &broken);
    let row = &comparison.rows[0];
    assert_eq!((row.verdict, row.differing.len()), (Verdict::Differs, 1));
    assert_eq!(row.differing[0].sentence(), "s3fs: fails");
    let markdown = comparison.markdown();
    assert!(markdown.contains("| **differs** |"), "{markdown}");
}
