//! What every engine must do, what every volume must do and what several machines see of each other, on one cluster that all
//! of these tests share.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    unreachable_pub
)]

#[path = "../../../fileset/tests/machines/changes.rs"]
mod changes;
mod conformance;
#[path = "../../../fileset/tests/machines/contents.rs"]
mod contents;
#[path = "../database/mod.rs"]
mod database;
mod engines;
#[path = "../../../fileset/tests/machines/evictions.rs"]
mod evictions;
#[path = "../../../fileset/tests/machines/ground.rs"]
mod ground;
#[path = "../../../fileset/tests/sessions/histories.rs"]
mod histories;
#[path = "../../../fileset/tests/keys/mod.rs"]
mod keys;
#[path = "../../../fileset/tests/machines/locks.rs"]
mod locks;
#[path = "../../../fileset/tests/machines/orphans.rs"]
mod orphans;
#[path = "../../../fileset/tests/sessions/several.rs"]
mod several;
#[path = "../../../fileset/tests/suite/mod.rs"]
mod suite;
#[path = "../../../fileset/tests/support/mod.rs"]
mod support;
#[path = "../../../fileset/tests/sessions/together.rs"]
mod together;
#[path = "../../../fileset/tests/trees/mod.rs"]
mod trees;
