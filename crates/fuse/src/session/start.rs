//! From settings to a mount that can be used.

use std::{
    fs,
    num::NonZeroUsize,
    os::fd::OwnedFd,
    sync::{Arc, Weak},
    thread,
};

use penstock_base::{BLOCK_SIZE, BufferPool, metrics::Registry};
use penstock_vfs::Volume;
use tokio::{runtime::Handle, sync::watch};
use tracing::{debug, error, info};

use super::{
    Session,
    dispatch::{Dispatcher, Shared},
};
use crate::{
    FuseSettings, MountError, Negotiated, Notifier,
    adapter::{Adapter, KernelDoes, LocalFiles},
    mount::Mount,
    negotiate::Ready,
    notify,
    transport::{DevFuse, ReceiveReserve, SharedDevFuse},
};

/// The fewest threads that receive requests, unless fewer are asked for.
pub const THREADS_MIN: usize = 4;
/// The most threads that receive requests by default: each holds a buffer of one mebibyte.
pub const THREADS_MAX: usize = 16;
/// The part of the memory that those buffers may take by default: one in this many.
const THREADS_SHARE: u64 = 16;

/// Everything that a mount is made from.
pub(super) struct Start {
    pub(super) volume: Arc<dyn Volume>,
    pub(super) settings: FuseSettings,
    pub(super) pool: Arc<BufferPool>,
    pub(super) metrics: Arc<Registry>,
    pub(super) runtime: Handle,
}

/// Everything that a mount is taken over with.
pub(super) struct TakeOver {
    pub(super) start: Start,
    pub(super) connection: OwnedFd,
}

impl TakeOver {
    /// Serves a mount that a dead process began.
    pub(super) fn run(self) -> Result<Session, MountError> {
        let threads = self.start.threads();
        let reserve = self.start.reserve(threads)?;
        let device = DevFuse::new(self.connection, Arc::new(reserve));
        let device = Arc::new(device);
        let mount = Arc::new(Mount::taken_over());
        let negotiated = Negotiated::resumed(&self.start.settings, threads);
        let notifier = Notifier::start(&device, negotiated.expires_names());
        let notifier = notifier.map_err(MountError::Thread)?;
        let kernel = (KernelDoes::default(), notifier.clone());
        let shared = self.start.shared(&mount, kernel);
        let ended = start_threads(&device, threads, &shared, &mount)?;
        notify::ask_again(&device).map_err(MountError::System)?;
        info!(threads, "took a mount over");
        Ok(Session {
            mount,
            shared,
            negotiated,
            notifier,
            device: Arc::downgrade(&device),
            ended,
            unsaved: tokio::sync::OnceCell::new(),
        })
    }
}

/// Ends the mount when a thread stops receiving requests while it lasts: programs would wait for ever
/// for what the kernel keeps for that thread.
struct Lifeline(Weak<Mount>);

impl Lifeline {
    /// The mount is gone.
    fn release(mut self) {
        self.0 = Weak::new();
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        if let Some(mount) = self.0.upgrade() {
            error!(place = %mount.place().display(), "the mount ends: it cannot hear the kernel");
            mount.cut();
        }
    }
}

/// Tells of the end when the last thread drops it.
struct EndSignal(watch::Sender<bool>);

impl Drop for EndSignal {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl Start {
    /// Mounts. Blocks while kernel and helper work.
    pub(super) fn run(mut self) -> Result<Session, MountError> {
        let threads = self.threads();
        let reserve = self.reserve(threads)?;
        self.settings
            .bound_background(|wanted| reserve.background_max(wanted));
        let (mount, connection) = Mount::new(&self.settings)?;
        let mount = Arc::new(mount);
        let device = Arc::new(DevFuse::new(connection, Arc::new(reserve)));
        let features = self.volume.features();
        let ready = Ready {
            threads,
            locks: self.volume.locks().is_some(),
            access_lists: features.access_lists,
            changes_elsewhere: features.changes_elsewhere,
        };
        let mut negotiated = self.negotiate(&device, ready)?;
        let kernel = KernelDoes {
            local_files: negotiated
                .reads_local_files()
                .then(|| LocalFiles::new(&device)),
            gathers_writes: negotiated.gathers_writes(),
        };
        let notifier = Notifier::start(&device, negotiated.expires_names());
        let notifier = notifier.map_err(MountError::Thread)?;
        let shared = self.shared(&mount, (kernel, notifier.clone()));
        let ended = start_threads(&device, threads, &shared, &mount)?;
        negotiated.read_ahead_kib = set_read_ahead(&mount, self.settings.read_ahead_kib);
        info!(place = %mount.place().display(), threads, "mounted");
        Ok(Session {
            mount,
            shared,
            negotiated,
            notifier,
            device: Arc::downgrade(&device),
            ended,
            unsaved: tokio::sync::OnceCell::new(),
        })
    }

