//! Disks, images and mounts that clean up after themselves.

#![allow(unreachable_pub, dead_code, clippy::disallowed_methods, clippy::panic)]

mod gate;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use penstock_base::{BufferPool, FsResult, MIB, MemoryBudget, Payload, metrics::Registry};
use penstock_block::{
    BlockError, BlockSettings, BlockVolume, Contents, FileSystem, StateDirectory, TransportKind,
    tagged_devices,
};
use penstock_fuse::{UnmountError, UnmountMode};
use penstock_vfs::Disk;
use tempfile::TempDir;

pub use gate::{Gate, Trouble};

const PATIENCE: Duration = Duration::from_secs(60);

/// Something to mount, where, and the runtime that serves it.
pub struct Rig {
    folder: TempDir,
    runtime: tokio::runtime::Runtime,
    pub mount_point: PathBuf,
    /// What the mount should show.
    pub tree: PathBuf,
    pub state: StateDirectory,
    pub gate: Arc<Gate>,
    image: Option<PathBuf>,
    disks: Vec<Arc<dyn Disk>>,
    file_system: FileSystem,
}

impl Rig {
    fn new(file_system: FileSystem) -> Self {
        let folder = tempfile::Builder::new().prefix("penstock-test-").tempdir();
        let folder = folder.expect("a temporary folder can be made");
        let folder_of = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir(&path).expect("made");
            path
        };
        Self {
            mount_point: folder_of("mnt"),
            tree: folder_of("tree"),
            state: StateDirectory::new(folder.path().join("state")),
            gate: Arc::default(),
            image: None,
            disks: Vec::new(),
            file_system,
            runtime: tokio::runtime::Runtime::new().expect("threads"),
            folder,
        }
    }

    /// A tree on an EROFS image whose data lies on a disk, as Debian's own tool makes it.
    pub fn erofs(seed: u64) -> Self {
        let mut rig = Self::new(FileSystem::Erofs);
        fill(&rig.tree, seed);
        let (image, blob) = (
            rig.folder.path().join("image"),
            rig.folder.path().join("blob"),
        );
        run(Command::new("mkfs.erofs")
            .args(["--quiet", "--chunksize=4096"])
            .arg(format!("--blobdev={}", blob.display()))
            .arg(&image)
            .arg(&rig.tree));
        rig.disks = vec![rig.disk_of(&blob)];
        rig.image = Some(image);
        rig
    }

    /// The same on ext4, where one disk has everything.
    pub fn ext4() -> Self {
        let mut rig = Self::new(FileSystem::Ext4);
        fill(&rig.tree, 3);
        let image = rig.folder.path().join("image");
        let file = File::create(&image).expect("made");
        file.set_len(64 * MIB).expect("sparse");
        run(Command::new("mke2fs")
            .args(["-q", "-t", "ext4", "-b", "4096", "-O", "^has_journal", "-d"])
            .arg(&rig.tree)
            .arg(&image));
        rig.disks = vec![rig.disk_of(&image)];
        rig
    }

    /// Disks with a pattern and without a file system.
    pub fn raw(count: usize) -> Self {
        let mut rig = Self::new(FileSystem::Ext4);
        let disk = |number| {
            Arc::new(Pattern {
                number,
                gate: Arc::clone(&rig.gate),
            }) as Arc<dyn Disk>
        };
        rig.disks = (0..count).map(disk).collect();
        rig
    }

    fn disk_of(&self, file: &Path) -> Arc<dyn Disk> {
        let file = File::open(file).expect("just made");
        let size = file.metadata().expect("known").len().next_multiple_of(4096);
        Arc::new(FileDisk {
            file,
            size,
            gate: Arc::clone(&self.gate),
        })
    }

    pub fn mount(&self) -> BlockVolume {
        self.try_mount(self.file_system)
            .expect("root, loop devices and FUSE are there")
    }

    pub fn try_mount(&self, file_system: FileSystem) -> Result<BlockVolume, BlockError> {
        self.mount_with(file_system, TransportKind::Loop, self.image.clone())
    }

    pub fn try_transport(&self, transport: TransportKind) -> Result<BlockVolume, BlockError> {
        self.mount_with(self.file_system, transport, None)
    }

    fn mount_with(
        &self,
        file_system: FileSystem,
        transport: TransportKind,
        image: Option<PathBuf>,
    ) -> Result<BlockVolume, BlockError> {
        let contents = Contents {
            file_system,
            image,
            disks: self.disks.clone(),
        };
        let settings = BlockSettings {
            mount_point: self.mount_point.clone(),
            source: "test".to_owned(),
            transport,
            state: self.state.clone(),
            read_ahead_kib: 16384,
            noexec: false,
            nonempty: false,
            kept: false,
        };
        let pool = BufferPool::new(MemoryBudget::new(128 * MIB));
        self.block_on(BlockVolume::mount(
            contents,
            settings,
            pool,
            Registry::new(),
        ))
    }

    /// Runs `work` on the runtime that serves the volume, within a time.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime
            .block_on(async { tokio::time::timeout(PATIENCE, work).await.expect("in time") })
    }

    /// Unmounts what nobody uses. A program that another test begins has all files of this process open, for a
    /// moment, until it runs.
    #[track_caller]
    pub fn unmount(&self, volume: BlockVolume) {
        let tag = volume.record().tag.clone();
        wait_until("nobody uses it", || {
            let unmounted = self.block_on(volume.unmount(UnmountMode::Plain));
            let is_busy = matches!(unmounted, Err(UnmountError::Busy(_)));
            assert!(is_busy || unmounted.is_ok(), "{unmounted:?}");
            !is_busy
        });
        self.wait_for_the_end(&volume);
        drop(volume);
        assert_eq!(tagged_devices(&tag), Vec::<String>::new());
        assert_eq!(self.state_files(), 0);
    }

    /// The mount shows the tree, file by file.
    pub fn compare(&self) {
        let (mount_point, tree) = (self.mount_point.clone(), self.tree.clone());
        within("comparing", move || {
            let (shown, expected) = (files_below(&mount_point), files_below(&tree));
            assert!(
                expected.len() > 100 && shown.keys().eq(expected.keys()),
                "other names"
            );
            for (path, content) in expected {
                assert!(shown[&path] == content, "{} is another", path.display());
            }
        });
    }

    pub fn wait_for_the_end(&self, volume: &BlockVolume) {
        self.block_on(volume.wait());
    }

    pub fn ended_within(&self, volume: &BlockVolume, limit: Duration) -> bool {
        self.runtime
            .block_on(async { tokio::time::timeout(limit, volume.wait()).await.is_ok() })
    }

    /// What lies in the state directory: files of volumes and private places.
    pub fn state_files(&self) -> usize {
        fs::read_dir(self.state.path()).map_or(0, Iterator::count)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.gate.open();
        let _ = Command::new("umount")
            .args(["-q", "-l"])
            .arg(&self.mount_point)
            .status();
    }
}

