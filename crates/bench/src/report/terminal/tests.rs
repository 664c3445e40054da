use super::*;
use crate::report::specimen;

fn options(width: usize) -> Options {
    Options {
        width,
        ..Options::default()
    }
}

fn shown(report: &Report, workload: &str, profile: &str, options: &Options) -> String {
    let mut rows = report
        .tables
        .iter()
        .flat_map(|table| table.rows.iter().map(move |row| (table, row)));
    let (table, entry) = rows
        .find(|(_, row)| row.workload == workload && row.profile == profile)
        .expect("the specimen has the row");
    row(report, table, entry, options)
}

#[test]
fn a_row_at_eighty_columns() {
    let text = shown(&specimen::report(), "read-4", "far", &options(80));
    assert_eq!(text, include_str!("golden-80.txt"));
}

#[test]
fn a_wide_terminal_shows_every_spread_and_latency() {
    let text = shown(&specimen::report(), "small-files", "lan", &options(200));
    assert!(text.contains("p99.9") && text.contains("amplif."), "{text}");
    assert!(text.matches('±').count() > 20, "{text}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for report in [specimen::report(), specimen::extremes(), specimen::empty()] {
        for columns in [40, 60, 80, 100, 200] {
            for boxes in [false, true] {
                let text = write(
                    &report,
                    &Options {
                        width: columns,
                        colour: false,
                        boxes,
                    },
                );
                for line in text.lines() {
                    assert!(width(line) <= columns, "{columns}: {line}");
                }
            }
        }
    }
}

#[test]
fn only_colour_that_was_asked_for_reaches_the_terminal() {
    let report = specimen::extremes();
    let plain = write(&report, &options(80));
    assert!(!plain.contains('\u{1b}') && !plain.contains('\u{7}'));
    let coloured = write(
        &report,
        &Options {
            colour: true,
            ..options(80)
        },
    );
    assert!(
        !coloured.contains("\u{1b}[31mcolour"),
        "a name painted itself"
    );
    let painted = write(
        &specimen::report(),
        &Options {
            colour: true,
            ..options(80)
        },
    );
    assert!(painted.contains("\u{1b}[31mfailed") && painted.contains("\u{1b}[1;32m"));
}

#[test]
fn failures_missing_clients_and_unavailable_rows_are_said() {
    let text = write(&specimen::report(), &options(100));
    assert!(text.contains("failed: fio: pid 8123: read: Transport endpoint is not connected"));
    assert!(text.contains("juicefs is missing"));
    assert!(text.contains("not available: there is no stream volume yet"));
    assert!(text.contains("! rclone: 1 of 3 runs failed: timed out after 300 s, killed"));
    assert!(text.contains("measured elsewhere: ossfs 2.0"));
    assert!(text.contains("Where penstock is behind:"));
}

fn line_at(done: usize, seconds: f64, columns: usize) -> String {
    let now = Progress {
        done,
        total: 12,
        seconds,
        current: "read-4 · far, s3fs, run 2 of 3",
        run: 2,
    };
    progress(&now, columns)
}

#[test]
fn the_line_tells_count_time_left_and_what_runs() {
    assert_eq!(
        line_at(3, 60.0, 80),
        "████░░░░░░░░░░░░ 3/12, 3 min left  read-4 · far, s3fs, run 2 of 3"
    );
    assert_eq!(
        line_at(1, 60.0, 80),
        "█░░░░░░░░░░░░░░░ 1/12  read-4 · far, s3fs, run 2 of 3"
    );
    assert!(line_at(2, 3600.0, 80).contains("5 h 0 min left"));
}

#[test]
fn it_never_is_wider_than_the_terminal() {
    for columns in 0..90 {
        assert!(width(&line_at(4, 100.0, columns)) <= columns, "{columns}");
    }
    assert!(line_at(99, 1.0, 80).contains("12/12, 0 s left"));
}