    fn threads(&self) -> usize {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        thread_count(self.settings.threads, cores, self.pool.budget().total())
    }

    fn reserve(&self, threads: usize) -> Result<ReceiveReserve, MountError> {
        let reserve = ReceiveReserve::new(&self.pool, threads, &self.metrics);
        let reserve = reserve.ok_or_else(|| {
            let total = self.pool.budget().total();
            MountError::Memory(ReceiveReserve::size(threads, total))
        })?;
        match &self.settings.spill_directory {
            Some(directory) => reserve
                .spilling_to(directory)
                .map_err(|error| MountError::Spill(directory.clone(), error)),
            None => Ok(reserve),
        }
    }

    fn negotiate(&self, device: &DevFuse, ready: Ready) -> Result<Negotiated, MountError> {
        let mut agreed = None;
        let answered = device.negotiate(|offer| {
            let negotiated = Negotiated::new(offer, &self.settings, ready);
            let reply = negotiated.reply(offer);
            agreed = Some(negotiated);
            reply
        });
        answered.map_err(|error| MountError::Negotiation(error.to_string()))?;
        agreed.ok_or_else(|| MountError::Negotiation("no INIT came".into()))
    }

    fn shared(&self, mount: &Mount, kernel: (KernelDoes, Notifier)) -> Arc<Shared> {
        Shared::new(
            Adapter::new(Arc::clone(&self.volume), mount.id(), kernel),
            &self.metrics,
            self.runtime.clone(),
            self.settings.interrupts,
        )
    }
}

/// How many threads receive requests: as many as were asked for, or two per core as far as memory goes.
fn thread_count(asked: Option<NonZeroUsize>, cores: usize, memory: u64) -> usize {
    let blocks = usize::try_from(memory / THREADS_SHARE / BLOCK_SIZE as u64).unwrap_or(usize::MAX);
    let affordable = blocks.clamp(THREADS_MIN, THREADS_MAX);
    asked.map_or(
        (2 * cores).clamp(THREADS_MIN, affordable),
        NonZeroUsize::get,
    )
}

fn start_threads(
    device: &SharedDevFuse,
    threads: usize,
    shared: &Arc<Shared>,
    mount: &Arc<Mount>,
) -> Result<watch::Receiver<bool>, MountError> {
    let (sender, ended) = watch::channel(false);
    let signal = Arc::new(EndSignal(sender));
    for thread in 0..threads {
        let dispatcher = Dispatcher::new(Arc::clone(shared), Arc::clone(device));
        let (device, signal) = (Arc::clone(device), Arc::clone(&signal));
        let (runtime, lifeline) = (shared.runtime.clone(), Lifeline(Arc::downgrade(mount)));
        thread::Builder::new()
            .name(format!("fuse-{thread}"))
            .spawn(move || {
                let _entered = runtime.enter();
                match device.serve(&dispatcher) {
                    Ok(()) => lifeline.release(),
                    Err(error) => error!(thread, %error, "cannot receive requests"),
                }
                drop(signal);
            })
            .map_err(MountError::Thread)?;
    }
    Ok(ended)
}

/// Raises what the kernel reads ahead, if we may; INIT cannot.
fn set_read_ahead(mount: &Mount, kib: u32) -> Option<u32> {
    if kib == 0 {
        return None;
    }
    let file = mount.backing_device().join("read_ahead_kb");
    match fs::write(&file, kib.to_string()) {
        Ok(()) => Some(kib),
        Err(error) => {
            debug!(file = %file.display(), %error, "read-ahead stays as the kernel has it");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::MIB;

    #[test]
    fn threads_are_as_many_as_cores_and_memory_allow() {
        let threads = |cores, mib| thread_count(None, cores, mib * MIB);
        let by_cores = [1, 2, 4, 16, 64].map(|cores| threads(cores, 512));
        assert_eq!(by_cores, [4, 4, 8, 16, 16]);
        let short = [1, 2, 4, 16, 64].map(|cores| threads(cores, 64));
        assert_eq!(short, [4; 5], "a sixteenth of the memory");
        assert_eq!(thread_count(NonZeroUsize::new(40), 2, 64 * MIB), 40);
    }
}
