//! The report: what was run, where, by whom, and what was seen. Plain data, saved as JSON.
//!
//! Units are in the names: seconds, bytes. What can be derived is not stored, so that two readers of one report cannot
//! disagree: rates and costs follow in [`Figure::of`](crate::report::figure::Figure::of).
//!
//! [`load`] looks at the format's number before anything else, so that a report of another version is refused with one
//! sentence instead of a complaint about some field. JSON has no word for "not a number": [`save`] makes a sample that
//! holds one a failed run that says so, which keeps the other runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{BenchError, BenchResult};

/// The version of this structure; a reader refuses a report with another one.
pub const FORMAT: u32 = 1;

/// One invocation of the benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`] of the writer.
    pub format: u32,
    /// When the first run began, RFC 3339.
    pub started: String,
    /// Where it was measured.
    pub machine: Machine,
    /// What the clients talked to.
    pub endpoint: Endpoint,
    /// Each client that was asked for, whether it could be run or not.
    pub clients: Vec<Client>,
    /// Each table that was asked for, in the order in which it is shown.
    pub tables: Vec<Table>,
}

/// The machine that the clients ran on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's own name.
    pub processor: String,
    /// Logical processors.
    pub processors: u32,
    /// Physical memory.
    pub memory_bytes: u64,
    /// `uname -r`.
    pub kernel: String,
    /// The distribution's name and version.
    pub system: String,
}

/// The store that the clients mounted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Endpoint {
    /// In words: "development server on this machine", an URL without credentials, "directory /mnt/x".
    pub description: String,
    /// Whether it shares the machine with the clients, and so its processors.
    pub same_machine: bool,
}

/// One program that makes a bucket a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Client {
    /// Its name in the table of clients.
    pub name: String,
    /// What its version command printed, first line.
    pub version: Option<String>,
    /// Why it could not be run, when it could not.
    pub missing: Option<String>,
    /// The mount command as it was run, credentials left out.
    pub command: String,
}

/// A published table, or one of ours: workloads down, clients across.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Table {
    /// The suite that it belongs to: `ossfs2`, `fss`, ...
    pub suite: String,
    /// The factor by which sizes were scaled down from the source's.
    pub scale: f64,
    /// The rows.
    pub rows: Vec<Row>,
}

/// One workload at one latency profile.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Short and stable, unique in the suite: `write-1`, `read-4`, `small-files`.
    pub workload: String,
    /// A sentence for people: what is done, with its sizes.
    pub description: String,
    /// The commands as they were run.
    pub commands: Vec<String>,
    /// The latency profile: `lan`, `near`, `region`, `far`, `distant`, or `as is`.
    pub profile: String,
    /// Why the row cannot be run yet, when it cannot.
    pub unavailable: Option<String>,
    /// What each client did, in the order of [`Report::clients`].
    pub cells: Vec<Cell>,
    /// What others published about it, measured elsewhere.
    pub published: Vec<Published>,
}

/// A client's runs of a workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// [`Client::name`].
    pub client: String,
    /// One per repetition.
    pub samples: Vec<Sample>,
}

/// One run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Why it failed; then the figures are what was seen until then.
    pub failure: Option<String>,
    /// Wall time of the workload itself, without mount and unmount.
    pub seconds: f64,
    /// Since it began, when everything that it wrote was in the store; only of rows that wait for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_seconds: Option<f64>,
    /// Payload that the workload moved.
    pub bytes: u64,
    /// Operations that the workload counts: files, I/Os, entries. 0 when bytes are all it counts.
    pub operations: u64,
    /// Processor time of the client's whole process tree during the workload.
    pub client_cpu_seconds: f64,
    /// Processor time of the workload's own processes.
    pub workload_cpu_seconds: f64,
    /// Processor time that neither client, workload nor server used: the machine was not ours alone.
    pub foreign_cpu_seconds: f64,
    /// Largest resident memory of the client's process tree.
    pub peak_resident_bytes: u64,
    /// Largest use of temporary and cache directories.
    pub peak_disk_bytes: u64,
    /// Requests that reached the server, by operation (`GetObject`, ...). Empty where the server does not count.
    pub requests: BTreeMap<String, u64>,
    /// Body bytes that the server sent.
    pub server_sent_bytes: u64,
    /// Body bytes that the server received.
    pub server_received_bytes: u64,
    /// Latency of one operation by percentile ("50", "99", "99.9"), seconds.
    pub latency_seconds: BTreeMap<String, f64>,
    /// Whether what was moved was compared with what it must be; `None` where the workload has no content.
    pub verified: Option<bool>,
    /// The run was disturbed, in words ("0.8 cores of foreign load").
    pub disturbed: Option<String>,
}

