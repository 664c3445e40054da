//! Removes uploads that come to nothing, also when nobody waits for it.
//!
//! A store that is away now is asked again later: what a writer left would else be paid for until
//! somebody looks.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use penstock_base::clock;
use penstock_object::{Key, Part, Store, UploadId};
use tokio::{runtime::Handle, sync::watch, task::JoinSet};

use super::upload::{Created, UploadNote, name_of};
use crate::{Transfer, TransferResult, lock::lock};

/// How long one attempt to remove an upload may take.
const REMOVAL_MAX: Duration = Duration::from_secs(60);

/// From an attempt that failed to the next one, and how many there are: an hour at least.
const PAUSE: Duration = Duration::from_secs(10);
const ATTEMPTS_MAX: usize = 360;

/// Uploads that wait for another attempt.
const WAITING_MAX: usize = 1024;

/// What an upload leaves behind.
pub(super) struct Leftover {
    pub(super) transfer: Arc<Transfer>,
    pub(super) key: Key,
    pub(super) created: Created,
    pub(super) tasks: JoinSet<TransferResult<Vec<Part>>>,
    pub(super) note: Option<Arc<dyn UploadNote>>,
}

/// Cancels the requests of an upload and removes it from the store, later if that fails now.
pub(super) async fn clean_up(mut leftover: Leftover) {
    // First the parts: one that arrives after the removal would stay for ever.
    let named = async {
        leftover.tasks.shutdown().await;
        name_of(leftover.created).await.ok()
    };
    let Ok(named) = clock::deadline(REMOVAL_MAX, named).await else {
        return tell(&leftover.key, "it is not known whether it was begun");
    };
    let Some(upload) = named else { return };
    let (store, key) = (Arc::clone(leftover.transfer.store()), leftover.key);
    let unwanted = Unwanted {
        store,
        key,
        upload,
        note: leftover.note,
    };
    if let Err(failure) = unwanted.remove().await {
        leftover.transfer.clean_ups().try_later(unwanted, &failure);
    }
}

fn tell(key: &Key, failure: &str) {
    tracing::warn!(
        %key,
        failure,
        "an unfinished upload could not be removed; its parts occupy the bucket until it is aborted"
    );
}

/// An upload that is to be removed.
struct Unwanted {
    store: Arc<dyn Store>,
    key: Key,
    upload: UploadId,
    note: Option<Arc<dyn UploadNote>>,
}

impl Unwanted {
    async fn remove(&self) -> Result<(), String> {
        let removal = self.store.abort_upload(&self.key, &self.upload);
        match clock::deadline(REMOVAL_MAX, removal).await {
            Ok(Ok(())) => {
                if let Some(note) = &self.note {
                    note.ended();
                }
                Ok(())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(late) => Err(late.to_string()),
        }
    }

    /// Tries again and again; only once more when somebody waits for the end.
    async fn remove_later(self, mut waited_for: watch::Receiver<bool>) {
        let mut failure = String::new();
        for _ in 0..ATTEMPTS_MAX {
            // An error means that nothing waits any more, which is the same as a pause.
            let _ = clock::deadline(PAUSE, waited_for.wait_for(|waits| *waits)).await;
            match self.remove().await {
                Ok(()) => return,
                Err(error) => failure = error,
            }
            if *waited_for.borrow() {
                break;
            }
        }
        tell(&self.key, &failure);
    }
}

/// Removals that are going on.
#[derive(Debug, Default)]
pub(crate) struct CleanUps {
    running: Mutex<JoinSet<()>>,
    /// Somebody waits until they have ended.
    waited_for: watch::Sender<bool>,
}

impl CleanUps {
    pub(super) fn spawn(&self, runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
        let mut running = lock(&self.running);
        while running.try_join_next().is_some() {}
        running.spawn_on(work, runtime);
    }

    fn try_later(&self, unwanted: Unwanted, failure: &str) {
        let mut running = lock(&self.running);
        while running.try_join_next().is_some() {}
        if running.len() >= WAITING_MAX {
            return tell(&unwanted.key, failure);
        }
        running.spawn(unwanted.remove_later(self.waited_for.subscribe()));
    }

    /// Waits until all that were begun have ended, and what comes of them. Dropping the future gives
    /// them up.
    pub(crate) async fn wait(&self) {
        self.waited_for.send_replace(true);
        loop {
            let mut running = std::mem::take(&mut *lock(&self.running));
            if running.is_empty() {
                break;
            }
            while running.join_next().await.is_some() {}
        }
        self.waited_for.send_replace(false);
    }
}
