//! The store's time, by which requests are signed.
//!
//! Stores refuse signatures that are more than some minutes off. A clock that is wrong from the
//! beginning is for people to set: it would give wrong time stamps, too. But a clock that drifts
//! or jumps while a store is in use (a machine that slept, a container without NTP) must not stop
//! it: when a request is refused for its time, the difference to the `Date` of the answer is
//! learnt, and the request is signed and sent once more.

use std::{
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use penstock_base::clock;

/// Differences that are no news: dates have whole seconds, and answers take a while.
const JITTER_SECONDS: u64 = 5;

/// The store's time, by which requests are signed.
#[derive(Debug)]
pub(crate) struct StoreClock {
    follows: bool,
    /// Seconds that the store is ahead of this machine.
    offset: AtomicI64,
    warned: AtomicBool,
}

impl StoreClock {
    /// This machine's time; the store's once a request was refused, if it `follows`.
    pub(crate) fn new(follows: bool) -> Self {
        Self {
            follows,
            offset: AtomicI64::new(0),
            warned: AtomicBool::new(false),
        }
    }

    /// Seconds that the store is ahead of this machine, as far as known.
    pub(super) fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// The time to sign with.
    pub(super) fn now(&self) -> SystemTime {
        let (ours, offset) = (clock::wall_time(), self.offset());
        let seconds = Duration::from_secs(offset.unsigned_abs());
        let theirs = match offset {
            0.. => ours.checked_add(seconds),
            _ => ours.checked_sub(seconds),
        };
        theirs.unwrap_or(ours)
    }

    /// A request was refused for its time, in an answer with this `Date`.
    pub(super) fn refused(&self, date: Option<&str>) {
        let date = date.and_then(|text| httpdate::parse_http_date(text).ok());
        let Some(theirs) = date.filter(|_| self.follows) else {
            return;
        };
        let offset = seconds(theirs) - seconds(clock::wall_time());
        if offset.abs_diff(self.offset()) <= JITTER_SECONDS {
            return;
        }
        self.offset.store(offset, Ordering::Relaxed);
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                seconds = offset.unsigned_abs(),
                "this machine's clock is {} the store's by {} s; requests are signed with the \
                 store's time from now on, time stamps of new files are still wrong: set the \
                 clock, for example with `timedatectl set-ntp true`",
                if offset > 0 { "behind" } else { "ahead of" },
                offset.unsigned_abs()
            );
        }
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(ahead: i64) -> String {
        let seconds = Duration::from_secs(ahead.unsigned_abs());
        let now = clock::wall_time();
        httpdate::fmt_http_date(if ahead < 0 {
            now - seconds
        } else {
            now + seconds
        })
    }

    #[test]
    fn follows_the_store_in_both_directions() {
        let clock = StoreClock::new(true);
        for ahead in [3600_i64, -86_400, 0] {
            clock.refused(Some(&date(ahead)));
            assert!(clock.offset().abs_diff(ahead) <= 2, "{}", clock.offset());
            let signed = seconds(clock.now());
            assert!(signed.abs_diff(seconds(clock::wall_time()) + ahead) <= 3);
        }
    }

    #[test]
    fn what_is_no_news_changes_nothing() {
        let clock = StoreClock::new(true);
        for date in [None, Some("yesterday"), Some(date(2).as_str())] {
            clock.refused(date);
            assert_eq!(clock.offset(), 0);
        }
        let strict = StoreClock::new(false);
        strict.refused(Some(&date(3600)));
        assert_eq!(strict.offset(), 0);
    }
}
