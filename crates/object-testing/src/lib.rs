//! What every object store must do, as tests, and the stores that tests need.
//!
//! - [`conformance`] is the contract of [`penstock_object::Store`]: [`conformance_tests!`] makes one
//!   test of each rule for a backend or a layer.
//! - [`MemoryStore`] is the reference: a bucket in memory, with the limits of S3, of OSS, or of neither.
//! - [`Faulty`] takes the place of a bad network: it fails, delays, cuts and damages on command.
//!
//! No program that users run depends on this crate.

pub mod conformance;
mod faulty;
mod memory;

pub use faulty::{Fault, Faults, Faulty};
pub use memory::MemoryStore;
