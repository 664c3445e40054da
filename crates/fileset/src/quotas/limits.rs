//! What becomes of use that grows.

use std::time::{Duration, SystemTime};

use super::Use;
use crate::schema::{Limit, Limits};

/// What somebody takes more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    pub(crate) more: Use,
    pub(crate) now: SystemTime,
}

impl Limit {
    /// Whether the hard limit, or the soft one for longer than the grace time, is in the way of growth.
    fn refuses(&self, used: u64, after: u64, (now, grace): (SystemTime, Duration)) -> bool {
        let is_over = |since| now.duration_since(since).is_ok_and(|since| since >= grace);
        is_above(after, self.hard)
            || is_above(used, self.soft) && self.exceeded.is_some_and(is_over)
    }

    /// Whether growth exceeds the soft limit that was not exceeded before.
    fn is_passed(&self, used: u64, after: u64) -> bool {
        let is_known = is_above(used, self.soft) && self.exceeded.is_some();
        is_above(after, self.soft) && !is_known
    }
}

/// From nine tenths of a limit on it is nearly reached: what fits no more is often much smaller than what is left.
fn is_near(used: u64, limit: &Limit) -> bool {
    let limits = [limit.soft, limit.hard];
    limits
        .iter()
        .any(|limit| *limit != 0 && used >= limit - limit / 10)
}

fn is_above(used: u64, limit: u64) -> bool {
    limit != 0 && used > limit
}

impl Limits {
    /// Whether so much use leaves little room.
    pub(super) fn is_nearly_reached(&self, used: Use) -> bool {
        is_near(used.bytes, &self.bytes) || is_near(used.files, &self.files)
    }

    /// What they are after growth from `used` on. `None` if they do not allow it to who `is_held` to them.
    pub(super) fn after(&self, used: Use, growth: &Growth, is_held: bool) -> Option<Self> {
        let Growth { more, now } = *growth;
        let mut limits = *self;
        let parts = [
            (&mut limits.bytes, used.bytes, more.bytes),
            (&mut limits.files, used.files, more.files),
        ];
        for (limit, used, more) in parts.into_iter().filter(|(.., more)| *more > 0) {
            let after = used.saturating_add(more);
            if is_held && limit.refuses(used, after, (now, self.grace)) {
                return None;
            }
            if limit.is_passed(used, after) {
                limit.exceeded = Some(now);
            }
        }
        Some(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn limits(soft: u64, hard: u64) -> Limits {
        Limits {
            bytes: Limit {
                soft,
                hard,
                exceeded: None,
            },
            files: Limit::default(),
            grace: HOUR,
        }
    }

    fn bytes(bytes: u64) -> Use {
        Use { bytes, files: 0 }
    }

    fn grown(limits: &Limits, (used, more): (u64, u64), hours: u32) -> Option<Limits> {
        let growth = Growth {
            more: bytes(more),
            now: SystemTime::UNIX_EPOCH + HOUR * hours,
        };
        limits.after(bytes(used), &growth, true)
    }

    #[test]
    fn the_last_tenth_of_a_limit_is_little_room() {
        for limits in [limits(0, 1000), limits(1000, 0), limits(1000, 9000)] {
            assert!(!limits.is_nearly_reached(bytes(899)));
            assert!(limits.is_nearly_reached(bytes(900)));
        }
        assert!(!limits(0, 0).is_nearly_reached(bytes(u64::MAX)));
        assert!(limits(0, 5).is_nearly_reached(bytes(5)));
    }

    #[test]
    fn a_hard_limit_is_reached_and_not_exceeded() {
        let limits = limits(0, 10);
        assert_eq!(grown(&limits, (4, 6), 0), Some(limits));
        assert_eq!(grown(&limits, (4, 7), 0), None);
        assert_eq!(
            grown(&limits, (20, 0), 0),
            Some(limits),
            "what does not grow may be"
        );
        assert_eq!(grown(&limits, (1, u64::MAX), 0), None);
    }

    #[test]
    fn a_soft_limit_is_exceeded_for_the_grace_time_which_begins_anew_below_it() {
        let limits = limits(10, 20);
        let passed = grown(&limits, (9, 2), 5).unwrap();
        assert_eq!(
            passed.bytes.exceeded,
            Some(SystemTime::UNIX_EPOCH + HOUR * 5)
        );
        assert_eq!(grown(&passed, (11, 1), 5), Some(passed));
        assert_eq!(grown(&passed, (11, 1), 6), None);
        let again = grown(&passed, (8, 3), 7).unwrap();
        assert_eq!(
            again.bytes.exceeded,
            Some(SystemTime::UNIX_EPOCH + HOUR * 7)
        );
        assert_eq!(grown(&passed, (8, 13), 7), None);
    }

    #[test]
    fn who_is_not_held_to_a_limit_begins_the_grace_time_of_the_others() {
        let growth = Growth {
            more: bytes(50),
            now: SystemTime::UNIX_EPOCH,
        };
        let after = limits(10, 20).after(bytes(0), &growth, false).unwrap();
        assert_eq!(after.bytes.exceeded, Some(SystemTime::UNIX_EPOCH));
    }
}
