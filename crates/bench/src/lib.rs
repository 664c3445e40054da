//! What users choose a file client by: the published tables, measured here, side by side.
//!
//! A [`record::Report`] is everything that one invocation found out. The runner fills it, one
//! [`record::Sample`] per run of a workload by a client; the writers (terminal, Markdown, JSON,
//! HTML) and `compare` only read it. JSON is the same structure, so a report that was saved can be
//! shown or compared again without the machine that it was measured on.
//!
//! The way to a sample: [`suite`] has the tables as data, [`plan`] makes rows of them, [`runner`]
//! lets the clients of the [`client`] take turns, [`sample`] prepares, mounts ([`mount`]), measures
//! ([`measure`]), waits until all is stored ([`settled`]) and checks ([`worker`]) one run. The [`watchdog`] outlives all of it and
//! cleans up. Three generators of load are part of it: [`rw_bench`] and [`md_bench`], which work on files and share the [`load`],
//! and [`nfs_load`], which speaks to a mount target.
//!
//! [`suite`]: crate::suite
//! [`plan`]: crate::plan

#![allow(rustdoc::private_intra_doc_links)]

mod client;
mod load;
mod measure;
mod mount;
mod plan;
mod proc_fs;
mod process;
mod runner;
mod sample;
mod session;
mod settings;
mod settled;
mod store;
mod suite;
// The only unsafe code here: system calls that std does not wrap.
#[allow(unsafe_code)]
mod system;
mod template;
mod tool;

pub mod compare;
pub mod md_bench;
pub mod nfs_load;
pub mod record;
pub mod report;
pub mod rw_bench;
pub mod watchdog;
pub mod worker;

pub use plan::{ClientListing, RowListing, SuiteListing, clients, suites};
pub use runner::{Event, Observer, Progress, run};
pub use settings::{
    BenchError, BenchResult, Credentials, PROFILES, RunSettings, Surroundings, Target,
};
pub use store::{ServeSettings, serve};
