//! Several machines that have the same file system at once, on a cluster.

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub)]

#[path = "../../../fileset/tests/machines/changes.rs"]
mod changes;
#[path = "../../../fileset/tests/machines/contents.rs"]
mod contents;
#[path = "../database/mod.rs"]
mod database;
#[path = "../../../fileset/tests/machines/evictions.rs"]
mod evictions;
#[path = "../../../fileset/tests/machines/ground.rs"]
mod ground;
#[path = "../../../fileset/tests/machines/locks.rs"]
mod locks;
#[path = "../../../fileset/tests/machines/orphans.rs"]
mod orphans;
#[path = "../../../fileset/tests/support/mod.rs"]
mod support;
#[path = "../../../fileset/tests/trees/mod.rs"]
mod trees;
