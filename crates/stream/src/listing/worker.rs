//! Somebody who lists ranges, one after the other.

use std::{sync::Arc, time::Duration};

use penstock_base::{Mutex, clock};
use penstock_object::{FlatPage, ListOptions, ObjectError, Store};
use tokio::{sync::Notify, task::JoinSet};

use super::{
    ListingProgress, ListingSettings,
    board::{Board, Taken, Turn},
    links::{self, Targets},
};
use crate::{
    SnapshotError, SnapshotObject, Spool, Timestamp,
    spool::{RunWriter, Span},
};

/// How long a worker whose request failed pauses at first; doubled with each round that fails.
const PAUSE_BASE: Duration = Duration::from_millis(50);

/// What all workers share.
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) settings: ListingSettings,
    progress: Arc<ListingProgress>,
    spool: Spool,
    board: Mutex<Board>,
    /// Rung when there may be work for somebody who waits.
    work: Notify,
}

impl Shared {
    pub(super) fn new(
        store: &Arc<dyn Store>,
        spool: Spool,
        settings: &ListingSettings,
        progress: &Arc<ListingProgress>,
    ) -> Self {
        Self {
            store: Arc::clone(store),
            settings: *settings,
            progress: Arc::clone(progress),
            board: Mutex::new(Board::new(spool.gaps(), settings)),
            spool,
            work: Notify::new(),
        }
    }

    pub(super) fn into_spool(self) -> Spool {
        self.spool
    }

    /// Whether nothing is left to list.
    pub(super) fn is_done(&self) -> bool {
        self.board.lock().is_done()
    }

    /// Counts a request for a page that is about to be sent. Fails when there were too many.
    pub(super) fn count_request(&self) -> Result<(), SnapshotError> {
        let count = self.board.lock().allowance.request();
        self.check(count)
    }

    /// The same of a request for where a link leads.
    pub(super) fn count_link(&self) -> Result<(), SnapshotError> {
        let count = self.board.lock().allowance.link();
        self.check(count)
    }

    fn check(&self, count: u64) -> Result<(), SnapshotError> {
        if count > self.settings.requests_max {
            return Err(SnapshotError::Invalid(format!(
                "the listing did not end within {} requests: allow more, list a smaller path, or give a manifest",
                self.settings.requests_max
            )));
        }
        self.progress.add_request();
        Ok(())
    }

    pub(super) fn learn_directories(&self, directories: Vec<String>) {
        self.board.lock().learn_directories(directories);
        self.work.notify_waiters();
    }

    /// A range to list; `None` when all are done.
    async fn next_range(&self) -> Option<(u64, String)> {
        loop {
            let rung = self.work.notified();
            tokio::pin!(rung);
            // From here on a ring counts, even before it is waited for.
            rung.as_mut().enable();
            let turn = {
                let mut board = self.board.lock();
                let turn = board.take();
                self.progress.set_under_way(board.under_way());
                turn
            };
            match turn {
                Turn::List { id, after } => return Some((id, after)),
                Turn::Done => return None,
                Turn::Wait => rung.await,
            }
        }
    }

    /// Moves a range forward and tells others when that makes work for them.
    fn receive(&self, id: u64, page: &FlatPage) -> Result<Taken, SnapshotError> {
        let mut board = self.board.lock();
        let raised = board.pace.succeeded();
        let taken = board.receive(id, page);
        let taken = taken.ok_or_else(|| SnapshotError::Invalid(format!("range {id} is lost")))?;
        self.progress.add_keys(taken.keys as u64);
        self.progress.set_left(board.left());
        drop(board);
        if taken.first || taken.done.is_some() || raised {
            self.work.notify_waiters();
        } else {
            self.work.notify_one();
        }
        Ok(taken)
    }

    /// After a failure in passing: puts the range back, and says how long to pause. Fails when that
    /// happened too often.
    fn put_back(&self, id: u64, round: u32, error: ObjectError) -> Result<Duration, SnapshotError> {
        let mut board = self.board.lock();
        if !error.kind.is_transient() || !board.pace.failed(round) {
            return Err(error.into());
        }
        board.give_back(id);
        let pause = PAUSE_BASE * 2u32.pow(board.pace.failed_rounds());
        drop(board);
        self.work.notify_waiters();
        Ok(error.retry_after.unwrap_or(pause))
    }
}

