//! What holds over each driver of the kernel for block devices that programs serve: nbd and ublk.
//!
//! A [`BlockDriver`] is what a scenario must know of one; the scenarios are its methods. A test in
//! `tests/tests/stream_nbd.rs` or `tests/tests/stream_ublk.rs` gives a scenario its name there, and
//! what only one of the drivers promises has its test there. Where the kernel lacks the driver a
//! scenario says so and is over; `make guest-test` runs them in a guest that has both.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Kind, MountOptions,
    data::noise,
    devices::{
        PATIENCE, devices, expect_io_error, expect_read_only, is_attached, is_mounted, listed,
        nothing_is_left, parent, server, stream,
    },
    penstock, run_within,
    stream::{Rig, read_aside},
};

/// Far less than any patience: what nothing holds up takes no longer, even on an emulated machine.
pub const AT_ONCE: Duration = Duration::from_secs(20);

/// How long an answer may take before the driver nbd asks again.
pub const NBD_REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The driver nbd.
pub const NBD: BlockDriver = BlockDriver {
    transport: "nbd",
    devices: "nbd",
    sign: "/sys/module/nbd",
    goes_on_within: NBD_REQUEST_TIMEOUT.saturating_mul(2),
};

/// The driver ublk.
pub const UBLK: BlockDriver = BlockDriver {
    transport: "ublk",
    devices: "ublkb",
    sign: "/dev/ublk-control",
    goes_on_within: AT_ONCE,
};

/// A driver of the kernel for block devices that programs serve.
#[derive(Debug)]
pub struct BlockDriver {
    /// The transport that takes it.
    pub transport: &'static str,
    /// What the names of its devices begin with.
    devices: &'static str,
    /// A path that is there where the driver is.
    sign: &'static str,
    /// When a read that a dead process had taken is done by another one at the latest.
    goes_on_within: Duration,
}

impl BlockDriver {
    /// Whether the kernel has it.
    pub fn is_there(&self) -> bool {
        Path::new(self.sign).exists()
    }

    /// A bucket with so many files of a few blocks each. None, and a line that says so, where the
    /// kernel lacks the driver.
    pub fn rig(&self, kind: Kind, files: u64) -> Option<Rig> {
        if !self.is_there() {
            let name = self.transport;
            penstock_skips::skipped(format_args!(
                "this kernel has no driver {name}; see `make guest-test`"
            ));
            return None;
        }
        Some(Rig::with_small_files(kind, files))
    }

    /// The options of a volume over the driver.
    pub fn options(&self, rig: &Rig) -> MountOptions {
        rig.options().option("transport", self.transport)
    }

    /// Mounts in the background; returns the mount point.
    #[track_caller]
    pub fn background(&self, rig: &Rig) -> PathBuf {
        rig.background(self.transport)
    }

    /// A volume in the background whose processes were killed, first the one that would have
    /// started another: the mount point, and its devices.
    #[track_caller]
    fn dead(&self, rig: &Rig) -> (PathBuf, Vec<String>) {
        let place = self.background(rig);
        let devices = devices(&place, "");
        let server = server(&place);
        let keeper = parent(server);
        keeper.kill();
        server.kill();
        PATIENCE.until("both to be gone", || {
            !keeper.is_alive() && !server.is_alive()
        });
        (place, devices)
    }
}

/// The scenarios.
impl BlockDriver {
    /// Names, sizes and bytes of every kind of image, over devices that are read-only.
    pub fn shows_the_same_tree(&self) {
        let Some(mut rig) = self.rig(Kind::S3, 300) else {
            return;
        };
        rig.put("large", noise(5, 12 << 20));
        rig.put("with space/ünï", noise(6, 1));
        for (fs, disks) in [("erofs", "2"), ("ext4", "1")] {
            let options = self.options(&rig).option("fs", fs).option("disks", disks);
            let mount = rig.mount(&options);
            let place = mount.path().to_owned();
            let ours = devices(&place, self.devices);
            assert_eq!(ours.len().to_string(), disks, "{fs}");
            for device in &ours {
                expect_read_only(device);
            }
            rig.compare(&place);
            let all = devices(&place, "");
            mount.unmount();
            nothing_is_left(&place, &all);
        }
    }

