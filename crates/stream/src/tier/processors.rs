//! A limit of processors that a process keeps by itself.
//!
//! The threads of the process are kept to so many processors, which the kernel then never exceeds.
//! Which ones they are is left to chance, so that several volumes do not meet on the same.

use std::{collections::BTreeSet, fs, io};

use penstock_base::random;
use rustix::{
    io::Errno,
    thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity},
};

/// The threads of this process.
const THREADS: &str = "/proc/self/task";

/// Looks at the threads until nobody is new; each look that finds one is followed by another.
const LOOKS_MAX: usize = 8;

/// Keeps all threads of this process, also those to come, to `count` of the processors that it
/// may use; says whether it had more.
pub fn keep_to_processors(count: u32) -> io::Result<bool> {
    let allowed = sched_getaffinity(None)?;
    let Some(chosen) = choose(&allowed, count.max(1), random::number()) else {
        return Ok(false);
    };
    let mut done = BTreeSet::new();
    for _ in 0..LOOKS_MAX {
        let before = done.len();
        for thread in threads()? {
            if done.insert(thread) {
                keep(thread, &chosen)?;
            }
        }
        // A thread that begins later has what the one has that began it.
        if done.len() == before {
            break;
        }
    }
    Ok(true)
}

/// So many of the allowed processors, beginning anywhere; none where there are no more than that.
fn choose(allowed: &CpuSet, count: u32, chance: u64) -> Option<CpuSet> {
    let numbers: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|number| allowed.is_set(*number))
        .collect();
    let count = count as usize;
    if numbers.len() <= count {
        return None;
    }
    let first = (chance % numbers.len() as u64) as usize;
    let mut chosen = CpuSet::new();
    for number in numbers.iter().cycle().skip(first).take(count) {
        chosen.set(*number);
    }
    Some(chosen)
}

fn threads() -> io::Result<Vec<i32>> {
    let entries = fs::read_dir(THREADS)?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

fn keep(thread: i32, chosen: &CpuSet) -> io::Result<()> {
    match sched_setaffinity(Pid::from_raw(thread), chosen) {
        // It has ended.
        Err(Errno::SRCH) => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: impl IntoIterator<Item = usize>) -> CpuSet {
        let mut set = CpuSet::new();
        numbers.into_iter().for_each(|number| set.set(number));
        set
    }

    #[test]
    fn processors_are_chosen_among_those_that_are_allowed() {
        let allowed = set([1, 4, 5, 900]);
        for chance in 0..50 {
            for count in 1..4 {
                let chosen = choose(&allowed, count, chance).expect("there are more");
                assert_eq!(chosen.count(), count);
                assert!((0..CpuSet::MAX_CPU).all(|n| !chosen.is_set(n) || allowed.is_set(n)));
            }
            assert!(choose(&allowed, 4, chance).is_none());
            assert!(choose(&allowed, 5, chance).is_none());
        }
        let firsts = (0..4).map(|chance| choose(&allowed, 1, chance).expect("one"));
        let all = firsts.fold(CpuSet::new(), |all, one| {
            set((0..CpuSet::MAX_CPU).filter(|n| all.is_set(*n) || one.is_set(*n)))
        });
        assert_eq!(all, allowed, "each is somebody's first");
    }
}