/// Lists ranges until there are none.
pub(super) async fn run(shared: &Shared) -> Result<(), SnapshotError> {
    while let Some((id, after)) = shared.next_range().await {
        let range = Listed {
            shared,
            id,
            run: shared.spool.begin_run(),
            run_after: after.clone(),
            after,
            continuation: None,
        };
        if let Some(pause) = range.list().await? {
            clock::sleep(pause).await;
        }
    }
    Ok(())
}

/// A range that is being listed.
struct Listed<'a> {
    shared: &'a Shared,
    id: u64,
    run: RunWriter,
    /// Where the present run begins.
    run_after: String,
    /// The key that the next page begins after, unless there is a continuation.
    after: String,
    continuation: Option<String>,
}

impl Listed<'_> {
    /// Lists page after page until the range ends or a request fails in passing; returns how long to
    /// pause then.
    async fn list(mut self) -> Result<Option<Duration>, SnapshotError> {
        loop {
            let round = self.shared.board.lock().pace.round();
            let page = match self.next_page().await? {
                Ok(page) => page,
                Err(error) => {
                    self.end_run(None)?;
                    return self.shared.put_back(self.id, round, error).map(Some);
                }
            };
            let taken = self.shared.receive(self.id, &page)?;
            let links = links::targets(self.shared, &page, taken.keys).await?;
            self.write(&page, taken.keys, &links)?;
            if let Some(end) = taken.done {
                self.end_run(Some(end))?;
                return Ok(None);
            }
            if self.run.objects() >= self.shared.settings.run_keys {
                self.end_run(None)?;
            }
            self.continuation = page.continuation;
        }
    }

    async fn next_page(&self) -> Result<Result<FlatPage, ObjectError>, SnapshotError> {
        self.shared.count_request()?;
        let after = Some(&self.after).filter(|_| self.continuation.is_none());
        let options = ListOptions {
            start_after: after.filter(|after| !after.is_empty()).cloned(),
            continuation: self.continuation.clone(),
            max_keys: Some(self.shared.settings.page_keys),
            ..ListOptions::default()
        };
        request(&self.shared.store, options).await
    }

    fn write(
        &mut self,
        page: &FlatPage,
        keys: usize,
        links: &Targets,
    ) -> Result<(), SnapshotError> {
        for (index, object) in page.objects().take(keys).enumerate() {
            if self.run.objects() == 0 && object.key <= self.run_after.as_str() {
                return Err(out_of_order(object.key, &self.run_after));
            }
            self.run.write(&SnapshotObject {
                key: object.key.as_bytes(),
                size: object.size,
                modified: Timestamp {
                    seconds: object.modified.seconds,
                    nanoseconds: object.modified.nanoseconds,
                },
                etag: object.etag,
                target: links.get(&index).map_or("", String::as_str),
            })?;
        }
        if keys > 0 {
            page.key(keys - 1).clone_into(&mut self.after);
        }
        Ok(())
    }

    /// Ends the run: at `end` if the range ends there, else at what was written last.
    fn end_run(&mut self, end: Option<Option<String>>) -> Result<(), SnapshotError> {
        let up_to = match end {
            Some(end) => end,
            None if self.run.objects() == 0 => return Ok(()),
            None => Some(self.after.clone()),
        };
        let after = std::mem::replace(&mut self.run_after, self.after.clone());
        let run = std::mem::replace(&mut self.run, self.shared.spool.begin_run());
        self.shared.spool.finish_run(run, Span { after, up_to })
    }
}

/// Asks for a page in a task of its own, which ends when the future is dropped.
async fn request(
    store: &Arc<dyn Store>,
    options: ListOptions,
) -> Result<Result<FlatPage, ObjectError>, SnapshotError> {
    let store = Arc::clone(store);
    let mut task = JoinSet::new();
    task.spawn(async move { store.list_flat(options).await });
    match task.join_next().await {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(error)) => {
            let message = format!("a request of the listing ended early: {error}");
            Err(SnapshotError::Invalid(message))
        }
        None => Err(SnapshotError::Invalid("a request was lost".to_owned())),
    }
}

fn out_of_order(key: &str, after: &str) -> SnapshotError {
    SnapshotError::Invalid(format!(
        "`{key}` is listed after `{after}`: the store does not list in byte order; give a manifest"
    ))
}
