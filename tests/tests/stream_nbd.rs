//! Stream volumes over network block devices, with the kernel's own driver. Where the kernel has
//! none they say so; `make guest-test` runs them in a guest that has.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use penstock_tests::{
    Bucket, Finished, Kind, Mount, MountOptions, Patience, Process, Scratch,
    data::{digest, digest_of, noise},
    penstock, run_within,
};

const PATIENCE: Patience = Patience::seconds(120);

/// How long readers wait when nobody is connected.
const NOBODY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an answer may take before the driver asks again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A bucket with what it has, and a place for indexes.
struct Rig {
    bucket: Bucket,
    indexes: Scratch,
    objects: BTreeMap<String, Vec<u8>>,
    _alone: MutexGuard<'static, ()>,
}

impl Rig {
    /// None where the kernel lacks the driver.
    fn new(kind: Kind, files: u64) -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        if !Path::new("/sys/module/nbd").exists() {
            println!("skipped: this kernel has no driver nbd; see `make guest-test`");
            return None;
        }
        let mut rig = Self {
            _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
            bucket: Bucket::new(kind),
            indexes: Scratch::new(),
            objects: BTreeMap::new(),
        };
        for number in 0..files {
            let key = format!("set/{:02}/{number:04}.jpg", number % 17);
            rig.put(&key, noise(number, 20_000 + 37 * number as usize));
        }
        Some(rig)
    }

    fn put(&mut self, key: &str, content: Vec<u8>) {
        self.bucket.put_outside(key, &content);
        self.objects.insert(key.to_owned(), content);
    }

    fn options(&self) -> MountOptions {
        let folder = self.indexes.path().to_string_lossy().into_owned();
        let options = self.bucket.options().option("index-dir", &folder);
        options.option("transport", "nbd")
    }

    #[track_caller]
    fn mount(&self, options: &MountOptions) -> Mount {
        Mount::stream(&self.bucket.source(), options)
    }

    /// Mounts in the background; returns the mount point.
    #[track_caller]
    fn background(&self) -> PathBuf {
        let place = self.indexes.folder("mnt");
        let folder = |name| self.indexes.folder(name).display().to_string();
        let mut command = self.bucket.command("stream");
        command
            .arg(&place)
            .arg("--transport=nbd")
            .arg(format!("--index-dir={}", folder("index")))
            .arg(format!("--log-file={}/log", folder("logs")));
        run_within(PATIENCE, &mut command).expect_success();
        place
    }

    /// One of the objects. The first one is read when its device is opened, which looks for
    /// partitions.
    fn object(&self, number: usize) -> (&str, &[u8]) {
        let (key, content) = self.objects.iter().nth(number).expect("there are more");
        (key, content)
    }

    /// The mount shows what was put, file by file.
    #[track_caller]
    fn compare(&self, place: &Path) {
        for (key, content) in &self.objects {
            let shown = digest(&place.join(key)).expect("readable");
            assert_eq!(shown, digest_of(content), "{key}");
        }
    }
}

#[track_caller]
fn stream(arguments: &[&str]) -> Finished {
    run_within(PATIENCE, penstock().arg("stream").args(arguments))
}

/// What `penstock stream list` says of this mount point.
fn listed(place: &Path) -> Option<serde_json::Value> {
    let text = stream(&["list", "--json"]).expect_success().stdout;
    let volumes: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let volumes = volumes.as_array().expect("a list").iter();
    let mut ours = volumes.filter(|volume| volume["mount_point"] == *place.to_string_lossy());
    ours.next().cloned()
}

/// The devices of the mount that have this kind of name.
fn devices(place: &Path, kind: &str) -> Vec<String> {
    let volume = listed(place).expect("it is listed");
    let devices = volume["devices"].as_array().expect("a list").iter();
    let names = devices.map(|device| device["name"].as_str().expect("a name").to_owned());
    names.filter(|name| name.starts_with(kind)).collect()
}

fn server(place: &Path) -> Process {
    let pid = listed(place).expect("it is listed")["pid"].as_u64();
    Process(u32::try_from(pid.expect("a number")).expect("a process id"))
}

