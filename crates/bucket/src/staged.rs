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
//!
//! The journal is locked while the disk takes a record. The tree and what is inside it are not locked
//! during any disk call: who looks up or opens a file waits for no disk, and one that stands still
//! holds up only who needs it. So a change looks at the content, lets the journal note it, and only
//! then makes it; its file stays engaged in between ([`State::noting`]), and other changes wait for
//! the journal. What is to be removed is handed to somebody else ([`sweep`]).

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
pub(crate) mod sweep;
pub(crate) mod sync;
#[cfg(test)]
mod tests;
pub(crate) mod touched;
pub(crate) mod uploads;
pub(crate) mod write;

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use penstock_base::{FsError, FsResult};
use penstock_object::{Description, ETag, Key};
use penstock_transfer::{ObjectVersion, Reader, Transfer};
use tokio::sync::RwLock;

use crate::{in_memory::InMemory, open_file::OpenFile};

use content::Content;
use disk::{DiskFile, disk_failure, on_worker};
use extents::Piece;
use folder::{FileId, Folder};
use journal::{Draft, Header, Journal, Record};
use space::Payment;
use staging::Staging;
use sweep::Remains;

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
    /// The staging file. It stays when the content is given up, for the next one.
    disk: Mutex<Option<Arc<DiskFile>>>,
    /// Held by who makes the staging file.
    making_disk: Mutex<()>,
    /// Whether the staging file may have bytes of a content that was given up.
    given_up: AtomicBool,
    /// Counts how often it was engaged.
    engagements: AtomicU64,
    reader: Mutex<Option<Arc<Reader>>>,
    /// See [`write::Pieces`].
    pieces: Mutex<write::Pieces>,
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
    /// Which time it is engaged.
    engagement: Engagement,
    /// A change is being noted in the journal, and is made when that has it: nobody may leave the
    /// file to the store meanwhile.
    noting: bool,
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

/// One time that a file is engaged. What was begun in one must not be applied in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Engagement(u64);

impl State {
    /// Whether the journal must tell something.
    fn is_unsaved(&self) -> bool {
        !self.abandoned && self.content.is_dirty()
    }

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
            making_disk: Mutex::default(),
            given_up: AtomicBool::new(false),
            engagements: AtomicU64::new(0),
            reader: Mutex::default(),
            pieces: Mutex::default(),
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