/// A figure that somebody published about this workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Published {
    /// The client, as the source names it.
    pub client: String,
    /// The source's figures as printed there, by column ("bandwidth", "CPU", "peak memory").
    pub figures: BTreeMap<String, String>,
    /// Where it stands and on what it was measured.
    pub source: String,
}

/// The reason that is given for a run which moved something else than what it must be.
const WRONG_CONTENT: &str = "the content is not what it must be";

impl Sample {
    /// Why the run does not count, if so: it failed, or it moved wrong bytes.
    pub fn fault(&self) -> Option<&str> {
        let wrong = (self.verified == Some(false)).then_some(WRONG_CONTENT);
        self.failure.as_deref().or(wrong)
    }

    fn keep_numbers(&mut self) {
        let figures = [
            &mut self.seconds,
            &mut self.client_cpu_seconds,
            &mut self.workload_cpu_seconds,
            &mut self.foreign_cpu_seconds,
        ];
        let mut broken = false;
        let figures = figures.into_iter().chain(&mut self.stored_seconds);
        for figure in figures.filter(|figure| !figure.is_finite()) {
            *figure = 0.0;
            broken = true;
        }
        let latencies = &mut self.latency_seconds;
        let before = latencies.len();
        latencies.retain(|_, seconds| seconds.is_finite());
        if broken || latencies.len() < before {
            let why = || "a figure was not a number".to_owned();
            self.failure.get_or_insert_with(why);
        }
    }
}

/// `report` as JSON, indented, with a newline at its end.
///
/// # Errors
/// Not for any report that the runner makes.
pub fn save(report: &Report) -> BenchResult<String> {
    let mut report = report.clone();
    let rows = report.tables.iter_mut().flat_map(|table| &mut table.rows);
    let cells = rows.flat_map(|row| &mut row.cells);
    let samples = cells.flat_map(|cell| &mut cell.samples);
    samples.for_each(Sample::keep_numbers);
    let text = serde_json::to_string_pretty(&report);
    let text = text.map_err(|error| {
        BenchError::new(
            format!("the report cannot be written as JSON: {error}"),
            "report this",
        )
    })?;
    Ok(text + "\n")
}

/// The report that `text` is.
///
/// # Errors
/// Another version wrote it, or it is no report.
pub fn load(text: &str) -> BenchResult<Report> {
    #[derive(Deserialize)]
    struct Head {
        format: u32,
    }
    let no_report = |error: serde_json::Error| {
        let cause = format!("this is not a benchmark report: {error}");
        BenchError::new(cause, "give a file that `penstock bench run` wrote")
    };
    let Head { format } = serde_json::from_str(text).map_err(no_report)?;
    if format != FORMAT {
        let cause = format!("the report has format {format}, this version reads format {FORMAT}");
        let remedy = "show it with the version that wrote it, or measure again";
        return Err(BenchError::new(cause, remedy));
    }
    serde_json::from_str(text).map_err(no_report)
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
        assert!(error.to_string().contains("format 7"), "{error}");
        assert!(!error.to_string().contains('\n'));
    }

    #[test]
    fn what_is_no_report_is_refused() {
        for text in ["", "[]", "{", r#"{"format": 1}"#, r#"{"format": "1"}"#] {
            let error = load(text).expect_err("refused").to_string();
            assert!(
                error.starts_with("this is not a benchmark report: "),
                "{text}: {error}"
            );
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

    #[test]
    fn wrong_content_is_a_fault_like_a_failure() {
        let with = |failure: Option<&str>, verified| Sample {
            failure: failure.map(str::to_owned),
            verified,
            ..Sample::default()
        };
        assert_eq!(with(None, None).fault(), None);
        assert_eq!(with(None, Some(true)).fault(), None);
        assert_eq!(with(None, Some(false)).fault(), Some(WRONG_CONTENT));
        assert_eq!(
            with(Some("timed out"), Some(false)).fault(),
            Some("timed out")
        );
    }
}
