//! A report as JSON: the record itself, saved and loaded.
//!
//! The format's number is looked at before anything else, so that a report of another version is refused with one sentence
//! instead of a complaint about some field. JSON has no word for "not a number": a sample that holds one is saved as a failed
//! run that says so, which keeps the other runs.

use serde::Deserialize;
use thiserror::Error;

use crate::record::{FORMAT, Report, Sample};

/// Why a report could not be saved or loaded.
#[derive(Debug, Error)]
pub enum JsonError {
    /// It could not be written as JSON.
    #[error("the report cannot be written as JSON: {0}")]
    Save(#[source] serde_json::Error),
    /// The text is not JSON, or not that of a report.
    #[error("this is not a benchmark report: {0}; give a file that `penstock bench run` wrote")]
    NotReport(#[source] serde_json::Error),
    /// It was written by another version.
    #[error(
        "the report has format {found}, this version reads format {FORMAT}: \
         show it with the version that wrote it, or measure again"
    )]
    OtherFormat {
        /// The number in the file.
        found: u32,
    },
}

/// `report` as JSON, indented, with a newline at its end.
///
/// # Errors
/// [`JsonError::Save`]; not for any report that the runner makes.
pub fn save(report: &Report) -> Result<String, JsonError> {
    let sound = with_numbers_only(report.clone());
    let mut text = serde_json::to_string_pretty(&sound).map_err(JsonError::Save)?;
    text.push('\n');
    Ok(text)
}

/// The report that `text` is.
///
/// # Errors
/// [`JsonError::OtherFormat`] before all else, [`JsonError::NotReport`] for what is no report.
pub fn load(text: &str) -> Result<Report, JsonError> {
    #[derive(Deserialize)]
    struct Head {
        format: u32,
    }
    let head: Head = serde_json::from_str(text).map_err(JsonError::NotReport)?;
    if head.format != FORMAT {
        return Err(JsonError::OtherFormat { found: head.format });
    }
    serde_json::from_str(text).map_err(JsonError::NotReport)
}

fn with_numbers_only(mut report: Report) -> Report {
    let rows = report.tables.iter_mut().flat_map(|table| &mut table.rows);
    let cells = rows.flat_map(|row| &mut row.cells);
    cells
        .flat_map(|cell| &mut cell.samples)
        .for_each(keep_numbers);
    report
}

fn keep_numbers(sample: &mut Sample) {
    let figures = [
        &mut sample.seconds,
        &mut sample.client_cpu_seconds,
        &mut sample.workload_cpu_seconds,
        &mut sample.foreign_cpu_seconds,
    ];
    let mut broken = false;
    for figure in figures.into_iter().filter(|figure| !figure.is_finite()) {
        *figure = 0.0;
        broken = true;
    }
    let before = sample.latency_seconds.len();
    sample
        .latency_seconds
        .retain(|_, seconds| seconds.is_finite());
    if broken || sample.latency_seconds.len() < before {
        sample
            .failure
            .get_or_insert_with(|| "a figure was not a number".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::specimen;

    #[test]
    fn a_saved_report_is_loaded_as_it_was() {
        for report in [specimen::report(), specimen::extremes(), specimen::empty()] {
            let text = save(&report).expect("saved");
            let again = save(&load(&text).expect("loaded")).expect("saved again");
            assert_eq!(text, again);
        }
    }

    #[test]
    fn another_format_is_refused_with_one_sentence() {
        let error = load(r#"{"format": 7, "anything": true}"#).expect_err("refused");
        assert!(matches!(error, JsonError::OtherFormat { found: 7 }));
        assert!(error.to_string().contains("format 7"), "{error}");
        assert!(!error.to_string().contains('\n'));
    }

    #[test]
    fn what_is_no_report_is_refused() {
        for text in ["", "[]", "{", r#"{"format": 1}"#, r#"{"format": "1"}"#] {
            assert!(matches!(load(text), Err(JsonError::NotReport(_))), "{text}");
        }
    }

    #[test]
    fn a_figure_that_is_no_number_costs_its_run_and_not_the_report() {
        let mut report = specimen::report();
        let sample = &mut report.tables[0].rows[0].cells[0].samples[0];
        sample.seconds = f64::NAN;
        sample.latency_seconds = [("50".to_owned(), f64::INFINITY)].into();
        let loaded = load(&save(&report).expect("saved")).expect("loaded");
        let sample = &loaded.tables[0].rows[0].cells[0].samples[0];
        assert_eq!(sample.fault(), Some("a figure was not a number"));
        assert_eq!((sample.seconds, sample.latency_seconds.len()), (0.0, 0));
    }
}
