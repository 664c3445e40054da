//! What tests of stream volumes share: a bucket, a place for its indexes, and what is in it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
    thread,
};

use penstock_devserver::{Operation, Server};

use crate::{
    Bucket, Kind, Mount, MountOptions, Scratch,
    data::{digest, digest_of, noise},
    devices::PATIENCE,
    mount::is_mounted,
    run_within,
};

/// The ways from an index to a mount.
pub const WAYS: [&str; 3] = ["erofs", "ext4", "fuse"];

/// One at a time: each start of a volume cleans up after the volumes that others had killed.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A bucket with what it has, and a place for indexes.
#[derive(Debug)]
pub struct Rig {
    /// The bucket.
    pub bucket: Bucket,
    /// Where indexes are kept, with room for other files.
    pub indexes: Scratch,
    /// What the volume is to show.
    pub objects: BTreeMap<String, Vec<u8>>,
    _alone: MutexGuard<'static, ()>,
}

impl Rig {
    /// With an empty bucket.
    pub fn new(kind: Kind) -> Self {
        Self {
            _alone: alone(),
            bucket: Bucket::new(kind),
            indexes: Scratch::new(),
            objects: BTreeMap::new(),
        }
    }

    /// With so many files of a few blocks each.
    pub fn with_small_files(kind: Kind, count: u64) -> Self {
        let mut rig = Self::new(kind);
        for number in 0..count {
            let key = format!("set/{:02}/{number:04}.jpg", number % 17);
            rig.put(&key, noise(number, 20_000 + 37 * number as usize));
        }
        rig
    }

    /// Adds an object.
    pub fn put(&mut self, key: &str, content: Vec<u8>) {
        self.bucket.put_outside(key, &content);
        self.objects.insert(key.to_owned(), content);
    }

    /// The options that lead here.
    pub fn options(&self) -> MountOptions {
        let folder = self.indexes.path().to_string_lossy().into_owned();
        self.bucket.options().option("index-dir", &folder)
    }

    /// The options that lead to one of [`WAYS`].
    pub fn way(&self, way: &str) -> MountOptions {
        match way {
            "fuse" => self.options().option("transport", "fuse"),
            fs => self.options().option("transport", "loop").option("fs", fs),
        }
    }

    /// Mounts the whole bucket.
    #[track_caller]
    pub fn mount(&self, options: &MountOptions) -> Mount {
        Mount::stream(&self.bucket.source(), options)
    }

    /// Mounts it in the background, through `transport`; returns the mount point, which a dead mount
    /// may have.
    #[track_caller]
    pub fn background(&self, transport: &str) -> PathBuf {
        let place = self.indexes.path().join("mnt");
        // A dead mount there can be neither looked at nor made.
        if !is_mounted(&place) {
            self.indexes.folder("mnt");
        }
        let folder = |name| self.indexes.folder(name).display().to_string();
        let mut command = self.bucket.command("stream");
        command
            .arg(&place)
            .arg(format!("--transport={transport}"))
            .arg(format!("--index-dir={}", folder("index")))
            .arg(format!("--log-file={}/log", folder("logs")));
        run_within(PATIENCE, &mut command).expect_success();
        place
    }

    /// What the server sent so far.
    pub fn sent(&self) -> Sent {
        let counters = self.bucket.server(Server::counters);
        Sent {
            gets: counters.operation(Operation::GetObject),
            bytes: counters.bytes_out,
        }
    }

    /// Every object was read with one GET since `before`.
    #[track_caller]
    pub fn assert_one_get_each(&self, before: Sent) {
        let bytes = self.objects.values().map(Vec::len).sum::<usize>() as u64;
        let files = self.objects.len() as u64;
        self.sent().assert_one_get_each(before, files, bytes);
    }

    /// Requests of a kind that the server got.
    pub fn count(&self, operation: Operation) -> u64 {
        self.bucket
            .server(|server| server.counters().operation(operation))
    }

    /// One of the objects. The first one is read when its device is opened, which looks for
    /// partitions.
    pub fn object(&self, number: usize) -> (&str, &[u8]) {
        let (key, content) = self.objects.iter().nth(number).expect("there are more");
        (key, content)
    }

    /// The mount shows what was put, file by file.
    #[track_caller]
    pub fn compare(&self, place: impl AsRef<Path>) {
        let place = place.as_ref();
        let mut shown: Vec<_> = files_below(place).into_iter().collect();
        shown.sort();
        let mut expected: Vec<_> = self.objects.keys().map(PathBuf::from).collect();
        expected.sort();
        assert_eq!(shown, expected);
        for (key, content) in &self.objects {
            let path = place.join(key);
            let metadata = fs::metadata(&path).expect("it is listed");
            assert_eq!(metadata.len(), content.len() as u64, "{key}");
            assert_eq!(
                digest(&path).expect("readable"),
                digest_of(content),
                "{key}"
            );
        }
    }
}

/// What a store sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    /// Objects, whole or in part.
    pub gets: u64,
    /// All bytes.
    pub bytes: u64,
}

impl Sent {
    /// So many files with so many bytes altogether were one GET each since `before`. A file that is
    /// read in two pieces costs a GET more and not a byte more. A page that the kernel takes back
    /// before its reader had it, as it may at any time, is fetched again and costs both.
    #[track_caller]
    pub fn assert_one_get_each(self, before: Self, files: u64, bytes: u64) {
        let gets = self.gets - before.gets - files;
        let again = (self.bytes - before.bytes).saturating_sub(bytes);
        assert!(gets == 0 || again > 0, "{gets} GETs more for {again} bytes");
    }
}

/// The files below `root`, relative to it.
pub fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("listed") {
            let entry = entry.expect("read");
            match entry.file_type().expect("known").is_dir() {
                true => folders.push(entry.path()),
                false => {
                    let path = entry.path();
                    files.push(path.strip_prefix(root).expect("below").to_owned());
                }
            }
        }
    }
    files
}

/// What a read gives, some time.
pub type Reading = mpsc::Receiver<std::io::Result<Vec<u8>>>;

/// Reads a file on a thread of its own, since that may wait.
pub fn read_aside(path: PathBuf) -> Reading {
    let (done, waiting) = mpsc::channel();
    thread::spawn(move || done.send(fs::read(path)));
    waiting
}
