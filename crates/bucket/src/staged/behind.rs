//! Saving behind the close.
//!
//! With [`SaveBehind`] a close answers as soon as the journal has the file. The file stays as it is: open, dirty
//! and in the tree, held by the handle that was closed last, which waits here. So every lookup, listing, read,
//! change, rename and removal finds the one unsaved file that there is, and what they do to it goes with the save.
//!
//! A file is saved when it was left alone for a while ([`SaveBehind::after`]) and no open handle can write it, at
//! the latest when it reached an age ([`SaveBehind::age_max`]), and as soon as it can be when many files wait or
//! the staging directory is half full. One task looks which files are due and has as many saved at once as there
//! are turns; the others go on waiting, so that the files that are open for this are counted until they are saved. A save
//! that fails is repeated with growing pauses; the next close of the file returns why, fsync tries by itself, and
//! shutting down tells what is left. What another client's version is in the way of is put aside: the next fsync of
//! the name or of a directory above tells that once, and shutting down does, too.
//!
//! What is saved late replaces nothing that another client stored meanwhile: the condition of a save is
//! [`Replacing::Nothing`].
//!
//! [`Replacing::Nothing`]: penstock_transfer::staging::Replacing::Nothing

mod queue;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak, atomic::Ordering},
    time::Duration,
};

use penstock_base::{
    FsError, FsResult,
    clock::{self, Instant},
};
use penstock_vfs::Inode;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::{
    Fsync, SaveBehind,
    files::Files,
    open_file::{Body, FileHandle, OpenFile},
    staged::{
        StagedBody, StagedMode,
        behind::queue::Queue,
        lock,
        retry::{PAUSES, is_unsaved},
        save::SaveError,
    },
};

/// Files that are saved behind the close, or when the volume shuts down, at the same time.
pub(crate) const SAVES_AT_ONCE: usize = 64;

/// The shortest time between two looks at what is due.
const LOOK_MIN: Duration = Duration::from_millis(20);

/// How long a file is left alone in haste: a temporary file that is saved before it is renamed costs three requests, one
/// after the other.
const HASTE_QUIET: Duration = Duration::from_millis(500);

/// Files that are closed and unsaved.
#[derive(Debug)]
pub(crate) struct Behind {
    waiting: Mutex<Queue>,
    /// Since when those are unsaved that are being saved.
    saving: Mutex<HashMap<Inode, Instant>>,
    /// Turns to save one of them; who has one does not wait any more.
    turns: Arc<Semaphore>,
    /// Rings when the first file waits, when there are many, and when a turn is free again.
    bell: Arc<Notify>,
}

/// A file that waits to be saved.
#[derive(Debug)]
struct Waiting {
    /// Keeps the file.
    handle: Arc<FileHandle>,
    /// Since when it is unsaved.
    since: Instant,
    /// When it was closed last.
    closed: Instant,
    failed: Option<Failed>,
    /// When the queue looks at it.
    look: Instant,
}

/// A file of which a save failed.
#[derive(Debug, Clone, Copy)]
struct Failed {
    again: Instant,
    pause: Duration,
}

/// Where nothing is saved behind, files wait for the end of the volume.
const UNTIL_THE_END: SaveBehind = SaveBehind {
    after: Duration::ZERO,
    age_max: Duration::ZERO,
    files_max: usize::MAX,
};

impl Behind {
    /// Nothing waits yet.
    pub(crate) fn new(settings: Option<SaveBehind>) -> Self {
        Self {
            waiting: Mutex::new(Queue::new(settings.unwrap_or(UNTIL_THE_END))),
            saving: Mutex::default(),
            turns: Arc::new(Semaphore::new(SAVES_AT_ONCE)),
            bell: Arc::default(),
        }
    }
}

impl Waiting {
    fn new(handle: Arc<FileHandle>) -> Self {
        let now = clock::now();
        handle.note_closed();
        Self {
            handle,
            since: now,
            closed: now,
            failed: None,
            look: now,
        }
    }

    /// When it is to be saved at the earliest, as far as the queue is told.
    fn earliest(&self, settings: &SaveBehind) -> Instant {
        let quiet = (self.closed + settings.after).min(self.since + settings.age_max);
        self.failed.map_or(quiet, |failed| failed.again)
    }

    /// When it is to be saved.
    fn due(&self, settings: &SaveBehind, in_haste: bool) -> Instant {
        let view = self.handle.file.view();
        let is_written = view.writers() > 0;
        let is_unsaved = view.dirty && !view.removed;
        drop(view);
        match (self.failed, is_written) {
            // At most metadata is left to store, which changed during the save.
            _ if !is_unsaved => self.since,
            (None, true) => self.since + settings.age_max,
            (None, false) if in_haste => (self.closed + HASTE_QUIET).min(self.earliest(settings)),
            _ => self.earliest(settings),
        }
    }
}

impl Behind {
    /// How many files wait or are being saved.
    fn count(&self) -> usize {
        lock(&self.waiting).len() + SAVES_AT_ONCE - self.turns.available_permits()
    }

