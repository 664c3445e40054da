//! Waiting until everything that was written is in the store.
//!
//! A client that answers `close` before it has stored a file does not say when it has. The development server
//! sees it: everything is there when the last request that changes something was answered, and no other comes for
//! [`QUIET`]. That is the same rule for every client, and needs no word of any; that nothing was missing then
//! the comparison of contents shows, which comes while the client is still mounted.

use std::time::Duration;

use penstock_base::clock::{self, Instant};
use penstock_devserver::Counters;

use crate::{store::Store, system};

/// How long nothing is stored before all is taken for stored. Clients that save behind the close wait for
/// 5 s after it if nobody tells them otherwise.
const QUIET: Duration = Duration::from_secs(8);
/// Between looks at the server's counters.
const LOOK: Duration = Duration::from_millis(20);

/// What the names of operations begin with that change nothing.
const READS: [&str; 3] = ["get_", "head_", "list_"];

/// Waits until `store` is quiet, at most `limit`, and returns when it became so: how long after the call the
/// last change ended.
pub(crate) fn settle(store: &Store, limit: Duration) -> Result<Duration, String> {
    let mut stillness = Stillness::begin(clock::now());
    let settled = system::until(limit, LOOK, || {
        if system::interrupted() {
            return Some(Err("interrupted".to_owned()));
        }
        let counters = store.counters().unwrap_or_default();
        stillness.look(&counters, clock::now()).map(Ok)
    });
    settled.unwrap_or_else(|| Err(format!("not everything was stored {limit:.0?} later")))
}

/// What was seen of a server's changes.
#[derive(Debug)]
struct Stillness {
    began: Instant,
    changes: Option<u64>,
    /// Changes are under way, as far as is known.
    busy: bool,
    quiet_since: Instant,
}

impl Stillness {
    fn begin(now: Instant) -> Self {
        Self {
            began: now,
            changes: None,
            busy: false,
            quiet_since: now,
        }
    }

    /// Takes note of the counters, and returns when the last change ended if that is long enough ago.
    fn look(&mut self, counters: &Counters, now: Instant) -> Option<Duration> {
        let changes = changes_in(counters);
        let first = self.changes.is_none();
        let changed = self.changes.replace(changes) != Some(changes) && !first;
        if changed || self.busy {
            self.quiet_since = now;
        }
        self.busy = counters.in_flight > 0 && (changed || first || self.busy);
        let is_quiet = !self.busy && now.duration_since(self.quiet_since) >= QUIET;
        is_quiet.then(|| self.quiet_since.duration_since(self.began))
    }
}

fn changes_in(counters: &Counters) -> u64 {
    let operations = counters.requests.values().flatten();
    let is_read = |name: &str| READS.iter().any(|read| name.starts_with(read));
    let changes = operations.filter(|(name, _)| !is_read(name));
    changes.map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use penstock_devserver::Operation;

    use super::*;

    fn counters(puts: u64, gets: u64, in_flight: u64) -> Counters {
        let of = |operation: Operation, count| (operation.name().to_owned(), count);
        let requests = [
            of(Operation::PutObject, puts),
            of(Operation::GetObject, gets),
        ];
        Counters {
            requests: BTreeMap::from([("s3".to_owned(), BTreeMap::from(requests))]),
            in_flight,
            ..Counters::default()
        }
    }

    /// What each look at counters returns, a second after the one before.
    fn looks(at: &[(u64, u64, u64)]) -> Vec<Option<u64>> {
        let began = clock::now();
        let mut stillness = Stillness::begin(began);
        let seconds = (0..).map(Duration::from_secs);
        let looked = at
            .iter()
            .zip(seconds)
            .map(|(&(puts, gets, flying), after)| {
                let quiet = stillness.look(&counters(puts, gets, flying), began + after);
                quiet.map(|quiet| quiet.as_secs())
            });
        looked.collect()
    }

    #[test]
    fn what_is_still_from_the_start_was_stored_then() {
        let mut seen = [(3, 0, 0); 9];
        seen[4].1 = 7;
        let told = looks(&seen);
        assert_eq!((told[7], told[8]), (None, Some(0)), "reads change nothing");
    }

    #[test]
    fn the_last_change_counts_from_its_answer() {
        let mut seen = vec![(3, 0, 1), (4, 0, 2), (4, 0, 1), (4, 0, 0)];
        seen.extend([(4, 0, 0); 9]);
        let told = looks(&seen);
        assert_eq!(told.iter().position(Option::is_some), Some(11));
        assert_eq!(told[11], Some(3));
    }
}
