//! What a volume holds of the kernel, written down so that others can list it, and take it away
//! when its process was killed.
//!
//! A volume has one file in the state directory. Each step appends a line of JSON with everything
//! that is true from then on; the last whole line counts. The process holds a lock on the file as
//! long as it lives: the kernel gives it back however the process ends, so neither a reused process
//! id nor another PID namespace can make a dead one look alive or a live one dead.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use penstock_base::random;
use serde::{Deserialize, Serialize};

use crate::{BlockError, device::DeviceName};

/// How a state file's name ends.
const ENDING: &str = "volume";

/// Numbers that are tried until one is free.
const NUMBERS_MAX: usize = 16;

/// The bits of a volume's number: what ublk can keep of it beside that of the process.
const NUMBER_MASK: u64 = (1 << 24) - 1;

/// What is known about a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The process that serves it.
    pub pid: u32,
    /// What is mounted, as the user named it.
    pub source: String,
    /// Where, absolute.
    pub mount_point: PathBuf,
    /// `erofs` or `ext4`.
    pub file_system: String,
    /// `loop`, `nbd` or `ublk`.
    pub transport: String,
    /// The name that its devices carry, and that of its private directory.
    pub tag: String,
    /// Its block devices; the one with the superblock is the first.
    pub devices: Vec<DeviceRecord>,
    /// Everything is done.
    pub mounted: bool,
}

/// A block device of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// Its name, such as `loop3`.
    pub name: String,
    /// KiB that the kernel read ahead before, if that was changed.
    pub read_ahead_before: Option<u32>,
    /// KiB that it reads ahead for this volume.
    pub read_ahead: u32,
}

impl DeviceRecord {
    pub(crate) fn device(&self) -> DeviceName {
        DeviceName(self.name.clone())
    }

    /// Gives the device number back as it was found. Who set something else meanwhile keeps it.
    pub(crate) fn restore_read_ahead(&self) {
        let device = self.device();
        if let Some(before) = self.read_ahead_before
            && device.read_ahead() == Some(self.read_ahead)
        {
            device.set_read_ahead(before);
        }
    }
}

/// Where the files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDirectory(PathBuf);

impl StateDirectory {
    /// The directory at `path`, which is made when the first volume needs it.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes the directory, private to root.
    pub(crate) fn prepare(&self) -> Result<(), BlockError> {
        let failed = |error| {
            let what = format!("cannot use the state directory {}", self.0.display());
            BlockError::system(what)(error)
        };
        let mut builder = fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(&self.0)
            .map_err(failed)?;
        let metadata = fs::symlink_metadata(&self.0).map_err(failed)?;
        let private = metadata.is_dir() && metadata.mode() & 0o022 == 0;
        if private && (metadata.uid() == 0 || !penstock_base::is_root()) {
            return Ok(());
        }
        Err(failed(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "others can write there",
        )))
    }

    /// Begins the file of a volume of this process.
    pub(crate) fn begin(&self, mut record: Record) -> Result<Journal, BlockError> {
        self.prepare()?;
        for _ in 0..NUMBERS_MAX {
            // The number of a process is given to others, in other containers even at once.
            let number = random::number() & NUMBER_MASK;
            let tag = format!("penstock-{}-{number:06x}", record.pid);
            let path = self.file_of(&tag);
            let opened = OpenOptions::new()
                .append(true)
                .create_new(true)
                .mode(0o600)
                .open(&path);
            let file = match opened {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(unwritable(&path)(error)),
            };
            file.lock().map_err(unwritable(&path))?;
            record.tag = tag;
            let mut journal = Journal { path, file, record };
            journal.write()?;
            return Ok(journal);
        }
        let full = io::Error::other("too many volumes were left behind there");
        Err(unwritable(&self.0)(full))
    }

    /// Every volume's file, sorted.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let mut files: Vec<_> = paths
            .filter(|path| path.extension().is_some_and(|ending| ending == ENDING))
            .collect();
        files.sort();
        files
    }

    fn file_of(&self, tag: &str) -> PathBuf {
        self.0.join(format!("{tag}.{ENDING}"))
    }
}

fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> BlockError {
    BlockError::system(format!("cannot write {}", path.display()))
}

/// The file of a volume of this process.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    record: Record,
}

