//! Files that hold a secret.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
};

/// Bytes of a file with a secret, usually.
const USUAL_MAX: u64 = 4 << 10;

/// At most `max` bytes of a file, and what its owner, its group and others may do with it: whoever looks at the mode of the
/// open file knows that it is that of what is read.
pub(crate) fn read(path: &Path, max: u64) -> io::Result<(Vec<u8>, u32)> {
    let file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode() & 0o777;
    // Bytes that grow are moved, and leave a copy behind that nobody overwrites.
    let mut bytes = Vec::with_capacity(max.min(USUAL_MAX) as usize);
    file.take(max).read_to_end(&mut bytes)?;
    Ok((bytes, mode))
}
