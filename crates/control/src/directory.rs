//! Where the sockets of a user's mounts are.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_base::{clock, find_own_directory, make_own_directory};

/// How long a process waits for its turn; each takes some system calls.
const TURN_PATIENCE: Duration = Duration::from_secs(5);

/// How often it looks.
const TURN_POLL: Duration = Duration::from_millis(5);

/// How the names of records end.
const RECORD: &str = "staging";

/// The turn of one process to look at sockets and to act upon that, as long as it is held.
#[derive(Debug)]
pub(crate) struct Turn {
    _directory: File,
}

/// A file of a mount that is told from others of the same mount point by its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfProcess {
    /// The number of the process.
    pub process: u32,
    /// The file: a socket, or a record.
    pub path: PathBuf,
}

/// The directory with the sockets of one user's mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketDirectory {
    system: PathBuf,
    below: PathBuf,
}

impl SocketDirectory {
    /// `below` in a directory that the system has: the part of the path that must be the user's own.
    pub fn new(system: impl Into<PathBuf>, below: impl Into<PathBuf>) -> Self {
        Self {
            system: system.into(),
            below: below.into(),
        }
    }

    /// A directory of its own, for tests.
    ///
    /// # Panics
    ///
    /// If `directory` has no parent.
    pub fn at(directory: &Path) -> Self {
        let (parent, name) = (directory.parent(), directory.file_name());
        let (parent, name) = (parent.expect("below"), name.expect("named"));
        Self::new(parent, name)
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        self.system.join(&self.below)
    }

    /// Makes the directory, private to its user. Fails when somebody else owns it.
    pub fn prepare(&self) -> io::Result<()> {
        make_own_directory(&self.system, &self.below).map(|_| ())
    }

    /// The socket of the mount on `mountpoint`, which must be an absolute path.
    pub fn socket_of(&self, mountpoint: &Path) -> PathBuf {
        let name = format!("{}.sock", mount_id(mountpoint));
        self.path().join(name)
    }

    /// The socket of a mount on `mountpoint` that saves, with the number of its process, while
    /// another one may be mounted there.
    pub(crate) fn socket_of_earlier(&self, mountpoint: &Path, process: u32) -> PathBuf {
        let name = format!("{}.{process}.sock", mount_id(mountpoint));
        self.path().join(name)
    }

    /// The sockets of mounts on `mountpoint` that save while another one may be mounted there.
    pub fn earlier(&self, mountpoint: &Path) -> Vec<OfProcess> {
        self.by_process(mountpoint, "sock")
    }

    /// The record of the mount on `mountpoint` that this process serves.
    pub(crate) fn record_of(&self, mountpoint: &Path, process: u32) -> PathBuf {
        let name = format!("{}.{process}.{RECORD}", mount_id(mountpoint));
        self.path().join(name)
    }

    /// The records of mounts on `mountpoint`.
    pub(crate) fn records(&self, mountpoint: &Path) -> Vec<OfProcess> {
        self.by_process(mountpoint, RECORD)
    }

    /// The records of mounts on any mount point.
    pub(crate) fn all_records(&self) -> Vec<PathBuf> {
        self.files(RECORD)
    }

    /// The files of `mountpoint` with this ending that have the number of a process in their names.
    fn by_process(&self, mountpoint: &Path, ending: &str) -> Vec<OfProcess> {
        let id = mount_id(mountpoint);
        let process = |path: &Path| {
            let name = path.file_stem()?.to_str()?;
            name.strip_prefix(&id)?.strip_prefix('.')?.parse().ok()
        };
        let files = self.files(ending).into_iter();
        files
            .filter_map(|path| {
                let process = process(&path)?;
                Some(OfProcess { process, path })
            })
            .collect()
    }

    /// Every socket of `mountpoint`, the present one first.
    pub fn sockets_at(&self, mountpoint: &Path) -> Vec<PathBuf> {
        let mut sockets = vec![self.socket_of(mountpoint)];
        let earlier = self.earlier(mountpoint).into_iter();
        sockets.extend(earlier.map(|earlier| earlier.path));
        sockets
    }

