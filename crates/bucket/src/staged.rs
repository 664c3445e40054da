//! Staged mode: files that can be written anywhere.
//!
//! What is written lies in a sparse *staging file* until it is saved, and a map of *extents* says
//! for each range of the file whether the staging file has it, or only the store, or nobody because
//! it is zero. All handles of a file share that, so whoever reads sees what anybody of this mount
//! wrote. Saving sends what changed and lets the store copy the rest ([`plan`]); a file changed
//! meanwhile stays unsaved in just those ranges ([`content`]). What the store got is still here, and
//! is given up when space is short ([`room`]).
//!
//! A save replaces the very version that the changes are relative to. When another client wrote one
//! meanwhile, theirs stays, and ours is put aside with a line in the log that says where.
//!
//! Nothing that was accepted is lost: a save that fails leaves everything here, and goes on being
//! tried when the file is closed ([`keeper`]). A process that dies leaves a [`journal`] beside each
//! staging file, and the next mount shows what it finds as it was, and saves it ([`recover`]). It also
//! removes the uploads that were cut off ([`uploads`]).
//!
//! # Locks
//!
//! A file's *change* lock, inside the gate and the stream (see [`crate::inode`]), says where bytes
//! are: who reads or writes staging files holds it shared; who moves bytes away (a truncation, an
//! eviction), and a save for the moment in which it begins, holds it alone. Never wait for memory or
//! for the store while holding it. Then, from the outside in: the journal, the tree, the content,
//! and the view or the staging file.

pub(crate) mod attempt;
pub(crate) mod closed;
pub(crate) mod content;
pub(crate) mod describe;
pub(crate) mod disk;
pub(crate) mod engage;
pub(crate) mod extents;
pub(crate) mod folder;
pub(crate) mod gather;
pub(crate) mod journal;
pub(crate) mod keeper;
pub(crate) mod lacking;
pub(crate) mod plan;
pub(crate) mod read;
pub(crate) mod recover;
pub(crate) mod resize;
pub(crate) mod room;
pub(crate) mod save;
pub(crate) mod space;
pub(crate) mod spans;
pub(crate) mod staging;
pub(crate) mod sync;
pub(crate) mod uploads;
pub(crate) mod write;

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
};

use penstock_base::{FsError, FsResult};
use penstock_object::{Description, ETag, Key};
use penstock_transfer::{ObjectVersion, Reader, Transfer};
use tokio::sync::RwLock;

use crate::open_file::OpenFile;

use content::Content;
use disk::{DiskFile, disk_failure};
use extents::Piece;
use folder::{FileId, Folder};
use journal::{Header, Journal, Record};
use space::Payment;
use staging::Staging;

/// What makes a file writable anywhere. Nothing of it exists before the first change: see
/// [`engage`].
#[derive(Debug)]
pub(crate) struct StagedFile {
    staging: Arc<Staging>,
    id: FileId,
    /// Where bytes are. See the module.
    pub(crate) change: Arc<RwLock<()>>,
    journal: Mutex<Option<Journal>>,
    state: Mutex<Option<State>>,
    disk: Mutex<Option<Arc<DiskFile>>>,
    reader: Mutex<Option<Arc<Reader>>>,
    /// Whether a save in the background is under way.
    pub(crate) saving_back: AtomicBool,
    /// Whether somebody goes on trying to save it after it was closed.
    pub(crate) kept_trying: AtomicBool,
    /// Whether a save failed, so that the store may have what we do not know of.
    failed: AtomicBool,
    /// Held by who fetches the whole file.
    fetching: tokio::sync::Mutex<()>,
    /// Whether that was done, or tried, since it was engaged.
    fetched: AtomicBool,
}

/// What is known of a file that is engaged.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) content: Content,
    /// The object's key when it was engaged or moved last.
    key: Key,
    /// How the object is to be described, as far as that is not in the store; for the journal.
    description: Option<Description>,
    /// The space that it occupies.
    payment: Payment,
    /// Nobody will ever save it: it was removed.
    abandoned: bool,
    /// The journal names a key and a base that are no longer right.
    moved: bool,
}

impl State {
    /// The store has the version `original` as `moved` now, perhaps under another name. The journal
    /// learns it from [`StagedFile::renew_journal`].
    pub(crate) fn follow(&mut self, original: &ETag, moved: &ObjectVersion) {
        self.key = moved.key.clone();
        self.content.rebase(original, moved);
        self.moved = true;
    }
}

const NOT_ENGAGED: FsError = FsError::Stale;

impl StagedFile {
    /// A file of which nothing is staged.
    pub(crate) fn new(staging: &Arc<Staging>) -> Self {
        Self::with_id(staging, FileId::new())
    }