/// The process that started this one.
fn parent(process: Process) -> Process {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.0)).expect("it runs");
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let parent = fields.split_whitespace().nth(1).expect("it has a parent");
    Process(parent.parse().expect("a number"))
}

fn attribute(device: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/sys/block/{device}/{name}")).ok()?;
    Some(text.trim().to_owned())
}

fn is_attached(device: &str) -> bool {
    let of_loop = attribute(device, "loop/backing_file");
    of_loop.or_else(|| attribute(device, "pid")).is_some()
}

fn is_mounted(place: &Path) -> bool {
    let wanted = place.to_string_lossy();
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut lines = table.lines();
    lines.any(|line| line.split(' ').nth(1) == Some(&*wanted))
}

/// Nothing of a volume is left.
#[track_caller]
fn nothing_is_left(place: &Path, devices: &[String]) {
    assert!(!is_mounted(place));
    let left: Vec<_> = devices
        .iter()
        .filter(|device| is_attached(device))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(listed(place), None);
}

type Reading = mpsc::Receiver<std::io::Result<Vec<u8>>>;

/// Reads a file on a thread of its own, since that may wait.
fn read_aside(path: PathBuf) -> Reading {
    let (done, waiting) = mpsc::channel();
    thread::spawn(move || done.send(fs::read(path)));
    waiting
}

#[track_caller]
fn expect_io_error(reading: &Reading) {
    let outcome = reading.recv_timeout(PATIENCE.0).expect("in time");
    let error = outcome.map(|read| read.len()).expect_err("nobody answers");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
}

#[test]
fn a_tree_over_nbd_is_the_same() {
    let Some(mut rig) = Rig::new(Kind::S3, 300) else {
        return;
    };
    rig.put("large", noise(5, 12 << 20));
    rig.put("with space/ünï", noise(6, 1));
    for (fs, disks) in [("erofs", "2"), ("ext4", "1")] {
        let options = rig.options().option("fs", fs).option("disks", disks);
        let mount = rig.mount(&options);
        let place = mount.path().to_owned();
        let nbds = devices(&place, "nbd");
        assert_eq!(nbds.len().to_string(), disks, "{fs}");
        for device in &nbds {
            let shown = |name| attribute(device, name).unwrap_or_default();
            assert_eq!(shown("ro"), "1");
            assert_eq!(shown("queue/logical_block_size"), "4096");
            assert_eq!(shown("queue/read_ahead_kb"), "16384");
            let node = File::options().write(true).open(format!("/dev/{device}"));
            let written = node.and_then(|node| node.write_at(&[0; 4096], 0));
            assert!(written.is_err(), "{device} was written to");
        }
        rig.compare(&place);
        let all = devices(&place, "");
        mount.unmount();
        nothing_is_left(&place, &all);
    }
}

#[test]
fn unmounting_an_nbd_volume_by_any_means_leaves_nothing() {
    let Some(rig) = Rig::new(Kind::Local, 5) else {
        return;
    };
    for by_signal in [false, true] {
        let mount = rig.mount(&rig.options());
        let (place, process) = (mount.path().to_owned(), mount.process());
        let devices = devices(&place, "");
        match by_signal {
            true => process.terminate(),
            false => {
                run_within(PATIENCE, Command::new("umount").arg(&place)).expect_success();
            }
        }
        PATIENCE.until("the process to end", || !process.is_alive());
        nothing_is_left(&place, &devices);
    }
}

