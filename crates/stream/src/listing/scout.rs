//! Looks where directories begin, while the listing goes on.
//!
//! A delimited listing shows a thousand directories for one request. Where they begin ranges can
//! be split without guessing, and a path with a single directory in a single directory is walked
//! down at one request a level.

use std::collections::VecDeque;

use penstock_object::ListOptions;

use super::worker::Shared;
use crate::SnapshotError;

/// Requests of a scout.
pub(super) const SCOUT_REQUESTS_MAX: usize = 12;

/// Directories for each request that may be under way after which a scout has seen enough.
const DIRECTORIES_PER_CONCURRENCY: usize = 4;

/// Looks around. That a request fails is no failure of the listing, which asks the same store.
pub(super) async fn run(shared: &Shared) -> Result<(), SnapshotError> {
    let enough = DIRECTORIES_PER_CONCURRENCY * shared.settings.concurrency;
    let mut unseen = VecDeque::from([String::new()]);
    let mut found = 0;
    for _ in 0..SCOUT_REQUESTS_MAX {
        let Some(directory) = unseen.pop_front() else {
            break;
        };
        if found >= enough || shared.is_done() {
            break;
        }
        shared.count_request()?;
        let options = ListOptions {
            prefix: directory,
            delimited: true,
            ..ListOptions::default()
        };
        let Ok(page) = shared.store.list(options).await else {
            break;
        };
        found += page.common_prefixes.len();
        unseen.extend(page.common_prefixes.iter().cloned());
        shared.learn_directories(page.common_prefixes);
    }
    Ok(())
}
