//! What is to become of small objects, told to the disk before the store.
//!
//! A volume that answers changes of names before the store has them notes each here: an object that is to be
//! removed or described anew, or a small one that is to be written. The last note of a key counts, until the change is *done*.
//!
//! The log is one file of the staging directory for each volume that used it. It begins with the volume; each record
//! carries its length and its checksum, so what a crash cut off is told from what is whole. When nothing is left to do
//! the log is empty, and when it has grown long it is written anew from what is left. A log that could not be read is
//! never written: notes are refused then.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, ErrorKind::NotFound},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use penstock_base::disk_call;
use penstock_object::{Description, ETag, Key, UserMetadata};

use crate::staging::{
    folder::{FileId, Folder},
    journal::{join_texts, split_texts},
};

/// What the log begins with, before the volume.
const FORMAT: &str = "names 1";
/// Bytes from which on the log is written anew, unless that is worth little.
const LONG: u64 = 1 << 20;
/// It is written anew only when it is this much longer than it was then.
const GROWTH: u64 = 4;

const REMOVE: &str = "-";
const WRITE: &str = "+";
const DESCRIBE: &str = "~";
const DONE: &str = "=";
const NEW: &str = "new";

/// Which version of an object is to be removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removal {
    /// One with this tag; `None` for whichever there is.
    pub etag: Option<ETag>,
    /// One that the store has since then, in seconds since 1970, where that is known.
    pub stored: Option<u64>,
}

/// What is to become of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameChange {
    /// It is removed if it still is this version.
    Remove(Removal),
    /// It is written.
    Write(SmallObject),
    /// It is described anew if it still is this version.
    Describe(Redescription),
}

/// How a version of an object is to be described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redescription {
    /// The tag of the version.
    pub etag: ETag,
    /// What is said of it then.
    pub description: Description,
}

/// An object that is written in one request from what the log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmallObject {
    /// Its bytes, which are text.
    pub body: Bytes,
    /// How it is described.
    pub description: Description,
    /// Whether the store has nothing under its key, as far as is known.
    pub is_new: bool,
}

/// Bytes that a pair of texts occupies beside them.
const PAIR_COST: u64 = 128;

impl NameChange {
    /// Bytes of memory that the texts in it occupy, about.
    pub fn text_bytes(&self) -> u64 {
        match self {
            Self::Remove(removal) => removal
                .etag
                .as_ref()
                .map_or(0, |etag| etag.as_str().len() as u64),
            Self::Write(object) => object.body.len() as u64 + described_bytes(&object.description),
            Self::Describe(new) => {
                new.etag.as_str().len() as u64 + described_bytes(&new.description)
            }
        }
    }
}

fn described_bytes(description: &Description) -> u64 {
    let content_type = description.content_type.as_ref().map_or(0, String::len);
    let pairs = description.metadata.iter();
    let pairs = pairs.map(|(name, value)| PAIR_COST + (name.len() + value.len()) as u64);
    content_type as u64 + pairs.sum::<u64>()
}

/// What is left to do, by key.
pub type NameChanges = BTreeMap<Key, Arc<NameChange>>;

/// The log of one staging directory.
#[derive(Debug)]
pub struct NameLog {
    folder: Folder,
    path: PathBuf,
    volume: String,
    /// Opened with the first note.
    file: Option<Arc<File>>,
    /// What is there could not be read.
    is_unread: bool,
    /// A crash of the machine may bring back the log before this one.
    is_name_unsynced: bool,
    /// The disk refused something of this file once, and tells that once: it may lack it, whatever it says later.
    is_doubted: bool,
    /// Bytes of whole records.
    length: u64,
    /// Bytes when it was written anew last.
    begun: u64,
    changes: NameChanges,
}

impl NameLog {
    pub(crate) fn new(folder: &Folder, volume: &str) -> Self {
        Self {
            folder: folder.clone(),
            path: folder.names(volume),
            volume: volume.to_owned(),
            file: None,
            is_unread: false,
            is_name_unsynced: false,
            is_doubted: false,
            length: 0,
            begun: 0,
            changes: NameChanges::new(),
        }
    }

