//! Calls that block a thread, made from async code.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs `work`, which may block on a disk, without holding up other tasks where the runtime
/// allows it.
///
/// On a multi-threaded runtime the worker hands its other tasks to a spare thread first; on a
/// current-thread runtime (tests) and outside any runtime the call just blocks.
pub fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    let multi_threaded = Handle::try_current()
        .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if multi_threaded {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}