    /// The content. Held for a few map operations, never during a disk call.
    pub(crate) fn state(&self) -> InMemory<'_, Option<State>> {
        InMemory::lock(&self.state)
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
        let number = self.engagements.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        let state = state.insert(State {
            content,
            engagement: Engagement(number),
            noting: false,
            key,
            description: None,
            payment,
            abandoned: false,
            moved: false,
        });
        show(&state.content);
    }

    /// Leaves the file to the store again if `decide` says so, which may lock the view; not while a
    /// change is being noted. What the staging file has is to be given back
    /// ([`StagedFile::empty_given_up`]).
    pub(crate) fn disengage_if(&self, decide: impl FnOnce() -> bool) {
        let mut state = self.state();
        let is_changing = state.as_ref().is_some_and(|state| state.noting);
        if !is_changing && decide() {
            *state = None;
            *lock(&self.reader) = None;
            self.given_up.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was left to the store, and the disk not given back yet what it occupies there.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed) && !self.is_engaged()
    }

    /// Gives the disk back what the staging file of a file occupies that was left to the store, unless
    /// it is engaged again.
    pub(crate) async fn empty_given_up(&self) {
        // Nobody writes there without it.
        let _alone = self.change.write().await;
        on_worker(|| {
            if !self.is_given_up() {
                return;
            }
            if let Some(disk) = self.disk_if_any() {
                disk.cut(0);
            }
            self.given_up.store(false, Ordering::Relaxed);
        })
        .await;
    }

    /// Which time it is engaged now, and the size of what it holds.
    fn engaged_now(&self) -> FsResult<(Engagement, u64)> {
        let state = self.state();
        let state = state.as_ref().ok_or(NOT_ENGAGED)?;
        Ok((state.engagement, state.content.size()))
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
        if let Some(disk) = self.disk_if_any() {
            return Ok(disk);
        }
        let _making = lock(&self.making_disk);
        if let Some(disk) = self.disk_if_any() {
            return Ok(disk);
        }
        self.staging.sweeper().wait_for_place()?;
        let path = self.staging.folder().data(&self.id);
        let file = Folder::create(&path).map_err(|error| disk_failure(&error))?;
        let disk = Arc::new(DiskFile::new(file));
        *lock(&self.disk) = Some(Arc::clone(&disk));
        Ok(disk)
    }

    fn disk_if_any(&self) -> Option<Arc<DiskFile>> {
        lock(&self.disk).clone()
    }

    /// Reads what only the store has, for programs.
    fn reader(&self, transfer: &Arc<Transfer>, base: ObjectVersion) -> Arc<Reader> {
        let mut kept = lock(&self.reader);
        match kept.as_ref().filter(|reader| *reader.version() == base) {
            Some(reader) => Arc::clone(reader),
            None => Arc::clone(kept.insert(Arc::new(transfer.reader(base)))),
        }
    }

    /// Changes the content, with a record of it in the journal. `then` sees the result. The caller holds
    /// the change lock.
    fn change(
        &self,
        record: &Record,
        change: impl FnOnce(&mut Content),
        then: impl FnOnce(&Content),
    ) -> FsResult<()> {
        let (engagement, _) = self.engaged_now()?;
        self.change_in(engagement, (record, change), then)
    }

    /// The same for what was begun in `engagement`: another client's version may have been taken since,
    /// and the file be engaged anew.
    fn change_in(
        &self,
        engagement: Engagement,
        (record, change): (&Record, impl FnOnce(&mut Content)),
        then: impl FnOnce(&Content),
    ) -> FsResult<()> {
        let mut journal = lock(&self.journal);
        let covered = self.cover_long(journal.as_ref());
        let noting = {
            let mut state = self.state();
            let is_same = |state: &&mut State| state.engagement == engagement;
            let state = state.as_mut().filter(is_same).ok_or(NOT_ENGAGED)?;
            state.noting = true;
            (!state.abandoned).then(|| self.begin_noting(journal.as_ref(), state, record))
        };
        let noted = noting.map_or(Ok(()), |noting| {
            covered.and_then(|covered| self.note(&mut journal, (noting, covered), record))
        });
        let mut state = self.state();
        let state = state.as_mut().ok_or(NOT_ENGAGED)?;
        state.noting = false;
        noted.map_err(|error| disk_failure(&error))?;
        change(&mut state.content);
        state.payment.settle(&state.content);
        then(&state.content);
        Ok(())
    }

    /// What to tell a journal of a change, as the content is now.
    fn begin_noting(&self, journal: Option<&Journal>, state: &State, record: &Record) -> Noting {
        let is_told = matches!(record, Record::Dirty(range) if state.content.tells_dirty(range));
        let is_anew = journal.is_none_or(Journal::is_long);
        Noting {
            anew: is_anew.then(|| self.draft(state)),
            is_told,
        }
    }

    fn note(
        &self,
        journal: &mut Option<Journal>,
        (noting, covered): (Noting, bool),
        record: &Record,
    ) -> std::io::Result<()> {
        if let Some(draft) = noting.anew {
            *journal = Some(self.create_journal(draft, covered)?);
        }
        match journal {
            Some(journal) if noting.is_told => {
                journal.repeat();
                Ok(())
            }
            Some(journal) => journal.append(record),
            None => Ok(()),
        }
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
        let draft = Draft::of(self.header(key, content), (content, None));
        let begun = self.create_journal(draft, false)?;
        *lock(&self.journal) = Some(begun);
        Ok(())
    }

    /// A journal that says everything.
    fn draft(&self, state: &State) -> Draft {
        let said = (&state.content, state.description.as_ref());
        Draft::of(self.header(&state.key, &state.content), said)
    }

    fn header(&self, key: &Key, content: &Content) -> Header {
        Header {
            boot: self.staging.boot().to_owned(),
            volume: self.staging.volume().to_owned(),
            key: key.to_string(),
            base: content.base().clone(),
            size: content.size(),
        }
    }

    /// Writes a journal, which says if `covered` that what it tells of is on the disk.
    fn create_journal(&self, draft: Draft, covered: bool) -> std::io::Result<Journal> {
        let path = self.staging.folder().journal(&self.id);
        Journal::create(&path, draft, covered)
    }

    /// Brings the journal in line after a save: away with it if nothing is unsaved.
    fn settle_journal(&self) {
        let mut journal = lock(&self.journal);
        self.rewrite(&mut journal);
    }

    /// Writes a journal anew, or removes it if there is nothing to tell.
    fn rewrite(&self, journal: &mut Option<Journal>) {
        // Only under the lock of the journal does a file become dirty.
        let is_needed = self.state().as_ref().is_some_and(State::is_unsaved);
        let covered = self.cover(journal.as_ref().filter(|_| is_needed));
        let anew = self.draft_anew();
        let Some(old) = journal.take() else { return };
        let Some((draft, moved)) = anew else {
            old.remove();
            return;
        };
        match covered.and_then(|covered| self.create_journal(draft, covered)) {
            Ok(new) => *journal = Some(new),
            Err(error) => {
                tracing::warn!(%error, "a journal in the staging directory could not be renewed");
                *journal = Some(old);
                if let Some(state) = self.state().as_mut() {
                    state.moved |= moved;
                }
            }
        }
    }

    /// What a journal says that is written anew, and whether the one before it names another place.
    /// `None` if there is nothing to tell.
    fn draft_anew(&self) -> Option<(Draft, bool)> {
        let mut state = self.state();
        let state = state.as_mut()?;
        if !state.content.is_dirty() {
            state.description = None;
        }
        // Who moves it from now on says so again.
        let unsaved = state.is_unsaved();
        unsaved.then(|| (self.draft(state), std::mem::take(&mut state.moved)))
    }

    /// The parts of `range`, which need not lie within the file.
    fn pieces(&self, range: Range<u64>) -> FsResult<Vec<Piece>> {
        self.look(|content| content.pieces(range))
    }
}

/// What a journal is to be told of a change.
#[derive(Debug)]
struct Noting {
    /// What it says first, where it is written anew.
    anew: Option<Draft>,
    /// It tells of the change already.
    is_told: bool,
}

impl Drop for StagedFile {
    /// In memory alone: whoever lets go of it last may not wait for the disk.
    fn drop(&mut self) {
        self.staging.forget(&self.id);
        let state = self.state().take();
        let journal = lock(&self.journal).take();
        let disk = lock(&self.disk).take();
        let unsaved = state.as_ref().is_some_and(State::is_unsaved);
        let (has_journal, has_disk) = (journal.is_some(), disk.is_some());
        if !has_journal && !has_disk {
            return;
        }
        self.staging.sweeper().sweep(move || drop((journal, disk)));
        match state {
            // What is unsaved, and has a journal that says so, is for the next mount.
            _ if unsaved && has_journal => {}
            Some(state) if !state.abandoned && !has_journal => {
                self.staging.leave(self.id.clone(), state);
            }
            state => {
                let payment = state.map(|state| state.payment);
                drop(Remains::new(&self.staging, self.id.clone(), payment));
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
