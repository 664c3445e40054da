//! Changes of names that are answered by the journal and carried out behind.
//!
//! Where files are saved behind the close ([`crate::SaveBehind`]) so are the small objects that are names and
//! nothing else: a directory's marker is written, a link is written, an object is removed, or is described anew, after the
//! log of names ([`NameLog`]) has it. What happens to one key meanwhile is folded: a directory that is made, given an owner and
//! times and removed again costs nothing.
//!
//! | question | answered by |
//! |---|---|
//! | what is there that the store lacks? | the tree: a node that waits here is [`Late`], held, and believed like an unsaved file |
//! | what does the store have that is gone? | [`WriteBack::is_removed`]: each answer of the store goes through [`Mount::list`] and [`Mount::head`], which leave it out |
//! | how is a saved file described? | [`Mount::head`] shows what waits over an answer about that version ([`describe`]) |
//! | may an object be written under a key? | after [`WriteBack::settle`]: what waits for the key comes first |
//!
//! A removal takes the version that was known when it was asked for: its tag, and where the store told it the time since
//! which it has it, for another client may store the same bytes. What another client wrote meanwhile stays, and is seen
//! again. A marker goes after what is to be removed below it; what is in the directory besides keeps it there.
//!
//! One task looks what is due ([`carry_out`]): what was left alone for [`SaveBehind::after`], at the latest what
//! reached [`SaveBehind::age_max`], and everything while more than half of what may wait does. A change for which
//! the memory budget has no room is made at once. What fails is repeated with growing pauses. fsync of a directory, a rename of one and
//! shutting down settle what they concern; what is left then is in the log, which the next mount carries out
//! ([`recover`]).
//!
//! # Locks
//!
//! The log is locked while the disk takes a note, and what begins or ends to wait does so under that lock, so that both
//! have one order. What waits for the key is held meanwhile ([`Pending::hold`]): nothing of it is begun. What waits is
//! locked for map operations alone, also under the tree; nothing is locked under it.
//!
//! [`NameLog`]: penstock_transfer::staging::NameLog
//! [`SaveBehind::after`]: crate::SaveBehind::after
//! [`SaveBehind::age_max`]: crate::SaveBehind::age_max

mod carry_out;
mod describe;
mod pending;
mod recover;
mod seen;
mod versions;

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use penstock_base::{
    FsError, FsResult, InMemory, MemoryBudget,
    clock::{self, Instant},
};
use penstock_object::{Description, Key};
use penstock_transfer::staging::{NameChange, Removal, SmallObject, Staging, disk_failure};
use penstock_vfs::UnsavedItem;
use tokio::sync::{Notify, Semaphore};

use crate::{
    SaveBehind,
    files::Unheard,
    inode::Reference,
    write_back::pending::{Asked, Pending, Scope, Waiting},
};

pub(crate) use carry_out::begin;
pub(crate) use describe::shown_as;

/// Small objects that are written at the same time.
const WRITES_AT_ONCE: usize = 64;
/// Requests to remove objects, of up to a thousand each, that are under way at the same time.
const REMOVALS_AT_ONCE: usize = 4;
/// What the store lacks of a node that is no file with content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Late {
    /// All of it.
    New,
    /// How it is described.
    Changed,
}

/// Which version of an object is to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    /// This one: of objects that mark a directory and hold nothing it may have no tag.
    Version(Removal),
    /// None is known, so none is removed that waits nowhere.
    Unknown,
}

/// What is to wait for a key.
enum Next {
    Change(Arc<NameChange>),
    /// Nothing any more: what waited is taken back.
    Nothing,
    /// What waits already.
    Refused,
}

impl Next {
    fn change(change: NameChange) -> Self {
        Self::Change(Arc::new(change))
    }
}

/// What became of a change that was to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It waits, and survives the end of the process.
    Noted,
    /// It must be made now: nothing waits here, too much does, or the disk refuses.
    Refused,
}

/// Changes of names that wait to be carried out.
#[derive(Debug)]
pub(crate) struct WriteBack {
    staging: Arc<Staging>,
    /// `None` where nothing is to wait but what an earlier mount left.
    settings: Option<SaveBehind>,
    pending: Mutex<Pending>,
    writes: Arc<Semaphore>,
    removals: Arc<Semaphore>,
    /// Rings when there is something to look at.
    bell: Arc<Notify>,
    /// Rings when a change was carried out, or could not be.
    ended: Notify,
    /// What was given up.
    pub(crate) lost: Unheard,
}

