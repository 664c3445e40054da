//! The staging directory.
//!
//! ```text
//! DIRECTORY/lock                  held by the one mount that uses the directory; names its process
//! DIRECTORY/files/ID.data         what was written to a file, sparse
//! DIRECTORY/files/ID.journal      which file, and which ranges; see the journal
//! DIRECTORY/files/ID.upload       an upload that is under way
//! DIRECTORY/names-VOLUME          what is to become of names that the store of a volume does not have yet
//! DIRECTORY/kept/ID.data          what must not be saved: another client changed the object, or the
//! DIRECTORY/kept/ID.journal       journal cannot be believed
//! DIRECTORY/kept/ID.names         a log of names that cannot be believed
//! ```

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use penstock_base::{
    ChecksumKind, DirectoryLock, DirectoryLockError, Summing, disk_call, make_named_directory,
    make_private_directory, random,
};
use rustix::fs::{OFlags, statvfs};
use thiserror::Error;

/// Why a staging directory cannot be used.
#[derive(Debug, Error)]
pub enum StagingError {
    /// Another mount uses it.
    #[error(
        "the staging directory {} is in use by process {pid}: give each mount one of its own",
        directory.display()
    )]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// The process that has it; 0 if that cannot be seen.
        pid: u32,
    },
    /// The disk refuses it.
    #[error("cannot use the staging directory {}: {error}", directory.display())]
    Io {
        /// The directory.
        directory: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Whether files in the staging directory of a dead mount are unsaved: those with a journal are. So are names of
/// which the log tells. Fails where the directory cannot be read, for instance because its disk is not mounted.
pub fn has_unsaved(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_log = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(NAMES.as_bytes());
        if is_log && entry.metadata()?.len() > 0 {
            return Ok(true);
        }
    }
    for entry in fs::read_dir(directory.join("files"))? {
        if entry?
            .path()
            .extension()
            .is_some_and(|ending| ending == "journal")
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What the logs of names in a staging directory are called, before what tells their volumes apart.
const NAMES: &str = "names-";

/// What the log of names of a volume is called.
pub(super) fn log_of(volume: &str) -> String {
    let mut summing = Summing::new(ChecksumKind::Crc64Nvme);
    summing.add(volume.as_bytes());
    format!("{NAMES}{:016x}", summing.checksum().value())
}

/// A staging directory, locked while this or a clone of it lives.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    directory: PathBuf,
    lock: Arc<DirectoryLock>,
}

/// The name of a staging file and its journal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileId(String);

impl FileId {
    /// A name that no other has.
    pub(crate) fn new() -> Self {
        Self(random::token())
    }

    /// One that a journal tells of.
    pub(crate) fn named(text: String) -> Self {
        Self(text)
    }
}

impl std::fmt::Display for FileId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Folder {
    /// Makes the directory, in which no other user can exchange anything, and locks it.
    pub(crate) fn take(directory: &Path) -> Result<Self, StagingError> {
        let failed = |error| StagingError::Io {
            directory: directory.to_owned(),
            error,
        };
        make_named_directory(directory).map_err(failed)?;
        let lock = DirectoryLock::take(directory).map_err(|error| match error {
            DirectoryLockError::InUse { pid } => StagingError::InUse {
                directory: directory.to_owned(),
                pid,
            },
            DirectoryLockError::Io(error) => failed(error),
        })?;
        for folder in [directory.join("files"), directory.join("kept")] {
            make_private_directory(&folder).map_err(failed)?;
        }
        Ok(Self {
            directory: directory.to_owned(),
            lock: Arc::new(lock),
        })
    }

    /// The content of a file.
    pub(crate) fn data(&self, id: &FileId) -> PathBuf {
        self.directory.join("files").join(format!("{id}.data"))
    }

    /// The journal of a file.
    pub(crate) fn journal(&self, id: &FileId) -> PathBuf {
        self.directory.join("files").join(format!("{id}.journal"))
    }

    /// The note of an upload.
    pub(crate) fn upload(&self, id: &FileId) -> PathBuf {
        self.directory.join("files").join(format!("{id}.upload"))
    }

    /// The log of names of a volume.
    pub(crate) fn names(&self, volume: &str) -> PathBuf {
        self.directory.join(log_of(volume))
    }

    /// Makes the names of the logs survive a crash of the machine.
    pub(crate) fn sync_top(&self) -> io::Result<()> {
        disk_call();
        File::open(&self.directory)?.sync_all()
    }

    /// Where a log of names is put aside.
    pub(crate) fn kept_names(&self, id: &FileId) -> PathBuf {
        self.directory.join("kept").join(format!("{id}.names"))
    }

    /// Notes of uploads that this user made.
    pub(crate) fn uploads(&self) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(self.directory.join("files"))?;
        let paths = entries.map(|entry| Ok(entry?.path()));
        let is_upload = |path: &PathBuf| {
            path.extension().is_some_and(|ending| ending == "upload") && self.is_ours(path)
        };
        paths
            .filter(|path: &io::Result<_>| path.as_ref().map_or(true, is_upload))
            .collect()
    }

    /// Makes a file that was not there.
    pub(crate) fn create(path: &Path) -> io::Result<File> {
        disk_call();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.open(path)
    }

    /// Opens a file that is there.
    pub(crate) fn open(path: &Path) -> io::Result<File> {
        disk_call();
        let mut options = OpenOptions::new();
        let no_links = OFlags::NOFOLLOW.bits().cast_signed();
        options
            .read(true)
            .write(true)
            .custom_flags(no_links)
            .open(path)
    }

    /// Removes the content and the journal of a file, if they are there.
    pub(crate) fn remove(&self, id: &FileId) {
        disk_call();
        // The journal first: content without one is swept at the next start.
        let _ = fs::remove_file(self.journal(id));
        let _ = fs::remove_file(self.data(id));
    }

    /// Puts content and journal of a file aside, for people, and returns where the content is, or
    /// the journal if there is no content. Goes on where an earlier call broke off.
    pub(crate) fn keep(&self, id: &FileId) -> io::Result<PathBuf> {
        disk_call();
        let kept = self.directory.join("kept");
        let (data, journal) = (self.kept_data(id), kept.join(format!("{id}.journal")));
        // The content first: without a journal it would be swept at the next start.
        match fs::rename(self.data(id), &data) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            moved => moved?,
        }
        fs::rename(self.journal(id), &journal)?;
        Ok(if data.exists() { data } else { journal })
    }

    /// Where the content of a file is that was put aside.
    pub(crate) fn kept_data(&self, id: &FileId) -> PathBuf {
        self.directory.join("kept").join(format!("{id}.data"))
    }

    /// Whether a file in the directory is one that this user made: no other says what is saved.
    pub(crate) fn is_ours(&self, path: &Path) -> bool {
        let found = fs::symlink_metadata(path);
        found.is_ok_and(|found| found.is_file() && found.uid() == self.lock.owner())
    }

    /// Whether journal and content of a file, as far as they are there, are what this user made.
    fn is_believed(&self, id: &FileId) -> bool {
        let (journal, data) = (self.journal(id), self.data(id));
        // A link that leads nowhere is there.
        let has_data = fs::symlink_metadata(&data).is_ok();
        let believed = self.is_ours(&journal) && (self.is_ours(&data) || !has_data);
        if !believed {
            tracing::error!(
                "{} or its content was brought in by another user: it is not saved, and stays there",
                journal.display()
            );
        }
        believed
    }

    /// Files that have a journal, with content or without. Content without a journal is removed:
    /// what it was is not known. What another user brought in is none of them.
    pub(crate) fn orphans(&self) -> io::Result<Vec<FileId>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.directory.join("files"))? {
            let path = entry?.path();
            let Some(name) = path.file_stem().and_then(|name| name.to_str()) else {
                continue;
            };
            let id = FileId(name.to_owned());
            match path.extension().and_then(|ending| ending.to_str()) {
                Some("journal") if self.is_believed(&id) => found.push(id),
                Some("data") if self.journal(&id).exists() => {}
                Some("data" | "new") => drop(fs::remove_file(&path)),
                _ => {}
            }
        }
        Ok(found)
    }

    /// Makes the names of the files survive a crash of the machine.
    pub(crate) fn sync(&self) -> io::Result<()> {
        disk_call();
        File::open(self.directory.join("files"))?.sync_all()
    }

    /// Bytes that may still be written to the file system, and bytes that it has.
    pub(crate) fn disk(&self) -> io::Result<(u64, u64)> {
        disk_call();
        let disk = statvfs(&self.directory)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Ok((bytes(disk.f_bavail), bytes(disk.f_blocks)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mounts_never_share_a_directory() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let first = Folder::take(scratch.path()).expect("free");
        let second = Folder::take(scratch.path());
        let own = std::process::id();
        assert!(matches!(second, Err(StagingError::InUse { pid, .. }) if pid == own));
        drop(first);
        Folder::take(scratch.path()).expect("free again");
    }

    #[test]
    fn content_without_a_journal_is_swept() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let folder = Folder::take(scratch.path()).expect("free");
        let (whole, lost) = (FileId::new(), FileId::new());
        for path in [
            folder.data(&whole),
            folder.journal(&whole),
            folder.data(&lost),
        ] {
            Folder::create(&path).expect("new");
        }
        assert_eq!(folder.orphans().expect("readable"), [whole]);
        assert!(!folder.data(&lost).exists());
    }
}
