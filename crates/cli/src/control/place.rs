//! Where the sockets of a user's mounts are.

use std::{
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use crate::{environment::Environment, system};

/// The directory with the sockets of one user's mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    directory: PathBuf,
}

impl Place {
    /// The place of the user who runs this: below /run for root, else the user's own runtime
    /// directory, else a private directory in /tmp.
    pub(crate) fn of_user(environment: &Environment) -> Self {
        let uid = system::user_id();
        let directory = match environment.directory("XDG_RUNTIME_DIR") {
            _ if uid == 0 => PathBuf::from("/run/penstock"),
            Some(runtime) => runtime.join("penstock"),
            None => PathBuf::from(format!("/tmp/penstock-{uid}")),
        };
        Self { directory }
    }

    /// A place of its own, for tests.
    #[cfg(test)]
    pub(crate) fn at(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// Its path.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the directory, private to its user. Fails when somebody else owns it.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory);
        made?;
        let metadata = fs::symlink_metadata(&self.directory)?;
        let ours = metadata.is_dir() && metadata.uid() == system::user_id();
        let private = metadata.mode() & 0o022 == 0;
        if ours && private {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to somebody else",
        ))
    }

    /// The socket of the mount on `mountpoint`, which must be an absolute path.
    pub(crate) fn socket_of(&self, mountpoint: &Path) -> PathBuf {
        self.directory
            .join(format!("{}.sock", mount_id(mountpoint)))
    }

    /// Every socket that is there, whether or not somebody still listens.
    pub(crate) fn sockets(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return Vec::new();
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let mut sockets: Vec<_> = paths
            .filter(|path| path.extension().is_some_and(|ending| ending == "sock"))
            .collect();
        sockets.sort();
        sockets
    }
}

/// A name for a mount that fits into a socket's path however long the mount point is: its
/// 64-bit FNV-1a hash.
pub(crate) fn mount_id(mountpoint: &Path) -> String {
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
    use super::*;

    #[test]
    fn the_id_is_the_published_hash() {
        assert_eq!(mount_id(Path::new("a")), "af63dc4c8601ec8c");
        assert_eq!(mount_id(Path::new("foobar")), "85944171f73967e8");
    }

    #[test]
    fn the_directory_is_private_and_lists_its_sockets() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let place = Place::at(&parent.path().join("run"));
        place.prepare().expect("it can be made");
        place.prepare().expect("it may exist already");
        let mode = fs::metadata(parent.path().join("run"))
            .expect("made")
            .mode();
        assert_eq!(mode & 0o777, 0o700);
        let socket = place.socket_of(Path::new("/mnt/x"));
        fs::write(&socket, "").expect("written");
        assert_eq!(place.sockets(), [socket]);
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(Place::at(parent.path()).prepare().is_err());
    }
}
