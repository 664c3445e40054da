//! Forcing what is unsaved to the disk, so that it survives a crash of the machine.
//!
//! The order matters, and the directory is forced once for many files:
//!
//! 1. [`StagedFile::force`] of each: the bytes, then the records that tell of them;
//! 2. [`Staging::force_names`]: the names of both, if any is new ([`Forced::is_named`]);
//! 3. [`StagedFile::note_forced`] of each: the journal notes how much of it is on the disk, and is forced once more. Only
//!    what that note covers is believed after another start of the system.
//!
//! A journal that was written anew between the first step and the third says so in the third, and begins again.
//!
//! The kernel tells once that bytes could not be written, and takes them for written then. So a file of which a step
//! failed stays [unsynced](StagedFile::is_unsynced), and is not forced again, until the store has what it holds; and a
//! log of names that could not be synced is written anew.

use std::{
    fs::File,
    io,
    sync::{Arc, atomic::Ordering},
};

use crate::{
    lock::lock,
    staging::{area::Staging, disk::DiskFile, file::StagedFile, journal::Extent},
};

/// What of a file is on the disk, but for its name and the note that says so.
#[derive(Debug)]
pub struct Forced {
    extent: Extent,
    journal: Arc<File>,
    disk: Option<Arc<DiskFile>>,
    is_named: bool,
}

impl Forced {
    /// Whether the names of the file survive a crash of the machine already.
    pub fn is_named(&self) -> bool {
        self.is_named
    }
}

impl Staging {
    /// Makes the names of staging files and journals survive a crash of the machine. Blocks.
    pub fn force_names(&self) -> io::Result<()> {
        self.folder().sync()
    }

    /// Makes what the log of names says survive a crash of the machine, without the log, which others need meanwhile.
    /// Blocks.
    pub fn force_log(&self) -> io::Result<()> {
        let Some(file) = self.names().file_for_sync()? else {
            return Ok(());
        };
        let synced = file.sync_data();
        if synced.is_err() {
            self.names().doubt(&file);
        }
        synced
    }
}

impl StagedFile {
    /// Whether what is unsaved could not be forced to the disk once: only the store can be trusted with it then.
    pub fn is_unsynced(&self) -> bool {
        self.is_unsynced.load(Ordering::Relaxed)
    }

    /// Something that keeps what is unsaved from being forced to the disk failed outside of the file.
    pub fn note_unsynced(&self) {
        self.is_unsynced.store(true, Ordering::Relaxed);
    }

    /// The store has what could not be forced to the disk.
    pub(super) fn forget_unsynced(&self) {
        self.is_unsynced.store(false, Ordering::Relaxed);
    }

    /// Remembers that `sync` failed, if it did.
    fn remembering<T>(&self, sync: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let synced = sync();
        if synced.is_err() {
            self.note_unsynced();
        }
        synced
    }

    /// Forces the bytes to the disk; where nothing was written there are none.
    pub(super) fn force_bytes(&self) -> io::Result<()> {
        let disk = self.disk_if_any();
        self.remembering(|| disk.map_or(Ok(()), |disk| disk.sync()))
    }

    /// Forces bytes and records to the disk. `None` if the disk has everything. Holds the lock of the journal only
    /// while it looks: writers wait for that. Blocks.
    pub fn force(&self) -> io::Result<Option<Forced>> {
        if self.is_unsynced() {
            return Err(io::Error::other("it could not be synced before"));
        }
        self.remembering(|| self.force_journal())
    }

    fn force_journal(&self) -> io::Result<Option<Forced>> {
        let looked = lock(&self.journal).as_ref().and_then(|journal| {
            let extent = journal.uncovered()?;
            Some((extent, journal.file(), journal.is_named()))
        });
        let Some((extent, journal, is_named)) = looked else {
            return Ok(None);
        };
        let disk = self.disk_if_any();
        self.force_bytes()?;
        // The records before the note: it must not be there without them.
        journal.sync_data()?;
        let is_named = is_named && disk.as_ref().is_none_or(|disk| disk.is_named());
        Ok(Some(Forced {
            extent,
            journal,
            disk,
            is_named,
        }))
    }

    /// Notes what was forced, whose names are on the disk. Returns whether that is so: another journal may have been
    /// written meanwhile, which is to be forced anew. Blocks.
    pub fn note_forced(&self, forced: &Forced) -> io::Result<bool> {
        self.remembering(|| self.note_on_disk(forced))
    }

    fn note_on_disk(&self, forced: &Forced) -> io::Result<bool> {
        if let Some(disk) = &forced.disk {
            disk.note_named();
        }
        let noted = match lock(&self.journal).as_mut() {
            Some(journal) => journal.note_covered(forced.extent)?,
            // Nothing is unsaved any more.
            None => return Ok(true),
        };
        let Some(noted) = noted else {
            return Ok(false);
        };
        forced.journal.sync_data()?;
        if let Some(journal) = lock(&self.journal).as_mut() {
            journal.confirm(noted);
        }
        Ok(true)
    }
}
