//! Disks as network block devices, and what keeps their connections alive.

use std::{
    fmt,
    fs::File,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use penstock_base::{clock, run_blocking};
use penstock_vfs::Disk;
use tokio::{net::UnixStream, sync::watch, task::JoinSet};
use tracing::{debug, warn};

use super::{
    driver::{Connected, Driver},
    protocol::{Ending, serve},
    under_way::UnderWay,
};
use crate::{
    BlockError,
    device::DeviceName,
    transport::{Attachment, Resume, Transport},
};

/// Connections of a device. The kernel uses one for each processor at most; the others are there for
/// when those die.
const CONNECTIONS: usize = 4;

/// Before a connection is made again, so that one that dies at once costs nothing.
const PAUSE: Duration = Duration::from_millis(200);

/// How often it is tried to make a connection again, when that fails.
const ATTEMPTS_MAX: usize = 300;

/// Attaches disks as network block devices.
pub(crate) struct NbdTransport;

#[async_trait]
impl Transport for NbdTransport {
    async fn attach(
        &self,
        disks: Vec<Arc<dyn Disk>>,
        tag: &str,
    ) -> Result<Box<dyn Attachment>, BlockError> {
        let mut devices = Devices::over(Driver::open()?);
        for disk in disks {
            devices.attach(disk, tag).await?;
        }
        Ok(Box::new(devices))
    }
}

#[async_trait]
impl Resume for NbdTransport {
    async fn resume(
        &self,
        disks: Vec<Arc<dyn Disk>>,
        connection: OwnedFd,
        names: &[DeviceName],
        tag: &str,
    ) -> Result<Box<dyn Attachment>, BlockError> {
        let mut devices = Devices::over(Driver::over(connection)?);
        // The image is on a loop device, before the disks.
        let connected = names.iter().filter_map(|name| Connected::again(name, tag));
        for (device, disk) in connected.zip(disks) {
            devices.resume(&device, disk)?;
        }
        devices.alive = None;
        Ok(Box::new(devices))
    }
}

/// Devices that are connected, and the tasks that serve them.
struct Devices {
    driver: Arc<Driver>,
    connected: Vec<Connected>,
    /// Kept open until somebody else has them open.
    open: Vec<File>,
    serving: JoinSet<()>,
    /// Every task has one of these until it ends.
    alive: Option<watch::Sender<()>>,
    gone: watch::Receiver<()>,
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.connected).finish()
    }
}

impl Devices {
    fn over(driver: Driver) -> Self {
        let (alive, gone) = watch::channel(());
        Self {
            driver: Arc::new(driver),
            connected: Vec::new(),
            open: Vec::new(),
            serving: JoinSet::new(),
            alive: Some(alive),
            gone,
        }
    }

    async fn attach(&mut self, disk: Arc<dyn Disk>, tag: &str) -> Result<(), BlockError> {
        let (theirs, ours) = pairs(CONNECTIONS).map_err(BlockError::system(NO_SOCKETS))?;
        let device = run_blocking(|| self.driver.connect(disk.size(), tag, &theirs))?;
        drop(theirs);
        self.connected.push(device.clone());
        self.serve(&device, disk, ours);
        // Opening reads, for a table of partitions.
        let (driver, name) = (Arc::clone(&self.driver), device.name());
        let opening = tokio::task::spawn_blocking(move || {
            let open = File::open(name.node())?;
            // Not before it is open: others look at new devices, and would be the last to close it.
            driver.leave_to_users(&device).map(|()| open)
        });
        let opened = opening
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        let what = "cannot open a device of the driver nbd (its node must be in /dev)";
        self.open.push(opened.map_err(BlockError::system(what))?);
        Ok(())
    }

    fn resume(&mut self, device: &Connected, disk: Arc<dyn Disk>) -> Result<(), BlockError> {
        let (theirs, ours) = pairs(CONNECTIONS).map_err(BlockError::system(NO_SOCKETS))?;
        let reconnected = run_blocking(|| self.driver.reconnect(device, &theirs));
        reconnected.map_err(BlockError::system("cannot connect a device again"))?;
        self.connected.push(device.clone());
        self.serve(device, disk, ours);
        Ok(())
    }

    fn serve(&mut self, device: &Connected, disk: Arc<dyn Disk>, sockets: Vec<UnixStream>) {
        let disk = UnderWay::new(disk);
        for socket in sockets {
            let line = Line {
                driver: Arc::clone(&self.driver),
                device: device.clone(),
                disk: Arc::clone(&disk),
                _alive: self.alive.clone(),
            };
            self.serving.spawn(line.tend(socket));
        }
    }
}

#[async_trait]
impl Attachment for Devices {
    fn devices(&self) -> Vec<DeviceName> {
        self.connected.iter().map(Connected::name).collect()
    }

    async fn leave_to_users(&mut self) -> Result<(), BlockError> {
        self.open.clear();
        self.alive = None;
        Ok(())
    }

    fn connection(&self) -> Option<OwnedFd> {
        self.driver.connection()
    }

    async fn gone(&self) {
        let mut gone = self.gone.clone();
        while gone.changed().await.is_ok() {}
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.open.clear();
        for device in &self.connected {
            if device.is_ours()
                && let Err(error) = run_blocking(|| self.driver.disconnect(device))
            {
                debug!(%error, ?device, "a device was given up by somebody else");
            }
        }
    }
}

/// One connection of a device.
struct Line {
    driver: Arc<Driver>,
    device: Connected,
    disk: Arc<UnderWay>,
    _alive: Option<watch::Sender<()>>,
}

impl Line {
    /// Serves until the device is gone, and makes the connection again when it dies before.
    async fn tend(self, mut socket: UnixStream) {
        loop {
            match serve(socket, Arc::clone(&self.disk)).await {
                Ok(Ending::Disconnected) => return,
                Ok(Ending::Closed) => {}
                Err(error) => debug!(%error, "a connection of a device failed"),
            }
            match self.again().await {
                Some(other) => socket = other,
                None => return,
            }
        }
    }

    /// Another connection; none when the device is gone.
    async fn again(&self) -> Option<UnixStream> {
        for _ in 0..ATTEMPTS_MAX {
            clock::sleep(PAUSE).await;
            if !self.device.is_ours() {
                return None;
            }
            match self.reconnect() {
                Ok(socket) => {
                    debug!(device = ?self.device, "a connection was made again");
                    return Some(socket);
                }
                // The driver's word for a device that is not connected.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return None,
                Err(error) => debug!(%error, "no connection yet"),
            }
        }
        warn!(device = ?self.device, "a connection of the device is lost");
        None
    }

    fn reconnect(&self) -> io::Result<UnixStream> {
        let (theirs, mut ours) = pairs(1)?;
        run_blocking(|| self.driver.reconnect(&self.device, &theirs))?;
        ours.pop().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

const NO_SOCKETS: &str = "cannot make sockets for a device";

/// The driver's ends and ours.
fn pairs(count: usize) -> io::Result<(Vec<OwnedFd>, Vec<UnixStream>)> {
    let mut ends = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (theirs, ours) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        ends.0.push(theirs.into());
        ends.1.push(UnixStream::from_std(ours)?);
    }
    Ok(ends)
}
