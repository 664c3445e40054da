//! What is said through a control socket.
//!
//! A request names the [`VERSION`] that its sender speaks; one without is of version 1. What a daemon does not
//! understand, be it a request that came into being after it was started or a later version, is answered with
//! one [`Reply::Refused`] that says so: mounts run for months while the program on the disk is replaced.
//! Fields that a side does not know are passed over.

mod trash;

use std::{collections::BTreeMap, path::PathBuf};

use penstock_base::metrics::{Kind, Sample};
use serde::{Deserialize, Serialize};

pub use trash::{TrashAnswer, TrashItem, TrashOrder};

/// The version of the protocol. It rises when an old request is to mean something new; a new request does not
/// raise it.
pub const VERSION: u32 = 1;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// One [`Reply::Status`].
    Status,
    /// The mount to go away: [`Reply::Progress`] until [`Reply::Ended`] or [`Reply::Refused`].
    Unmount {
        /// Take it out of sight even while files in it are open.
        lazy: bool,
        /// The mount point that is meant: where the mount has others as well, only this one goes, and the answer is
        /// [`Reply::Parted`]. The whole mount where it is not said, as earlier programs do not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mountpoint: Option<PathBuf>,
    },
    /// What the disk cache has of keys with this prefix to be dropped: [`Reply::CacheDropped`] or
    /// [`Reply::Refused`].
    DropCache {
        /// The beginning of the keys; empty for all.
        prefix: String,
    },
    /// What waits to be saved, one by one: [`Reply::Unsaved`] until one says that there are no more.
    Unsaved,
    /// Snapshots of a fileset to be listed, taken or removed: [`Reply::Snapshots`] until one says that there are no
    /// more, or [`Reply::Refused`].
    Snapshots {
        /// The name of the fileset; the only one where it is not said, as earlier programs do not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fileset: Option<String>,
        /// Which of these.
        #[serde(flatten)]
        order: SnapshotOrder,
    },
    /// A dump of a fileset to be made: [`Reply::Dumped`] or [`Reply::Refused`].
    Dump {
        /// The name of the fileset; the only one where it is not said, as earlier programs do not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fileset: Option<String>,
        /// How many dumps are kept.
        keep: u64,
    },
    /// Changes of what a fileset does by itself, and what is so then: [`Reply::Schedule`] or [`Reply::Refused`].
    Schedule {
        /// The name of the fileset; the only one where it is not said, as earlier programs do not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fileset: Option<String>,
        /// Jobs with how many of each are to be kept; 0 ends one. Others are as before.
        changes: BTreeMap<String, u32>,
    },
    /// Something to be done with the trash of a fileset: [`Reply::Trash`] or [`Reply::Refused`].
    Trash {
        /// The name of the fileset; the only one where it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fileset: Option<String>,
        /// What.
        #[serde(flatten)]
        order: TrashOrder,
    },
    /// How a fileset compresses what it saves, which may be changed: [`Reply::Compression`] or [`Reply::Refused`].
    Compression {
        /// The name of the fileset; the only one where it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fileset: Option<String>,
        /// What is to be so from now on; nothing for asking.
        change: Option<String>,
    },
    /// Quotas of a fileset to be listed, set or removed: [`Reply::Quotas`] until one says that there are no more, or
    /// [`Reply::Refused`].
    Quotas {
        /// The name of the fileset; the only one where it is not said, as earlier programs do not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fileset: Option<String>,
        /// Which of these.
        #[serde(flatten)]
        order: QuotaOrder,
    },
}

/// What is to be done with quotas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum QuotaOrder {
    /// All are told.
    List,
    /// Limits are set or changed.
    Set {
        /// Whose.
        subject: QuotaSubject,
        /// How.
        change: QuotaChange,
    },
    /// Limits are taken away.
    Remove {
        /// Whose.
        subject: QuotaSubject,
    },
}

/// Whose use is limited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum QuotaSubject {
    /// All files.
    FileSystem,
    /// The files of a user.
    User {
        /// Its number.
        number: u32,
    },
    /// The files of a group.
    Group {
        /// Its number.
        number: u32,
    },
    /// A directory with all that is below it.
    Directory {
        /// Where it is, from the root of the file system on.
        path: String,
    },
}

