//! Several machines that have the same keys of a cluster at once.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    unreachable_pub
)]

#[path = "../database/mod.rs"]
mod database;
#[path = "../../../fileset/tests/sessions/ground.rs"]
mod ground;
#[path = "../../../fileset/tests/sessions/histories.rs"]
mod histories;
#[path = "../../../fileset/tests/keys/mod.rs"]
mod keys;
#[path = "../../../fileset/tests/sessions/together.rs"]
mod together;