    /// What an earlier mount of the same volume left to do. Of a log that cannot be believed as a whole a copy is put
    /// aside, for people. Blocks.
    pub fn recover(&mut self) -> io::Result<NameChanges> {
        let read = self.read();
        self.is_unread = read.is_err();
        read
    }

    fn read(&mut self) -> io::Result<NameChanges> {
        disk_call();
        if fs::symlink_metadata(&self.path).is_err_and(|error| error.kind() == NotFound) {
            return Ok(NameChanges::new());
        }
        if !self.folder.is_ours(&self.path) {
            let text = format!("{} was brought in by another user", self.path.display());
            return Err(io::Error::other(text));
        }
        let bytes = fs::read(&self.path)?;
        let told = read(&bytes, &self.volume);
        if !told.is_whole {
            let kept = self.folder.kept_names(&FileId::new());
            fs::copy(&self.path, &kept)?;
            tracing::error!(
                "{} cannot be believed as a whole: what can be is carried out, and a copy stays in {}",
                self.path.display(),
                kept.display()
            );
        }
        let file = Folder::open(&self.path)?;
        // What follows half a record could not be read.
        file.set_len(told.length)?;
        self.file = Some(Arc::new(file));
        (self.length, self.begun) = (told.length, told.length);
        self.changes = told.changes;
        Ok(self.changes.clone())
    }

    /// Notes what is to become of an object. Nothing is noted if the disk refuses. Blocks.
    pub fn note(&mut self, key: &Key, change: &Arc<NameChange>) -> io::Result<()> {
        self.append(&record(key, change))?;
        self.changes.insert(key.clone(), Arc::clone(change));
        self.shorten();
        Ok(())
    }

    /// Notes that what was to become of an object is done, or is not to be done any more. If the disk refuses, it is to
    /// be noted once more before anything else is stored under the key: else a mount that follows a crash does it again.
    /// Blocks.
    pub fn note_done(&mut self, key: &Key) -> io::Result<()> {
        if !self.changes.contains_key(key) {
            return Ok(());
        }
        self.sync_name()?;
        match &self.file {
            Some(file) if self.changes.len() == 1 => {
                disk_call();
                file.set_len(0)?;
                self.length = 0;
            }
            _ => self.append(&join_texts(&[DONE, key.as_str()]))?,
        }
        self.changes.remove(key);
        Ok(())
    }

    /// The file, once something was noted: what was noted by then survives a crash of the machine once it is synced,
    /// without the log, which others need. A file of which the disk refused something is written anew.
    pub(crate) fn file_for_sync(&mut self) -> io::Result<Option<Arc<File>>> {
        if self.is_doubted {
            self.write_anew()?;
        }
        Ok(self.file.clone())
    }

    /// The disk refused something of a file that was to be synced.
    pub(crate) fn doubt(&mut self, file: &Arc<File>) {
        self.is_doubted |= self.file.as_ref().is_some_and(|now| Arc::ptr_eq(now, file));
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        disk_call();
        if self.is_unread {
            return Err(io::Error::other("what the log of names says is not known"));
        }
        self.sync_name()?;
        let file = match &self.file {
            Some(file) => file,
            None => {
                let file = Arc::new(create(&self.path)?);
                self.folder.sync_top()?;
                self.length = 0;
                self.file.insert(file)
            }
        };
        let begin = match self.length {
            0 => header(&self.volume),
            _ => Vec::new(),
        };
        let bytes = [&begin, bytes].concat();
        let written = file.write_all_at(&bytes, self.length);
        if written.is_err() {
            // What follows half a record could not be read.
            let _ = file.set_len(self.length);
        }
        written?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn shorten(&mut self) {
        if self.length > LONG.max(GROWTH * self.begun)
            && let Err(error) = self.write_anew()
        {
            tracing::debug!(%error, "the log of names could not be written anew");
        }
    }

    fn write_anew(&mut self) -> io::Result<()> {
        disk_call();
        let new = self.path.with_extension("new");
        let file = create(&new)?;
        let mut bytes = header(&self.volume);
        for (key, change) in &self.changes {
            bytes.extend(record(key, change));
        }
        file.write_all_at(&bytes, 0)?;
        // The old one must not go before this one is there.
        file.sync_data()?;
        fs::rename(&new, &self.path)?;
        // The next mount reads this one, so what follows is noted in it, whatever the disk says now.
        self.file = Some(Arc::new(file));
        self.length = bytes.len() as u64;
        self.begun = self.length;
        self.is_doubted = false;
        self.is_name_unsynced = true;
        self.sync_name()
    }

    /// Makes a log that was written anew the one that is there after a crash of the machine: before anything is noted
    /// in it alone.
    fn sync_name(&mut self) -> io::Result<()> {
        if self.is_name_unsynced {
            self.folder.sync_top()?;
            self.is_name_unsynced = false;
        }
        Ok(())
    }
}

/// Makes a file in place of the one that may be there.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != NotFound => Err(error),
        _ => Folder::create(path),
    }
}

