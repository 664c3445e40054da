//! Disks as devices of the driver ublk.

use std::{fmt, io, os::fd::OwnedFd, sync::Arc};

use async_trait::async_trait;
use penstock_base::run_blocking;
use penstock_vfs::Disk;
use tokio::{
    runtime::Handle,
    sync::watch,
    task::{JoinSet, spawn_blocking},
};

use super::{
    control::Control,
    driver::{NEEDED, number_of},
    layout::feature::{RECOVERY, RECOVERY_REISSUE},
    owner,
    served::{Served, Wanted},
};
use crate::{
    BlockError,
    device::DeviceName,
    transport::{Attachment, Resume, Transport},
};

/// What the driver must do so that readers outlive a program.
const RECOVERABLE: u64 = RECOVERY | RECOVERY_REISSUE;

/// Attaches disks as devices of the driver ublk.
pub(crate) struct UblkTransport {
    /// Another process keeps what is needed to go on.
    pub(crate) kept: bool,
}

#[async_trait]
impl Transport for UblkTransport {
    async fn attach(
        &self,
        disks: Vec<Arc<dyn Disk>>,
        tag: &str,
    ) -> Result<Box<dyn Attachment>, BlockError> {
        let control = Control::open().map_err(BlockError::system(NO_DRIVER))?;
        let features = run_blocking(|| control.features());
        let features = features.map_err(BlockError::system(NO_DRIVER))?;
        let survives = self.kept && features & RECOVERABLE == RECOVERABLE;
        let wanted = Wanted {
            owner: owner_of(tag)?,
            features: if survives {
                NEEDED | RECOVERABLE
            } else {
                NEEDED
            },
        };
        let mut devices = Devices::over(control, survives);
        for disk in disks {
            devices.attach(disk, wanted).await?;
        }
        Ok(Box::new(devices))
    }
}

#[async_trait]
impl Resume for UblkTransport {
    async fn resume(
        &self,
        disks: Vec<Arc<dyn Disk>>,
        connection: OwnedFd,
        names: &[DeviceName],
        tag: &str,
    ) -> Result<Box<dyn Attachment>, BlockError> {
        let owner = owner_of(tag)?;
        let mut devices = Devices::over(Control::over(connection), true);
        // The image is on a loop device, before the disks.
        let numbers = names.iter().filter_map(number_of);
        for (device, disk) in numbers.zip(disks) {
            let control = Arc::clone(&devices.control);
            let served = Served::resume(control, (device, owner), disk).await?;
            devices.served.push(Arc::new(served));
        }
        devices.leave_to_users().await?;
        Ok(Box::new(devices))
    }
}

const NO_DRIVER: &str = "cannot speak with the driver ublk";

fn owner_of(tag: &str) -> Result<u64, BlockError> {
    let owner = owner::number_of(tag).ok_or(io::ErrorKind::InvalidInput.into());
    owner.map_err(BlockError::system("the volume has no number"))
}

/// Devices that are served, and who waits for their end.
struct Devices {
    control: Arc<Control>,
    served: Vec<Arc<Served>>,
    survives: bool,
    waiting: JoinSet<()>,
    /// Who waits has one of these until the end.
    alive: Option<watch::Sender<()>>,
    gone: watch::Receiver<()>,
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.devices()).finish()
    }
}

impl Devices {
    fn over(control: Control, survives: bool) -> Self {
        let (alive, gone) = watch::channel(());
        Self {
            control: Arc::new(control),
            served: Vec::new(),
            survives,
            waiting: JoinSet::new(),
            alive: Some(alive),
            gone,
        }
    }

    async fn attach(&mut self, disk: Arc<dyn Disk>, wanted: Wanted) -> Result<(), BlockError> {
        let (control, runtime) = (Arc::clone(&self.control), Handle::current());
        let attaching = spawn_blocking(move || Served::attach(control, &disk, wanted, &runtime));
        let attached = attaching
            .await
            .unwrap_or_else(|error| Err(BlockError::system("attaching")(io::Error::other(error))));
        self.served.push(Arc::new(attached?));
        Ok(())
    }
}

#[async_trait]
impl Attachment for Devices {
    fn devices(&self) -> Vec<DeviceName> {
        self.served.iter().map(|device| device.name()).collect()
    }

    async fn leave_to_users(&mut self) -> Result<(), BlockError> {
        let alive = self.alive.take();
        for device in &self.served {
            let (device, alive) = (Arc::clone(device), alive.clone());
            self.waiting.spawn(async move {
                device.go_with_last_user().await;
                drop(alive);
            });
        }
        Ok(())
    }

    fn connection(&self) -> Option<OwnedFd> {
        self.survives.then(|| self.control.connection())?
    }

    async fn gone(&self) {
        let mut gone = self.gone.clone();
        while gone.changed().await.is_ok() {}
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.waiting.abort_all();
        for device in &self.served {
            run_blocking(|| device.close());
        }
    }
}