/// What becomes of limits: what is not there stays as it is, and 0 takes a limit away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaChange {
    /// Of bytes.
    pub bytes: LimitChange,
    /// Of files.
    pub files: LimitChange,
    /// Seconds for which a soft limit may be exceeded.
    pub grace: Option<u64>,
}

/// What becomes of the limits of bytes, or of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitChange {
    /// Of the soft one.
    pub soft: Option<u64>,
    /// Of the hard one.
    pub hard: Option<u64>,
}

/// A quota with what is used of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaItem {
    /// Whose.
    pub subject: QuotaSubject,
    /// Of bytes.
    pub bytes: QuotaPart,
    /// Of files.
    pub files: QuotaPart,
    /// Seconds for which a soft limit may be exceeded.
    pub grace: u64,
    /// It does not count yet: what is used is being counted.
    pub counting: bool,
}

/// What of a quota is of bytes, or of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaPart {
    /// What is used.
    pub used: u64,
    /// What may be exceeded for the grace time; 0 for no limit.
    pub soft: u64,
    /// What may not be exceeded; 0 for no limit.
    pub hard: u64,
    /// When the grace time ends, in seconds of Unix time, if the soft limit is exceeded.
    pub until: Option<u64>,
}

/// A dump of a fileset's metadata in its bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpItem {
    /// What it is called.
    pub name: String,
    /// Bytes of it.
    pub bytes: u64,
    /// Keys in it.
    pub keys: u64,
    /// Dumps that were removed, since newer ones are kept.
    pub removed: Vec<String>,
}

/// What is to be done with snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum SnapshotOrder {
    /// All are told.
    List,
    /// One is taken, and told.
    Create {
        /// What it is called.
        name: String,
    },
    /// One is removed.
    Remove {
        /// What it is called.
        name: String,
    },
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotItem {
    /// What it is called.
    pub name: String,
    /// When it was taken, in seconds of Unix time.
    pub taken: u64,
    /// Bytes of objects in the bucket that go with it.
    pub bytes: u64,
    /// It was removed, and what it kept is being cleared away.
    pub removing: bool,
}

/// What the mount answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// How the mount is.
    Status(Box<Status>),
    /// What is still to be done before the mount can end.
    Progress(Progress),
    /// The mount ended; these files could not be saved, with the reason for each.
    Ended {
        /// The files.
        unsaved: Vec<UnsavedFile>,
        /// What the store said last, where no reason of theirs says it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
    },
    /// The mount point is gone, and the mount goes on at others.
    Parted {
        /// These.
        places: Vec<PathBuf>,
        /// Why what was written could not be made durable, if so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
    },
    /// The order was not carried out, and the mount goes on.
    Refused(Refusal),
    /// This is not in the cache any more.
    CacheDropped(Dropped),
    /// Some snapshots, in the order in which they were taken.
    Snapshots {
        /// These.
        items: Vec<SnapshotItem>,
        /// Whether another reply follows.
        more: bool,
    },
    /// This dump was made.
    Dumped(DumpItem),
    /// What a fileset does by itself.
    Schedule {
        /// Jobs with how many of each are kept.
        keep: BTreeMap<String, u32>,
    },
    /// What was done with the trash, or what is in it.
    Trash(TrashAnswer),
    /// How a fileset compresses what it saves.
    Compression {
        /// In words: `none`, `lz4` or `zstd:LEVEL`.
        setting: String,
    },
    /// Some quotas: the file system's first, then by kind and number.
    Quotas {
        /// These.
        items: Vec<QuotaItem>,
        /// Whether another reply follows.
        more: bool,
    },
    /// Some of what waits to be saved, what waits longest first.
    Unsaved {
        /// What waits.
        items: Vec<UnsavedItem>,
        /// Whether another reply follows.
        more: bool,
    },
}