fn header(volume: &str) -> Vec<u8> {
    join_texts(&[FORMAT, volume])
}

fn record(key: &Key, change: &NameChange) -> Vec<u8> {
    let object = match change {
        NameChange::Remove(removal) => return removal_record(key, removal),
        NameChange::Describe(new) => {
            let begin = [DESCRIBE, key.as_str(), new.etag.as_str()];
            return described_record(&begin, &new.description);
        }
        NameChange::Write(object) => object,
    };
    let body = String::from_utf8_lossy(&object.body);
    let begin = [
        WRITE,
        key.as_str(),
        if object.is_new { NEW } else { "" },
        &body,
    ];
    described_record(&begin, &object.description)
}

/// A record that ends with a description.
fn described_record(begin: &[&str], description: &Description) -> Vec<u8> {
    let mut texts = begin.to_vec();
    texts.push(description.content_type.as_deref().unwrap_or_default());
    let metadata = description.metadata.iter();
    texts.extend(metadata.flat_map(|(name, value)| [name.as_str(), value.as_str()]));
    join_texts(&texts)
}

/// The description that a record ends with.
fn description(content_type: &str, metadata: &[String]) -> Description {
    let pairs = metadata.chunks_exact(2);
    let metadata: UserMetadata = pairs
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect();
    Description {
        content_type: Some(content_type.to_owned()).filter(|text| !text.is_empty()),
        metadata,
    }
}

fn removal_record(key: &Key, removal: &Removal) -> Vec<u8> {
    let etag = removal.etag.as_ref().map_or("", ETag::as_str);
    let stored = removal.stored.map(|seconds| seconds.to_string());
    join_texts(&[REMOVE, key.as_str(), etag, stored.as_deref().unwrap_or("")])
}

/// What a log says.
#[derive(Debug, Default)]
struct Told {
    changes: NameChanges,
    /// Bytes of it that were read.
    length: u64,
    /// Whether all of it was read, but for a last record that a crash cut off.
    is_whole: bool,
}

fn read(bytes: &[u8], volume: &str) -> Told {
    let mut told = Told::default();
    let Some((begin, mut rest)) = split_texts(bytes) else {
        // Nothing can have been noted before the header was whole.
        told.is_whole = bytes.len() < header(volume).len();
        return told;
    };
    if begin != [FORMAT, volume] {
        return told;
    }
    told.length = (bytes.len() - rest.len()) as u64;
    while let Some((texts, next)) = split_texts(rest) {
        if told.follow(&texts).is_none() {
            return told;
        }
        rest = next;
        told.length = (bytes.len() - rest.len()) as u64;
    }
    told.is_whole = is_cut(rest);
    told
}

/// Whether bytes end before the record that they begin does.
fn is_cut(bytes: &[u8]) -> bool {
    let length = bytes
        .first_chunk()
        .map(|length| u32::from_le_bytes(*length));
    let room = bytes.len().saturating_sub(8);
    length.is_none_or(|length| length as usize > room)
}

