//! The Markdown document: what it holds, and that markup in names is only text.

use super::super::{markdown, specimen};

#[test]
fn a_small_report_is_written_as_the_golden_file() {
    let mut report = specimen::report();
    report.tables.truncate(1);
    report.tables[0]
        .rows
        .retain(|row| row.workload == "read-4" || row.workload == "small-files");
    report
        .clients
        .retain(|client| client.name != "mount-s3" && client.name != "geesefs");
    assert_eq!(markdown(&report), include_str!("golden.md"));
}

#[test]
fn everything_that_a_reader_must_know_is_in_it() {
    let text = markdown(&specimen::report());
    for part in [
        "**juicefs**: \\`juicefs\\` is not on PATH",
        "*Not available: there is no stream volume yet.*",
        "| measured elsewhere |",
        "Intel(R) Xeon(R)",
        "6.18.5",
        "development server on this machine (shares the machine's processors)",
        "fio --name=read-1",
        "penstock bucket /mnt/penstock",
        "All stored, s |",
        "1 of 3 runs disturbed: 0.8 cores of foreign load",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn every_line_of_a_table_has_as_many_cells_as_its_head() {
    for report in [specimen::report(), specimen::extremes()] {
        let mut expected = None;
        for line in markdown(&report).lines() {
            let cells = line
                .starts_with('|')
                .then(|| line.replace("\\|", "").matches('|').count());
            assert!(
                expected.is_none() || cells.is_none() || cells == expected,
                "{line}"
            );
            expected = cells;
        }
    }
}

#[test]
fn markup_in_names_is_only_text_and_every_footnote_is_defined() {
    let text = markdown(&specimen::extremes());
    let outside: String = text.split("```").step_by(2).collect();
    assert!(
        !outside.contains("<script") && !outside.contains("<b>") && !outside.contains("</td>"),
        "{text}"
    );
    let whole = markdown(&specimen::report());
    for number in 1..4 {
        assert!(whole.contains(&format!("\n[^{number}]: ")), "{number}");
    }
}
