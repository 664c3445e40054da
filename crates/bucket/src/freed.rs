//! Gives memory back to the system that many names took.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use penstock_base::{clock, give_back_freed};

use crate::core::Core;

/// The least time between two times that the allocator is asked: it holds its locks meanwhile.
const PAUSE: Duration = Duration::from_secs(3);

/// Begins to give memory back, where there is a runtime to do it.
pub(crate) fn begin(core: &Arc<Core>) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(give_back(Arc::downgrade(core)));
    }
}

async fn give_back(core: Weak<Core>) {
    let Some(freed) = core
        .upgrade()
        .map(|core| core.namespace.lock().much_freed())
    else {
        return;
    };
    loop {
        freed.notified().await;
        clock::sleep(PAUSE).await;
        let given_back = tokio::task::spawn_blocking(give_back_freed);
        if given_back.await.is_err() || core.strong_count() == 0 {
            return;
        }
    }
}
