//! Files and folders with what a private bucket holds: names, sizes, tags. They are for their user
//! alone, whatever the umask says.

use std::{
    fs::{DirBuilder, File, OpenOptions, Permissions, set_permissions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

const FOLDER: u32 = 0o700;
const FILE: u32 = 0o600;

/// A file that is there neither for others nor yet.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(FILE);
    options.open(path)
}

/// A file in the place of what is there.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    let file = options.mode(FILE).open(path)?;
    file.set_permissions(Permissions::from_mode(FILE))?;
    Ok(file)
}

/// A folder, with those above it that are missing. One that is there keeps its mode.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER).create(path)
}

/// Keeps others out of a folder of ours that an older version let them into.
pub(crate) fn close_folder(path: &Path) {
    // Of somebody else's, only he can.
    let _ = set_permissions(path, Permissions::from_mode(FOLDER));
}