    /// Lets a file wait, unless it does already.
    fn add(&self, waiting: Waiting, many: usize) {
        let inode = waiting.handle.file.inode;
        let (surplus, count) = {
            let mut queue = lock(&self.waiting);
            (queue.add(waiting), queue.len())
        };
        if surplus.is_some() {
            // A handle locks the tree when it goes.
            drop(surplus);
            lock(&self.waiting).note_closed(inode);
        }
        if count == 1 || count >= many {
            self.bell.notify_one();
        }
    }

    /// Keeps the handle of a file that is saved when the volume shuts down.
    pub(super) fn keep(&self, handle: Arc<FileHandle>) {
        self.add(Waiting::new(handle), usize::MAX);
    }

    /// For how long each file has been unsaved.
    pub(crate) fn ages(&self) -> HashMap<Inode, Duration> {
        let queue = lock(&self.waiting);
        let saving = lock(&self.saving);
        let since = queue.iter().map(|(inode, one)| (inode, one.since));
        let since = since.chain(saving.iter().map(|(inode, since)| (*inode, *since)));
        since
            .map(|(inode, since)| (inode, since.elapsed()))
            .collect()
    }

    /// Lets go of a file that was removed or replaced.
    pub(crate) fn forget(&self, inode: Inode) {
        let gone = lock(&self.waiting).remove(inode);
        drop(gone);
    }

    /// Lets go soon of a file that was saved while it waits.
    pub(super) fn note_saved(&self, inode: Inode) {
        if lock(&self.waiting).note_saved(inode) {
            self.bell.notify_one();
        }
    }

    /// Takes out what is due and no more than there are turns, and says when the next is. What is due and has no turn
    /// yet is taken when one is free again.
    fn take_due(&self, settings: &SaveBehind, in_haste: bool) -> Due {
        let (mut queue, now) = (lock(&self.waiting), clock::now());
        let in_haste = in_haste || queue.len() >= settings.files_max / 2;
        let mut files = Vec::new();
        while let Some(inode) = queue.first_due(now, in_haste)
            && let Some(turn) = self.turn()
            && let Some(waiting) = queue.remove(inode)
        {
            lock(&self.saving).insert(inode, waiting.since);
            files.push((waiting, turn));
        }
        let next = queue.next(now, in_haste);
        Due { files, next }
    }

    /// A turn to save a file, if one is free.
    fn turn(&self) -> Option<Turn> {
        Turn::take(&self.turns, &self.bell)
    }

    /// Waits for the saves under way, and lets go of what is saved.
    pub(crate) async fn end(&self) {
        let all = self.turns.acquire_many(SAVES_AT_ONCE as u32).await;
        let waiting = lock(&self.waiting).take();
        for waiting in waiting.into_values() {
            if is_unsaved(&waiting.handle.file) {
                self.add(waiting, usize::MAX);
            }
        }
        drop(all);
    }
}

/// The turn of something that is saved behind.
pub(crate) struct Turn {
    permit: Option<OwnedSemaphorePermit>,
    bell: Arc<Notify>,
}

