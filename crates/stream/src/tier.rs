//! How much of the machine a volume may take.
//!
//! A [`Tier`] is a number of processors and an amount of memory, written `4c8g`. From it follow the
//! limits that hold everywhere ([`ResourceLimits`]): the memory budget, from which every buffer
//! and cache draws, the threads that do the work, and the requests that are under way at once.
//! Where the process may make a control group, the group's limits hold beside them
//! ([`ControlGroups::confine`]), for what the process itself does not count. Where it may not, its
//! threads are kept to so many processors ([`keep_to_processors`]); memory is then bounded by the
//! budget.
//!
//! Neither is meant for the build of an index: it is short, and its memory is bounded otherwise.
//! Confine the process when the index is there.

mod control_group;
mod processors;

use std::{fmt, str::FromStr};

use penstock_base::{GIB, MIB};
use penstock_transfer::TransferSettings;

pub use self::{
    control_group::{Confined, ControlGroups, NotConfined},
    processors::keep_to_processors,
};

/// Requests under way for each processor. A processor serves a few thousand small objects per
/// second; with the usual 10 to 25 ms of latency that takes this many.
const REQUESTS_PER_PROCESSOR: usize = 64;

/// Memory that is not for bytes of objects: one part in so many, for connections, tables, stacks
/// and what of the index is in use.
const OVERHEAD_SHARE: u64 = 4;

/// The least such memory, however small the budget is.
const OVERHEAD_MIN: u64 = 64 * MIB;

/// The part of the memory budget that may be ahead of readers of large objects. Half is the
/// cache's.
const READ_AHEAD_SHARE: f64 = 0.4;

/// Programs that read one large object at the same time, each from front to end.
const STREAMS_PER_OBJECT: usize = 16;

/// Bytes of the largest read-ahead that the kernel is asked for.
const KERNEL_READ_AHEAD: u64 = 16 * MIB;

/// The largest tier, far beyond any machine.
const PROCESSORS_MAX: u32 = 1024;
const MEMORY_MAX_GIB: u64 = 64 << 10;

/// Processors and memory of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    processors: u32,
    memory_gib: u64,
}

/// The text is not a tier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a resource limit: write processors and GiB of memory, such as 2c4g, 4c8g, 8c16g \
     or 16c32g"
)]
pub struct ParseTierError(String);

impl Tier {
    /// The tiers with names of their own, the smallest first.
    pub const NAMED: [Self; 4] = [
        Self::of(2, 4),
        Self::of(4, 8),
        Self::of(8, 16),
        Self::of(16, 32),
    ];

    const fn of(processors: u32, memory_gib: u64) -> Self {
        Self {
            processors,
            memory_gib,
        }
    }

    /// What follows from it.
    pub fn limits(self) -> ResourceLimits {
        let memory = self.memory_gib * GIB;
        let processors = self.processors as usize;
        ResourceLimits {
            processors: self.processors,
            memory,
            memory_budget: memory - memory / OVERHEAD_SHARE,
            worker_threads: processors,
            requests_in_flight: ResourceLimits::requests_of(processors),
        }
    }
}

impl Default for Tier {
    /// 2c4g.
    fn default() -> Self {
        Self::NAMED[0]
    }
}

impl FromStr for Tier {
    type Err = ParseTierError;

    fn from_str(text: &str) -> Result<Self, ParseTierError> {
        let lower = text.trim().to_ascii_lowercase();
        let numbers = lower
            .strip_suffix('g')
            .and_then(|rest| rest.split_once('c'));
        let tier = numbers
            .and_then(|(processors, memory)| Some(Self::of(number(processors)?, number(memory)?)));
        tier.filter(|tier| {
            (1..=PROCESSORS_MAX).contains(&tier.processors)
                && (1..=MEMORY_MAX_GIB).contains(&tier.memory_gib)
        })
        .ok_or_else(|| ParseTierError(text.to_owned()))
    }
}

/// Only digits: `parse` would take a sign.
fn number<N: FromStr>(text: &str) -> Option<N> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}c{}g", self.processors, self.memory_gib)
    }
}

