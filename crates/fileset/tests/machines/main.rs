//! Several machines that have the same file system at once: what each sees of what the others do, and that none spoils
//! what another one did.

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub)]

mod changes;
mod compression;
mod contents;
mod copies;
#[path = "../database/mod.rs"]
mod database;
mod evictions;
mod ground;
mod locks;
mod model;
mod orphans;
mod register;
mod schedule;
mod strict;
#[path = "../support/mod.rs"]
mod support;
mod trash;
#[path = "../trees/mod.rs"]
mod trees;
