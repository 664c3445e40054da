//! The FUSE door: a [`penstock_vfs::Volume`] behind a kernel mount.
//!
//! The session layer is our own, because the ready-made ones cannot send a reply from slices,
//! from any thread, or leave a request to be answered later without keeping a thread for it.
//! From the wire inwards:
//!
//! - [`protocol`]: bytes to requests, replies to bytes.
//! - `transport`: receives requests on a few threads and sends replies from any.
//! - `session`: polls each request's future once and makes a task of it if it has to wait;
//!   interrupts, panics, limits, counters.
//! - `adapter`: requests as calls of a `Volume`; `errno` as the one table of errors.
//! - `mount`: the mount itself, by `mount(2)` or `fusermount3`.
//!
//! A byte that is read is copied once, by the kernel, from where the volume has it. A byte that
//! is written is copied once, by the kernel, into a page-aligned block of the buffer pool, which
//! the volume then owns.

mod adapter;
pub mod errno;
mod mount;
mod negotiate;
mod notify;
pub mod protocol;
mod session;
mod settings;
mod signals;
mod system;
mod transport;

pub use mount::{
    Answer, ConnectionAbort, MountError, UnmountError, UnmountMode, answer, bind,
    check_mount_point, cut_held_by, cut_silent, remove_dead_mounts, unmount,
};
pub use negotiate::Negotiated;
pub use notify::Notifier;
pub use session::{Session, THREADS_MAX, THREADS_MIN, Unsaved};
pub use settings::{FuseSettings, InterruptPolicy, MAX_BACKGROUND, READ_AHEAD_KIB};
pub use system::save;
