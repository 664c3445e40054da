//! Chance, from one place.
//!
//! Used for jitter and for names that must not collide; never for cryptography.

#![allow(clippy::disallowed_methods)]

/// A random 64-bit number.
pub fn number() -> u64 {
    fastrand::u64(..)
}

/// A random fraction in `0.0..1.0`.
pub fn fraction() -> f64 {
    fastrand::f64()
}

/// Sixteen random hexadecimal digits, for names that must not collide.
pub fn token() -> String {
    format!("{:016x}", number())
}