    /// `umount`, or a signal: the process ends and the devices go.
    pub fn unmounting_by_any_means_leaves_nothing(&self) {
        let Some(rig) = self.rig(Kind::Local, 5) else {
            return;
        };
        for by_signal in [false, true] {
            let mount = rig.mount(&self.options(&rig));
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

    /// The process is killed, twice: reads that it had taken, and those that come while nobody is
    /// there, are done by the next.
    pub fn readers_outlive_the_process(&self) {
        let Some(rig) = self.rig(Kind::S3, 40) else {
            return;
        };
        let place = self.background(&rig);
        let keeper = parent(server(&place));
        let devices = devices(&place, "");
        for round in 0..2 {
            self.a_read_outlives_the_process(&rig, &place, round);
        }
        rig.compare(&place);
        let process = server(&place);
        run_within(PATIENCE, penstock().arg("umount").arg(&place)).expect_success();
        PATIENCE.until("both processes to end", || {
            !process.is_alive() && !keeper.is_alive()
        });
        nothing_is_left(&place, &devices);
    }

    fn a_read_outlives_the_process(&self, rig: &Rig, place: &Path, round: usize) {
        let (taken, taken_content) = rig.object(10 + round);
        let (later, later_content) = rig.object(30 + round);
        let mut readings = None;
        rig.bucket.without_server(|| {
            let begun = read_aside(place.join(taken));
            thread::sleep(Duration::from_secs(1));
            let dead = server(place);
            dead.kill();
            readings = Some((begun, read_aside(place.join(later)), Instant::now()));
            PATIENCE.until("another process goes on", || server(place) != dead);
        });
        let (begun, next, killed) = readings.expect("begun");
        let new = ("that is new", next, later_content);
        let old = ("under way", begun, taken_content);
        for (which, reading, content) in [new, old] {
            let read = reading.recv_timeout(PATIENCE.0).expect("in time");
            println!("round {round}: a read {which} took {:?}", killed.elapsed());
            assert!(read.expect("readable") == content, "round {round}, {which}");
        }
        assert!(killed.elapsed() < self.goes_on_within, "round {round}");
    }

    /// Nobody is there any more: names go on, readers wait, and detaching the volume frees them.
    pub fn readers_of_a_dead_volume_wait_until_it_is_detached(&self) {
        let Some(rig) = self.rig(Kind::S3, 30) else {
            return;
        };
        let (place, devices) = self.dead(&rig);
        let names = fs::read_dir(place.join("set")).expect("names are local");
        assert_eq!(names.count(), 17);
        let reading = read_aside(place.join(rig.object(20).0));
        assert!(reading.recv_timeout(Duration::from_secs(5)).is_err());
        assert_eq!(listed(&place).expect("it is listed")["alive"], false);
        let begun = Instant::now();
        stream(&["detach"]).expect_success();
        expect_io_error(&reading);
        println!("a reader was free after {:?}", begun.elapsed());
        assert!(begun.elapsed() < AT_ONCE);
        nothing_is_left(&place, &devices);
    }

    /// A start removes what a killed volume left, before it attaches devices of its own.
    pub fn the_next_start_cleans_up(&self) {
        let Some(rig) = self.rig(Kind::S3, 30) else {
            return;
        };
        let (dead, old) = self.dead(&rig);
        let mount = rig.mount(&self.options(&rig));
        assert!(!is_mounted(&dead));
        assert_eq!(listed(&dead), None);
        assert!(is_attached(&old[0]), "its numbers are taken again");
        rig.compare(&mount);
        mount.unmount();
        nothing_is_left(&dead, &old);
    }
}
