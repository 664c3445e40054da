//! The same door with its requests coming through an io_uring, where the kernel has that.

#![allow(clippy::panic, clippy::unwrap_used)]

mod support;

use std::{
    fs::{self, File},
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering, mpsc},
    thread,
    time::Duration,
};

use penstock_base::{FsError, MIB, clock};
use penstock_fuse::UnmountMode;
use support::{MemoryVolume, Stop, TestMount, can_mount, eventually, pattern};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Keeps io_uring switched on for one test at a time, and puts the switch back.
struct Switched {
    before: String,
    _alone: MutexGuard<'static, ()>,
}

impl Switched {
    fn on() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let before = fs::read_to_string(SWITCH).unwrap_or_default();
        if !can_mount() || before.is_empty() || fs::write(SWITCH, "Y").is_err() {
            penstock_skips::skipped(
                "this kernel has no FUSE over io_uring, or only root may use it",
            );
            return None;
        }
        Some(Self {
            before,
            _alone: alone,
        })
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        fs::write(SWITCH, &self.before).unwrap();
    }
}

fn mount(volume: &std::sync::Arc<MemoryVolume>) -> TestMount {
    let mount = TestMount::with(volume.clone(), |settings| settings.io_uring = true);
    assert!(mount.session().negotiated().io_uring);
    mount
}

#[test]
fn files_are_made_listed_read_and_removed_through_the_ring() {
    let Some(_switched) = Switched::on() else {
        return;
    };
    for latency in [None, Some(Duration::from_millis(1))] {
        let volume = MemoryVolume::new();
        latency
            .into_iter()
            .for_each(|latency| volume.hooks.set_latency(latency));
        let mount = mount(&volume);
        fs::create_dir(mount.path("directory")).unwrap();
        for number in 0..300 {
            let path = mount.path(&format!("directory/file-{number}"));
            fs::write(path, format!("content {number}")).unwrap();
        }
        let listed = fs::read_dir(mount.path("directory")).unwrap();
        assert_eq!(listed.filter(Result::is_ok).count(), 300);
        let path = mount.path("directory/file-17");
        assert_eq!(fs::read(&path).unwrap(), b"content 17");
        fs::rename(&path, mount.path("renamed")).unwrap();
        fs::remove_file(mount.path("renamed")).unwrap();
        let gone = fs::metadata(&path).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENOENT));
        mount.finish(&volume);
    }
}

#[test]
fn data_stays_intact_through_the_ring() {
    let Some(_switched) = Switched::on() else {
        return;
    };
    for direct in [false, true] {
        let volume = MemoryVolume::with_direct(direct);
        let mount = mount(&volume);
        thread::scope(|scope| {
            for number in 0..8_u64 {
                let path = mount.path(&format!("file-{number}"));
                scope.spawn(move || move_data(&path, number));
            }
        });
        mount.finish(&volume);
    }
}

fn move_data(path: &Path, seed: u64) {
    let bytes = pattern(4 * MIB as usize + 777, seed);
    fs::write(path, &bytes).unwrap();
    assert!(fs::read(path).unwrap() == bytes);
    let mut middle = vec![0; 70_000];
    let file = File::open(path).unwrap();
    file.read_exact_at(&mut middle, 1_000_001).unwrap();
    assert!(middle == bytes[1_000_001..1_070_001]);
}

#[test]
fn errors_and_panics_come_through_the_ring() {
    let Some(_switched) = Switched::on() else {
        return;
    };
    let volume = MemoryVolume::new();
    volume.hooks.stop("busy", Stop::Error(FsError::Busy("x")));
    volume.hooks.stop("bad", Stop::Panic);
    volume.hooks.stop("late", Stop::LatePanic);
    let mount = mount(&volume);
    // More often than there are entries.
    for _ in 0..50 {
        for (name, errno) in [
            ("busy", libc::EBUSY),
            ("bad", libc::EIO),
            ("late", libc::EIO),
        ] {
            let error = fs::metadata(mount.path(name)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno));
        }
    }
    mount.finish(&volume);
}

