//! Mixed load on a mount while faults come and go, with everything compared.
//!
//! - A [`Shadow`] is a folder that one thread works in, and what each file in it may hold. After
//!   a failure that is more than one thing: the change was made, or it was not.
//! - [`read_shared`] reads files that nobody changes, front to end and at random.
//! - [`Weather`] changes what the server does wrong every few seconds.
//! - A [`Watch`] looks at the mount's process: memory, descriptors, threads, and what is under way.
//!
//! Whatever the weather: wrong bytes never, an error only of those that a store's failure may
//! become, and no operation beyond its deadline.

mod readers;
mod shadow;
mod watch;
mod weather;

use std::time::{Duration, Instant};

pub use readers::{Shared, read_shared};
pub use shadow::Shadow;
pub use watch::{Peaks, Watch};
pub use weather::Weather;

/// The longest that any single operation may last. What the mount is told ends earlier; the rest
/// is for a busy machine.
const OPERATION_MAX: Duration = Duration::from_secs(90);

/// Numbers that look random and are the same for the same seed.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// Begins at `seed`.
    pub fn new(seed: u64) -> Self {
        let mut chance = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        chance.next();
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// One of `choices`, of which there is at least one.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// Runs an operation and fails the test when it lasted longer than anything may.
#[track_caller]
fn timed<T>(what: &str, operation: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = operation();
    let took = started.elapsed();
    assert!(took < OPERATION_MAX, "{what} took {took:?}");
    result
}

/// Whether a failing store may be the cause of this error.
fn is_passing(error: crate::system::Errno) -> bool {
    matches!(error.0, libc::EIO | libc::ETIMEDOUT)
}
