//! The two files of one version, open.
//!
//! The data file is a plain, sparse copy of the object: what is there lies where it lies in the
//! object, so a complete one can stand in for the object wherever the kernel wants a file. The
//! index tells which blocks are there, with a CRC-32C of each; it is read from its file each time
//! (the kernel keeps it in memory as long as that is worth it), which bounds our own memory
//! whatever the object's size.
//!
//! Data is written before its state, and nothing is synced: after a power failure a state may
//! speak of data that never reached the disk. Its checksum tells.

use std::{
    fs::{File, OpenOptions},
    io,
    ops::Range,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::SystemTime,
};

use bytes::Bytes;
use penstock_base::{ChecksumKind, LocalFile, Summing};
use penstock_object::ObjectInfo;

use super::{
    block::{self, BLOCK, STATE_SIZE, State},
    folder::{self, Folder},
    header::{self, Header},
    ledger::Ledger,
    name::VersionName,
    soundness::Soundness,
};
use crate::lock::lock;

/// The files of one version.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: VersionName,
    pub(super) header: Header,
    data: File,
    index: File,
    table_start: u64,
    /// Held while states are read or written: a read would else see half a write.
    states: Mutex<()>,
    soundness: Mutex<Soundness>,
    /// Whether damage in these files was logged.
    pub(super) told: AtomicBool,
    /// Bytes that are given back to the ledger when the files, which have no name any more, are
    /// closed.
    doomed: AtomicU64,
    ledger: Arc<Ledger>,
}

impl Entry {
    /// Opens the files of `name`. `None` when they are not those of the version `header` or are
    /// damaged.
    pub(super) fn open(
        folder: &Folder,
        name: VersionName,
        fits: impl FnOnce(&Header) -> bool,
        ledger: &Arc<Ledger>,
    ) -> io::Result<Option<Arc<Self>>> {
        let index = open(&folder.index(name), false)?;
        let Some((header, length)) = read_header(&index)? else {
            return Ok(None);
        };
        let data = open(&folder.data(name), false)?;
        if !fits(&header) || data.metadata()?.len() != header.info.size {
            return Ok(None);
        }
        Self::of(name, header, length, (data, index), ledger).map(Some)
    }

    /// Makes the files of a version of which nothing is there yet. `None` when its header is too
    /// long.
    pub(super) fn create(
        folder: &Folder,
        name: VersionName,
        header: Header,
        ledger: &Arc<Ledger>,
    ) -> io::Result<Option<Arc<Self>>> {
        let Some(bytes) = header.encode() else {
            return Ok(None);
        };
        folder.prepare(name)?;
        // Whoever reads files that were there before must not see them change.
        folder.remove(name);
        let data = open(&folder.data(name), true)?;
        data.set_len(header.info.size)?;
        let index = open(&folder.index(name), true)?;
        index.write_all_at(&bytes, 0)?;
        let files = (data, index);
        Self::of(name, header, bytes.len(), files, ledger).map(Some)
    }

    fn of(
        name: VersionName,
        header: Header,
        length: usize,
        (data, index): (File, File),
        ledger: &Arc<Ledger>,
    ) -> io::Result<Arc<Self>> {
        let soundness = Soundness::new(&data, block::touched(&(0..header.info.size)).end)?;
        Ok(Arc::new(Self {
            name,
            header,
            soundness: Mutex::new(soundness),
            data,
            index,
            table_start: Header::table_start(length),
            states: Mutex::new(()),
            told: AtomicBool::new(false),
            doomed: AtomicU64::new(0),
            ledger: Arc::clone(ledger),
        }))
    }

    /// What the store said about the object.
    pub(super) fn info(&self) -> &ObjectInfo {
        &self.header.info
    }

    /// The copy of the object.
    pub(super) fn data(&self) -> &File {
        &self.data
    }

