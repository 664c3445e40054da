//! The block door: a volume's disks as block devices of the kernel, with the file system on them
//! mounted.
//!
//! A volume that is a disk implements [`penstock_vfs::Disk`]. From there to a mount:
//!
//! ```text
//! disks -> Transport -> block devices --+-- mount(2), read-only --> mount point
//! image (a local file) -> loop device --+
//! ```
//!
//! - [`transport`]: disks as block devices; which ways there are and which this kernel has.
//! - `loops`: the way that every kernel has: loop devices in direct-io mode on the files of a
//!   private FUSE mount.
//! - `nbd`: network block devices, served over sockets, where the kernel has the driver.
//! - `ublk`: block devices that are served through io_uring, where the kernel has the driver.
//! - [`volume`]: attach, mount, wait, unmount, detach.
//! - [`journal`]: what a volume holds of the kernel, written down before it is taken.
//! - [`leftovers`]: finds what a process that was killed left behind, and takes it away.
//!
//! Nothing here needs a process of its own to be cleaned up after: devices go with their last
//! user, the private mount is out of the file tree before anybody reads. So whoever unmounts, be it
//! `penstock umount` or `umount`, takes everything away, and after `kill -9` all that stays is the
//! mount itself, and devices of `ublk`.
//!
//! `PR_SET_IO_FLUSHER` is for daemons that the kernel's writing waits for. These disks are
//! read-only: no memory of the kernel can be freed by writing to them, so no allocation of the
//! daemon ever waits for the daemon, and it is not set.

mod device;
mod disk_files;
mod error;
mod joined;
mod loops;
mod mount;
mod nbd;
mod place;
mod reading;
// The only unsafe code here: a few ioctls.
#[allow(unsafe_code)]
mod system;
mod tags;
mod ublk;

pub mod journal;
pub mod leftovers;
pub mod transport;
pub mod volume;

pub use error::BlockError;
pub use joined::JoinedDisk;
pub use journal::{DeviceRecord, Record, StateDirectory};
pub use leftovers::{Cleaned, clean, clean_at, dead_volumes, volumes};
pub use mount::FileSystem;
pub use tags::tagged_devices;
pub use transport::{Availability, TransportKind, available};
pub use volume::{BlockSettings, BlockVolume, Contents, Keepsake};
