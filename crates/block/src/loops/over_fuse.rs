//! Loop devices on the files of a FUSE mount that nobody else sees.
//!
//! The mount stands in the file tree only until the loop devices have their files open. Then it is
//! taken out, and lives on as long as the devices do: nobody can walk into it, it never shows up in
//! `df`, and there is nothing to unmount after `kill -9`. When the last device goes the kernel ends
//! the connection, which is how we learn of it.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use penstock_base::{BufferPool, metrics::Registry};
use penstock_fuse::{FuseSettings, Session, UnmountMode};
use penstock_vfs::Disk;
use tokio::runtime::Handle;

use super::{Caching, LoopDevice, REQUESTS_IN_FLIGHT};
use crate::{
    BlockError,
    device::DeviceName,
    disk_files::DiskFiles,
    place::PrivatePlace,
    transport::{Attachment, Resume, Transport},
};

/// Attaches disks as loop devices.
pub(crate) struct LoopOverFuse {
    /// Where the private mount may stand for a moment.
    pub(crate) state_directory: PathBuf,
    pub(crate) pool: Arc<BufferPool>,
    pub(crate) metrics: Arc<Registry>,
}

#[async_trait]
impl Resume for LoopOverFuse {
    async fn resume(
        &self,
        disks: Vec<Arc<dyn Disk>>,
        connection: OwnedFd,
        names: &[DeviceName],
        _tag: &str,
    ) -> Result<Box<dyn Attachment>, BlockError> {
        let settings = fuse_settings(Path::new(""), "", disks.len());
        let memory = (Arc::clone(&self.pool), Arc::clone(&self.metrics));
        let volume = Arc::new(DiskFiles::new(disks));
        let session = Session::resume(volume, settings, connection, memory).await?;
        Ok(Box::new(Loops {
            session,
            devices: Vec::new(),
            names: names.to_vec(),
        }))
    }
}

#[derive(Debug)]
struct Loops {
    session: Session,
    /// Kept open until somebody else has them open.
    devices: Vec<LoopDevice>,
    names: Vec<DeviceName>,
}

#[async_trait]
impl Transport for LoopOverFuse {
    async fn attach(
        &self,
        disks: Vec<Arc<dyn Disk>>,
        tag: &str,
    ) -> Result<Box<dyn Attachment>, BlockError> {
        let count = disks.len();
        let place = PrivatePlace::new(&self.state_directory, tag)?;
        let session = Session::mount(
            Arc::new(DiskFiles::new(disks)),
            fuse_settings(place.path(), tag, count),
            Arc::clone(&self.pool),
            Arc::clone(&self.metrics),
            Handle::current(),
        );
        let session = session.await?;
        let (folder, tag) = (place.path().to_owned(), tag.to_owned());
        let attaching = tokio::task::spawn_blocking(move || attach_files(&folder, count, &tag));
        let attached = attaching
            .await
            .unwrap_or_else(|error| Err(BlockError::system("attaching")(io::Error::other(error))));
        // Whether that went well or not, nobody needs the mount in the tree any more.
        session.unmount(UnmountMode::Lazy).await?;
        drop(place);
        let devices = attached?;
        Ok(Box::new(Loops {
            session,
            names: devices.iter().map(|device| device.name().clone()).collect(),
            devices,
        }))
    }
}

fn fuse_settings(place: &Path, tag: &str, disks: usize) -> FuseSettings {
    let disks = u16::try_from(disks).unwrap_or(u16::MAX);
    let in_flight = disks.saturating_mul(REQUESTS_IN_FLIGHT);
    let defaults = FuseSettings::new(place, tag);
    FuseSettings {
        read_only: true,
        noexec: true,
        noatime: true,
        max_background: in_flight.max(defaults.max_background),
        congestion_threshold: in_flight.max(defaults.congestion_threshold),
        // Direct I/O reads nothing ahead; the file system on the devices does.
        read_ahead_kib: 0,
        survivable: true,
        ..defaults
    }
}

fn attach_files(folder: &Path, count: usize, tag: &str) -> Result<Vec<LoopDevice>, BlockError> {
    let attach = |index: usize| {
        let path = folder.join(index.to_string());
        let what = format!("cannot open disk {index}");
        let file = open_direct(&path).map_err(BlockError::system(what))?;
        LoopDevice::attach(&file, tag, Caching::Direct)
    };
    (0..count).map(attach).collect()
}

fn open_direct(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
}

#[async_trait]
impl Attachment for Loops {
    fn devices(&self) -> Vec<DeviceName> {
        self.names.clone()
    }

    async fn leave_to_users(&mut self) -> Result<(), BlockError> {
        self.devices.clear();
        Ok(())
    }

    fn connection(&self) -> Option<OwnedFd> {
        self.session.connection()
    }

    async fn gone(&self) {
        self.session.wait().await;
    }
}