    /// The states of `blocks`.
    pub(super) fn states(&self, blocks: &Range<u64>) -> io::Result<Vec<State>> {
        let mut bytes = vec![0; ((blocks.end - blocks.start) * STATE_SIZE) as usize];
        let start = self.table_start + blocks.start * STATE_SIZE;
        let held = lock(&self.states);
        let mut read = 0;
        // Behind the end of the file everything is absent.
        while read < bytes.len() {
            match self.index.read_at(&mut bytes[read..], start + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        drop(held);
        let (states, _) = bytes.as_chunks::<{ STATE_SIZE as usize }>();
        Ok(states.iter().map(|state| State::decode(*state)).collect())
    }

    /// Whether all blocks of `range` are there.
    pub(super) fn has(&self, range: &Range<u64>) -> io::Result<bool> {
        let states = self.states(&block::touched(range))?;
        Ok(states.iter().all(|state| *state != State::Absent))
    }

    /// Writes `slices`, which are whole blocks from `start` on, and then their states.
    pub(super) fn write(&self, start: u64, slices: &[Bytes]) -> io::Result<()> {
        let mut offset = start;
        let mut states = Vec::new();
        let mut summing = Summing::new(ChecksumKind::Crc32c);
        for slice in slices {
            let mut rest = &slice[..];
            while !rest.is_empty() {
                let room = (BLOCK - offset % BLOCK) as usize;
                let (piece, behind) = rest.split_at(room.min(rest.len()));
                summing.add(piece);
                offset += piece.len() as u64;
                rest = behind;
                if offset.is_multiple_of(BLOCK) || offset == self.header.info.size {
                    states.extend(State::Present(block::taken(&mut summing)).encode());
                }
            }
        }
        let blocks = start / BLOCK..start / BLOCK + states.len() as u64 / STATE_SIZE;
        lock(&self.soundness).begin_write(&self.data, &blocks)?;
        let written = self.write_data(start, slices);
        lock(&self.soundness).end_write(&self.data, &blocks, written)?;
        self.write_states(start / BLOCK, &states)
    }

    fn write_data(&self, mut position: u64, slices: &[Bytes]) -> io::Result<()> {
        for slice in slices {
            self.data.write_all_at(slice, position)?;
            position += slice.len() as u64;
        }
        Ok(())
    }

    /// Block `index` was read and is as its checksum says.
    pub(super) fn compared(&self, index: u64) {
        lock(&self.soundness).compared(index);
    }

    /// Whether the data file is the whole object, each block of it compared here.
    pub(super) fn is_whole(&self) -> bool {
        lock(&self.soundness).is_whole(&self.data).unwrap_or(false)
    }

    /// Makes a block count as absent.
    pub(super) fn forget(&self, index: u64) -> io::Result<()> {
        lock(&self.soundness).lost(index);
        self.write_states(index, &State::Absent.encode())
    }

    fn write_states(&self, first: u64, states: &[u8]) -> io::Result<()> {
        let _held = lock(&self.states);
        let start = self.table_start + first * STATE_SIZE;
        self.index.write_all_at(states, start)
    }

    /// Notes on the disk that the version was used now.
    pub(super) fn touch(&self, now: SystemTime) -> io::Result<()> {
        self.index.set_modified(now)
    }

    /// Bytes that both files occupy on the disk.
    pub(super) fn allocated(&self) -> io::Result<u64> {
        Ok(folder::allocated(&self.data)? + folder::allocated(&self.index)?)
    }

    /// The files have no name any more; their `bytes` are free when the last one closes them.
    pub(super) fn doom(&self, bytes: u64) {
        self.doomed.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl AsFd for Entry {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.data.as_fd()
    }
}

impl LocalFile for Entry {}

impl Drop for Entry {
    fn drop(&mut self) {
        self.ledger.free(*self.doomed.get_mut());
    }
}

/// The header of an index and how long it is; `None` when it is damaged.
pub(super) fn read_header(index: &File) -> io::Result<Option<(Header, usize)>> {
    let mut prefix = [0; header::PREFIX];
    let Ok(()) = index.read_exact_at(&mut prefix, 0) else {
        return Ok(None);
    };
    let Some(length) = Header::length(&prefix) else {
        return Ok(None);
    };
    let mut bytes = vec![0; length];
    let Ok(()) = index.read_exact_at(&mut bytes, 0) else {
        return Ok(None);
    };
    Ok(Header::decode(&bytes).map(|header| (header, length)))
}

fn open(path: &Path, create: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(create)
        .mode(0o600)
        .open(path)
}
