//! The report: what was run, where, by whom, and what was seen. Plain data, saved as JSON.
//!
//! Units are in the names: seconds, bytes, and bytes per second derived from them. Nothing that can be derived is stored, so that
//! two readers of one report cannot disagree.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    /// The latency profile: `lan`, `region`, `far`, or `as is`.
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
