//! Removes uploads that come to nothing, also when nobody waits for it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use penstock_base::clock;
use penstock_object::{Key, ObjectResult, Part, Store};
use tokio::{runtime::Handle, task::JoinSet};

use super::upload::{Created, UploadNote, name_of};
use crate::lock::lock;

/// How long the removal of an upload may take.
const REMOVAL_MAX: Duration = Duration::from_secs(60);

/// What an upload leaves behind.
pub(super) struct Leftover {
    pub(super) store: Arc<dyn Store>,
    pub(super) key: Key,
    pub(super) created: Created,
    pub(super) tasks: JoinSet<ObjectResult<Part>>,
    pub(super) note: Option<Arc<dyn UploadNote>>,
}

/// Cancels the requests of an upload and removes it from the store. Says so when it cannot.
pub(super) async fn clean_up(mut leftover: Leftover) {
    let key = leftover.key.clone();
    let removal = async {
        // First the parts: one that arrives after the removal would stay for ever.
        leftover.tasks.shutdown().await;
        let Ok(upload) = name_of(leftover.created).await else {
            return Ok(());
        };
        let removed = leftover.store.abort_upload(&leftover.key, &upload).await;
        if let (Ok(()), Some(note)) = (&removed, &leftover.note) {
            note.ended();
        }
        removed
    };
    let failure = match clock::deadline(REMOVAL_MAX, removal).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(late) => late.to_string(),
    };
    tracing::warn!(
        %key,
        failure,
        "an unfinished upload could not be removed; its parts occupy the bucket until it is aborted"
    );
}

/// Removals that are going on.
#[derive(Debug, Default)]
pub(crate) struct CleanUps(Mutex<JoinSet<()>>);

impl CleanUps {
    pub(super) fn spawn(&self, runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
        let mut running = lock(&self.0);
        while running.try_join_next().is_some() {}
        running.spawn_on(work, runtime);
    }

    /// Waits until all that were begun have ended. Dropping the future gives them up.
    pub(crate) async fn wait(&self) {
        let mut running = std::mem::take(&mut *lock(&self.0));
        while running.join_next().await.is_some() {}
    }
}