impl Told {
    /// Does what a record says. `None` if it says something that is not known here.
    fn follow(&mut self, texts: &[String]) -> Option<()> {
        let [tag, key, rest @ ..] = texts else {
            return None;
        };
        let key = Key::new(key.as_str()).ok()?;
        match (tag.as_str(), rest) {
            (DONE, []) => drop(self.changes.remove(&key)),
            (REMOVE, [etag, stored]) => {
                let removal = Removal {
                    etag: Some(etag)
                        .filter(|etag| !etag.is_empty())
                        .map(|etag| ETag::new(etag)),
                    stored: stored.parse().ok(),
                };
                self.note(key, NameChange::Remove(removal));
            }
            (WRITE, [new, body, content_type, metadata @ ..]) => {
                let object = SmallObject {
                    body: Bytes::from(body.clone()),
                    description: description(content_type, metadata),
                    is_new: new == NEW,
                };
                self.note(key, NameChange::Write(object));
            }
            (DESCRIBE, [etag, content_type, metadata @ ..]) => {
                let new = Redescription {
                    etag: ETag::new(etag),
                    description: description(content_type, metadata),
                };
                self.note(key, NameChange::Describe(new));
            }
            _ => return None,
        }
        Some(())
    }

    fn note(&mut self, key: Key, change: NameChange) {
        self.changes.insert(key, Arc::new(change));
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::staging::folder::log_of;

    fn key(text: &str) -> Key {
        Key::new(text).expect("a valid key")
    }

    fn removed(etag: Option<&str>) -> Arc<NameChange> {
        Arc::new(NameChange::Remove(Removal {
            etag: etag.map(ETag::new),
            stored: etag.map(|_| 1_000),
        }))
    }

    fn written(target: &str) -> Arc<NameChange> {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Arc::new(NameChange::Write(SmallObject {
            body: Bytes::from(target.to_owned()),
            description: Description {
                content_type: Some("text/link".to_owned()),
                metadata: [pair("mode", "41471"), pair("gid", "")].into(),
            },
            is_new: true,
        }))
    }

    fn described(etag: &str) -> Arc<NameChange> {
        let NameChange::Write(object) = &*written("") else {
            unreachable!("it is one");
        };
        Arc::new(NameChange::Describe(Redescription {
            etag: ETag::new(etag),
            description: object.description.clone(),
        }))
    }

    struct Bed {
        scratch: tempfile::TempDir,
        volume: &'static str,
    }

    impl Bed {
        fn new() -> Self {
            Self {
                scratch: tempfile::tempdir().expect("a temporary directory"),
                volume: "volume",
            }
        }

        fn log(&self) -> NameLog {
            let folder = Folder::take(self.scratch.path()).expect("free");
            NameLog::new(&folder, self.volume)
        }

        fn recovered(&self) -> NameChanges {
            self.log().recover().expect("readable")
        }

        fn file(&self) -> PathBuf {
            self.scratch.path().join(log_of(self.volume))
        }

        fn kept(&self) -> usize {
            let kept = fs::read_dir(self.scratch.path().join("kept"));
            kept.expect("there").count()
        }
    }

    #[test]
    fn the_last_note_of_a_key_counts_until_it_is_done() {
        let bed = Bed::new();
        let mut log = bed.log();
        log.note(&key("a"), &removed(Some("1"))).expect("noted");
        log.note(&key("d/"), &written("")).expect("noted");
        log.note(&key("d/"), &removed(None)).expect("noted");
        log.note(&key("link"), &written("to/where")).expect("noted");
        log.note(&key("file"), &described("1")).expect("noted");
        log.note_done(&key("a")).expect("noted");
        drop(log);
        let left = NameChanges::from([
            (key("d/"), removed(None)),
            (key("file"), described("1")),
            (key("link"), written("to/where")),
        ]);
        assert_eq!(bed.recovered(), left);
        assert_eq!(bed.recovered(), left, "reading it changes nothing");
        let mut log = bed.log();
        log.recover().expect("readable");
        log.note_done(&key("d/")).expect("noted");
        log.note_done(&key("file")).expect("noted");
        log.note_done(&key("link")).expect("noted");
        let length = fs::metadata(bed.file()).expect("there").len();
        assert_eq!(length, 0, "nothing is left to do");
        log.note(&key("b"), &removed(None)).expect("noted");
        drop(log);
        assert_eq!(bed.recovered().len(), 1);
        assert_eq!(bed.kept(), 0);
    }

    #[test]
    fn a_log_is_cut_anywhere_and_what_was_whole_is_kept() {
        let bed = Bed::new();
        let mut log = bed.log();
        log.note(&key("a"), &removed(Some("1"))).expect("noted");
        let first = log.length;
        log.note(&key("b"), &written("there")).expect("noted");
        drop(log);
        let whole = fs::read(bed.file()).expect("readable");
        for length in 0..whole.len() {
            let told = read(&whole[..length], bed.volume);
            assert!(told.is_whole, "cut at {length}");
            let expected = usize::from(length as u64 >= first);
            assert_eq!(told.changes.len(), expected, "cut at {length}");
        }
    }

    #[test]
    fn a_log_that_is_damaged_is_kept_and_one_of_another_volume_left_alone() {
        let mut bed = Bed::new();
        let mut log = bed.log();
        log.note(&key("a"), &removed(Some("1"))).expect("noted");
        let first = log.length as usize;
        log.note(&key("b"), &removed(Some("2"))).expect("noted");
        drop(log);
        let mut bytes = fs::read(bed.file()).expect("readable");
        bytes[first + 9] ^= 1;
        fs::write(bed.file(), &bytes).expect("written");
        assert_eq!(bed.recovered().len(), 1);
        assert_eq!(bed.kept(), 1);
        bed.volume = "another";
        assert_eq!(bed.recovered().len(), 0);
        bed.volume = "volume";
        assert_eq!(bed.recovered().len(), 1);
        assert_eq!(bed.kept(), 1);
    }

    #[test]
    fn a_note_of_what_is_done_that_the_disk_refused_is_made_later() {
        let bed = Bed::new();
        let mut log = bed.log();
        log.note(&key("a"), &removed(Some("1"))).expect("noted");
        log.note(&key("b"), &removed(Some("1"))).expect("noted");
        let read_only = File::open(&log.path).expect("there");
        let writable = log.file.replace(Arc::new(read_only));
        assert!(log.note_done(&key("a")).is_err());
        log.file = writable;
        log.note_done(&key("a")).expect("noted");
        drop(log);
        let left = NameChanges::from([(key("b"), removed(Some("1")))]);
        assert_eq!(bed.recovered(), left);
    }

    /// The kernel tells once that it could not write; the next sync of the file says that all is well.
    #[test]
    fn a_log_that_could_not_be_synced_is_written_anew() {
        let bed = Bed::new();
        let mut log = bed.log();
        log.note(&key("a"), &removed(Some("1"))).expect("noted");
        let (_reader, refuses) = io::pipe().expect("a pipe");
        log.file = Some(Arc::new(File::from(OwnedFd::from(refuses))));
        fs::remove_file(bed.file()).expect("there");
        let file = log.file_for_sync().expect("it is there").expect("noted");
        assert!(file.sync_data().is_err());
        log.doubt(&file);
        let file = log.file_for_sync().expect("written").expect("noted");
        file.sync_data().expect("the disk takes it");
        log.note(&key("b"), &removed(Some("1"))).expect("noted");
        drop(log);
        assert_eq!(bed.recovered().len(), 2);
    }

    /// As with a full disk.
    #[test]
    fn a_log_is_recovered_without_writing_it_anew() {
        let bed = Bed::new();
        let mut log = bed.log();
        log.note(&key("a"), &removed(Some("1"))).expect("noted");
        drop(log);
        fs::create_dir(bed.file().with_extension("new")).expect("made");
        let mut log = bed.log();
        assert_eq!(log.recover().expect("readable").len(), 1);
        log.note(&key("b"), &removed(Some("2"))).expect("noted");
        drop(log);
        assert_eq!(bed.recovered().len(), 2);
    }

    #[test]
    fn a_log_that_could_not_be_read_or_is_another_user_s_is_not_written() {
        let bed = Bed::new();
        let path = bed.file();
        fs::create_dir(&path).expect("made");
        let mut log = bed.log();
        assert!(log.recover().is_err());
        assert!(log.note(&key("a"), &removed(None)).is_err());
        assert!(path.is_dir());
    }

    #[test]
    fn a_long_log_is_written_anew() {
        let bed = Bed::new();
        let mut log = bed.log();
        let text = "x".repeat(1000);
        for number in 0..5000 {
            let etag = format!("{text}{number}");
            log.note(&key("a"), &removed(Some(&etag))).expect("noted");
        }
        assert!(log.length < 2 * LONG, "{} bytes", log.length);
        drop(log);
        assert_eq!(bed.recovered().len(), 1);
    }
}