/// Something that waits to be saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsavedItem {
    /// Its path from the mount point.
    pub path: String,
    /// What waits.
    pub kind: UnsavedKind,
    /// Bytes of content; 0 for a name.
    pub bytes: u64,
    /// For how long it has waited, in seconds, where that is known.
    pub age: Option<u64>,
    /// Why the last attempt failed, if one did and none succeeded since.
    pub reason: Option<String>,
}

/// What of something waits to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnsavedKind {
    /// The content of a file.
    File,
    /// A directory, a link or how they are described.
    Name,
    /// That it was removed.
    Removal,
}

impl UnsavedKind {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Name => "name",
            Self::Removal => "removal",
        }
    }
}

/// A file that could not be saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(String, String)", into = "(String, String)")]
pub struct UnsavedFile {
    /// Its path from the mount point.
    pub path: String,
    /// Why it could not be saved.
    pub reason: String,
}

impl From<(String, String)> for UnsavedFile {
    fn from((path, reason): (String, String)) -> Self {
        Self { path, reason }
    }
}

impl From<UnsavedFile> for (String, String) {
    fn from(file: UnsavedFile) -> Self {
        (file.path, file.reason)
    }
}

/// Why an order is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What is in the way.
    pub cause: String,
    /// What can be done about it.
    pub remedy: String,
}

/// What was taken out of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Versions of objects.
    pub objects: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// Where a mount is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It is not there yet.
    Starting,
    /// Programs use it.
    Mounted,
    /// It was unmounted, and what is unsaved is on its way to the store.
    Saving,
}

impl Phase {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Mounted => "mounted",
            Self::Saving => "saving",
        }
    }
}

/// How a mount is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
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
    /// What waits to be saved; none before the volume is open, and from programs that did not tell.
    #[serde(default)]
    pub unsaved: Option<Unsaved>,
    /// Its buffers and caches.
    pub memory: Memory,
    /// What another mount point of it needs to know, if it can have more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// Its mount targets of NFS, if it has any.
    #[serde(default)]
    pub targets: Vec<ServedTarget>,
    /// The file that says what these export, if there is one.
    #[serde(default)]
    pub configuration: Option<Configuration>,
    /// Everything that it counts.
    pub metrics: Vec<Metric>,
}

/// A mount that can be at several mount points.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// The number of the device that its files have, `major:minor`.
    pub device: String,
    /// The file tree in which its mount points are: the kernel's name of a mount namespace.
    pub tree: String,
    /// The mount points that it has.
    pub places: Vec<PathBuf>,
    /// What options are set to that hold for all of them, in the words of this version of the program.
    pub options: BTreeMap<String, String>,
}

/// A mount target of NFS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedTarget {
    /// Its name; empty for one of the command line.
    pub name: String,
    /// Where clients find it.
    pub address: String,
    /// Where it tells its ports, if it does.
    pub portmap: Option<String>,
    /// What it delivers at most.
    pub target_type: String,
    /// Connections that are open.
    pub connections: u64,
    /// What it exports.
    pub exports: Vec<ServedExport>,
}

/// What clients of a mount target mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedExport {
    /// Its path.
    pub path: String,
    /// The name of its volume; empty for one of the command line.
    pub volume: String,
    /// Who may do what; the first rule that is for a client counts.
    pub rules: Vec<ServedRule>,
}

/// What some clients may do, in the words of configuration files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ServedRule {
    /// Their addresses and networks; all where there is none.
    pub source: Vec<String>,
    /// `read-only` or `read-write`.
    pub access: String,
    /// `none`, `root` or `all`.
    pub identity_squash: String,
    /// Whom squashed users are taken for.
    pub anonymous_uid: u32,
    /// Their group.
    pub anonymous_gid: u32,
    /// Whether calls must come from a port below 1024.
    pub require_privileged_source_port: bool,
    /// `sys`, `none` or both.
    pub allowed_auth: Vec<String>,
}

/// A file that says what is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Where it is.
    pub path: PathBuf,
    /// Since when what it says is served, in seconds of Unix time.
    pub applied: u64,
    /// Why it is not served as it is now, if so.
    pub fault: Option<String>,
}

