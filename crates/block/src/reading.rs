//! Reads of a disk as a driver of the kernel asks for them.

use penstock_base::{FsError, Payload};
use penstock_vfs::Disk;
use tracing::warn;

/// Bytes in the longest read that any driver asks for: 32 MiB, over nbd.
const READ_MAX: u32 = 32 << 20;

/// What a read gave, or its errno.
pub(crate) type Answer = Result<Payload, libc::c_int>;

/// Offset and length.
pub(crate) type Place = (u64, u32);

/// Reads from a disk, whole or not at all.
pub(crate) async fn read(disk: &dyn Disk, (offset, length): Place) -> Answer {
    let end = offset.checked_add(u64::from(length));
    if length > READ_MAX || end.is_none_or(|end| end > disk.size()) {
        return Err(libc::EINVAL);
    }
    if length == 0 {
        return Ok(Payload::new());
    }
    let bytes = disk.read(offset, length).await.map_err(|error| {
        warn!(offset, length, %error, "a read of a disk failed");
        errno_of(&error)
    })?;
    if bytes.len() != length as usize {
        warn!(
            offset,
            length,
            had = bytes.len(),
            "a disk gave another number of bytes"
        );
        return Err(libc::EIO);
    }
    Ok(bytes)
}

/// Drivers know few errors, and a kernel makes `EIO` of nearly every one.
fn errno_of(error: &FsError) -> libc::c_int {
    match error {
        FsError::OutOfMemory => libc::ENOMEM,
        _ => libc::EIO,
    }
}