    fn with_id(staging: &Arc<Staging>, id: FileId) -> Self {
        Self {
            staging: Arc::clone(staging),
            id,
            change: Arc::default(),
            journal: Mutex::default(),
            state: Mutex::default(),
            disk: Mutex::default(),
            reader: Mutex::default(),
            saving_back: AtomicBool::new(false),
            kept_trying: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            fetching: tokio::sync::Mutex::default(),
            fetched: AtomicBool::new(false),
        }
    }

    pub(crate) fn staging(&self) -> &Arc<Staging> {
        &self.staging
    }

    /// Makes `content` what `file`, whose staged half this is, holds. `show` makes that seen.
    pub(crate) fn engage_file(
        &self,
        file: &Arc<OpenFile>,
        (content, key): (Content, Key),
        show: impl FnOnce(&Content),
    ) {
        self.engage((content, key), show);
        self.staging.note_engaged(&self.id, file);
    }

    /// Whether this, and not the store, says what the file holds.
    pub(crate) fn is_engaged(&self) -> bool {
        self.state().is_some()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        matches!(self.state.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Looks at the content. Fails with `Stale` when there is none any more.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Content) -> T) -> FsResult<T> {
        let state = self.state();
        state
            .as_ref()
            .map(|state| look(&state.content))
            .ok_or(NOT_ENGAGED)
    }

    /// Makes `content` what the file holds.
    fn engage(&self, (content, key): (Content, Key), show: impl FnOnce(&Content)) {
        self.note_fetched(false);
        let mut payment = self.staging.space().nothing();
        payment.settle(&content);
        let mut state = self.state();
        let state = state.insert(State {
            content,
            key,
            description: None,
            payment,
            abandoned: false,
            moved: false,
        });
        show(&state.content);
    }

    /// Leaves the file to the store again if `decide` says so, which may lock the view.
    pub(crate) fn disengage_if(&self, decide: impl FnOnce() -> bool) {
        let mut state = self.state();
        if !decide() {
            return;
        }
        *state = None;
        *lock(&self.reader) = None;
        // Before the content is unlocked: the next staging file has the same name.
        if let Some(disk) = lock(&self.disk).take() {
            let _ = std::fs::remove_file(disk.path());
        }
    }