    /// Waits until no other process renames or removes sockets. Fails after some seconds, and where
    /// there is no directory.
    pub(crate) fn turn(&self) -> io::Result<Turn> {
        let directory = File::open(self.path())?;
        let begun = clock::now();
        loop {
            match directory.try_lock() {
                Ok(()) => {
                    return Ok(Turn {
                        _directory: directory,
                    });
                }
                Err(TryLockError::WouldBlock) if begun.elapsed() < TURN_PATIENCE => {
                    clock::pause(TURN_POLL);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Every socket that is there, whether or not somebody still listens. Those that somebody else
    /// can have put there are none.
    pub fn sockets(&self) -> Vec<PathBuf> {
        self.files("sock")
    }

    fn files(&self, ending: &str) -> Vec<PathBuf> {
        let Ok(Some(directory)) = find_own_directory(&self.system, &self.below) else {
            return Vec::new();
        };
        let Ok(entries) = fs::read_dir(directory) else {
            return Vec::new();
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let mut files: Vec<_> = paths
            .filter(|path| path.extension().is_some_and(|found| found == ending))
            .collect();
        files.sort();
        files
    }
}

/// A name for a mount that fits into a socket's path however long the mount point is: its
/// 64-bit FNV-1a hash.
pub fn mount_id(mountpoint: &Path) -> String {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let bytes = mountpoint.as_os_str().as_bytes();
    let hash = bytes.iter().fold(OFFSET_BASIS, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_id_is_the_published_hash() {
        assert_eq!(mount_id(Path::new("a")), "af63dc4c8601ec8c");
        assert_eq!(mount_id(Path::new("foobar")), "85944171f73967e8");
    }

    #[test]
    fn the_directory_is_private_and_lists_its_sockets() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let place = SocketDirectory::at(&parent.path().join("run"));
        place.prepare().expect("it can be made");
        place.prepare().expect("it may exist already");
        let metadata = fs::metadata(parent.path().join("run"));
        assert_eq!(metadata.expect("made").permissions().mode() & 0o777, 0o700);
        let socket = place.socket_of(Path::new("/mnt/x"));
        fs::write(&socket, "").expect("written");
        assert_eq!(place.sockets(), [socket]);
    }

    #[test]
    fn earlier_mounts_of_a_place_are_told_by_their_processes() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let place = SocketDirectory::at(&parent.path().join("run"));
        place.prepare().expect("it can be made");
        let (here, there) = (Path::new("/mnt/x"), Path::new("/mnt/y"));
        let earlier = place.socket_of_earlier(here, 42);
        for socket in [
            place.socket_of(here),
            earlier.clone(),
            place.socket_of_earlier(there, 43),
        ] {
            fs::write(&socket, "").expect("written");
        }
        let found = OfProcess {
            process: 42,
            path: earlier.clone(),
        };
        assert_eq!(place.earlier(here), [found]);
        assert_eq!(place.sockets_at(here), [place.socket_of(here), earlier]);
        assert_eq!(place.sockets().len(), 3);
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let place = SocketDirectory::at(parent.path());
        fs::write(place.socket_of(Path::new("/mnt/x")), "").expect("written");
        assert_eq!(place.sockets().len(), 1);
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(place.prepare().is_err());
        assert!(place.sockets().is_empty());
    }

    #[test]
    fn a_directory_of_somebody_else_is_neither_used_nor_believed() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let place = SocketDirectory::at(&parent.path().join("run"));
        place.prepare().expect("it can be made");
        fs::write(place.socket_of(Path::new("/mnt/x")), "").expect("written");
        if std::os::unix::fs::chown(place.path(), Some(65_534), None).is_err() {
            return penstock_skips::skipped("only root can give directories away");
        }
        assert!(place.prepare().is_err());
        assert!(place.sockets().is_empty());
    }
}