/// What waits to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsaved {
    /// Files.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
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
pub struct Metric {
    /// Its name, without the prefix that exporters give it.
    pub name: String,
    /// Whether it only grows.
    pub counter: bool,
    /// What tells it from others of its name.
    pub labels: BTreeMap<String, String>,
    /// The value.
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
pub struct Progress {
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
    pub fn is_only_used(&self) -> bool {
        self.used && self.files == 0
    }
}

/// A request as it is sent.
#[derive(Serialize)]
struct Versioned<'a> {
    version: u32,
    #[serde(flatten)]
    request: &'a Request,
}

/// What each version of a request begins with.
#[derive(Deserialize)]
struct Head {
    #[serde(default = "first_version")]
    version: u32,
    request: String,
}

fn first_version() -> u32 {
    1
}

/// A request as a line.
pub(crate) fn encode(request: &Request) -> serde_json::Result<Vec<u8>> {
    let versioned = Versioned {
        version: VERSION,
        request,
    };
    let mut line = serde_json::to_vec(&versioned)?;
    line.push(b'\n');
    Ok(line)
}

/// Reads a line. Fails with what its sender is to be answered.
pub(crate) fn decode(line: &str) -> Result<Request, Refusal> {
    let refuse = |cause: String| Refusal {
        cause,
        remedy: "the mount runs another version of the program, see `penstock stats`".to_owned(),
    };
    let Ok(head) = serde_json::from_str::<Head>(line) else {
        return Err(refuse(
            "the mount was sent something that is no request".to_owned(),
        ));
    };
    let Head { version, request } = head;
    if version > VERSION {
        return Err(refuse(format!(
            "the mount speaks version {VERSION} of the protocol and was asked in version {version}"
        )));
    }
    serde_json::from_str(line).map_err(|_| {
        refuse(format!(
            "the mount does not understand the request `{request}`"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_say_which_fileset_they_are_for_and_those_of_earlier_programs_do_not() {
        for fileset in [None, Some("home".to_owned())] {
            let order = Request::Snapshots {
                fileset: fileset.clone(),
                order: SnapshotOrder::List,
            };
            let line = String::from_utf8(encode(&order).expect("a line")).expect("text");
            assert_eq!(line.contains("fileset"), fileset.is_some(), "{line}");
            assert_eq!(decode(&line), Ok(order));
        }
    }

    #[test]
    fn requests_are_read_as_they_were_sent_and_those_of_earlier_programs_too() {
        let drop = Request::DropCache {
            prefix: "a/".to_owned(),
        };
        let unmount = Request::Unmount {
            lazy: true,
            mountpoint: Some("/mnt/x".into()),
        };
        for request in [Request::Status, unmount, drop] {
            let line = encode(&request).expect("a line");
            let line = String::from_utf8(line).expect("text");
            assert!(
                line.contains("\"version\":1") && line.ends_with('\n'),
                "{line}"
            );
            assert_eq!(decode(&line), Ok(request));
        }
        assert_eq!(decode("{\"request\":\"status\"}"), Ok(Request::Status));
        let more = "{\"request\":\"unmount\",\"lazy\":false,\"later\":1}";
        let unmount = Request::Unmount {
            lazy: false,
            mountpoint: None,
        };
        assert_eq!(decode(more), Ok(unmount));
    }

    #[test]
    fn what_is_not_understood_is_refused_with_the_reason() {
        for (line, part) in [
            ("{\"request\":\"dance\"}", "request `dance`"),
            ("{\"request\":\"unmount\"}", "request `unmount`"),
            ("{\"request\":\"status\",\"version\":2}", "version 2"),
            ("dance", "no request"),
            ("", "no request"),
        ] {
            let refusal = decode(line).expect_err(line);
            assert!(refusal.cause.contains(part), "{}", refusal.cause);
        }
    }

    #[test]
    fn files_that_were_not_saved_are_sent_as_they_always_were() {
        let ended = Reply::Ended {
            unsaved: vec![UnsavedFile {
                path: "a".to_owned(),
                reason: "full".to_owned(),
            }],
            cause: None,
        };
        let line = serde_json::to_string(&ended).expect("text");
        assert_eq!(line, "{\"reply\":\"ended\",\"unsaved\":[[\"a\",\"full\"]]}");
    }
}
