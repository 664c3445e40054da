//! Parallel file tools: remove ([`remove`]), copy ([`copy`]) and tar ([`archive`]) by many threads.
//!
//! One thread cannot use a file service: each operation waits for a round trip. All three tools take a tree
//! apart into small tasks, of which a [`work::Crew`] has as many in flight as pay. Three rules hold for each:
//!
//! - **Bounded memory.** The crew takes the newest task first, so that a walk goes down before it goes on; a
//!   directory is listed a page at a time. What waits is a page for each level, not a tree.
//! - **Never out of the tree.** Whatever is named is one name below an open directory, and links are not
//!   followed. Who renames a directory into a link meanwhile changes what is found, not where.
//! - **One failure is not the end.** What fails is noted in a [`Report`], which is told at the end.
//!
//! Nothing here reads the command line or prints: a tool takes settings, a [`Report`] that may be looked at
//! meanwhile, and a [`Stop`] that ends it.

pub mod accounts;
pub mod archive;
pub mod copy;
pub mod direct;
mod local;
mod patterns;
pub mod remove;
mod report;
mod survey;
mod tree;
pub mod volume;
mod work;

pub use local::flush;
pub use patterns::Patterns;
pub use report::{Report, Summary};
pub use survey::Survey;
pub use work::{Stop, THREADS_MAX, Threads};
