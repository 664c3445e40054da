//! A mounted volume.
//!
//! ```text
//! kernel -> transport thread -> Dispatcher -> Adapter -> Volume
//!              ^                    |  polled once on the thread:
//!              |                    +- ready: the reply is written right there
//!              |                    +- not ready: goes on as a task of the runtime,
//!              +------ reply <---------- which writes the reply itself
//! ```
//!
//! So there is no thread per request: what is answered from memory costs no hand-over, and what
//! waits for the network costs a task. Tasks stand in a table ([`pending`]) where INTERRUPT finds
//! them. The threads wait for nothing but the kernel, neither for memory nor for a place in the
//! table: who waits does not hear who wants to die. A panic costs one request (`EIO`), never the mount.

mod call;
mod dispatch;
mod guarded;
mod metrics;
mod pending;
mod start;

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
    time::Duration,
};

use penstock_base::{BufferPool, FsError, clock, metrics::Registry};
use penstock_vfs::Volume;
use tokio::{
    runtime::Handle,
    sync::{OnceCell, watch},
};
use tracing::{error, info, warn};

use crate::{
    ConnectionAbort, FuseSettings, MountError, Negotiated, Notifier, UnmountError, UnmountMode,
    mount::Mount, protocol::Capabilities, transport::WeakDevFuse,
};

pub use start::{THREADS_MAX, THREADS_MIN};

/// How long requests under way may go on after the mount is gone.
const DRAIN_MAX: Duration = Duration::from_secs(60);

/// Files that could not be saved, with the reason for each.
pub type Unsaved = Vec<(String, FsError)>;

/// A mounted volume. Dropping it takes the mount out of the file tree, lazily.
#[derive(Debug)]
pub struct Session {
    mount: Arc<Mount>,
    shared: Arc<dispatch::Shared>,
    negotiated: Negotiated,
    notifier: Notifier,
    device: WeakDevFuse,
    /// Becomes true when the kernel is done with the mount.
    ended: watch::Receiver<bool>,
    unsaved: OnceCell<Unsaved>,
}

impl Session {
    /// Mounts `volume`; returns when the mount can be used.
    ///
    /// `pool` pays for receive buffers, `metrics` gets the counters of requests, and requests
    /// that wait go on as tasks of `runtime`.
    pub async fn mount(
        volume: Arc<dyn Volume>,
        settings: FuseSettings,
        pool: Arc<BufferPool>,
        metrics: Arc<Registry>,
        runtime: Handle,
    ) -> Result<Self, MountError> {
        let start = start::Start {
            volume,
            settings,
            pool,
            metrics,
            runtime: runtime.clone(),
        };
        let started = runtime.spawn_blocking(move || start.run()).await;
        attached(started.map_err(|error| MountError::Negotiation(error.to_string()))?)
    }

    /// Goes on with a mount that another process began, which died, on the connection that
    /// [`Session::connection`] gave out. The mount must be out of the file tree, and the volume
    /// must give the same files the same numbers. What the other process had taken and not
    /// answered is asked for again, so nobody who waits notices more than a pause.
    pub async fn resume(
        volume: Arc<dyn Volume>,
        settings: FuseSettings,
        connection: OwnedFd,
        memory: (Arc<BufferPool>, Arc<Registry>),
    ) -> Result<Self, MountError> {
        let (pool, metrics) = memory;
        let runtime = Handle::current();
        let start = start::Start {
            volume,
            settings,
            pool,
            metrics,
            runtime: runtime.clone(),
        };
        let take_over = start::TakeOver { start, connection };
        let started = runtime.spawn_blocking(move || take_over.run()).await;
        attached(started.map_err(|error| MountError::Negotiation(error.to_string()))?)
    }

    /// The connection to the kernel, for a process that keeps it: as long as somebody has it open,
    /// requests wait when this process dies, until [`Session::resume`] takes them. None where the
    /// settings do not ask for that, or where the kernel cannot send requests again, which would
    /// then wait for ever.
    pub fn connection(&self) -> Option<OwnedFd> {
        let granted = self.negotiated.granted;
        if !granted.contains(Capabilities::HAS_RESEND) {
            return None;
        }
        let device = self.device.upgrade()?;
        device.device().as_fd().try_clone_to_owned().ok()
    }

    /// The mount point, absolute.
    pub fn mount_point(&self) -> &Path {
        self.mount.place()
    }

    /// What cuts the connection to the kernel, for a process that outlives this one. `None` where this
    /// user may not.
    pub fn abort(&self) -> Option<&ConnectionAbort> {
        self.mount.abort()
    }

    /// What kernel and mount agreed on.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// A handle to tell the kernel of changes that it did not make.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Waits until the mount is gone, whoever took it away, then shuts the volume down. May be
    /// called more than once and dropped while it waits.
    pub async fn wait(&self) -> Unsaved {
        self.ended().await;
        self.clear_place().await;
        self.shut_down().await
    }

    /// Takes the mount out of the file tree; [`Session::wait`] then returns when it is gone.
    pub async fn unmount(&self, mode: UnmountMode) -> Result<(), UnmountError> {
        let mount = Arc::clone(&self.mount);
        let unmounted = self
            .shared
            .runtime
            .spawn_blocking(move || mount.unmount(mode))
            .await;
        unmounted.unwrap_or_else(|error| {
            let place = self.mount.place().to_path_buf();
            Err(UnmountError::Failed(place, error.to_string()))
        })
    }

    /// Leaves in an orderly way, as on SIGTERM: unmounts, lazily if files are open, gives those
    /// who use them `grace` to finish, and shuts the volume down.
    pub async fn leave(&self, grace: Duration) -> Unsaved {
        if let Err(UnmountError::Busy(place)) = self.unmount(UnmountMode::Plain).await {
            info!(place = %place.display(), "files are open, waiting for them to be closed");
            if let Err(error) = self.unmount(UnmountMode::Lazy).await {
                error!(%error, "the mount stays behind");
            }
        }
        if clock::deadline(grace, self.ended()).await.is_err() {
            warn!("files are still open, leaving without them");
        }
        self.shut_down().await
    }

    /// Whether the kernel has let go of the mount. One that is out of the file tree stays as long as
    /// programs use it.
    pub fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    async fn ended(&self) {
        let mut ended = self.ended.clone();
        // An error means that the threads are gone, which is the same.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// A connection that was cut leaves a dead mount behind.
    async fn clear_place(&self) {
        if self.unsaved.get().is_none()
            && let Err(error) = self.unmount(UnmountMode::Lazy).await
        {
            warn!(%error, "a dead mount stays behind");
        }
        self.mount.forget_place();
    }

    async fn shut_down(&self) -> Unsaved {
        let shut_down = async {
            // Who waits for one of its locks is among those who are waited for.
            self.shared.adapter.unlock_all().await;
            self.shared.pending.drain(DRAIN_MAX).await;
            self.shared.adapter.unlock_all().await;
            self.shared.adapter.volume().shut_down().await
        };
        self.unsaved.get_or_init(|| shut_down).await.clone()
    }
}

/// Makes a new session known to its volume.
fn attached(started: Result<Session, MountError>) -> Result<Session, MountError> {
    let session = started?;
    let volume = session.shared.adapter.volume();
    volume.watch(session.shared.adapter.watcher());
    Ok(session)
}
