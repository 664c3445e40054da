//! Bodies of replies.

mod body;
mod directory;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use penstock_vfs::{
    Attributes, Entry, FileKind, HandleId, Inode, Lock, LockMode, Opened, SpecialFile, Statistics,
    permission::without_set_id,
};

pub(crate) use body::Body;
pub(crate) use directory::{DirectoryEntry, directory_entry, directory_entry_plus};

/// Block size that `stat` shows. The kernel derives page cache details from it, so it is a page;
/// how much is moved at once is negotiated elsewhere.
const BLOCK_SIZE: u32 = 4096;
/// `st_blocks` counts these, whatever the block size (stat(2)).
const STAT_BLOCK: u64 = 512;

/// The last byte of a lock that reaches to the end of the file (`OFFSET_MAX`).
pub(crate) const LOCK_END: u64 = i64::MAX as u64;

/// Bits of the flags in the reply to OPEN.
mod open_flags {
    pub(super) const DIRECT_IO: u32 = 1 << 0;
    pub(super) const KEEP_CACHE: u32 = 1 << 1;
    pub(super) const NOFLUSH: u32 = 1 << 5;
    pub(super) const PASSTHROUGH: u32 = 1 << 7;
}

/// The head of a reply with `body_length` bytes after it. `error` is 0 or a negative errno.
pub(crate) fn reply_header(unique: u64, error: i32, body_length: usize) -> [u8; 16] {
    let length = u32::try_from(super::REPLY_HEADER_SIZE + body_length)
        .expect("replies are far smaller than 4 GiB");
    let mut header = [0; 16];
    header[..4].copy_from_slice(&length.to_ne_bytes());
    header[4..8].copy_from_slice(&error.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// A name that leads to a file.
pub(crate) fn entry(body: &mut Body, entry: &Entry) {
    body.u64(entry.attributes.inode.0);
    // The kernel insists on 0 for the root.
    let is_root = entry.attributes.inode == Inode::ROOT;
    body.u64(if is_root {
        0
    } else {
        entry.attributes.generation.into()
    });
    lifetimes(body, entry.entry_ttl, kept_for(entry));
    attributes(body, &entry.attributes);
}

/// How long the kernel may believe attributes. It leaves set-id bits to who serves the file, which a write takes away, and
/// shows those that it was told until then.
fn kept_for(entry: &Entry) -> Duration {
    let Attributes {
        kind, permissions, ..
    } = entry.attributes;
    match kind == FileKind::Regular && without_set_id(permissions) != permissions {
        true => Duration::ZERO,
        false => entry.attributes_ttl,
    }
}

/// A name that leads nowhere, and for how long.
pub(crate) fn absent(body: &mut Body, ttl: Duration) {
    body.u64(0).u64(0);
    lifetimes(body, ttl, Duration::ZERO);
    body.zeros(88);
}

/// The reply to GETATTR and SETATTR.
pub(crate) fn attributes_with_lifetime(body: &mut Body, entry: &Entry) {
    let ttl = kept_for(entry);
    body.u64(ttl.as_secs()).u32(ttl.subsec_nanos()).u32(0);
    attributes(body, &entry.attributes);
}

/// What the kernel is told of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenReply {
    pub(crate) handle: HandleId,
    /// Past the page cache.
    pub(crate) direct: bool,
    /// What the page cache has is still true.
    pub(crate) keep_cache: bool,
    /// No FLUSH when it is closed.
    pub(crate) skip_flush: bool,
    /// From this local file; with `direct` only what is mapped into memory.
    pub(crate) local: Option<u32>,
}

impl OpenReply {
    /// What follows for the kernel from what is true of the file, without a local file.
    pub(crate) fn of(opened: &Opened) -> Self {
        Self {
            handle: opened.handle,
            direct: opened.passes_once || opened.reads_through,
            keep_cache: opened.is_unchanged,
            skip_flush: opened.closes_silently,
            local: None,
        }
    }

    fn flags(&self) -> u32 {
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        flag(self.direct, open_flags::DIRECT_IO)
            | flag(self.keep_cache, open_flags::KEEP_CACHE)
            | flag(self.skip_flush, open_flags::NOFLUSH)
            | flag(self.local.is_some(), open_flags::PASSTHROUGH)
    }
}

/// The reply to OPEN, and the second half of that to CREATE.
pub(crate) fn opened(body: &mut Body, reply: &OpenReply) {
    body.u64(reply.handle.0).u32(reply.flags());
    body.u32(reply.local.unwrap_or(0));
}

/// The reply to OPENDIR.
pub(crate) fn opened_directory(body: &mut Body, handle: HandleId) {
    body.u64(handle.0).u32(0).u32(0);
}

/// The reply to IOCTL, of a command that returns 0 and no data.
pub(crate) fn controlled(body: &mut Body) {
    body.u64(0).u64(0);
}

/// The reply to WRITE.
pub(crate) fn written(body: &mut Body, size: u32) {
    body.u32(size).u32(0);
}

/// The reply to GETLK: the lock that keeps the caller out, or that there is none.
pub(crate) fn lock(body: &mut Body, lock: Option<&Lock>) {
    let Some(lock) = lock else {
        body.u64(0).u64(0).u32(libc::F_UNLCK as u32).u32(0);
        return;
    };
    let kind = match lock.mode {
        LockMode::Shared => libc::F_RDLCK,
        LockMode::Exclusive => libc::F_WRLCK,
    };
    let last = (lock.range.end - 1).min(LOCK_END);
    body.u64(lock.range.start).u64(last);
    body.u32(kind as u32).u32(lock.process);
}

/// The reply to STATFS.
pub(crate) fn statistics(body: &mut Body, statistics: &Statistics) {
    body.u64(statistics.blocks);
    body.u64(statistics.blocks_free)
        .u64(statistics.blocks_available);
    body.u64(statistics.files).u64(statistics.files_free);
    body.u32(statistics.block_size)
        .u32(statistics.name_length_max)
        .u32(statistics.block_size);
    body.zeros(28);
}

fn lifetimes(body: &mut Body, name: Duration, attributes: Duration) {
    body.u64(name.as_secs()).u64(attributes.as_secs());
    body.u32(name.subsec_nanos()).u32(attributes.subsec_nanos());
}

fn attributes(body: &mut Body, attributes: &Attributes) {
    let times = [attributes.accessed, attributes.modified, attributes.changed].map(wire_time);
    body.u64(attributes.inode.0).u64(attributes.size);
    body.u64(attributes.allocated.div_ceil(STAT_BLOCK));
    for (seconds, _) in times {
        body.u64(seconds);
    }
    for (_, nanos) in times {
        body.u32(nanos);
    }
    body.u32(mode(attributes)).u32(attributes.links);
    body.u32(attributes.uid).u32(attributes.gid);
    body.u32(device(attributes.kind)).u32(BLOCK_SIZE).u32(0);
}

fn mode(attributes: &Attributes) -> u32 {
    file_type(attributes.kind) | u32::from(attributes.permissions & 0o7777)
}

pub(crate) fn file_type(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Special(SpecialFile::Pipe) => libc::S_IFIFO,
        FileKind::Special(SpecialFile::Socket) => libc::S_IFSOCK,
        FileKind::Special(SpecialFile::CharacterDevice(_)) => libc::S_IFCHR,
        FileKind::Special(SpecialFile::BlockDevice(_)) => libc::S_IFBLK,
    }
}

/// Which device a file stands for; 0 if it stands for none.
fn device(kind: FileKind) -> u32 {
    match kind {
        FileKind::Special(
            SpecialFile::CharacterDevice(device) | SpecialFile::BlockDevice(device),
        ) => device.0,
        _ => 0,
    }
}

/// Signed seconds since 1970, as the wire's unsigned field, and nanoseconds on top of them.
fn wire_time(time: SystemTime) -> (u64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs(), after.subsec_nanos()),
        Err(error) => before_1970(error.duration()),
    }
}

fn before_1970(before: Duration) -> (u64, u32) {
    match before.subsec_nanos() {
        0 => (before.as_secs().wrapping_neg(), 0),
        nanos => ((before.as_secs() + 1).wrapping_neg(), 1_000_000_000 - nanos),
    }
}
