//! A device that this process serves, from making it to its end.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::Arc,
};

use penstock_base::{Mutex, clock, processors, run_blocking};
use penstock_vfs::Disk;
use tokio::{runtime::Handle, task::spawn_blocking};
use tracing::warn;

use super::{
    DEPTH, LET_GO_DEADLINE, LET_GO_PAUSE, LOOK_PAUSE, QUEUES_MAX, READ_MAX,
    control::Control,
    driver::name_of,
    layout::{ANY_DEVICE, DeviceInfo, parameters},
    queue::{Queue, QueueShape},
};
use crate::{BlockError, device::DeviceName};

/// Whose a device is to be, and what the driver is to do for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) owner: u64,
    pub(super) features: u64,
}

/// A device that is served. Dropping it takes it away.
#[derive(Debug)]
pub(super) struct Served {
    control: Arc<Control>,
    device: u32,
    owner: u64,
    /// None when it was taken away.
    queues: Mutex<Option<Vec<Queue>>>,
}

impl Served {
    /// Makes a device of `disk`. Blocks until it can be read.
    pub(super) fn attach(
        control: Arc<Control>,
        disk: &Arc<dyn Disk>,
        wanted: Wanted,
        runtime: &Handle,
    ) -> Result<Self, BlockError> {
        let wanted = DeviceInfo {
            queues: processors::count().min(QUEUES_MAX) as u16,
            depth: DEPTH,
            length_max: READ_MAX,
            device: ANY_DEVICE,
            features: wanted.features,
            owner: wanted.owner,
        };
        let made = control.add(&wanted);
        let info = made.map_err(BlockError::system("the driver ublk makes no device"))?;
        let served = Self::new(control, &info);
        let parameters = parameters(disk.size(), info.length_max.min(READ_MAX));
        let set = served.control.set_parameters(info.device, &parameters);
        set.map_err(BlockError::system("the driver ublk does not take a disk"))?;
        served.serve(&info, disk, runtime)?;
        let started = served.control.start(info.device);
        started.map_err(BlockError::system("the driver ublk starts no device"))?;
        Ok(served)
    }

    /// Goes on with a device of `owner` whose process died.
    pub(super) async fn resume(
        control: Arc<Control>,
        (device, owner): (u32, u64),
        disk: Arc<dyn Disk>,
    ) -> Result<Self, BlockError> {
        let cannot = || BlockError::system("cannot go on with a device");
        let runtime = Handle::current();
        let recovering = recover(&control, device, owner);
        let info = recovering.await.map_err(cannot())?;
        let served = Self::new(control, &info);
        let recovered = spawn_blocking(move || {
            served.serve(&info, &disk, &runtime)?;
            let ended = served.control.end_recovery(device);
            ended.map(|()| served).map_err(cannot())
        });
        let recovered = recovered.await;
        recovered.unwrap_or_else(|error| Err(cannot()(io::Error::other(error))))
    }

    fn new(control: Arc<Control>, info: &DeviceInfo) -> Self {
        Self {
            control,
            device: info.device,
            owner: info.owner,
            queues: Mutex::new(Some(Vec::new())),
        }
    }

    /// Starts the queues.
    fn serve(
        &self,
        info: &DeviceInfo,
        disk: &Arc<dyn Disk>,
        runtime: &Handle,
    ) -> Result<(), BlockError> {
        let path = PathBuf::from(format!("/dev/ublkc{}", self.device));
        let node = OpenOptions::new().read(true).write(true).open(&path);
        let node = node.map_err(BlockError::system(format!(
            "cannot open {} (the nodes of new devices must appear in /dev)",
            path.display()
        )))?;
        let node = Arc::new(node);
        for number in 0..info.queues {
            let shape = QueueShape {
                number,
                depth: info.depth,
            };
            let queue = Queue::start(&node, shape, Arc::clone(disk), runtime.clone());
            let queue = queue.map_err(BlockError::system("cannot serve a device"))?;
            let mut queues = self.queues.lock();
            queues.get_or_insert_default().push(queue);
        }
        Ok(())
    }

    pub(super) fn name(&self) -> DeviceName {
        name_of(self.device)
    }

    /// Waits until nobody has it mounted, and takes it away.
    pub(super) async fn go_with_last_user(self: Arc<Self>) {
        loop {
            let this = Arc::clone(&self);
            let gone = spawn_blocking(move || this.close_if_unused()).await;
            if gone.unwrap_or(true) {
                return;
            }
            clock::sleep(LOOK_PAUSE).await;
        }
    }

    /// A device of which a queue is not served is taken away from its users, too: who reads there
    /// would wait for ever.
    fn close_if_unused(&self) -> bool {
        let name = self.name();
        match claim(&name) {
            _ if self.has_lost_a_queue() => self.take_away(None),
            // Claimed, so that nobody comes between.
            Ok(claimed) => self.take_away(Some(claimed)),
            // Somebody else stopped it.
            Err(_) if !name.exists() => self.take_away(None),
            // Busy, or this process lacks something for a moment.
            Err(_) => return false,
        }
        true
    }

    fn has_lost_a_queue(&self) -> bool {
        let queues = self.queues.lock();
        queues.iter().flatten().any(Queue::has_ended)
    }

    /// Has the first queue fail.
    #[cfg(test)]
    pub(super) fn lose_a_queue(&self) {
        let queues = self.queues.lock();
        queues.iter().flatten().take(1).for_each(Queue::fail);
    }

    /// Leaves the device as a process that is killed does.
    #[cfg(test)]
    pub(super) fn forsake(self) {
        let queues = self.queues.lock().take();
        for queue in queues.into_iter().flatten() {
            queue.end();
        }
    }

    /// Takes it away, whoever uses it: they get errors.
    pub(super) fn close(&self) {
        self.take_away(None);
    }

    fn take_away(&self, claimed: Option<File>) {
        let mut queues = self.queues.lock();
        let Some(queues) = queues.take() else {
            return;
        };
        // The driver waits for what is under way.
        for queue in &queues {
            queue.give_up();
        }
        let stopped = self.control.stop(self.device);
        drop(claimed);
        for queue in queues {
            queue.end();
        }
        let removed = stopped.and_then(|()| self.remove());
        if let Err(error) = removed
            && error.raw_os_error() != Some(libc::ENODEV)
        {
            warn!(device = self.device, %error, "a device stays behind");
        }
    }

    /// The number may be another's already, where somebody else removed the device.
    fn remove(&self) -> io::Result<()> {
        match self.control.info(self.device)?.owner == self.owner {
            true => self.control.remove(self.device),
            false => Ok(()),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.close();
    }
}

/// Opens the device for itself alone; [`io::ErrorKind::ResourceBusy`] as long as a file system
/// has it.
fn claim(name: &DeviceName) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_EXCL);
    options.open(name.node())
}

/// Has the driver prepare to go on, as soon as it has let go of the dead process.
pub(super) async fn recover(control: &Control, device: u32, owner: u64) -> io::Result<DeviceInfo> {
    let info = run_blocking(|| control.info(device))?;
    if info.owner != owner {
        return Err(io::ErrorKind::NotFound.into());
    }
    let waiting = async {
        loop {
            match run_blocking(|| control.begin_recovery(device)) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    clock::sleep(LET_GO_PAUSE).await;
                }
                // Another process had begun, and died before it served.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(()),
                outcome => return outcome,
            }
        }
    };
    let begun = clock::deadline(LET_GO_DEADLINE, waiting).await;
    begun.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(info)
}
