use super::*;
use crate::{
    record::Sample,
    report::{specimen, terminal::Options},
};

impl Comparison {
    /// Whether nothing is different, the conditions apart.
    fn is_unchanged(&self) -> bool {
        self.outcomes.is_empty()
            && self.changes.is_empty()
            && self.appeared.is_empty()
            && self.vanished.is_empty()
    }
}

/// The specimen with `change` made to every run of `client` in `workload` at lan.
fn with(workload: &str, client: &str, change: impl Fn(&mut Sample)) -> Report {
    let mut report = specimen::report();
    let rows = report.tables.iter_mut().flat_map(|table| &mut table.rows);
    for row in rows.filter(|row| row.workload == workload && row.profile == "lan") {
        for cell in row.cells.iter_mut().filter(|cell| cell.client == client) {
            cell.samples.iter_mut().for_each(&change);
        }
    }
    report
}

#[test]
fn a_report_is_the_same_as_itself() {
    for report in [specimen::report(), specimen::extremes(), specimen::empty()] {
        let comparison = compare(&report, &report);
        assert!(comparison.is_unchanged(), "{comparison:#?}");
        assert!(comparison.warnings.is_empty());
    }
}

#[test]
fn a_change_beyond_the_noise_is_found_and_one_within_is_not() {
    let slower = with("read-1", "penstock", |sample| sample.seconds *= 1.25);
    let comparison = compare(&specimen::report(), &slower);
    let found: Vec<_> = comparison
        .changes
        .iter()
        .map(|it| (it.figure, it.better))
        .collect();
    assert_eq!(found, [(Figure::Bandwidth, false)]);
    assert!((comparison.changes[0].factor() - 0.8).abs() < 1e-6);
    let jitter = with("read-1", "penstock", |sample| sample.seconds *= 1.04);
    assert!(compare(&specimen::report(), &jitter).is_unchanged());
}

#[test]
fn after_single_runs_only_a_fifth_counts_and_is_marked() {
    let by = |factor: f64| {
        let changed = with("sequential-10", "ossfs2", |sample| {
            sample.client_cpu_seconds *= factor;
        });
        compare(&specimen::report(), &changed).changes
    };
    assert!(by(1.15).is_empty());
    let changes = by(1.5);
    assert_eq!(changes.len(), 1);
    assert!(!changes[0].knows_noise && !changes[0].better);
}

#[test]
fn the_greatest_change_comes_first_whichever_way_it_goes() {
    let mut after = with("read-1", "penstock", |sample| {
        sample.peak_resident_bytes *= 4;
    });
    let faster = with("small-files", "s3fs", |sample| sample.seconds /= 2.0);
    after.tables[0].rows[5] = faster.tables[0].rows[5].clone();
    let comparison = compare(&specimen::report(), &after);
    let figures: Vec<_> = comparison
        .changes
        .iter()
        .map(|change| change.figure)
        .collect();
    assert_eq!(figures, [Figure::PeakMemory, Figure::OperationRate]);
    assert!(comparison.changes[1].better);
}

#[test]
fn what_stopped_working_is_told_before_figures() {
    let broken = with("read-1", "s3fs", |sample| {
        sample.failure = Some("it broke".into());
    });
    let there = compare(&specimen::report(), &broken);
    assert!(!there.outcomes[0].mended && there.outcomes[0].reason == "it broke");
    assert!(compare(&broken, &specimen::report()).outcomes[0].mended);
}

#[test]
fn rows_and_clients_that_only_one_has_are_named() {
    let mut fewer = specimen::report();
    fewer.tables[0].rows.remove(2);
    fewer.clients[4].missing = Some("gone".into());
    for row in fewer.tables.iter_mut().flat_map(|table| &mut table.rows) {
        row.cells.retain(|cell| cell.client != "s3fs");
    }
    let there = compare(&specimen::report(), &fewer);
    assert!(there.vanished.contains(&"read-1 · lan (ossfs2)".to_owned()));
    assert!(
        there
            .vanished
            .contains(&"s3fs in write-1 · lan (ossfs2)".to_owned())
    );
    let back = compare(&fewer, &specimen::report());
    assert_eq!(there.vanished.len(), back.appeared.len());
}

#[test]
fn different_conditions_are_warned_of_first() {
    let mut other = specimen::report();
    other.machine.processors = 192;
    other.machine.memory_bytes = 768 << 30;
    other.clients[1].version = Some("9".into());
    other.tables[0].scale = 1.0;
    other.tables[0].rows[0].commands = vec!["dd".into()];
    let comparison = compare(&specimen::report(), &other);
    let warnings = comparison.warnings.join("\n");
    for part in [
        "number of processors: 2 before, 192 now",
        "memory: ",
        "version of ossfs2",
        "scale of ossfs2",
        "command of write-1",
    ] {
        assert!(warnings.contains(part), "{part} is not in {warnings}");
    }
    let text = comparison.terminal(&Options::default());
    assert!(text.find("conditions differ").expect("warned") < text.find("5 %").expect("method"));
}

#[test]
fn every_form_of_output_is_whole() {
    let mut after = with("read-1", "penstock", |sample| sample.seconds *= 3.0);
    after.tables[0].rows[0].workload = "<new> | row".to_owned();
    let comparison = compare(&specimen::report(), &after);
    let markdown = comparison.markdown();
    assert!(markdown.contains("| -67 % | **worse** |"), "{markdown}");
    assert!(markdown.contains("&lt;new&gt; \\| row"), "{markdown}");
    let json: serde_json::Value =
        serde_json::from_str(&comparison.json().expect("written")).expect("JSON");
    assert_eq!(json["changes"][0]["figure"], "bandwidth");
    for width in [40, 80, 200] {
        let text = comparison.terminal(&Options {
            width,
            ..Options::default()
        });
        assert!(
            text.lines()
                .all(|line| penstock_base::text::width(line) <= width),
            "{text}"
        );
        assert!(text.contains("-67 %"), "{text}");
    }
}