#[test]
fn readers_of_an_nbd_volume_outlive_its_process() {
    let Some(rig) = Rig::new(Kind::S3, 40) else {
        return;
    };
    let place = rig.background();
    let keeper = parent(server(&place));
    let devices = devices(&place, "");
    for round in 0..2 {
        let (taken, taken_content) = rig.object(10 + round);
        let (later, later_content) = rig.object(30 + round);
        let mut readings = None;
        rig.bucket.without_server(|| {
            // One that the dead process had taken, and one that comes while nobody is there.
            let begun = read_aside(place.join(taken));
            thread::sleep(Duration::from_secs(1));
            let dead = server(&place);
            dead.kill();
            readings = Some((begun, read_aside(place.join(later)), Instant::now()));
            PATIENCE.until("another process goes on", || server(&place) != dead);
        });
        let (begun, next, killed) = readings.expect("begun");
        let read = next.recv_timeout(PATIENCE.0).expect("in time");
        println!("round {round}: a new read took {:?}", killed.elapsed());
        assert!(read.expect("readable") == later_content, "round {round}");
        let read = begun.recv_timeout(PATIENCE.0).expect("in time");
        println!(
            "round {round}: a read under way took {:?}",
            killed.elapsed()
        );
        assert!(read.expect("asked for again") == taken_content);
        assert!(killed.elapsed() < REQUEST_TIMEOUT * 2, "round {round}");
    }
    rig.compare(&place);
    let process = server(&place);
    run_within(PATIENCE, penstock().arg("umount").arg(&place)).expect_success();
    PATIENCE.until("both processes to end", || {
        !process.is_alive() && !keeper.is_alive()
    });
    nothing_is_left(&place, &devices);
}

#[test]
fn readers_of_a_dead_nbd_volume_wait_and_then_get_errors() {
    let Some(rig) = Rig::new(Kind::S3, 30) else {
        return;
    };
    let mount = rig.mount(&rig.options());
    let place = mount.path().to_owned();
    let devices = devices(&place, "");
    mount.process().kill();
    let names = fs::read_dir(place.join("set")).expect("names are local");
    assert_eq!(names.count(), 17);
    let begun = Instant::now();
    expect_io_error(&read_aside(place.join(rig.object(20).0)));
    println!("a read failed after {:?}", begun.elapsed());
    assert!(begun.elapsed() > NOBODY_TIMEOUT / 2);
    stream(&["detach"]).expect_success();
    nothing_is_left(&place, &devices);
}

#[test]
fn detaching_a_dead_nbd_volume_frees_its_readers_at_once() {
    let Some(rig) = Rig::new(Kind::S3, 30) else {
        return;
    };
    let mount = rig.mount(&rig.options());
    let place = mount.path().to_owned();
    let devices = devices(&place, "");
    mount.process().kill();
    let reading = read_aside(place.join(rig.object(20).0));
    assert!(reading.recv_timeout(Duration::from_secs(2)).is_err());
    assert_eq!(listed(&place).expect("it is listed")["alive"], false);
    let begun = Instant::now();
    stream(&["detach"]).expect_success();
    expect_io_error(&reading);
    println!("a reader was free after {:?}", begun.elapsed());
    assert!(begun.elapsed() < NOBODY_TIMEOUT / 2);
    nothing_is_left(&place, &devices);
}

#[test]
fn the_next_start_cleans_up_after_a_killed_nbd_volume() {
    let Some(rig) = Rig::new(Kind::S3, 30) else {
        return;
    };
    let dead = rig.mount(&rig.options());
    let old = devices(dead.path(), "");
    dead.process().kill();
    let mount = rig.mount(&rig.options());
    assert!(!is_mounted(dead.path()));
    assert_eq!(listed(dead.path()), None);
    assert!(is_attached(&old[0]), "its numbers are taken again");
    rig.compare(mount.path());
    mount.unmount();
    nothing_is_left(dead.path(), &old);
}

#[test]
fn reads_over_nbd_are_patient_with_a_store_as_long_as_was_asked_for() {
    let Some(rig) = Rig::new(Kind::S3, 30) else {
        return;
    };
    // Longer than the driver waits for an answer.
    let patience = REQUEST_TIMEOUT * 3 / 2;
    let limit = format!("{}s", patience.as_secs());
    let mount = rig.mount(&rig.options().option("retry-timeout", &limit));
    let (key, content) = rig.object(20);
    rig.bucket.without_server(|| {
        let begun = Instant::now();
        expect_io_error(&read_aside(mount.join(key)));
        println!("a read failed after {:?}", begun.elapsed());
        assert!(begun.elapsed() > patience * 2 / 3 && begun.elapsed() < patience * 2);
    });
    let read = read_aside(mount.join(key)).recv_timeout(PATIENCE.0);
    assert!(read.expect("in time").expect("well again") == content);
    rig.compare(mount.path());
    mount.unmount();
}
