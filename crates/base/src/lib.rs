//! The vocabulary that every Penstock crate shares, and the only doors to the ambient world.
//!
//! - [`FsError`]: what a file operation can fail with, free of any protocol's numbers.
//! - [`FileName`], [`ByteSize`], [`Secret`]: values that cannot be made wrongly or leaked.
//! - [`MemoryBudget`]: the one account from which every buffer and cache draws.
//! - [`BufferPool`]: memory for bytes in flight, filled once and read where it lies.
//! - [`Payload`]: bytes in reference-counted slices, never joined on their way.
//! - [`Checksum`]: made while bytes are in the processor's cache, carried with them.
//! - [`metrics`]: counters that a component owns and an exporter reads.
//! - [`LocalFile`]: an open file that stands in for an object.
//! - [`Mutex`]: a lock that a panic does not spoil.
//! - [`InMemory`]: a lock under which no thread waits for a disk.
//! - [`DirectoryLock`]: a directory that one process uses at a time.
//! - [`make_own_directory`]: a directory that nobody else can have prepared.
//! - [`Mailbox`]: what many threads have ready for one that sleeps in the kernel.
//! - [`mount_table`]: what is mounted where, from the kernel's text.
//! - [`text`]: text and tables for a terminal.
//! - [`user_id`], [`group_id`], [`is_root`]: who runs this process.
//! - [`processors`]: how many there are, or a test says that there are.
//! - [`clock`], [`random`]: time and chance. Nothing else may ask the system for them
//!   (clippy.toml enforces it), which keeps tests able to stop the clock.
//!
//! Beside that lock, private directories and the bell of a mailbox, this crate does no I/O.

mod blocking;
mod boot;
mod budget;
mod checksum;
mod directory_lock;
mod error;
#[allow(unsafe_code)]
mod heap;
mod in_memory;
mod kept_free;
mod local_file;
mod mailbox;
mod mutex;
mod name;
mod payload;
// Beside the allocator the only unsafe code here: memory that is filled once and shared meanwhile.
#[allow(unsafe_code)]
mod pool;
mod private_directory;
mod secret;
mod size;
mod user;

pub mod clock;
pub mod metrics;
pub mod mount_table;
pub mod processors;
pub mod random;
pub mod text;

pub use blocking::run_blocking;
pub use boot::boot_id;
pub use budget::{MemoryBudget, Reclaim, Reservation};
pub use checksum::{Checksum, ChecksumKind, Summing};
pub use directory_lock::{DirectoryLock, DirectoryLockError};
pub use error::{FsError, FsResult};
pub use heap::give_back_freed;
pub use in_memory::{InMemory, disk_call};
pub use kept_free::kept_free;
pub use local_file::LocalFile;
pub use mailbox::Mailbox;
pub use mutex::Mutex;
pub use name::{FileName, NAME_LENGTH_MAX, NameError, Utf8Name};
pub use payload::Payload;
pub use pool::{BLOCK_SIZE, Buffer, BufferPool, BufferView, BufferWriter, HEAP_BUFFER_MAX};
pub use private_directory::{
    find_own_directory, make_named_directory, make_own_directory, make_private_directory,
};
pub use secret::Secret;
pub use size::{ByteSize, GIB, KIB, MIB, ParseSizeError};
pub use user::{group_id, is_root, user_id};