    /// Whether there may be something in the store that was never announced.
    pub(crate) fn may_be_stored(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn note_outcome(&self, failed: bool) {
        self.failed.store(failed, Ordering::Relaxed);
    }

    fn was_fetched(&self) -> bool {
        self.fetched.load(Ordering::Relaxed)
    }

    fn note_fetched(&self, fetched: bool) {
        self.fetched.store(fetched, Ordering::Relaxed);
    }

    /// Gives up saving: the file was removed. What it holds can still be read and changed.
    pub(crate) fn abandon(&self) {
        if let Some(state) = self.state().as_mut() {
            state.abandoned = true;
        }
        if let Some(journal) = lock(&self.journal).take() {
            journal.remove();
        }
    }

    /// Writes the journal of a file that moved anew, if it has one: who recovered it would put it
    /// where it was, and find that what its changes are relative to is gone.
    pub(crate) fn renew_journal(&self) {
        let mut journal = lock(&self.journal);
        if self.state().as_ref().is_some_and(|state| state.moved) {
            self.rewrite(&mut journal);
        }
    }

    /// Whether noting a change waits for nothing but the page cache, as far as can be seen: the
    /// journal is free, and need not be written anew, which syncs it.
    fn notes_quickly(&self) -> bool {
        let syncs = |journal: &Journal| journal.is_long() && journal.is_covered();
        match self.journal.try_lock() {
            Ok(journal) => !journal.as_ref().is_some_and(syncs),
            Err(TryLockError::Poisoned(_)) => true,
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// The staging file, made if there is none.
    fn disk(&self) -> FsResult<Arc<DiskFile>> {
        let mut disk = lock(&self.disk);
        if let Some(disk) = disk.as_ref() {
            return Ok(Arc::clone(disk));
        }
        let path = self.staging.folder().data(&self.id);
        let file = Folder::create(&path).map_err(|error| disk_failure(&error))?;
        Ok(Arc::clone(disk.insert(Arc::new(DiskFile::new(file, path)))))
    }

    fn disk_if_any(&self) -> Option<Arc<DiskFile>> {
        lock(&self.disk).clone()
    }

    /// Reads what only the store has, for programs.
    fn reader(&self, transfer: &Arc<Transfer>) -> Option<Arc<Reader>> {
        let base = self.look(|content| content.base().version().cloned());
        let base = base.ok().flatten()?;
        let mut reader = lock(&self.reader);
        if reader
            .as_ref()
            .is_none_or(|reader| *reader.version() != base)
        {
            *reader = Some(Arc::new(transfer.reader(base)));
        }
        reader.clone()
    }

    /// Changes the content, with a record of it in the journal. `then` sees the result.
    fn change(
        &self,
        record: &Record,
        change: impl FnOnce(&mut Content),
        then: impl FnOnce(&Content),
    ) -> FsResult<()> {
        let mut journal = lock(&self.journal);
        let covered = self.cover_long(journal.as_ref());
        let mut state = self.state();
        let state = state.as_mut().ok_or(NOT_ENGAGED)?;
        if !state.abandoned {
            covered
                .and_then(|covered| self.note(&mut journal, (state, covered), record))
                .map_err(|error| disk_failure(&error))?;
        }
        change(&mut state.content);
        state.payment.settle(&state.content);
        then(&state.content);
        Ok(())
    }

    fn note(
        &self,
        journal: &mut Option<Journal>,
        (state, covered): (&State, bool),
        record: &Record,
    ) -> std::io::Result<()> {
        if journal.as_ref().is_none_or(Journal::is_long) {
            *journal = Some(self.new_journal(state, covered)?);
        }
        let Some(journal) = journal else {
            return Ok(());
        };
        if let Record::Dirty(range) = record
            && state.content.tells_dirty(range)
        {
            journal.repeat();
            return Ok(());
        }
        journal.append(record)
    }

    /// Before a journal is written anew whose bytes are on the disk in part: makes them be there
    /// wholly, so that what it promised of a crash of the machine still holds. Returns whether that
    /// is so. Under the lock of the journal, and not of the content, which readers need.
    fn cover(&self, old: Option<&Journal>) -> std::io::Result<bool> {
        let covered = old.is_some_and(Journal::is_covered);
        if covered && let Some(disk) = self.disk_if_any() {
            disk.sync()?;
        }
        Ok(covered)
    }

    /// The same of a journal that the next record makes anew because it is long.
    fn cover_long(&self, journal: Option<&Journal>) -> std::io::Result<bool> {
        self.cover(journal.filter(|journal| journal.is_long()))
    }

    /// Makes the journal of a file that is about to be engaged with `content`, which differs from
    /// what the store has before anything is written.
    fn begin_journal(&self, content: &Content, key: &Key) -> std::io::Result<()> {
        let begun = self.create_journal(key, (content, None), false)?;
        *lock(&self.journal) = Some(begun);
        Ok(())
    }

    /// A journal that says everything, and if `covered` that it is on the disk.
    fn new_journal(&self, state: &State, covered: bool) -> std::io::Result<Journal> {
        let said = (&state.content, state.description.as_ref());
        self.create_journal(&state.key, said, covered)
    }

    fn create_journal(
        &self,
        key: &Key,
        said: (&Content, Option<&Description>),
        covered: bool,
    ) -> std::io::Result<Journal> {
        let header = Header {
            boot: self.staging.boot().to_owned(),
            volume: self.staging.volume().to_owned(),
            key: key.to_string(),
            base: said.0.base().clone(),
            size: said.0.size(),
        };
        let path = self.staging.folder().journal(&self.id);
        Journal::create(&path, header, said, covered)
    }

    /// Brings the journal in line after a save: away with it if nothing is unsaved.
    fn settle_journal(&self) {
        let mut journal = lock(&self.journal);
        self.rewrite(&mut journal);
    }

    /// Writes a journal anew, or removes it if there is nothing to tell.
    fn rewrite(&self, journal: &mut Option<Journal>) {
        // Only under the lock of the journal does a file become dirty.
        let tells = |state: &State| !state.abandoned && state.content.is_dirty();
        let is_needed = self.state().as_ref().is_some_and(tells);
        let covered = self.cover(journal.as_ref().filter(|_| is_needed));
        let mut state = self.state();
        if let Some(state) = state.as_mut().filter(|state| !state.content.is_dirty()) {
            state.description = None;
        }
        let Some(old) = journal.take() else { return };
        let Some(state) = state.as_mut().filter(|state| tells(state)) else {
            old.remove();
            return;
        };
        match covered.and_then(|covered| self.new_journal(state, covered)) {
            Ok(new) => {
                *journal = Some(new);
                state.moved = false;
            }
            Err(error) => {
                tracing::warn!(%error, "a journal in the staging directory could not be renewed");
                *journal = Some(old);
            }
        }
    }

    /// The parts of `range`, which need not lie within the file.
    fn pieces(&self, range: Range<u64>) -> FsResult<Vec<Piece>> {
        self.look(|content| content.pieces(range))
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        let state = self.state().take();
        self.staging.forget(&self.id);
        let tells = |state: &State| !state.abandoned && state.content.is_dirty();
        let unsaved = state.as_ref().is_some_and(tells);
        let has_journal = lock(&self.journal).is_some();
        let state = state.filter(|state| !state.abandoned && !has_journal);
        if state.is_some_and(|state| self.leave(state)) {
            return;
        }
        // What is unsaved, and has a journal that says so, is for the next mount.
        if !(unsaved && has_journal) && (has_journal || lock(&self.disk).is_some()) {
            self.staging.folder().remove(&self.id);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
