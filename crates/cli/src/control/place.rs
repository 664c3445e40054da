//! Where the sockets of a user's mounts are.

use std::{
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::{
    environment::Environment,
    places::{self, OwnPlace},
};

/// The directory with the sockets of one user's mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place(OwnPlace);

impl Place {
    /// The place of the user who runs this: below /run for root, else the user's own runtime
    /// directory, else a private directory in /tmp.
    pub(crate) fn of_user(environment: &Environment) -> Self {
        Self(places::sockets(environment))
    }

    /// A place of its own, for tests.
    #[cfg(test)]
    pub(crate) fn at(directory: &Path) -> Self {
        let (parent, name) = (directory.parent(), directory.file_name());
        let (parent, name) = (parent.expect("below"), name.expect("named"));
        Self(OwnPlace::new(parent, name))
    }

    /// Its path.
    pub(crate) fn directory(&self) -> PathBuf {
        self.0.path()
    }

    /// Makes the directory, private to its user. Fails when somebody else owns it.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        self.0.make().map(|_| ())
    }

    /// The socket of the mount on `mountpoint`, which must be an absolute path.
    pub(crate) fn socket_of(&self, mountpoint: &Path) -> PathBuf {
        let name = format!("{}.sock", mount_id(mountpoint));
        self.directory().join(name)
    }

    /// Every socket that is there, whether or not somebody still listens. Those that somebody else
    /// can have put there are none.
    pub(crate) fn sockets(&self) -> Vec<PathBuf> {
        let Ok(Some(directory)) = self.0.find() else {
            return Vec::new();
        };
        let Ok(entries) = fs::read_dir(directory) else {
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
        let place = Place::at(&parent.path().join("run"));
        place.prepare().expect("it can be made");
        place.prepare().expect("it may exist already");
        let metadata = fs::metadata(parent.path().join("run"));
        assert_eq!(metadata.expect("made").permissions().mode() & 0o777, 0o700);
        let socket = place.socket_of(Path::new("/mnt/x"));
        fs::write(&socket, "").expect("written");
        assert_eq!(place.sockets(), [socket]);
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let place = Place::at(parent.path());
        fs::write(place.socket_of(Path::new("/mnt/x")), "").expect("written");
        assert_eq!(place.sockets().len(), 1);
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(place.prepare().is_err());
        assert!(place.sockets().is_empty());
    }

    #[test]
    fn a_directory_of_somebody_else_is_neither_used_nor_believed() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let place = Place::at(&parent.path().join("run"));
        place.prepare().expect("it can be made");
        fs::write(place.socket_of(Path::new("/mnt/x")), "").expect("written");
        if std::os::unix::fs::chown(place.directory(), Some(65_534), None).is_err() {
            return; // Only root can give directories away.
        }
        assert!(place.prepare().is_err());
        assert!(place.sockets().is_empty());
    }
}
