//! A volume from its devices to its mount, and back.
//!
//! ```text
//! leftovers cleaned -> journal begun -> disks attached -> journal -> read-ahead -> mounted -> journal
//!                                                                                     |
//!               read-ahead as it was <- devices gone <- unmounted, by whomever -------+
//! ```
//!
//! After the mount nobody but the kernel holds the devices, so the end is always the same: the last
//! user goes, the devices go, we notice and tidy up.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use penstock_base::{BufferPool, clock, metrics::Registry};
use penstock_fuse::{UnmountError, UnmountMode};
use penstock_vfs::Disk;
use tokio::{sync::OnceCell, task::spawn_blocking};
use tracing::{error, info, warn};

use crate::{
    BlockError, FileSystem, Record, StateDirectory, TransportKind,
    device::DeviceName,
    journal::{DeviceRecord, Journal},
    leftovers,
    loops::{Caching, LoopDevice, LoopOverFuse},
    mount::{self, MountChoices},
    nbd::NbdTransport,
    tags,
    transport::{self, Attachment, Resume},
    ublk::UblkTransport,
};

/// What is mounted.
#[derive(Clone)]
pub struct Contents {
    /// The file system.
    pub file_system: FileSystem,
    /// A local file with the file system's own blocks. None when they are on the first disk.
    pub image: Option<PathBuf>,
    /// The disks with the data, in the order of the image's device slots.
    pub disks: Vec<Arc<dyn Disk>>,
}

/// How it is mounted.
#[derive(Debug, Clone)]
pub struct BlockSettings {
    /// An empty directory.
    pub mount_point: PathBuf,
    /// What is mounted, as the user named it, for those who list volumes.
    pub source: String,
    /// How disks become devices.
    pub transport: TransportKind,
    /// Where volumes are written down; one for the whole machine.
    pub state: StateDirectory,
    /// KiB that the kernel reads ahead of a sequential reader.
    pub read_ahead_kib: u32,
    /// Refuse to execute files.
    pub noexec: bool,
    /// Mount over a directory that has entries.
    pub nonempty: bool,
    /// Another process will hold the volume's [`Keepsake`] and have it go on when this one is
    /// killed. Otherwise readers are not made to wait for that where the transport can do without.
    pub kept: bool,
}

/// What another process keeps of a mounted volume, so that reads wait while its own process is
/// dead, and go on with [`BlockVolume::resume`].
#[derive(Debug)]
pub struct Keepsake {
    /// The connection through which the kernel reads.
    pub connection: OwnedFd,
    /// The volume's file, which says that it is alive.
    pub journal: OwnedFd,
}

/// A mounted volume. Dropping it takes the mount out of the file tree, lazily.
#[derive(Debug)]
pub struct BlockVolume {
    mount_point: PathBuf,
    /// `major:minor` of the device that is mounted.
    number: String,
    journal: Journal,
    attachment: Box<dyn Attachment>,
    tidied: OnceCell<()>,
}

impl BlockVolume {
    /// Attaches and mounts; returns when the mount can be used. Before, it takes away what other
    /// volumes left behind whose processes were killed. When it fails, nothing is left.
    ///
    /// `pool` pays for receive buffers, `metrics` gets the counters of requests.
    pub async fn mount(
        contents: Contents,
        settings: BlockSettings,
        pool: Arc<BufferPool>,
        metrics: Arc<Registry>,
    ) -> Result<Self, BlockError> {
        transport::check(settings.transport)?;
        settings.state.prepare()?;
        leftovers::clean(&settings.state).await;
        let mount_point = check_place(&settings)?;
        let journal = settings
            .state
            .begin(first_record(&settings, &mount_point, &contents))?;
        let kept = settings.kept;
        let transport = way(settings.transport, kept, &settings.state, (pool, metrics));
        let attached = transport
            .attach(contents.disks, &journal.record().tag)
            .await;
        let attachment = match attached {
            Ok(attachment) => attachment,
            Err(error) => {
                journal.end();
                return Err(error);
            }
        };
        let image = contents.image;
        let begun = Begun {
            file_system: contents.file_system,
            choices: MountChoices {
                noexec: settings.noexec,
            },
            read_ahead_kib: settings.read_ahead_kib,
            mount_point,
        };
        begun.finish(image, journal, attachment).await
    }

