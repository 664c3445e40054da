//! Trees of a volume, for tools that run by threads: what [`local`](crate::local) is for files of this machine.
//!
//! Everything is named by one name in a directory that is held, so that nobody leads a tool out of the tree. Calls
//! block: each waits on its own thread until the volume has answered, which works on the threads of a runtime. So a
//! call must not come from a thread of that runtime, and the runtime must have threads of its own.

mod directory;
mod errors;
mod file;
mod node;

use std::{fmt, future::Future, io, sync::Arc};

use penstock_base::{FsError, FsResult};
use penstock_vfs::{Features, Identity, Inode, Volume};
use tokio::runtime::Handle;

pub use directory::{VolumeDirectory, VolumeEntry, VolumeListing};
pub use errors::{errno_of, io_error};
pub use file::VolumeFile;
pub use node::VolumeNode;

/// A volume without a door, on behalf of one user.
#[derive(Clone)]
pub struct VolumeTree {
    volume: Arc<dyn Volume>,
    by: Identity,
    runtime: Handle,
}

impl VolumeTree {
    /// The tree of `volume` as `by` sees it. The threads of `runtime` do what its calls ask for.
    pub fn new(volume: Arc<dyn Volume>, by: Identity, runtime: Handle) -> Self {
        Self {
            volume,
            by,
            runtime,
        }
    }

    /// The root directory.
    pub fn root(&self) -> io::Result<Arc<VolumeDirectory>> {
        let entry = self.wait(self.volume.hold(&self.by, Inode::ROOT))?;
        VolumeDirectory::of(VolumeNode::holding(self, entry.attributes))
    }

    /// What the volume can do.
    pub fn features(&self) -> Features {
        self.volume.features()
    }

    /// A number that tells its volume from others that are open in this process.
    pub fn id(&self) -> u64 {
        Arc::as_ptr(&self.volume).cast::<()>().addr() as u64
    }

    /// Makes everything durable, at the end. Returns the paths of what could not be saved, with the reason for each.
    pub fn shut_down(&self) -> Vec<(String, FsError)> {
        self.runtime.block_on(self.volume.shut_down())
    }

    /// Waits for an answer of the volume.
    fn wait<T>(&self, answer: impl Future<Output = FsResult<T>>) -> io::Result<T> {
        self.runtime.block_on(answer).map_err(io_error)
    }
}

impl fmt::Debug for VolumeTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeTree").field("by", &self.by).finish()
    }
}

#[cfg(test)]
mod tests;
