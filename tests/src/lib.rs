//! What the end-to-end tests share.
//!
//! - [`model`]: a small pure model of a file system, random steps, and the comparison of what a
//!   mount answers with what the model says.
//! - [`soak`]: mixed load while faults come and go, and what is watched meanwhile.
//! - [`shortage`]: mounts that have little of everything.
//! - [`devices`]: what the kernel shows of a stream volume's block devices.
//! - [`block_driver`]: what holds over each driver for block devices that programs serve.
//! - [`stats`]: what `penstock stats` says of a mount.
//! - [`stream`]: a bucket that stream volumes are made of, and what they should show.
//! - [`files`]: files that must open and take what is written to them.
//! - [`system`]: file operations that report errno, because errno is what is compared.
//! - [`Bucket`], [`Fileset`], [`Mount`], [`NfsMount`], [`Scratch`]: a bucket, a file system, mounts and a folder that clean up after
//!   themselves, also when a test fails.
//! - [`Disk`]: a file system that can be frozen, or lose its power. [`SmallDisk`]: one that is soon full.
//! - [`Road`]: a way to a server that can be cut.
//! - [`Patience`]: waiting for a condition with a limit, in place of sleeping and hoping.
//!
//! The tests themselves lie in `tests/tests/`, one file per concern. They run the `penstock`
//! binary as a user would and know nothing of its insides.

// Tests report by panicking, and live in the ambient world.
#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used
)]

pub mod block_driver;
pub mod data;
pub mod devices;
pub mod faults;
pub mod files;
pub mod model;
pub mod shortage;
pub mod soak;
pub mod stats;
pub mod stream;
// System calls that std does not offer with their errno.
#[allow(unsafe_code)]
pub mod system;

mod binary;
mod bucket;
mod disk;
mod fileset;
mod mount;
mod nfs;
mod patience;
mod process;
mod road;
mod s3fs;
mod scratch;
mod small_disk;

pub use binary::{penstock, penstock_path};
pub use bucket::{BUCKET, Bucket, Kind};
pub use disk::{Disk, Frozen};
pub use fileset::Fileset;
pub use mount::{Mount, MountOptions, is_mounted, unmount_dead};
pub use nfs::{MountTarget, NfsMount, free_address};
pub use patience::Patience;
pub use process::{Finished, Process, run_within};
pub use road::{Road, Traffic};
pub use s3fs::S3fs;
pub use scratch::Scratch;
pub use small_disk::SmallDisk;