/// Every byte of a disk follows from its place.
pub fn pattern(disk: usize, offset: u64, length: usize) -> Vec<u8> {
    let byte = |at: u64| (at / 4096).wrapping_mul(31).wrapping_add(at % 4093) as u8 ^ disk as u8;
    (offset..offset + length as u64).map(byte).collect()
}

struct Pattern {
    number: usize,
    gate: Arc<Gate>,
}

#[async_trait]
impl Disk for Pattern {
    fn size(&self) -> u64 {
        64 * MIB
    }

    async fn read(&self, offset: u64, length: u32) -> FsResult<Payload> {
        self.gate
            .pass(pattern(self.number, offset, length as usize))
            .await
    }
}

struct FileDisk {
    file: File,
    size: u64,
    gate: Arc<Gate>,
}

#[async_trait]
impl Disk for FileDisk {
    fn size(&self) -> u64 {
        self.size
    }

    async fn read(&self, offset: u64, length: u32) -> FsResult<Payload> {
        let mut bytes = vec![0; length as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match self
                .file
                .read_at(&mut bytes[filled..], offset + filled as u64)
            {
                Ok(0) => break,
                count => filled += count.expect("a local file"),
            }
        }
        self.gate.pass(bytes).await
    }
}

/// Every file below `root` with its size, time and content.
pub fn files_below(root: &Path) -> BTreeMap<PathBuf, (i64, Vec<u8>)> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("listed") {
            let entry = entry.expect("read");
            let (path, kind) = (entry.path(), entry.file_type().expect("known"));
            if kind.is_dir() && entry.file_name() != "lost+found" {
                folders.push(path);
            } else if kind.is_file() {
                let modified =
                    std::os::unix::fs::MetadataExt::mtime(&entry.metadata().expect("known"));
                let below = path.strip_prefix(root).expect("below").to_owned();
                files.insert(below, (modified, fs::read(&path).expect("read")));
            }
        }
    }
    files
}

/// A tree of files whose content depends on `seed`.
fn fill(tree: &Path, seed: u64) {
    let noise = |seed: u64, length: usize| -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let step = |state: &mut u64| {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            *state as u8
        };
        (0..length).map(|_| step(&mut state)).collect()
    };
    let many = tree.join("many");
    fs::create_dir(&many).expect("made");
    for number in 0..100 {
        fs::write(many.join(number.to_string()), number.to_string()).expect("written");
    }
    let deep = tree.join("a/b/c/d");
    fs::create_dir_all(&deep).expect("made");
    for (number, size) in [0, 1, 4095, 4096, 4097, 131_072, 1_000_003]
        .into_iter()
        .enumerate()
    {
        let data = noise(seed + number as u64, size);
        fs::write(deep.join(format!("size {size}")), data).expect("written");
    }
    fs::write(tree.join("large"), noise(seed, 9_000_000)).expect("written");
}

fn run(command: &mut Command) {
    let output = command.output().expect("it is installed");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// Runs `work`, which may hang where a device hangs, on a thread of its own.
#[track_caller]
pub fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waiting) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    waiting
        .recv_timeout(PATIENCE)
        .unwrap_or_else(|error| panic!("{what}: {error}"))
}

#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