impl Turn {
    /// One of `turns`, if one is free. `bell` rings when it is free again.
    pub(crate) fn take(turns: &Arc<Semaphore>, bell: &Arc<Notify>) -> Option<Self> {
        Some(Self {
            permit: Some(Arc::clone(turns).try_acquire_owned().ok()?),
            bell: Arc::clone(bell),
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Whoever hears the bell finds the turn free.
        drop(self.permit.take());
        self.bell.notify_one();
    }
}

/// Files that are to be saved now.
struct Due {
    files: Vec<(Waiting, Turn)>,
    /// When the next one is due.
    next: Option<Instant>,
}

/// Begins to save files behind the close as long as the volume lives, where that is asked for and there is a
/// runtime to do it.
pub(crate) fn begin(files: &Arc<Files>) {
    if let (Some(settings), Ok(runtime)) = (
        files.mount.save_behind(),
        tokio::runtime::Handle::try_current(),
    ) {
        let bell = Arc::clone(&files.behind.bell);
        runtime.spawn(save_what_is_due(Arc::downgrade(files), bell, settings));
    }
}

async fn save_what_is_due(files: Weak<Files>, bell: Arc<Notify>, settings: SaveBehind) {
    loop {
        let Some(files) = files.upgrade() else { return };
        let next = files.save_due(&settings);
        drop(files);
        match next {
            Some(next) => {
                // What comes meanwhile is due no sooner than this.
                let pause = next.duration_since(clock::now()).min(settings.after);
                let _ = clock::deadline(pause.max(LOOK_MIN), bell.notified()).await;
            }
            None => bell.notified().await,
        }
    }
}

impl Files {
    /// Whether a close of the file may leave its save for later: the journal has it then.
    pub(crate) async fn may_save_later(
        &self,
        file: &Arc<OpenFile>,
        body: &Arc<StagedBody>,
    ) -> bool {
        let Some(settings) = self.mount.save_behind() else {
            return false;
        };
        if !is_unsaved(file)
            || self.mount.check_not_shut().is_err()
            || self.behind.count() >= settings.files_max
        {
            return false;
        }
        let content = Arc::clone(&body.content);
        let keep = move || content.keep_for_recovery();
        // What the disk refuses to note is saved at once.
        body.staging().on_disk(true, keep).await.is_ok()
    }

    /// Saves the file of a handle that was closed when it is due.
    pub(super) fn save_later(&self, handle: Arc<FileHandle>) {
        let body = handle.file.body.staged();
        // It is being retried: an earlier mount left it.
        if body.is_some_and(|body| body.retried.load(Ordering::Relaxed)) {
            return;
        }
        self.wait_to_save(Waiting::new(handle));
    }

    fn wait_to_save(&self, waiting: Waiting) {
        let settings = self.mount.save_behind();
        let many = settings.map_or(0, |settings| settings.files_max / 2);
        self.behind.add(waiting, many);
    }

    /// Begins to save what is due. Returns when the next look is, if anything waits.
    fn save_due(self: &Arc<Self>, settings: &SaveBehind) -> Option<Instant> {
        let in_haste = self.mount.mode.staged().is_some_and(|mode| {
            let staging = mode.staging();
            let (used, free) = (staging.used(), staging.space().free_seen());
            used > staging.settings().size / 2 || free > 0 && used > free
        });
        let due = self.behind.take_due(settings, in_haste);
        for (waiting, turn) in due.files {
            tokio::spawn(Arc::clone(self).save_in_turn(waiting, turn));
        }
        due.next
    }

    async fn save_in_turn(self: Arc<Self>, waiting: Waiting, turn: Turn) {
        self.save_waiting(waiting).await;
        // After the handle: who waits for all turns finds nothing of the file.
        drop(turn);
    }

    async fn save_waiting(self: &Arc<Self>, mut waiting: Waiting) {
        let file = Arc::clone(&waiting.handle.file);
        let Body::Staged(body) = &file.body else {
            return;
        };
        let attempt = self.attempt(&file, body).await;
        lock(&self.behind.saving).remove(&file.inode);
        match attempt {
            Ok(()) if !is_unsaved(&file) => {
                lock(&body.failed_behind).take();
            }
            Ok(()) => self.wait_to_save(Waiting::new(waiting.handle)),
            Err(failed) => {
                let reason = FsError::from(failed.error.clone());
                *lock(&body.failed_behind) = Some(reason.clone());
                let path = self.mount.namespace.lock().path(file.inode);
                let is_conflict = matches!(failed.error, SaveError::Conflict(_));
                if is_conflict && self.put_aside(&file, body, failed.written).await {
                    return self.unheard.add(path, reason);
                }
                let pause = waiting.failed.map_or(PAUSES[0], |failed| failed.pause);
                waiting.failed = Some(Failed {
                    again: clock::now() + pause,
                    pause: (pause * 2).min(PAUSES[1]),
                });
                self.wait_to_save(waiting);
            }
        }
    }

    /// fsync of a directory: of all that is unsaved in and below it, names too. What programs have open is
    /// among it: a file that was just closed is told from one by a RELEASE that comes later.
    pub(crate) async fn sync_below(self: &Arc<Self>, directory: Inode) -> FsResult<()> {
        match (self.mount.fsync(), self.mount.mode.staged()) {
            (Fsync::Nothing, _) | (_, None) => Ok(()),
            (Fsync::Journal, Some(mode)) => {
                let unsaved = self.unsaved_below(mode, directory);
                self.sync_to_journal(mode, unsaved).await?;
                self.tell_lost_below(directory)
            }
            (Fsync::Store, Some(_)) => self.save_below(directory).await,
        }
    }

    /// Saves everything that is unsaved in and below a directory, names too.
    pub(crate) async fn save_below(self: &Arc<Self>, directory: Inode) -> FsResult<()> {
        let Some(mode) = self.mount.mode.staged() else {
            return Ok(());
        };
        self.save_all(self.unsaved_below(mode, directory)).await?;
        let prefix = self.mount.namespace.lock().prefix(directory)?;
        let settled = self.mount.settle_below(&prefix).await;
        // All of them are told, whichever is answered.
        let told = self.tell_lost_below(directory);
        settled.and(told)
    }

    fn tell_lost_below(&self, directory: Inode) -> FsResult<()> {
        let prefix = self.mount.namespace.lock().prefix(directory)?;
        self.tell_lost(|path| path.starts_with(&prefix))
    }

    /// Fails once with why something in `scope` is not in the store that was lost behind the program that made it.
    pub(crate) fn tell_lost(&self, scope: impl Fn(&str) -> bool) -> FsResult<()> {
        let names = match self.mount.write_back() {
            Some(names) => names.lost.tell(&scope),
            None => Ok(()),
        };
        self.unheard.tell(scope).and(names)
    }

    fn unsaved_below(&self, mode: &StagedMode, directory: Inode) -> Vec<Arc<OpenFile>> {
        let mut unsaved = mode.engaged.all();
        unsaved.retain(|file| is_unsaved(file));
        let tree = self.mount.namespace.lock();
        unsaved.retain(|file| tree.is_below(file.inode, directory));
        drop(tree);
        unsaved
    }
}
