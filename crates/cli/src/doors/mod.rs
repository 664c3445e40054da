//! How programs reach volumes.
//!
//! A door is opened in front of an [`OpenedVolume`] that may have others, and knows nothing of options beyond
//! its own: what it has to know of the volume are facts in there. Which door it is says the [`DoorKind`], and for the
//! kernel the volume's [`Form`]: files are served through FUSE, disks as block devices. Mount targets are one door before
//! several volumes ([`nfs`]).

pub(crate) mod block;
mod fuse;
pub(crate) mod nfs;

use std::{path::Path, time::Duration};

use async_trait::async_trait;
use penstock_base::KIB;
use penstock_block::Keepsake;
use penstock_fuse::{ConnectionAbort, UnmountError, UnmountMode, Unsaved};

use crate::{
    environment::Environment,
    failure::Outcome,
    options::{Values, table},
    resources::Resources,
    serving::Serving,
    volumes::{Form, OpenedVolume},
};

/// A door that programs use. Dropping it closes it, lazily.
#[async_trait]
pub(crate) trait Door: Send + Sync {
    /// Waits until the door is closed, whoever closed it; returns what could not be saved. May be called more
    /// than once and dropped while it waits.
    async fn wait(&self) -> Unsaved;

    /// Closes it for new users; [`Door::wait`] then returns when the old ones have gone. Fails when it is in
    /// use, unless the mode says that this does not matter.
    async fn unmount(&self, mode: UnmountMode) -> Result<(), UnmountError>;

    /// Closes it, lazily if it is in use, and gives those who use it `grace` to finish. Returns what could not
    /// be saved.
    async fn leave(&self, grace: Duration) -> Unsaved;

    /// Whether programs go on using a door that is closed, as far as it can tell.
    fn is_used(&self) -> bool;

    /// What cuts the connection to the kernel; none where there is none, or this user may not.
    fn abort(&self) -> Option<&ConnectionAbort> {
        None
    }

    /// Looks again at the file that it is made of, if it is made of one.
    async fn reload(&self) {}

    /// What another process has to hold to go on when this one is killed; none where that cannot be done.
    fn keepsake(&self) -> Option<Keepsake> {
        None
    }
}

/// How programs reach a volume.
#[derive(Debug)]
pub(crate) enum DoorKind {
    /// The kernel mounts it.
    Kernel,
    /// Clients of NFS find it, and others, at addresses.
    Nfs(Box<Serving>),
}

/// Everything that says where and how the kernel mounts a volume.
#[derive(Debug)]
pub(crate) struct DoorSpec<'a> {
    /// What programs are shown as the source of the mount.
    pub source: &'a str,
    /// Absolute and checked.
    pub mountpoint: &'a Path,
    pub values: &'a Values,
    pub environment: &'a Environment,
    /// Another process holds the door's [`Keepsake`] and goes on when this one is killed.
    pub kept: bool,
    /// What the process before this one, which was killed, left behind: the door is open already.
    pub inherited: Option<Keepsake>,
}

/// Opens the door of the kernel that the volume's form asks for.
pub(crate) async fn open(
    volume: &OpenedVolume,
    spec: DoorSpec<'_>,
    resources: &Resources,
) -> Outcome<Box<dyn Door>> {
    Ok(match &volume.form {
        Form::Files(files) => Box::new(fuse::open(files, volume, &spec, resources).await?),
        Form::Disks(disks) => {
            let read_ahead_kib = read_ahead_kib(&spec, volume);
            Box::new(block::open(disks.clone(), read_ahead_kib, spec, resources).await?)
        }
    })
}

/// KiB that the kernel reads ahead: what is asked for, else what suits the volume.
fn read_ahead_kib(spec: &DoorSpec<'_>, volume: &OpenedVolume) -> u32 {
    let asked = spec.values.origin(&table::READ_AHEAD).is_some();
    match volume.read_ahead_kib.filter(|_| !asked) {
        Some(own) => own,
        None => {
            let bytes = spec.values.size(&table::READ_AHEAD).unwrap_or_default();
            u32::try_from(bytes / KIB).unwrap_or(u32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf, sync::Arc};

    use super::*;
    use crate::{
        control::SocketDirectory,
        predecessors::Predecessors,
        volumes::{self, VolumeKind, VolumeSpec},
    };

    /// A directory with buckets and mount points.
    struct Bed {
        directory: tempfile::TempDir,
        values: Values,
        environment: Environment,
        resources: Resources,
    }

    impl Bed {
        fn new() -> Self {
            Self {
                directory: tempfile::tempdir().expect("a temporary directory"),
                values: Values::resolve(Vec::new()).expect("valid"),
                environment: Environment::default(),
                resources: Resources::new(128 << 20),
            }
        }

        fn make(&self, name: &str) -> PathBuf {
            let path = self.directory.path().join(name);
            fs::create_dir_all(&path).expect("made");
            path
        }

        /// The volume of a bucket with one file, whose content is the bucket's name.
        async fn volume(&self, bucket: &str) -> OpenedVolume {
            let resources = Resources {
                pool: Arc::clone(&self.resources.pool),
                registry: self.resources.registry.scope(&[("volume", bucket)]),
            };
            let path = self.make(bucket);
            fs::write(path.join("name"), bucket).expect("written");
            let spec = VolumeSpec {
                kind: VolumeKind::Bucket,
                source: format!("file://{}", path.display()),
                mountpoint: self.make("mnt"),
                values: self.values.clone(),
                environment: self.environment.clone(),
            };
            let place = SocketDirectory::at(self.directory.path());
            let before = Predecessors::new(&place, &spec.mountpoint);
            let opened = volumes::open(&spec, &resources, &before, None).await;
            opened.expect("opened")
        }

        async fn door(&self, volume: &OpenedVolume, mountpoint: &Path) -> Box<dyn Door> {
            let spec = DoorSpec {
                source: "test",
                mountpoint,
                values: &self.values,
                environment: &self.environment,
                kept: false,
                inherited: None,
            };
            let door = open(volume, spec, &self.resources).await;
            door.expect("mounted")
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_process_has_several_volumes_and_several_doors_before_one() {
        if !penstock_base::is_root() || !Path::new("/dev/fuse").exists() {
            return penstock_skips::skipped("only root can mount without a helper");
        }
        let bed = Bed::new();
        let (one, other) = (bed.volume("one").await, bed.volume("other").await);
        let (first, second, third) = (bed.make("1"), bed.make("2"), bed.make("3"));
        let doors = [
            bed.door(&one, &first).await,
            bed.door(&one, &second).await,
            bed.door(&other, &third).await,
        ];
        for (mountpoint, content) in [(first, "one"), (second, "one"), (third, "other")] {
            let reading = tokio::task::spawn_blocking(move || fs::read(mountpoint.join("name")));
            let read = reading.await.expect("no panic").expect("read");
            assert_eq!(read, content.as_bytes());
        }
        let metrics = bed.resources.registry.prometheus();
        for volume in ["one", "other"] {
            let received = format!("penstock_object_received_bytes_total{{volume=\"{volume}\"}} ");
            assert!(metrics.contains(&received), "{metrics}");
        }
        for door in doors {
            assert!(door.leave(Duration::from_secs(5)).await.is_empty());
        }
    }
}
