//! Gives memory back to the system that many names took.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use penstock_base::{clock, give_back_freed};

use crate::inode::Namespace;

/// The least time between two times that the allocator is asked: it holds its locks meanwhile.
const PAUSE: Duration = Duration::from_secs(3);

/// Begins to give memory back, where there is a runtime to do it.
pub(crate) fn begin(namespace: &Arc<Namespace>) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(give_back(Arc::downgrade(namespace)));
    }
}

async fn give_back(namespace: Weak<Namespace>) {
    let Some(freed) = namespace
        .upgrade()
        .map(|namespace| namespace.lock().much_freed())
    else {
        return;
    };
    loop {
        freed.notified().await;
        clock::sleep(PAUSE).await;
        let given_back = tokio::task::spawn_blocking(give_back_freed);
        if given_back.await.is_err() || namespace.strong_count() == 0 {
            return;
        }
    }
}
