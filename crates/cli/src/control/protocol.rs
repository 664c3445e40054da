//! What is said through a control socket.

use std::{collections::BTreeMap, path::PathBuf};

use penstock_base::metrics::{Kind, Sample};
use serde::{Deserialize, Serialize};

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(crate) enum Request {
    /// One [`Reply::Status`].
    Status,
    /// The mount to go away: [`Reply::Progress`] until [`Reply::Ended`] or [`Reply::Refused`].
    Unmount {
        /// Take it out of sight even while files in it are open.
        lazy: bool,
    },
    /// What the disk cache has of keys with this prefix to be dropped: [`Reply::CacheDropped`] or
    /// [`Reply::Refused`].
    DropCache { prefix: String },
}

/// What the mount answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub(crate) enum Reply {
    /// How the mount is.
    Status(Box<Status>),
    /// What is still to be done before the mount can end.
    Progress(Progress),
    /// The mount ended; these files could not be saved, with the reason for each.
    Ended { unsaved: Vec<(String, String)> },
    /// The order was not carried out, and the mount goes on.
    Refused { cause: String, remedy: String },
    /// This many versions of objects are not in the cache any more.
    CacheDropped { objects: u64, bytes: u64 },
}

/// Where a mount is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// It is not there yet.
    Starting,
    /// Programs use it.
    Mounted,
    /// It was unmounted, and what is unsaved is on its way to the store.
    Saving,
}

impl Phase {
    /// The word for people.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Mounted => "mounted",
            Self::Saving => "saving",
        }
    }
}

/// How a mount is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// What is mounted.
    pub source: String,
    /// Where.
    pub mountpoint: PathBuf,
    /// Whether it is there already, or still.
    pub phase: Phase,
    /// Since when, in seconds of Unix time.
    pub started: u64,
    /// For how long, in seconds.
    pub uptime: u64,
    /// Its buffers and caches.
    pub memory: Memory,
    /// Everything that it counts.
    pub metrics: Vec<Metric>,
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Reserved now.
    pub used: u64,
    /// Reserved at most at any time.
    pub peak: u64,
    /// What may be reserved.
    pub total: u64,
    /// What the whole process occupies.
    pub resident: u64,
}

/// One metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Metric {
    pub name: String,
    /// Whether it only grows.
    pub counter: bool,
    pub labels: BTreeMap<String, String>,
    pub value: u64,
}

impl From<Sample> for Metric {
    fn from(sample: Sample) -> Self {
        let labels = sample.labels.into_iter();
        Self {
            name: sample.name.to_owned(),
            counter: sample.kind == Kind::Counter,
            labels: labels
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            value: sample.value,
        }
    }
}

/// What an unmount waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Files that are not saved yet.
    pub files: u64,
    /// Bytes of them that are not in the store yet, at most.
    pub left: u64,
    /// Bytes that the mount has sent since its start.
    pub sent: u64,
    /// Whether the mount is out of sight and programs still use it.
    #[serde(default)]
    pub used: bool,
}

impl Progress {
    /// Whether the mount would have ended, were it not for programs that use it.
    pub(crate) fn is_only_used(&self) -> bool {
        self.used && self.files == 0
    }
}
