//! Quotas: what docs/semantics/fileset.md says of them, on each engine and on two machines at once.

#![allow(clippy::unwrap_used, unreachable_pub)]

#[path = "../database/mod.rs"]
mod database;
#[path = "../support/mod.rs"]
mod support;

mod counting;
mod directories;
mod ground;
mod limits;
mod machines;
mod random;
