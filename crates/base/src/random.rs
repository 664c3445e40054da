//! Chance, from one place.
//!
//! Used for jitter and for names that must not collide; never for cryptography.

#![allow(clippy::disallowed_methods)]

use std::hash::{BuildHasher, RandomState};

/// A random 64-bit number.
pub fn number() -> u64 {
    fastrand::u64(..)
}

/// Lets all numbers but secret ones that this thread asks for from now on follow from `seed`: a simulation runs again as
/// it ran.
pub fn seed(seed: u64) {
    fastrand::seed(seed);
}

/// A random 64-bit number that nobody outside this process can guess, as far as the system has such.
pub fn secret() -> u64 {
    // Keyed by the system, each time with another key.
    RandomState::new().hash_one(number())
}

/// A random fraction in `0.0..1.0`.
pub fn fraction() -> f64 {
    fastrand::f64()
}

/// Sixteen random hexadecimal digits, for names that must not collide.
pub fn token() -> String {
    format!("{:016x}", number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_sequence() {
        let drawn = |from| {
            seed(from);
            (number(), token(), fraction())
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }
}