impl Journal {
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// Writes down what `change` makes of the record.
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut Record)) -> Result<(), BlockError> {
        change(&mut self.record);
        self.write()
    }

    fn write(&mut self) -> Result<(), BlockError> {
        let line = serde_json::to_string(&self.record).map_err(io::Error::from);
        let line = line.map_err(unwritable(&self.path))?;
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        written.map_err(unwritable(&self.path))
    }

    /// The file of a volume whose process died, from the process that kept `file` open, and with
    /// it the lock.
    pub(crate) fn resume(file: OwnedFd) -> Result<Self, BlockError> {
        let what = "cannot go on with a volume";
        let file = File::from(file);
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let path = path.map_err(BlockError::system(what))?;
        let text = fs::read(&path).map_err(BlockError::system(what))?;
        let record = last_record(&text).ok_or(io::ErrorKind::InvalidData.into());
        let record = record.map_err(BlockError::system(what))?;
        let mut journal = Self { path, file, record };
        journal.update(|record| record.pid = std::process::id())?;
        Ok(journal)
    }

    /// The same open file, with its lock, for a process that keeps it.
    pub(crate) fn keepsake(&self) -> Option<OwnedFd> {
        self.file.try_clone().ok().map(OwnedFd::from)
    }

    /// Everything is taken away again.
    pub(crate) fn end(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A volume's file as another process sees it.
#[derive(Debug)]
pub(crate) enum Found {
    /// Its process lives.
    Alive(Record),
    /// Its process is gone; it is ours to clean, as long as the file is held.
    Dead(Abandoned),
}

/// The file of a volume whose process is gone, locked by us.
#[derive(Debug)]
pub(crate) struct Abandoned {
    path: PathBuf,
    _lock: File,
    /// None when not even the first line was written.
    pub(crate) record: Option<Record>,
}

impl Abandoned {
    /// Nothing of the volume is left.
    pub(crate) fn forget(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Reads a volume's file; none when it vanishes meanwhile.
pub(crate) fn look(path: &Path) -> Option<Found> {
    let file = File::open(path).ok()?;
    let locked = file.try_lock();
    let record = last_record(&fs::read(path).ok()?);
    match locked {
        Err(TryLockError::WouldBlock) => record.map(Found::Alive),
        Err(TryLockError::Error(_)) => None,
        Ok(()) => Some(Found::Dead(Abandoned {
            path: path.to_owned(),
            _lock: file,
            record,
        })),
    }
}

/// The last whole line. One that was being written when the process was killed does not count.
fn last_record(text: &[u8]) -> Option<Record> {
    let whole = text.iter().rposition(|byte| *byte == b'\n')?;
    let lines = text[..whole].split(|byte| *byte == b'\n');
    lines
        .rev()
        .find_map(|line| serde_json::from_slice(line).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            pid: std::process::id(),
            source: "s3://bucket/path".to_owned(),
            mount_point: "/mnt/a b".into(),
            file_system: "erofs".to_owned(),
            transport: "loop".to_owned(),
            tag: String::new(),
            devices: Vec::new(),
            mounted: false,
        }
    }

    #[test]
    fn a_volume_is_alive_as_long_as_its_journal_is_open() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let state = StateDirectory::new(parent.path().join("run"));
        let mut journal = state.begin(record()).expect("begun");
        journal
            .update(|record| record.mounted = true)
            .expect("written");
        let files = state.files();
        assert_eq!(files.len(), 1);
        assert!(matches!(look(&files[0]), Some(Found::Alive(record)) if record.mounted));
        drop(journal);
        let Some(Found::Dead(dead)) = look(&files[0]) else {
            unreachable!("its lock is gone");
        };
        assert_eq!(
            dead.record.as_ref().map(|record| record.mounted),
            Some(true)
        );
        dead.forget();
        assert!(state.files().is_empty());
    }

    #[test]
    fn two_volumes_of_one_process_have_files_and_tags_of_their_own() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let state = StateDirectory::new(parent.path());
        let one = state.begin(record()).expect("begun");
        let other = state.begin(record()).expect("begun");
        assert_ne!(one.record().tag, other.record().tag);
        // Nor does another container have them, whose processes have the same numbers.
        let tails = [&one, &other].map(|volume| volume.record().tag.rsplit('-').next());
        let number = |tail: &str| u32::from_str_radix(tail, 16).expect("hexadecimal");
        let numbers = tails.map(|tail| tail.map(number).expect("a number"));
        assert!(numbers[0].abs_diff(numbers[1]) > 1);
        assert_eq!(state.files().len(), 2);
    }

    #[test]
    fn half_a_line_does_not_count() {
        let whole = serde_json::to_string(&record()).expect("written");
        let mut text = format!("{whole}\n").into_bytes();
        assert_eq!(last_record(&text), Some(record()));
        text.extend_from_slice(&whole.as_bytes()[..whole.len() / 2]);
        assert_eq!(last_record(&text), Some(record()));
        assert_eq!(last_record(b"{\"pid\":1"), None);
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(StateDirectory::new(parent.path()).begin(record()).is_err());
    }
}