    /// Goes on with a volume whose process died. `disks` are those that it was mounted with.
    pub async fn resume(
        disks: Vec<Arc<dyn Disk>>,
        keepsake: Keepsake,
        state: &StateDirectory,
        memory: (Arc<BufferPool>, Arc<Registry>),
    ) -> Result<Self, BlockError> {
        let journal = Journal::resume(keepsake.journal)?;
        let record = journal.record();
        // Records that say nothing that is known are of loops.
        let kind = TransportKind::named(&record.transport).unwrap_or(TransportKind::Loop);
        let transport = way(kind, true, state, memory);
        let names: Vec<_> = record.devices.iter().map(DeviceRecord::device).collect();
        let number = names.first().map(DeviceName::number);
        let number = number.unwrap_or_else(|| Err(io::ErrorKind::InvalidInput.into()));
        let number = number.map_err(BlockError::system("the device has no number"))?;
        let resumed = transport.resume(disks, keepsake.connection, &names, &record.tag);
        let attachment = resumed.await?;
        Ok(Self {
            mount_point: journal.record().mount_point.clone(),
            number,
            journal,
            attachment,
            tidied: OnceCell::new(),
        })
    }

    /// What another process has to keep so that the volume can outlive this one; none where the
    /// kernel cannot do that.
    pub fn keepsake(&self) -> Option<Keepsake> {
        Some(Keepsake {
            connection: self.attachment.connection()?,
            journal: self.journal.keepsake()?,
        })
    }

    /// The mount point, absolute.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// What is known about it, with its devices.
    pub fn record(&self) -> &Record {
        self.journal.record()
    }

    /// Waits until nobody uses the volume any more, whoever unmounted it, and tidies up. May be
    /// called more than once and dropped while it waits.
    pub async fn wait(&self) {
        self.attachment.gone().await;
        self.tidied.get_or_init(|| self.tidy_up()).await;
    }

    /// Takes the mount out of the file tree; [`BlockVolume::wait`] then returns when nobody has
    /// files open any more.
    pub async fn unmount(&self, mode: UnmountMode) -> Result<(), UnmountError> {
        let (place, number) = (self.mount_point.clone(), self.number.clone());
        let unmounted = spawn_blocking(move || unmount_ours(&place, &number, mode)).await;
        unmounted.unwrap_or_else(|error| {
            Err(UnmountError::Failed(
                self.mount_point.clone(),
                error.to_string(),
            ))
        })
    }

    /// Leaves in an orderly way, as on SIGTERM: unmounts, lazily if files are open, and gives those
    /// who use them `grace` to finish. Returns whether everything is gone.
    pub async fn leave(&self, grace: Duration) -> bool {
        if let Err(UnmountError::Busy(place)) = self.unmount(UnmountMode::Plain).await {
            info!(place = %place.display(), "files are open, waiting for them to be closed");
            if let Err(error) = self.unmount(UnmountMode::Lazy).await {
                error!(%error, "the mount stays behind");
            }
        }
        let gone = clock::deadline(grace, self.wait()).await.is_ok();
        if !gone {
            warn!("files are still open, leaving without them");
        }
        gone
    }

    async fn tidy_up(&self) {
        if give_back(self.journal.record()).await {
            self.journal.end();
        } else {
            warn!("a device of the volume is still in use; the next start looks after it");
        }
    }
}

impl Drop for BlockVolume {
    fn drop(&mut self) {
        if self.tidied.get().is_none()
            && let Err(error) = unmount_ours(&self.mount_point, &self.number, UnmountMode::Lazy)
        {
            warn!(%error, "the mount stays behind");
        }
    }
}

/// How disks become devices; `check` refused what cannot be had.
fn way(
    kind: TransportKind,
    kept: bool,
    state: &StateDirectory,
    (pool, metrics): (Arc<BufferPool>, Arc<Registry>),
) -> Box<dyn Resume> {
    match kind {
        TransportKind::Nbd => Box::new(NbdTransport),
        TransportKind::Ublk => Box::new(UblkTransport { kept }),
        TransportKind::Loop => Box::new(LoopOverFuse {
            state_directory: state.path().to_owned(),
            pool,
            metrics,
        }),
    }
}

/// A volume whose disks are attached.
struct Begun {
    file_system: FileSystem,
    choices: MountChoices,
    read_ahead_kib: u32,
    mount_point: PathBuf,
}

