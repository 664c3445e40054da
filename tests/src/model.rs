//! A small model of a file system, and random sequences of steps to hold a mount against it.
//!
//! The chain: proptest draws [`Action`]s, which name files and handles only by index, so that any
//! subsequence of a failing sequence still makes sense and shrinking works. The [`Model`] turns an
//! action into a [`Step`], which names them by path and slot, and says what it expects. The
//! [`Driver`] does the same step on a real directory. [`compare`] does both and stops at the first
//! difference; [`check`] lets proptest find and shrink one.
//!
//! The model knows two sets of [`Rules`]: those of POSIX, against which any local file system can
//! be held (that is how the chain itself is tested), and those of a streaming mount, which are
//! POSIX where a bucket allows it and documented errors where not.

mod action;
mod check;
mod driver;
mod files;
mod names;
mod state;
mod step;

#[cfg(test)]
mod tests;

pub use action::{Action, Place, Planted, Position, Sequence, sequences};
pub use check::{Difference, Settings, check, compare, counterexample};
pub use driver::Driver;
pub use state::{Model, Rules};
pub use step::{Access, Content, Expected, OpenMode, Outcome, Slot, Step};
