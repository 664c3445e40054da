//! A door: a command that tells of every file of a volume.
//!
//! A door gives back each reference and handle that it took, also when it fails half way. A listing gives a reference
//! with each entry; [`Held`] gives it back. No directory stays open: the door lists some names, and goes on after the
//! last of them.

use std::{io::Write, ops::ControlFlow};

use penstock_base::{FileName, FsError, FsResult};
use penstock_vfs::{
    Attributes, DirectorySink, Entry, FileKind, HandleId, Identity, Inode, ListFrom, OpenOptions,
    Position, Volume,
};

/// Entries that are listed at once.
const PAGE_ENTRIES: usize = 128;
/// Bytes that are read at once.
const READ_BYTES: u32 = 1 << 20;

/// What a walk found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Walked {
    /// Directories, the root among them.
    pub directories: u64,
    /// Whatever is no directory.
    pub files: u64,
    /// Bytes that were read of regular files.
    pub bytes: u64,
}

/// Writes a line to `out` for everything below the root of `volume`: how many bytes could be read of it, and its path.
/// Fails where the volume refuses `by` something, and with `Io` if `out` takes no more.
pub async fn walk(
    volume: &dyn Volume,
    by: &Identity,
    out: &mut (dyn Write + Send),
) -> FsResult<Walked> {
    let root = Held::of(volume, &volume.hold(by, Inode::ROOT).await?);
    let mut walked = Walked::default();
    let mut waiting = vec![(String::new(), root)];
    while let Some((path, directory)) = waiting.pop() {
        walked.directories += 1;
        for (name, found) in list(volume, by, directory.inode).await? {
            let path = format!("{path}/{name}");
            let bytes = match found.kind {
                FileKind::Regular => read(volume, by, found.inode).await?,
                _ => 0,
            };
            writeln!(out, "{bytes:>12} {path}").map_err(|error| FsError::Io(error.to_string()))?;
            walked.bytes += bytes;
            match found.kind {
                FileKind::Directory => waiting.push((path, found)),
                _ => walked.files += 1,
            }
        }
    }
    Ok(walked)
}

/// Everything in a directory.
async fn list<'v>(
    volume: &'v dyn Volume,
    by: &Identity,
    directory: Inode,
) -> FsResult<Vec<(FileName, Held<'v>)>> {
    let mut all: Vec<(FileName, Held<'v>)> = Vec::new();
    loop {
        let mut page = Page::of(volume);
        let from = all.last();
        let from = from.map_or(ListFrom::START, |(name, _)| ListFrom::After(name));
        volume.list(by, directory, from, &mut page).await?;
        if page.entries.is_empty() {
            return Ok(all);
        }
        all.append(&mut page.entries);
    }
}

/// Reads a file to its end and says how far that is.
async fn read(volume: &dyn Volume, by: &Identity, file: Inode) -> FsResult<u64> {
    let handle = volume.open(by, file, OpenOptions::READ).await?.handle;
    let end = read_through(volume, by, handle).await;
    volume.release(handle).await;
    end
}

async fn read_through(volume: &dyn Volume, by: &Identity, handle: HandleId) -> FsResult<u64> {
    let mut offset = 0;
    loop {
        let at = Position { handle, offset };
        match volume.read(by, at, READ_BYTES).await?.len() {
            0 => return Ok(offset),
            read => offset += read as u64,
        }
    }
}

/// A reference to an inode, which goes back when this is dropped.
struct Held<'v> {
    volume: &'v dyn Volume,
    inode: Inode,
    kind: FileKind,
}

impl<'v> Held<'v> {
    /// The reference that came with `entry`.
    fn of(volume: &'v dyn Volume, entry: &Entry) -> Self {
        let Attributes { inode, kind, .. } = entry.attributes;
        Self {
            volume,
            inode,
            kind,
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.volume.forget(self.inode, 1);
    }
}

/// Some entries of a directory.
struct Page<'v> {
    volume: &'v dyn Volume,
    entries: Vec<(FileName, Held<'v>)>,
}

impl<'v> Page<'v> {
    fn of(volume: &'v dyn Volume) -> Self {
        let entries = Vec::new();
        Self { volume, entries }
    }
}

impl DirectorySink for Page<'_> {
    fn push(&mut self, _next: u64, name: &FileName, entry: &Entry) -> ControlFlow<()> {
        if self.entries.len() == PAGE_ENTRIES {
            return ControlFlow::Break(());
        }
        let held = Held::of(self.volume, entry);
        self.entries.push((name.clone(), held));
        ControlFlow::Continue(())
    }
}
