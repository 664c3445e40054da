//! How to add a volume, and how to add a door: one of each, as small as they can be.
//!
//! [`GeneratedVolume`] is a directory of files that are made when somebody reads them, as those of proc(5) are.
//! [`walk()`] is a door that is a command: it tells every file of a volume. Neither knows the other; both know
//! `penstock-vfs` and the nouns of `penstock-base`, which is all that a volume or a door needs.
//!
//! `tests/toys.rs` shows what checks them: the conformance suite for the volume, and volumes of two kinds for the
//! door. `cargo run -p penstock-toys --example walk` shows them at work.

mod generated;
mod walk;

pub use generated::{GeneratedVolume, Generator};
pub use walk::{Walked, walk};
