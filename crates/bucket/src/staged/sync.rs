//! Makes what was written survive a crash of the machine: every few seconds, and for fsync where the journal is enough
//! ([`Fsync::Journal`](crate::Fsync::Journal)).
//!
//! What fsync answers then is on the disk of the staging directory, with everything that a recovery needs: the log of
//! names first, since a new file may stand where another one is to be removed, then the files, whose names are
//! forced once for all of them. A file that the disk failed to take goes to the store instead from then on: the kernel
//! tells of such a failure once.

use std::{
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use penstock_base::{FsError, FsResult, clock};
use penstock_transfer::staging::{StagedFile, Staging, disk_failure, on_worker};

use crate::{
    files::Files,
    mount::run_to_end,
    open_file::OpenFile,
    staged::{StagedBody, StagedMode, behind::SAVES_AT_ONCE, retry::is_unsaved},
};

/// How much of what was written a crash of the machine may cost.
const PERIOD: Duration = Duration::from_secs(5);
/// Files that are forced to the disk at the same time for a program that waits.
const FORCED_AT_ONCE: usize = 16;
/// How often a journal that is written anew meanwhile is forced to the disk again.
const ROUNDS_MAX: usize = 8;

/// Begins to sync staging files as long as the volume lives, where there is a runtime to do it.
pub(crate) fn begin(mode: &Arc<StagedMode>) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(sync_periodically(Arc::downgrade(mode)));
    }
}

async fn sync_periodically(mode: Weak<StagedMode>) {
    loop {
        clock::sleep(PERIOD).await;
        let Some(mode) = mode.upgrade() else { return };
        let staging = mode.staging();
        on_worker(|| staging.space().look()).await;
        staging.closed().expire(staging.space().free_seen());
        tell(force_log(staging).await);
        // One after the other: the disk has better things to do.
        tell(force(staging, contents(&mode), 1).await);
    }
}

/// The contents of all files that are engaged now.
fn contents(mode: &StagedMode) -> Vec<Weak<StagedFile>> {
    let files = mode.engaged.all();
    let bodies = files.iter().filter_map(|file| file.body.staged());
    bodies.map(|body| Arc::downgrade(&body.content)).collect()
}

fn tell(synced: io::Result<()>) {
    if let Err(error) = synced {
        tracing::warn!(%error, "a staging file could not be synced");
    }
}

async fn force_log(staging: &Staging) -> io::Result<()> {
    on_worker(|| staging.force_log()).await
}

/// Forces all of `files` to the disk, so many at once, and returns the first failure. One that nobody else holds any more is
/// passed over: it is in the store, and left its bytes to the next that opens it when the last hold on it went. What is being
/// forced itself is held meanwhile. A caller to whom the disk is to be enough holds its files until this returns.
async fn force(
    staging: &Staging,
    mut files: Vec<Weak<StagedFile>>,
    at_once: usize,
) -> io::Result<()> {
    for _ in 0..ROUNDS_MAX {
        files = force_once(staging, files, at_once).await?;
        if files.is_empty() {
            return Ok(());
        }
    }
    let text = "what was written anew again and again could not be synced";
    Err(io::Error::other(text))
}

/// Forces all of `files` to the disk. Returns those whose journals were written anew meanwhile, or the first failure.
async fn force_once(
    staging: &Staging,
    files: Vec<Weak<StagedFile>>,
    at_once: usize,
) -> io::Result<Vec<Weak<StagedFile>>> {
    let force = |file: Weak<StagedFile>| {
        let forced = file.upgrade().map(|file| file.force()).transpose()?;
        Ok(forced.flatten().map(|forced| (file, forced)))
    };
    let (forced, bytes) = each(files, at_once, force).await;
    let is_new = forced.iter().any(|(_, forced)| !forced.is_named());
    if is_new && let Err(error) = on_worker(|| staging.force_names()).await {
        let there = forced.iter().filter_map(|(file, _)| file.upgrade());
        there.for_each(|file| file.note_unsynced());
        return Err(error);
    }
    let note = |(weak, forced): (Weak<StagedFile>, _)| match weak.upgrade() {
        Some(file) => Ok((!file.note_forced(&forced)?).then_some(weak)),
        None => Ok(None),
    };
    let (anew, notes) = each(forced, at_once, note).await;
    bytes.and(notes).map(|()| anew)
}

/// Makes a disk call for each of `items`. Returns what they return that is something, and the first failure.
async fn each<T: Send + 'static, R: Send + 'static>(
    items: Vec<T>,
    at_once: usize,
    call: impl Fn(T) -> io::Result<Option<R>> + Copy + Send + 'static,
) -> (Vec<R>, io::Result<()>) {
    let calls = items
        .into_iter()
        .map(|item| tokio::task::spawn_blocking(move || call(item)));
    let calls = stream::iter(calls).buffer_unordered(at_once);
    let all = (Vec::new(), Ok(()));
    calls
        .fold(all, async |(mut done, first), made| {
            let made = made.map_err(io::Error::other).flatten();
            let failed = made.map(|made| done.extend(made));
            (done, first.and(failed))
        })
        .await
}

impl Files {
    /// Returns when the disk of the staging directory has what was written to `files`, and what became of names.
    pub(crate) async fn sync_to_journal(
        self: &Arc<Self>,
        mode: &Arc<StagedMode>,
        files: Vec<Arc<OpenFile>>,
    ) -> FsResult<()> {
        let staging = mode.staging();
        let names = force_log(staging).await;
        names.map_err(|error| disk_failure(&error))?;
        let (for_store, here): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| self.needs_store(file));
        let mut contents = Vec::new();
        for body in here.iter().filter_map(|file| file.body.staged()) {
            keep(body).await?;
            contents.push(Arc::downgrade(&body.content));
        }
        let forced = force(staging, contents, FORCED_AT_ONCE).await;
        drop(here);
        let may_note = !for_store.is_empty();
        let stored = self.save_all(for_store).await;
        // How such a file is described may wait in the log of names.
        let noted = match may_note {
            true => force_log(staging).await,
            false => Ok(()),
        };
        forced
            .and(noted)
            .map_err(|error| disk_failure(&error))
            .and(stored)
    }

    /// Whether the disk here is not enough for what a file lacks in the store.
    fn needs_store(&self, file: &OpenFile) -> bool {
        let body = file.body.staged();
        let is_unsynced = body.is_some_and(|body| body.content.is_unsynced());
        // What changed during a save may have no journal any more.
        is_unsynced || !is_unsaved(file) && self.metadata.has_unsaved_metadata(file.inode)
    }

    /// Saves these files, many at once, and returns the first failure.
    pub(super) async fn save_all(self: &Arc<Self>, files: Vec<Arc<OpenFile>>) -> FsResult<()> {
        let saves = files.into_iter().map(|file| {
            let this = Arc::clone(self);
            run_to_end(this.save_shared(file))
        });
        let saves = stream::iter(saves).buffer_unordered(SAVES_AT_ONCE);
        saves
            .fold(Ok(()), async |all: FsResult<()>, saved| all.and(saved))
            .await
    }
}

/// Sees to it that a file has a journal, if anything of it is unsaved: a new one that is empty has none before it is
/// closed.
async fn keep(body: &Arc<StagedBody>) -> FsResult<()> {
    let content = Arc::clone(&body.content);
    let kept = move || content.keep_for_recovery();
    let kept: Result<(), FsError> = body.staging().on_disk(true, kept).await;
    kept
}
