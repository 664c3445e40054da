//! A file that can be written anywhere.
//!
//! Nothing of a staged file exists before its first change. That *engages* it: a base version becomes its
//! content, a journal and a staging file follow when they are needed. It stays engaged until its owner drops
//! it or leaves it to the store again.
//!
//! The locks are listed in [`crate::staging`]. What each of them guards is reached through the methods here
//! and in the modules beside this one. Of these locks the owner of a file can take the change lock only. The methods that
//! begin a save, evict, fetch, gather or empty take it themselves: an owner that holds it must not call them.

use std::{
    io,
    ops::Range,
    path::PathBuf,
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use penstock_base::{FsError, FsResult, InMemory};
use penstock_object::{Description, ETag, Key};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::{
    ObjectVersion, Reader, Transfer,
    lock::lock,
    staging::{
        area::Staging,
        closed::Reopened,
        content::Content,
        disk::{DiskFile, disk_failure, on_worker},
        extents::Piece,
        folder::{FileId, Folder},
        journal::Journal,
        space::Payment,
    },
};

/// The staging file, the journal and the content of one file. See the module.
#[derive(Debug)]
pub struct StagedFile {
    staging: Arc<Staging>,
    pub(super) id: FileId,
    /// Where bytes are. See [`crate::staging`].
    change: Arc<RwLock<()>>,
    pub(super) journal: Mutex<Option<Journal>>,
    state: Mutex<Option<State>>,
    /// The staging file. It stays when the content is given up, for the next one.
    disk: Mutex<Option<Arc<DiskFile>>>,
    /// Held while the staging file is made.
    making_disk: Mutex<()>,
    /// Whether the staging file may have bytes of a content that was given up.
    given_up: AtomicBool,
    /// Counts how often it was engaged.
    engagements: AtomicU64,
    reader: Mutex<Option<Arc<Reader>>>,
    /// Whether a save failed, so that the store may have what is not known here.
    failed: AtomicBool,
    /// Whether what is unsaved could not be forced to the disk once.
    pub(super) is_unsynced: AtomicBool,
    /// Held while the whole file is fetched.
    pub(super) fetching: tokio::sync::Mutex<()>,
    /// Whether that was done, or tried, since it was engaged.
    fetched: AtomicBool,
}

/// What is known of a file that is engaged.
#[derive(Debug)]
pub struct State {
    pub(super) content: Content,
    /// Which time it is engaged.
    pub(super) engagement: Engagement,
    /// A change is being noted in the journal, and is made when that has it: the file must not be left to the
    /// store meanwhile.
    pub(super) noting: bool,
    /// The object's key when it was engaged or moved last.
    pub(super) key: Key,
    /// How the object is to be described, as far as that is not in the store; for the journal.
    pub(super) description: Option<Description>,
    /// The space that it occupies.
    pub(super) payment: Payment,
    /// It is never saved: it was removed.
    pub(super) abandoned: bool,
    /// The journal names a key and a base that are no longer right.
    pub(super) moved: bool,
    /// The unsaved file whose name this one took: while both have a journal, only this one's counts.
    pub(super) replaces: Option<FileId>,
}

/// Which place a file takes that the store never had.
#[derive(Debug, Clone)]
pub struct NewPlace {
    /// Its object's key from now on.
    pub key: Key,
    /// The version that the store has there.
    pub version: Option<ETag>,
    /// The unsaved file whose name it takes.
    pub replaces: Option<FileId>,
}

/// One time that a file is engaged. What was begun in one must not be applied in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Engagement(u64);

/// The change lock of a staged file, held.
#[derive(Debug)]
#[must_use]
pub enum ChangeGuard {
    /// Together with others that read or write the staging file.
    Shared(OwnedRwLockReadGuard<()>),
    /// Alone: bytes may be moved away.
    Alone(OwnedRwLockWriteGuard<()>),
}

impl State {
    /// What the file holds.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Whether the journal must tell something.
    pub(super) fn is_unsaved(&self) -> bool {
        !self.abandoned && self.content.is_dirty()
    }

    /// The store has the version `original` as `copy` of the object `key` now. The journal learns it from
    /// [`StagedFile::renew_journal`].
    pub fn follow(&mut self, original: &ETag, key: &Key, copy: &ETag) {
        self.key = key.clone();
        self.content.rebase(original, key, copy);
        self.moved = true;
    }

    /// The file, which the store never had, is somewhere else from now on, as its journal says already
    /// ([`StagedFile::take_place`]).
    pub fn take_place(&mut self, place: NewPlace) {
        self.key = place.key;
        self.content.take_place_of(place.version);
        self.replaces = place.replaces;
        self.moved = false;
    }

    /// Pays for what the content occupies now.
    pub(super) fn settle_payment(&mut self) {
        self.payment.settle(&self.content);
    }
}

/// A file that is not engaged, or not any more, has no content to ask or to change.
pub(super) const NOT_ENGAGED: FsError = FsError::Stale;

impl StagedFile {
    /// A file of which nothing is staged.
    pub fn new(staging: &Arc<Staging>) -> Self {
        Self::with_id(staging, FileId::new())
    }

    /// A file that goes on with the staging file which it left when it was closed, and what that has
    /// of the version. That is to be engaged.
    pub fn going_on(staging: &Arc<Staging>, reopened: Reopened) -> (Self, Content) {
        let (content, id, disk) = reopened.take();
        let staged = Self::with_id(staging, id);
        staged.adopt_disk(disk);
        (staged, content)
    }

    pub(super) fn with_id(staging: &Arc<Staging>, id: FileId) -> Self {
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
            failed: AtomicBool::new(false),
            is_unsynced: AtomicBool::new(false),
            fetching: tokio::sync::Mutex::default(),
            fetched: AtomicBool::new(false),
        }
    }

    /// Where it is staged.
    pub fn staging(&self) -> &Arc<Staging> {
        &self.staging
    }

    /// Its name in the staging directory.
    pub fn id(&self) -> &FileId {
        &self.id
    }

    /// Waits for the change lock, to read or write the staging file together with others.
    pub async fn hold_shared(&self) -> ChangeGuard {
        ChangeGuard::Shared(Arc::clone(&self.change).read_owned().await)
    }

    /// Waits for the change lock alone, to move bytes away or to find an end of the file that stays.
    pub async fn hold_alone(&self) -> ChangeGuard {
        ChangeGuard::Alone(Arc::clone(&self.change).write_owned().await)
    }

    /// Whether this, and not the store, says what the file holds.
    pub fn is_engaged(&self) -> bool {
        self.state().is_some()
    }

    /// The content. Held for a few map operations, never during a disk call.
    pub(super) fn state(&self) -> InMemory<'_, Option<State>> {
        InMemory::lock(&self.state)
    }

    /// Looks at the content, or changes where its base is, while it stands still.
    pub fn with_state<T>(&self, look: impl FnOnce(Option<&mut State>) -> T) -> T {
        look(self.state().as_mut())
    }

    /// Whether the content is locked: for tests of what locks it.
    #[doc(hidden)]
    pub fn is_locked(&self) -> bool {
        matches!(self.state.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Looks at the content. Fails with `Stale` when there is none any more.
    pub fn look<T>(&self, look: impl FnOnce(&Content) -> T) -> FsResult<T> {
        let state = self.state();
        state
            .as_ref()
            .map(|state| look(&state.content))
            .ok_or(NOT_ENGAGED)
    }

    /// Makes `content` of the object `key` what the file holds. `show` runs before any other thread sees it.
    pub fn engage(&self, content: Content, key: Key, show: impl FnOnce(&Content)) {
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
            replaces: None,
        });
        show(&state.content);
    }

    /// Leaves the file to the store again if `decide` says so, which may lock what is inside this lock; not
    /// while a change is being noted. What the staging file has is to be given back
    /// ([`StagedFile::empty_given_up`]).
    pub fn disengage_if(&self, decide: impl FnOnce() -> bool) {
        let mut state = self.state();
        let is_changing = state.as_ref().is_some_and(|state| state.noting);
        if !is_changing && decide() {
            *state = None;
            *lock(&self.reader) = None;
            self.given_up.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was left to the store, and the disk not given back yet what it occupies there.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed) && !self.is_engaged()
    }

    /// Gives the disk back what the staging file of a file occupies that was left to the store, unless
    /// it is engaged again.
    pub async fn empty_given_up(&self) {
        // Writes hold it shared.
        let _alone = self.hold_alone().await;
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
    pub fn engaged_now(&self) -> FsResult<(Engagement, u64)> {
        let state = self.state();
        let state = state.as_ref().ok_or(NOT_ENGAGED)?;
        Ok((state.engagement, state.content.size()))
    }

    /// Whether there may be something in the store that was never announced.
    pub fn may_be_stored(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Notes whether the last save failed.
    pub fn note_outcome(&self, failed: bool) {
        self.failed.store(failed, Ordering::Relaxed);
    }

    pub(super) fn was_fetched(&self) -> bool {
        self.fetched.load(Ordering::Relaxed)
    }

    pub(super) fn note_fetched(&self, fetched: bool) {
        self.fetched.store(fetched, Ordering::Relaxed);
    }

    /// The staging file, made if there is none.
    pub(super) fn disk(&self) -> FsResult<Arc<DiskFile>> {
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

    pub(super) fn disk_if_any(&self) -> Option<Arc<DiskFile>> {
        lock(&self.disk).clone()
    }

    /// Takes over a staging file that was there before this.
    pub(super) fn adopt_disk(&self, disk: DiskFile) {
        *lock(&self.disk) = Some(Arc::new(disk));
    }

    /// Reads what only the store has, for programs.
    pub fn reader(&self, transfer: &Arc<Transfer>, base: ObjectVersion) -> Arc<Reader> {
        let mut kept = lock(&self.reader);
        match kept.as_ref().filter(|reader| *reader.version() == base) {
            Some(reader) => Arc::clone(reader),
            None => Arc::clone(kept.insert(Arc::new(transfer.reader(base)))),
        }
    }

    /// The parts of `range`, which need not lie within the file.
    pub(super) fn pieces(&self, range: Range<u64>) -> FsResult<Vec<Piece>> {
        self.look(|content| content.pieces(range))
    }

    /// Gives up what the store has as well.
    pub async fn evict(&self) {
        let _alone = self.hold_alone().await;
        on_worker(|| self.evict_alone()).await;
    }

    /// The same. The caller has the file alone, so that no read or write comes between the content
    /// and the disk.
    fn evict_alone(&self) {
        let Some(disk) = self.disk_if_any() else {
            return;
        };
        for range in self.forget_local() {
            disk.punch(range);
        }
        if let Some(state) = self.state().as_mut() {
            state.settle_payment();
        }
    }

    /// Forgets what the store has as well, and returns where that is in the staging file.
    fn forget_local(&self) -> Vec<Range<u64>> {
        let mut state = self.state();
        // The object of a removed file is gone.
        let state = state.as_mut().filter(|state| !state.abandoned);
        state.map_or_else(Vec::new, |state| state.content.evict())
    }

    /// Moves the content out of the way, for people, if `decide` says so; it runs while the journal is locked,
    /// locks what it needs to decide, and calls what it is given to empty the file. Returns where the content is
    /// then; nowhere if there was no journal. The caller has the file alone. Blocks.
    pub fn put_aside(
        &self,
        decide: impl FnOnce(&mut dyn FnMut()) -> bool,
    ) -> Option<io::Result<Option<PathBuf>>> {
        let mut journal = lock(&self.journal);
        // Closed when nothing else is locked.
        let mut _disk = None;
        let mut empty = || {
            _disk = lock(&self.disk).take();
            *self.state() = None;
        };
        if !decide(&mut empty) {
            return None;
        }
        Some(match journal.take() {
            Some(_) => self.staging.folder().keep(&self.id).map(Some),
            None => Ok(None),
        })
    }
}

impl Drop for StagedFile {
    /// In memory alone: the last to let go of it may not wait for the disk.
    fn drop(&mut self) {
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
                let remains = self.staging.remains(self.id.clone(), Some(state.payment));
                let free = self.staging.space().free_seen();
                let closed = self.staging.closed();
                closed.leave(self.id.clone(), &state.content, remains, free);
            }
            state => {
                let payment = state.map(|state| state.payment);
                drop(self.staging.remains(self.id.clone(), payment));
            }
        }
    }
}