impl WriteBack {
    /// Nothing waits yet. With `settings` what is asked for may.
    pub(crate) fn new(
        staging: &Arc<Staging>,
        settings: Option<SaveBehind>,
        budget: &Arc<MemoryBudget>,
    ) -> Arc<Self> {
        // Where nothing is to wait, what an earlier mount left is carried out at once.
        let age_max = settings.map_or(Duration::ZERO, |settings| settings.age_max);
        Arc::new(Self {
            staging: Arc::clone(staging),
            settings,
            pending: Mutex::new(Pending::new(age_max, budget)),
            writes: Arc::new(Semaphore::new(WRITES_AT_ONCE)),
            removals: Arc::new(Semaphore::new(REMOVALS_AT_ONCE)),
            bell: Arc::default(),
            ended: Notify::new(),
            lost: Unheard::default(),
        })
    }

    fn pending(&self) -> InMemory<'_, Pending> {
        InMemory::lock(&self.pending)
    }

    /// Changes that wait or are being carried out.
    pub(crate) fn len(&self) -> usize {
        self.pending().len()
    }

    /// What waits or is being carried out.
    pub(crate) fn items(&self) -> Vec<UnsavedItem> {
        self.pending().items()
    }

    /// Whether anything may wait.
    pub(crate) fn takes(&self) -> bool {
        self.settings.is_some()
    }

    /// Whether something waits for a key.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.pending().get(key).is_some()
    }

    /// The object that waits to be written under a key, if one does.
    pub(crate) fn waiting_write(&self, key: &Key) -> Option<SmallObject> {
        match &*self.pending().get(key)?.change {
            NameChange::Write(object) => Some(object.clone()),
            NameChange::Remove(_) | NameChange::Describe(_) => None,
        }
    }

    /// Whether the object of this key is to be removed: it is gone for everybody here.
    pub(crate) fn is_removed(&self, key: &str) -> bool {
        self.pending().is_removed(key)
    }

    /// The keys below a prefix whose objects are to be removed.
    pub(crate) fn removed_below(&self, prefix: &str) -> BTreeSet<Key> {
        self.pending().removals_below(prefix).cloned().collect()
    }

    /// Has an object removed. What waits to be written under its key and was not begun is taken back.
    pub(crate) async fn remove(self: &Arc<Self>, key: &Key, which: Which) -> Wait {
        let removal = move |there: Option<&Waiting>| {
            if there.is_some_and(Waiting::is_of_something_new) {
                return Next::Nothing;
            }
            // Its version is not known any more.
            if there.is_some_and(Waiting::is_described) {
                return Next::Refused;
            }
            match which {
                Which::Version(version) => Next::change(NameChange::Remove(version)),
                Which::Unknown => Next::Refused,
            }
        };
        self.wait(key, removal, None).await
    }

    /// Has an object written that the store does not have, or not for long. Its node is held until then. What waits to
    /// be removed comes first: only a marker is written over the one before.
    pub(crate) async fn write(
        self: &Arc<Self>,
        key: &Key,
        object: SmallObject,
        node: Reference,
    ) -> Wait {
        let is_marker = key.as_str().ends_with('/');
        let write = move |there: Option<&Waiting>| match there {
            Some(_) if !is_marker => Next::Refused,
            there => Next::change(NameChange::Write(SmallObject {
                is_new: object.is_new && there.is_none(),
                ..object
            })),
        };
        self.wait(key, write, Some(node)).await
    }

    /// Has an object described anew: one that waits to be written, or the marker of a directory.
    pub(crate) async fn describe(
        self: &Arc<Self>,
        key: &Key,
        description: Description,
        node: Reference,
    ) -> Wait {
        let is_marker = key.as_str().ends_with('/');
        let write = move |there: Option<&Waiting>| match there.map(|there| &*there.change) {
            Some(NameChange::Write(object)) => Next::change(NameChange::Write(SmallObject {
                description,
                ..object.clone()
            })),
            _ if is_marker => Next::change(NameChange::Write(SmallObject {
                body: Bytes::new(),
                description,
                is_new: false,
            })),
            _ => Next::Refused,
        };
        self.wait(key, write, Some(node)).await
    }

    async fn wait(
        self: &Arc<Self>,
        key: &Key,
        change: impl FnOnce(Option<&Waiting>) -> Next + Send + 'static,
        node: Option<Reference>,
    ) -> Wait {
        let Some(settings) = self.settings else {
            return Wait::Refused;
        };
        let (this, key) = (Arc::clone(self), key.clone());
        let due = clock::now() + settings.after;
        let noted = self.on_disk(true, move || this.note(&key, change, node, due));
        let waits = noted.await.unwrap_or(Wait::Refused);
        if waits == Wait::Noted {
            self.bell.notify_one();
        }
        waits
    }

    fn note(
        &self,
        key: &Key,
        change: impl FnOnce(Option<&Waiting>) -> Next,
        node: Option<Reference>,
        due: Instant,
    ) -> io::Result<Wait> {
        let mut log = self.staging.names();
        let next = self.decide(key, change);
        let noted = match &next {
            Next::Refused => return Ok(Wait::Refused),
            Next::Nothing => log.note_done(key),
            Next::Change(change) => log.note(key, change),
        };
        if let Err(error) = noted {
            self.release(key);
            return Err(error);
        }
        let displaced = match next {
            Next::Change(change) => self.pending().add(key, change, node, due),
            Next::Nothing | Next::Refused => {
                let taken_back = self.pending().take(key);
                // Who waits for it waits no longer.
                self.ended.notify_waiters();
                taken_back
            }
        };
        drop(log);
        // It locks the tree when it goes.
        drop(displaced);
        Ok(Wait::Noted)
    }

    /// What is to wait for a key from now on. What waits until then is not begun any more: a write that is taken back
    /// must not be on its way.
    fn decide(&self, key: &Key, change: impl FnOnce(Option<&Waiting>) -> Next) -> Next {
        let mut pending = self.pending();
        let next = match change(pending.get(key)) {
            Next::Change(change) if !pending.make_room(key, &change) => Next::Refused,
            next => next,
        };
        if !matches!(next, Next::Refused) {
            pending.hold(key);
        }
        next
    }

    /// Lets what was held be begun again.
    fn release(&self, key: &Key) {
        self.pending().release(key);
        self.bell.notify_one();
    }

    /// Carries out what waits for a key. Fails if that fails; then it goes on waiting.
    pub(crate) async fn settle(&self, key: &Key) -> FsResult<()> {
        match key.as_str().ends_with('/') {
            // A marker goes after what is below it.
            true => self.settle_below(key.as_str()).await,
            false => self.settle_all(&Scope::Key(key)).await,
        }
    }

    /// The same of everything below a prefix.
    pub(crate) async fn settle_below(&self, prefix: &str) -> FsResult<()> {
        self.settle_all(&Scope::Below(prefix)).await
    }

    /// Carries out everything, as far as that takes no longer. Returns what is left and what was given up, with why.
    pub(crate) async fn finish(&self, patience: Duration) -> Vec<(String, FsError)> {
        let settled = clock::deadline(patience, self.settle_below("")).await;
        let reason = match settled {
            Ok(_) => FsError::Busy("it was not tried yet"),
            Err(late) => FsError::TimedOut(late.to_string()),
        };
        let mut left = self.lost.take();
        left.extend(self.pending().left_over(&reason));
        left
    }

    async fn settle_all(&self, scope: &Scope<'_>) -> FsResult<()> {
        let asked = self.pending().asked();
        loop {
            let left = self.pending().hasten(scope, asked);
            if left.going_on.is_empty() {
                return left.failure.map_or(Ok(()), Err);
            }
            for key in &left.going_on {
                self.end_of(key, asked).await;
            }
        }
    }

    /// Returns when what waited for a key was carried out or failed.
    async fn end_of(&self, key: &Key, asked: Asked) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if !self.pending().press(key, asked) {
                return;
            }
            self.bell.notify_one();
            ended.await;
        }
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        quick: bool,
        call: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> FsResult<T> {
        let call = move || call().map_err(|error| disk_failure(&error));
        self.staging.on_disk(quick, call).await
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use penstock_object::ETag;
    use penstock_transfer::staging::{Redescription, StagingSettings};
    use tempfile::TempDir;

    use super::*;
    use crate::write_back::pending::{Due, Room};

    const KEYS: usize = 3000;

    fn key(text: &str) -> Key {
        Key::new(text).expect("valid")
    }

    fn etag() -> ETag {
        ETag::new("version")
    }

    /// One that carries out nothing, and its directory.
    fn write_back() -> (Arc<WriteBack>, TempDir) {
        let directory = tempfile::tempdir().expect("a directory");
        let budget = MemoryBudget::new(64 << 20);
        let settings = StagingSettings::new(directory.path(), "volume");
        let staging = Staging::open(settings, &budget).expect("a staging directory");
        let save_behind = SaveBehind {
            after: Duration::ZERO,
            age_max: Duration::ZERO,
            files_max: 1,
        };
        let write_back = WriteBack::new(&staging, Some(save_behind), &budget);
        (write_back, directory)
    }

    fn take_due(write_back: &WriteBack) -> Due {
        let room = Room {
            writes: KEYS,
            removals: 1,
        };
        write_back.pending().take_due(room)
    }

    /// What had been decided by what waits was noted later, and what waited was begun in between.
    #[test]
    fn what_is_taken_back_was_not_begun_in_the_same_moment() {
        let (write_back, _directory) = write_back();
        let (is_over, is_begun) = (AtomicBool::new(false), AtomicBool::new(false));
        let (taken_back, begun) = thread::scope(|scope| {
            let begins = scope.spawn(|| {
                let mut begun = HashSet::new();
                while !is_over.load(Ordering::Relaxed) {
                    let due = take_due(&write_back);
                    begun.extend(due.writes.into_iter().map(|task| task.key));
                    is_begun.fetch_or(!begun.is_empty(), Ordering::Relaxed);
                }
                begun
            });
            let keys =
                (0..).take_while(|number| *number < KEYS || !is_begun.load(Ordering::Relaxed));
            let taken_back: Vec<Key> = keys
                .map(|number| key(&number.to_string()))
                .filter(|key| note_and_take_back(&write_back, key))
                .collect();
            is_over.store(true, Ordering::Relaxed);
            (taken_back, begins.join().expect("it looks what is due"))
        });
        assert!(!taken_back.is_empty(), "some are in time");
        let both: Vec<_> = taken_back
            .iter()
            .filter(|key| begun.contains(*key))
            .collect();
        assert_eq!(both, Vec::<&Key>::new());
    }

    fn note_and_take_back(write_back: &WriteBack, key: &Key) -> bool {
        let change = NameChange::Describe(Redescription {
            etag: etag(),
            description: Description::default(),
        });
        let now = clock::now();
        let noted = write_back.note(key, |_| Next::change(change), None, now);
        assert_eq!(noted.expect("the disk takes it"), Wait::Noted);
        let take_back = |there: Option<&Waiting>| match there.is_some_and(Waiting::is_begun) {
            true => Next::Refused,
            false => Next::Nothing,
        };
        let taken_back = write_back.note(key, take_back, None, now);
        taken_back.expect("the disk takes it") == Wait::Noted
    }

    /// How the file was described that a rename replaced fell away before the journal had the rename: a kill in between
    /// lost it. It must not be begun meanwhile either.
    #[tokio::test]
    async fn a_description_that_is_held_is_noted_and_not_begun() {
        let (write_back, _directory) = write_back();
        for is_let_go in [true, false] {
            let described = (etag(), Description::default());
            let noted = write_back.describe_version(&key("file"), described).await;
            assert_eq!(noted, Wait::Noted);
            let held = write_back.hold_description(&key("file")).expect("it waits");
            assert!(take_due(&write_back).writes.is_empty());
            assert!(write_back.has(&key("file")));
            match is_let_go {
                true => {
                    held.forgo().await;
                    assert!(!write_back.has(&key("file")));
                }
                false => {
                    drop(held);
                    assert_eq!(take_due(&write_back).writes.len(), 1);
                }
            }
        }
    }

    /// They were counted, whatever they said, and the budget knew nothing of them.
    #[test]
    fn what_waits_is_in_the_memory_budget_and_what_does_not_fit_is_refused() {
        const TARGET: usize = 4096;
        let directory = tempfile::tempdir().expect("a directory");
        let budget = MemoryBudget::new(16 << 20);
        let settings = StagingSettings::new(directory.path(), "volume");
        let staging = Staging::open(settings, &budget).expect("a staging directory");
        let write_back = WriteBack::new(&staging, None, &budget);
        let before = budget.used();
        let link = || {
            Next::change(NameChange::Write(SmallObject {
                body: Bytes::from(vec![b'x'; TARGET]),
                description: Description::default(),
                is_new: true,
            }))
        };
        let note = |number: usize| {
            let key = key(&number.to_string());
            let noted = write_back.note(&key, |_| link(), None, clock::now());
            noted.expect("the disk takes it")
        };
        let count = (0..1_000_000).take_while(|number| note(*number) == Wait::Noted);
        let bytes = (count.count() * TARGET) as u64;
        assert!((512 << 10..1 << 20).contains(&bytes), "{bytes}");
        let taken = budget.used() - before;
        assert!((bytes..=1 << 20).contains(&taken), "{taken}");
        assert_eq!(note(0), Wait::Noted, "what waits may be changed");
        let take_back = |_: Option<&Waiting>| Next::Nothing;
        for number in 0..write_back.len() {
            let key = key(&number.to_string());
            let taken = write_back.note(&key, take_back, None, clock::now());
            assert_eq!(taken.expect("the disk takes it"), Wait::Noted);
        }
        assert_eq!(budget.used(), before);
    }

    /// Nothing told it.
    #[tokio::test]
    async fn who_waits_for_what_is_taken_back_goes_on() {
        let (write_back, _directory) = write_back();
        let described = (etag(), Description::default());
        let noted = write_back.describe_version(&key("file"), described).await;
        assert_eq!(noted, Wait::Noted);
        let waits = {
            let write_back = Arc::clone(&write_back);
            tokio::spawn(async move { write_back.settle(&key("file")).await })
        };
        clock::sleep(Duration::from_millis(20)).await;
        let held = write_back.hold_description(&key("file"));
        held.expect("it was not begun").forgo().await;
        let waited = clock::deadline(Duration::from_secs(10), waits).await;
        let waited = waited.expect("it goes on").expect("no panic");
        assert_eq!(waited, Ok(()));
    }
}