impl Begun {
    /// Mounts; takes everything away again when that fails.
    async fn finish(
        self,
        image: Option<PathBuf>,
        journal: Journal,
        mut attachment: Box<dyn Attachment>,
    ) -> Result<BlockVolume, BlockError> {
        let mount_point = self.mount_point.clone();
        let disks = attachment.devices();
        let mounted = blocking(move || self.mount(image, &disks, journal)).await;
        attachment.leave_to_users().await?;
        let (journal, number) = mounted?;
        Ok(BlockVolume {
            mount_point,
            number,
            journal,
            attachment,
            tidied: OnceCell::new(),
        })
    }

    fn mount(
        &self,
        image: Option<PathBuf>,
        disks: &[DeviceName],
        mut journal: Journal,
    ) -> Result<(Journal, String), BlockError> {
        let outcome = self.mount_devices(image, disks, &mut journal);
        if outcome.is_err() {
            for device in &journal.record().devices {
                device.restore_read_ahead();
            }
            journal.end();
        }
        Ok((journal, outcome?))
    }

    /// Returns the number of the device that is mounted.
    fn mount_devices(
        &self,
        image: Option<PathBuf>,
        disks: &[DeviceName],
        journal: &mut Journal,
    ) -> Result<String, BlockError> {
        let tag = journal.record().tag.clone();
        // Kept open until it is mounted, or it would go at once.
        let image = image.map(|image| attach_image(&image, &tag)).transpose()?;
        let mut devices: Vec<_> = image.iter().map(|image| image.name().clone()).collect();
        devices.extend_from_slice(disks);
        let first = devices.first().map(DeviceName::number);
        let number = first.unwrap_or_else(|| Err(io::ErrorKind::InvalidInput.into()));
        let number = number.map_err(BlockError::system("the device has no number"))?;
        journal.update(|record| record.devices = self.device_records(&devices))?;
        for device in &devices {
            device.set_read_ahead(self.read_ahead_kib);
        }
        mount::mount(self.file_system, &devices, &self.mount_point, self.choices)?;
        journal.update(|record| record.mounted = true)?;
        Ok(number)
    }

    fn device_records(&self, devices: &[DeviceName]) -> Vec<DeviceRecord> {
        let record = |device: &DeviceName| DeviceRecord {
            name: device.0.clone(),
            read_ahead_before: device.read_ahead(),
            read_ahead: self.read_ahead_kib,
        };
        devices.iter().map(record).collect()
    }
}

/// The image is a local file that was just written, so its page cache is worth having.
fn attach_image(image: &Path, tag: &str) -> Result<LoopDevice, BlockError> {
    let what = format!("cannot open the image {}", image.display());
    let file = File::open(image).map_err(BlockError::system(what))?;
    LoopDevice::attach(&file, tag, Caching::Buffered)
}

fn first_record(settings: &BlockSettings, mount_point: &Path, contents: &Contents) -> Record {
    Record {
        pid: std::process::id(),
        source: settings.source.clone(),
        mount_point: mount_point.to_owned(),
        file_system: contents.file_system.to_string(),
        transport: settings.transport.to_string(),
        tag: String::new(),
        devices: Vec::new(),
        mounted: false,
    }
}

/// Whether it could be mounted there; returns the absolute path.
fn check_place(settings: &BlockSettings) -> Result<PathBuf, BlockError> {
    let canonical = std::fs::canonicalize(&settings.mount_point).ok();
    let mut volumes = leftovers::volumes(&settings.state).into_iter();
    if let Some(busy) = volumes.find(|volume| Some(&volume.mount_point) == canonical.as_ref()) {
        return Err(BlockError::Busy(busy.mount_point));
    }
    let place = penstock_fuse::check_mount_point(&settings.mount_point, settings.nonempty)?;
    Ok(place)
}

/// Unmounts the place if it is still the device with this number that is mounted there.
fn unmount_ours(place: &Path, number: &str, mode: UnmountMode) -> Result<(), UnmountError> {
    let table = mount::table();
    let uppermost = table.iter().find(|entry| entry.mountpoint == place);
    if uppermost.is_none_or(|entry| entry.device != number) {
        return Ok(());
    }
    penstock_fuse::unmount(place, mode)
}

/// Waits until the devices are free and gives their numbers back as they were. Returns whether
/// all of them are.
async fn give_back(record: &Record) -> bool {
    let mut all_clear = true;
    for device in &record.devices {
        all_clear &= tags::wait_until_clear(&device.device(), &record.tag).await;
        device.restore_read_ahead();
    }
    all_clear
}

/// Runs what blocks on a thread for that.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BlockError> + Send + 'static,
) -> Result<T, BlockError> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(BlockError::system("a thread")(io::Error::other(error))))
}
