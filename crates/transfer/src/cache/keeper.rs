//! The one thread that changes what is on the disk: looks what is there at the start, writes what
//! was received, and makes room for it.
//!
//! Room is reserved before a write and corrected after it, so the sum never exceeds the bound. The
//! versions used longest ago go first, and never the one that is being written: of an object that
//! is larger than the cache the beginning stays, and reading it twice hits at least that.

use std::{io, sync::Arc, time::Duration};

use penstock_base::{
    KIB,
    clock::{self, Instant},
};
use tracing::{info, warn};

use super::{
    block::{BLOCK, STATE_SIZE},
    bounds,
    entry::Entry,
    name::VersionName,
    queue::{Order, Piece},
    shared::Shared,
    table::VERSIONS_MAX,
};
use crate::lock::lock;

/// How often the free space of the file system is looked at while nothing is written.
const IDLE_INTERVAL: Duration = Duration::from_secs(10);

/// How long nothing is cached after the disk refused a write.
const PAUSE: Duration = Duration::from_secs(30);

/// What a file system may need for a run of blocks beside its bytes: pages of the table, and
/// blocks of extents.
const OVERHEAD: u64 = 32 * KIB;

/// Works until the queue is closed and empty.
#[derive(Debug)]
pub(super) struct Keeper {
    shared: Arc<Shared>,
    /// When the disk may be tried again.
    resume: Option<Instant>,
    /// When the free space is to be looked at again.
    check: Instant,
}

impl Keeper {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            resume: None,
            check: clock::now(),
        }
    }

    pub(super) fn run(mut self) {
        self.look_around();
        loop {
            match self.shared.queue.next(IDLE_INTERVAL) {
                Order::Write(piece) => self.take(&piece),
                Order::Idle => {}
                Order::End => break,
            }
            self.keep_house();
        }
    }

    /// Learns what is there, and sets the bound.
    fn look_around(&self) {
        let shared = &self.shared;
        let scanned = shared.folder.scan(true, |found| {
            lock(&shared.table).add(&found);
        });
        if let Err(error) = scanned {
            warn!(%error, "the cache directory cannot be read; what it holds is not used");
        }
        let used = shared.ledger.used();
        let size = shared.size.or_else(|| {
            let disk = shared.folder.space().ok()?;
            Some(bounds::default_size(disk, used))
        });
        shared.metrics.limit_bytes.set(size.unwrap_or_default());
        self.make_room(0, None);
        let objects = shared.count_objects();
        info!(
            objects,
            bytes = used,
            limit = size,
            "the disk cache is ready"
        );
        shared.set_ready();
    }

    fn take(&mut self, piece: &Piece) {
        if self.resume.is_some() {
            self.shared.metrics.skipped_bytes.add(piece.length());
            return;
        }
        match self.store(piece) {
            Ok(true) => self.shared.metrics.written_bytes.add(piece.length()),
            Ok(false) => self.shared.metrics.skipped_bytes.add(piece.length()),
            Err(error) => {
                self.shared.metrics.disk_errors.increment();
                self.shared.metrics.skipped_bytes.add(piece.length());
                self.pause(&error);
            }
        }
        if !self.shared.queue.is_wanted() {
            self.shared.remove(piece.name);
        }
    }

    /// Writes a piece. Says whether it is on the disk now.
    fn store(&self, piece: &Piece) -> io::Result<bool> {
        let shared = &self.shared;
        let Some(entry) = self.entry(piece)? else {
            return Ok(false);
        };
        let length = piece.length();
        if entry.has(&(piece.start..piece.start + length))? {
            return Ok(true);
        }
        let cost = cost(length);
        let name = Some(piece.name);
        if !self.make_room(cost, name) || !lock(&shared.table).charge(piece.name, cost) {
            return Ok(false);
        }
        let written = entry.write(piece.start, &piece.slices);
        // What was charged stays charged if nobody can tell what the file system did.
        if let Ok(bytes) = entry.allocated() {
            lock(&shared.table).settle(piece.name, bytes);
        }
        written.map(|()| true)
    }

    /// The files that a piece goes into.
    fn entry(&self, piece: &Piece) -> io::Result<Option<Arc<Entry>>> {
        let shared = &self.shared;
        let fits = |header: &super::header::Header| header.is_same(&piece.header);
        if let Some(entry) = shared.find(piece.name, fits) {
            return Ok(Some(entry));
        }
        if shared.count_objects() >= VERSIONS_MAX {
            self.evict(None);
        }
        if !self.make_room(OVERHEAD, None) {
            return Ok(None);
        }
        let header = piece.header.as_ref().clone();
        let made = Entry::create(&shared.folder, piece.name, header, &shared.ledger)?;
        if let Some(entry) = &made {
            let mut table = lock(&shared.table);
            table.add_new(entry, clock::wall_time());
            table.settle(piece.name, entry.allocated()?);
        }
        shared.count_objects();
        Ok(made)
    }

    /// Evicts until `bytes` more fit. Says whether they do.
    fn make_room(&self, bytes: u64, spared: Option<VersionName>) -> bool {
        let shared = &self.shared;
        let limit = shared.metrics.limit_bytes.value();
        let after = || shared.ledger.used() + bytes;
        while after().saturating_sub(shared.ledger.leaving()) > limit {
            if self.evict(spared).is_none() {
                return false;
            }
        }
        after() <= limit && self.leave_free(bytes, spared)
    }

    /// Evicts until the file system has enough free space with `bytes` more written.
    fn leave_free(&self, bytes: u64, spared: Option<VersionName>) -> bool {
        let shared = &self.shared;
        let missing = || match shared.folder.space() {
            Ok(disk) => shared.keep_free.missing(disk, bytes),
            Err(_) => 0,
        };
        let mut shortage = missing();
        if shortage == 0 {
            return true;
        }
        while shortage > 0 {
            match self.evict(spared) {
                Some(freed) => shortage = shortage.saturating_sub(freed),
                None => return false,
            }
        }
        missing() == 0
    }

    /// Removes the version that was used longest ago, and returns its bytes.
    fn evict(&self, spared: Option<VersionName>) -> Option<u64> {
        let oldest = lock(&self.shared.table).oldest(spared)?;
        let bytes = self.shared.remove(oldest);
        self.shared.metrics.evicted_bytes.add(bytes);
        self.shared.metrics.evicted_objects.increment();
        Some(bytes)
    }

    /// Stops caching for a while.
    fn pause(&mut self, error: &io::Error) {
        warn!(%error, "cannot write to the disk cache; nothing is cached for {PAUSE:?}");
        self.resume = Some(clock::now() + PAUSE);
        self.shared.pause(true);
    }

    fn keep_house(&mut self) {
        let now = clock::now();
        if self.resume.is_some_and(|resume| now >= resume) {
            self.resume = None;
            self.shared.pause(false);
        }
        if now >= self.check {
            self.check = now + IDLE_INTERVAL;
            self.leave_free(0, None);
        }
    }
}

/// Bytes of disk that writing `length` bytes may need at most.
fn cost(length: u64) -> u64 {
    let states = length.div_ceil(BLOCK) * STATE_SIZE;
    (length + states).next_multiple_of(4 * KIB) + OVERHEAD
}
