//! A large file that is written piece by piece: at any place by many threads, or where the tree takes bytes in their order
//! only, by one at a time.

use std::{
    collections::VecDeque,
    sync::{PoisonError, RwLock, RwLockReadGuard},
};

use penstock_base::Mutex;

use super::{
    super::Member,
    job::{Filled, Piece, Spot},
};
use crate::tree::Written;

/// A large file.
pub(super) struct Growing<'a> {
    pub(super) spot: Spot<'a>,
    pub(super) member: Member,
    /// None before its first piece. Dropped before it is published, nothing of it is there.
    file: RwLock<Option<Box<dyn Written>>>,
    failure: Mutex<Option<String>>,
    pieces: Mutex<Pieces<'a>>,
    filled: Mutex<Filled>,
    /// Bytes are taken at any place.
    keeps_holes: bool,
}

/// Pieces that are not written.
#[derive(Default)]
struct Pieces<'a> {
    waiting: VecDeque<(u64, Piece<'a>)>,
    is_being_written: bool,
    written: u64,
    is_last_known: bool,
}

impl<'a> Growing<'a> {
    pub(super) fn new(spot: Spot<'a>, member: Member) -> Self {
        Self {
            keeps_holes: spot.directory.keeps().holes,
            filled: Mutex::new(Filled::new(&*spot.directory)),
            spot,
            member,
            file: RwLock::new(None),
            failure: Mutex::new(None),
            pieces: Mutex::default(),
        }
    }

    /// Adds the next piece; each is followed by one [`take`](Self::take).
    pub(super) fn add(&self, offset: u64, piece: Piece<'a>) {
        self.pieces.lock().waiting.push_back((offset, piece));
    }

    /// The next piece to write: none where somebody writes one, who then takes it.
    pub(super) fn take(&self) -> Option<(u64, Piece<'a>)> {
        let mut pieces = self.pieces.lock();
        if pieces.is_being_written && !self.keeps_holes {
            return None;
        }
        let next = pieces.waiting.pop_front()?;
        pieces.is_being_written = true;
        Some(next)
    }

    /// How far it is filled.
    pub(super) fn filled(&self) -> Filled {
        *self.filled.lock()
    }

    pub(super) fn note_filled(&self, filled: Filled) {
        *self.filled.lock() = filled;
    }

    /// A piece was written, or given up.
    pub(super) fn note_written(&self, count: u64) {
        let mut pieces = self.pieces.lock();
        pieces.written += count;
        pieces.is_being_written = false;
    }

    /// No more pieces come.
    pub(super) fn close(&self) {
        self.pieces.lock().is_last_known = true;
    }

    /// Whether everything is written; says so once.
    pub(super) fn is_whole(&self) -> bool {
        let mut pieces = self.pieces.lock();
        let is_whole = pieces.is_last_known && pieces.written == self.member.stored();
        pieces.is_last_known &= !is_whole;
        is_whole
    }

    /// It will not become whole, and why; what is said first counts.
    pub(super) fn fail(&self, why: String) {
        self.failure.lock().get_or_insert(why);
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// The file, which `begin` makes for the first piece.
    pub(super) fn file(
        &self,
        begin: impl FnOnce() -> std::io::Result<Box<dyn Written>>,
    ) -> std::io::Result<RwLockReadGuard<'_, Option<Box<dyn Written>>>> {
        let opened = self.file.read().unwrap_or_else(PoisonError::into_inner);
        if opened.is_some() {
            return Ok(opened);
        }
        drop(opened);
        let mut missing = self.file.write().unwrap_or_else(PoisonError::into_inner);
        if missing.is_none() {
            *missing = Some(begin()?);
        }
        drop(missing);
        Ok(self.file.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the file, to end it or to give it up.
    pub(super) fn take_file(&self) -> Option<Box<dyn Written>> {
        let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
        file.take()
    }
}
