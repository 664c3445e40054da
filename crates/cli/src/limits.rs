//! How much of the machine the options let a mount take.
//!
//! A tier stands for processors and memory together; each of them can be given by itself, and wins.

use penstock_stream::{ResourceLimits, Tier};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    memory,
    options::{Values, table},
};

/// Requests under way at once, however many processors there are: each takes a connection.
const REQUESTS_MAX: usize = 4096;

pub(crate) fn tier(values: &Values) -> Option<ResourceLimits> {
    let tier: Tier = values.choice(&table::TIER).parse().ok()?;
    Some(tier.limits())
}

/// How many processors the volume may use, if there is a limit.
pub(crate) fn processors(values: &Values) -> Option<usize> {
    let given = values.count(&table::CPUS).map(|count| count as usize);
    given.or(tier(values).map(|limits| limits.worker_threads))
}

/// How many requests to the store may be under way at once, if processors are limited.
pub(crate) fn requests(values: &Values) -> Option<usize> {
    let requests = processors(values).map(ResourceLimits::requests_of)?;
    Some(requests.min(REQUESTS_MAX))
}

/// The memory of the volume's buffers and caches.
pub(crate) fn memory(values: &Values) -> u64 {
    let given = values.size(&table::MEMORY);
    let given = given.or(tier(values).map(|limits| limits.memory_budget));
    given.unwrap_or_else(memory::default_budget)
}

/// The processors and the memory that the kernel is asked to enforce, if there is a limit of
/// either.
pub(crate) fn enforced(values: &Values) -> Option<ResourceLimits> {
    let tier = tier(values);
    let free_memory = values.origin(&table::MEMORY).is_some();
    if tier.is_none() && !free_memory && values.origin(&table::CPUS).is_none() {
        return None;
    }
    let limits = tier.unwrap_or(ResourceLimits::NONE);
    let processors = processors(values).and_then(|count| u32::try_from(count).ok());
    Some(ResourceLimits {
        processors: processors.unwrap_or(limits.processors),
        memory: match free_memory {
            true => ResourceLimits::memory_around(memory(values)),
            false => limits.memory,
        },
        ..limits
    })
}

/// Lets the process open as many files as it may at most, and returns how many; `None` for any number. The limit that
/// processes begin with is for programs that call select(2).
pub(crate) fn raised_descriptor_limit() -> Option<u64> {
    let begun = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: begun.maximum,
        ..begun
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        Err(_) => begun.current,
    }
}

#[cfg(test)]
mod tests {
    use penstock_base::GIB;

    use super::*;
    use crate::options::{Scope, mount_words};

    fn values(words: &str) -> Values {
        Values::resolve(mount_words::given(words, Scope::Stream).expect("known")).expect("valid")
    }

    #[test]
    fn free_settings_win_over_a_tier() {
        let values = values("tier=2c4g,cpus=1,memory=1GiB");
        assert_eq!((processors(&values), memory(&values)), (Some(1), GIB));
        let limits = enforced(&values).expect("limited");
        assert_eq!((limits.processors, limits.memory), (1, GIB + GIB / 3));
        let none = Values::resolve(Vec::new()).expect("valid");
        assert_eq!((processors(&none), enforced(&none)), (None, None));
    }

    #[test]
    fn each_free_setting_is_enforced() {
        let small = enforced(&values("memory=256MiB")).expect("limited");
        assert_eq!(small.memory, (256 << 20) * 4 / 3);
        assert_eq!(small.processors, ResourceLimits::NONE.processors);
        let one = enforced(&values("cpus=1")).expect("limited");
        assert_eq!(
            (one.processors, one.memory),
            (1, ResourceLimits::NONE.memory)
        );
    }

    #[test]
    fn requests_in_flight_follow_the_processors() {
        assert_eq!(requests(&values("tier=8c16g")), Some(512));
        assert_eq!(requests(&values("tier=8c16g,cpus=1")), Some(64));
        assert_eq!(requests(&values("cpus=1000")), Some(REQUESTS_MAX));
        assert_eq!(requests(&values("memory=1GiB")), None);
    }
}