#[test]
fn a_process_that_waits_behind_the_ring_can_be_killed() {
    let Some(_switched) = Switched::on() else {
        return;
    };
    let volume = MemoryVolume::gated(true);
    let mount = mount(&volume);
    // More often than there are entries.
    for round in 1..=40 {
        let mut reader = Command::new("cat")
            .arg(mount.path("gated"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let reached = || volume.hooks.waited_at_gate.load(Ordering::SeqCst) == round;
        eventually("the read waits", reached);
        let begun = clock::now();
        reader.kill().unwrap();
        reader.wait().unwrap();
        let spent = begun.elapsed();
        assert!(spent < Duration::from_secs(1), "it died after {spent:?}");
    }
    volume.hooks.open_gate();
    assert_eq!(fs::read(mount.path("gated")).unwrap(), [7; 100]);
    mount.finish(&volume);
}

#[test]
fn a_forced_unmount_ends_a_ring_with_requests_in_it() {
    let Some(_switched) = Switched::on() else {
        return;
    };
    let volume = MemoryVolume::gated(true);
    let mount = mount(&volume);
    let path = mount.path("gated");
    let reader = thread::spawn(move || fs::read(path));
    let reached = || volume.hooks.waited_at_gate.load(Ordering::SeqCst) == 1;
    eventually("the read waits", reached);
    let session = mount.session();
    let unmounted = session.unmount(UnmountMode::Force);
    mount.runtime.block_on(unmounted).unwrap();
    assert!(reader.join().unwrap().is_err());
    volume.hooks.open_gate();
    let end = clock::deadline(Duration::from_secs(5), session.wait());
    mount.runtime.block_on(end).expect("it ends");
}

/// Puts something else in the place of every io_uring of this process: whoever uses one next fails.
#[allow(unsafe_code)]
fn break_rings() {
    let null = File::open("/dev/null").unwrap();
    for entry in fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let number = entry.file_name().into_string().unwrap().parse().unwrap();
        let target = fs::read_link(entry.path()).unwrap_or_default();
        if target.to_string_lossy().contains("io_uring") {
            // SAFETY: both descriptors are open, and their owner closes this one as any other.
            unsafe { libc::dup2(null.as_raw_fd(), number) };
        }
    }
}

#[test]
fn a_ring_that_fails_ends_the_mount_and_nobody_waits_for_ever() {
    let Some(_switched) = Switched::on() else {
        return;
    };
    let volume = MemoryVolume::new();
    let mount = mount(&volume);
    fs::write(mount.path("file"), b"content").unwrap();
    break_rings();
    let (ended, ends) = mpsc::channel();
    for _ in 0..8 {
        let (path, ended) = (mount.path("file"), ended.clone());
        thread::spawn(move || {
            // Dead, or taken away already.
            let gone = [Some(libc::ENOTCONN), Some(libc::ENOENT)];
            let lasts = |error: &io::Error| !gone.contains(&error.raw_os_error());
            while fs::read(&path).as_ref().err().is_none_or(lasts) {}
            ended.send(())
        });
    }
    for _ in 0..8 {
        let told = ends.recv_timeout(Duration::from_secs(20));
        told.expect("whoever asks hears that the mount is gone");
    }
    let end = clock::deadline(Duration::from_secs(5), mount.session().wait());
    mount.runtime.block_on(end).expect("it ends");
}

#[test]
fn a_mount_that_wishes_a_ring_works_without_one() {
    let Some(switched) = Switched::on() else {
        return;
    };
    fs::write(SWITCH, "N").unwrap();
    let volume = MemoryVolume::new();
    let mount = TestMount::with(volume.clone(), |settings| settings.io_uring = true);
    assert!(!mount.session().negotiated().io_uring);
    fs::write(mount.path("file"), b"x").unwrap();
    mount.finish(&volume);
    drop(switched);
}