/// Limits of a volume. Each may be set freely; a tier is a good set of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Processors that a control group grants; `u32::MAX` for all.
    pub processors: u32,
    /// Bytes of memory that a control group grants; `u64::MAX` for all.
    pub memory: u64,
    /// Bytes of the [`penstock_base::MemoryBudget`].
    pub memory_budget: u64,
    /// Threads that run the volume's tasks.
    pub worker_threads: usize,
    /// Requests to the store that are under way at once.
    pub requests_in_flight: usize,
}

impl ResourceLimits {
    /// No limits.
    pub const NONE: Self = Self {
        processors: u32::MAX,
        memory: u64::MAX,
        memory_budget: u64::MAX,
        worker_threads: usize::MAX,
        requests_in_flight: usize::MAX,
    };

    /// Requests to the store that keep so many processors busy.
    pub const fn requests_of(processors: usize) -> usize {
        processors.saturating_mul(REQUESTS_PER_PROCESSOR)
    }

    /// The memory of a volume whose budget is set freely: the budget, and what is not for bytes of
    /// objects.
    pub const fn memory_around(budget: u64) -> u64 {
        let overhead = budget / (OVERHEAD_SHARE - 1);
        budget.saturating_add(if overhead > OVERHEAD_MIN {
            overhead
        } else {
            OVERHEAD_MIN
        })
    }

    /// How the bytes of large objects are moved: beside the cache, for readers of many programs
    /// whose requests the kernel's read-ahead sends all at once.
    pub fn transfer_settings(&self) -> TransferSettings {
        TransferSettings {
            read_ahead_share: READ_AHEAD_SHARE,
            streams_per_reader: STREAMS_PER_OBJECT,
            skip_max: KERNEL_READ_AHEAD,
            ..TransferSettings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tiers_have_the_limits_of_their_names() {
        let names = Tier::NAMED.map(|tier| tier.to_string());
        assert_eq!(names, ["2c4g", "4c8g", "8c16g", "16c32g"]);
        let limits = Tier::NAMED.map(Tier::limits);
        assert_eq!(limits.map(|limits| limits.memory / GIB), [4, 8, 16, 32]);
        assert_eq!(
            limits.map(|limits| limits.memory_budget / GIB),
            [3, 6, 12, 24]
        );
        assert_eq!(limits.map(|limits| limits.worker_threads), [2, 4, 8, 16]);
        let requests = limits.map(|limits| limits.requests_in_flight);
        assert_eq!(requests, [128, 256, 512, 1024]);
        let around = limits.map(|limits| ResourceLimits::memory_around(limits.memory_budget));
        assert_eq!(around, limits.map(|limits| limits.memory));
        assert_eq!(ResourceLimits::memory_around(64 * MIB), 128 * MIB);
        let cache = crate::DataSettings::within(limits[0].memory_budget).cache_bytes;
        let ahead = limits[0].transfer_settings().read_ahead_share * 3.0;
        assert_eq!(cache, 3 * GIB / 2);
        assert!(ahead < 1.5, "cache and read-ahead fit in beside each other");
        assert_eq!(Tier::default(), Tier::NAMED[0]);
    }

    #[test]
    fn what_is_no_tier_is_refused() {
        for text in [
            "", "4c", "8g", "c8g", "4c8", "4c8gb", "0c1g", "1c0g", "-1c2g", "4c 8g", "+4c8g",
        ] {
            let refused = text.parse::<Tier>();
            assert_eq!(refused, Err(ParseTierError(text.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_are_inverse(
            processors in 1..=PROCESSORS_MAX,
            memory in 1..=MEMORY_MAX_GIB,
        ) {
            let tier = Tier::of(processors, memory);
            prop_assert_eq!(tier.to_string().parse(), Ok(tier));
            prop_assert_eq!(tier.to_string().to_uppercase().parse(), Ok(tier));
        }

        #[test]
        fn any_text_is_read_without_harm(text: String) {
            let _ = text.parse::<Tier>();
        }
    }
}
