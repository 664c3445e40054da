//! The trash: what docs/semantics/fileset.md says of it, on each engine.

#![allow(clippy::unwrap_used, unreachable_pub, dead_code, unused_imports)]

#[path = "../database/mod.rs"]
mod database;
#[path = "../quotas/ground.rs"]
mod ground;
#[path = "../support/mod.rs"]
mod support;
#[path = "../trees/mod.rs"]
mod trees;

mod bins;
mod cost;
mod emptying;
mod keeping;
mod posix;
mod quotas;
mod repairing;
mod restoring;
