//! Chance, from one place.
//!
//! Used for jitter and for names that must not collide; never for cryptography.

#![allow(clippy::disallowed_methods)]

use std::hash::{BuildHasher, RandomState};

/// A random 64-bit number.
pub fn number() -> u64 {
    fastrand::u64(..)
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
