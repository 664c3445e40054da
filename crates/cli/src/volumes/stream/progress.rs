//! What somebody at a terminal sees while an index is built.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use penstock_base::clock;
use penstock_stream::{Changes, IndexProgress, IndexStage, ListingStatus};

use crate::{options::duration, output};

/// How often the line is drawn.
const INTERVAL: Duration = Duration::from_millis(500);

/// Shows how far an index is until it is done.
pub(super) async fn until_done<T>(progress: &IndexProgress, making: impl Future<Output = T>) -> T {
    watch(making, || match progress.stage() {
        IndexStage::Looking => String::new(),
        IndexStage::Listing(status) => describe_listing(&status),
        IndexStage::Building { objects, total } => {
            format!("building the index: {objects} of {total} objects")
        }
    })
    .await
}

/// Says what became of the objects since the last index.
pub(super) fn say_changes(changes: Changes) {
    let mut stderr = io::stderr().lock();
    if stderr.is_terminal() {
        let _ = writeln!(
            stderr,
            "since the last index: {} objects added, {} removed, {} changed, {} as before",
            changes.added, changes.removed, changes.changed, changes.unchanged
        );
    }
}

async fn watch<T>(work: impl Future<Output = T>, line: impl Fn() -> String) -> T {
    let mut work = std::pin::pin!(work);
    if !io::stderr().is_terminal() {
        return work.await;
    }
    loop {
        match clock::deadline(INTERVAL, work.as_mut()).await {
            Ok(done) => {
                output::draw(None);
                return done;
            }
            Err(_) => {
                output::draw(Some(&line()));
            }
        }
    }
}

fn describe_listing(status: &ListingStatus) -> String {
    let ListingStatus {
        keys,
        rate,
        requests,
        ..
    } = status;
    let line = format!("listing: {keys} objects, {rate:.0}/s, {requests} requests");
    match status.time_left {
        Some(left) => {
            let left = Duration::from_secs(left.as_secs().max(1));
            format!("{line}, about {} to go", duration::display(left))
        }
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_tells_objects_rate_and_time() {
        let mut status = ListingStatus {
            keys: 120_000,
            requests: 130,
            under_way: 64,
            elapsed: Duration::from_secs(2),
            rate: 60_000.0,
            time_left: None,
        };
        let line = "listing: 120000 objects, 60000/s, 130 requests";
        assert_eq!(describe_listing(&status), line);
        status.time_left = Some(Duration::from_secs(90));
        let with_time = format!("{line}, about 1m30s to go");
        assert_eq!(describe_listing(&status), with_time);
    }

    #[tokio::test]
    async fn work_is_done_with_nobody_watching() {
        assert_eq!(watch(async { 7 }, String::new).await, 7);
    }
}
