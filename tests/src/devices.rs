//! What tests of block devices share: what the kernel and `penstock stream list` show of a volume.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

pub use crate::mount::is_mounted;
use crate::{Finished, Patience, Process, penstock, run_within, stream::Reading};

/// Emulated machines are slow.
pub const PATIENCE: Patience = Patience::seconds(120);

/// Runs `penstock stream` with these arguments.
#[track_caller]
pub fn stream(arguments: &[&str]) -> Finished {
    run_within(PATIENCE, penstock().arg("stream").args(arguments))
}

/// What `penstock stream list` says of this mount point.
pub fn listed(place: &Path) -> Option<serde_json::Value> {
    let text = stream(&["list", "--json"]).expect_success().stdout;
    let volumes: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let volumes = volumes.as_array().expect("a list").iter();
    let mut ours = volumes.filter(|volume| volume["mount_point"] == *place.to_string_lossy());
    ours.next().cloned()
}

/// The devices of the mount that have this kind of name.
#[track_caller]
pub fn devices(place: &Path, kind: &str) -> Vec<String> {
    let volume = listed(place).expect("it is listed");
    let devices = volume["devices"].as_array().expect("a list").iter();
    let names = devices.map(|device| device["name"].as_str().expect("a name").to_owned());
    names.filter(|name| name.starts_with(kind)).collect()
}

/// The process that serves the volume.
pub fn server(place: &Path) -> Process {
    let pid = listed(place).expect("it is listed")["pid"].as_u64();
    Process(u32::try_from(pid.expect("a number")).expect("a process id"))
}

/// The process that started this one.
pub fn parent(process: Process) -> Process {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.0)).expect("it runs");
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let parent = fields.split_whitespace().nth(1).expect("it has a parent");
    Process(parent.parse().expect("a number"))
}

/// What /sys shows of a block device.
pub fn attribute(device: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/sys/block/{device}/{name}")).ok()?;
    Some(text.trim().to_owned())
}

/// Whether the block device has something behind it.
pub fn is_attached(device: &str) -> bool {
    // A device of ublk, which has two nodes, is there only as long as something is behind it.
    if let Some(number) = device.strip_prefix("ublkb") {
        let node = format!("/sys/class/ublk-char/ublkc{number}");
        return attribute(device, "dev").is_some() || Path::new(&node).exists();
    }
    let of_loop = attribute(device, "loop/backing_file");
    of_loop.or_else(|| attribute(device, "pid")).is_some()
}

/// Nothing of a volume is left.
#[track_caller]
pub fn nothing_is_left(place: &Path, devices: &[String]) {
    assert!(!is_mounted(place));
    let left: Vec<_> = devices
        .iter()
        .filter(|device| is_attached(device))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(listed(place), None);
}

/// The read ends with `EIO`.
#[track_caller]
pub fn expect_io_error(reading: &Reading) {
    let outcome = reading.recv_timeout(PATIENCE.0).expect("in time");
    let error = outcome.map(|read| read.len()).expect_err("nobody answers");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
}

/// The device is read-only, has blocks of 4096 bytes and refuses writes.
#[track_caller]
pub fn expect_read_only(device: &str) {
    let shown = |name| attribute(device, name).unwrap_or_default();
    assert_eq!(shown("ro"), "1");
    assert_eq!(shown("queue/logical_block_size"), "4096");
    assert_eq!(shown("queue/read_ahead_kb"), "16384");
    let node = File::options().write(true).open(format!("/dev/{device}"));
    let written = node.and_then(|node| node.write_at(&[0; 4096], 0));
    assert!(written.is_err(), "{device} was written to");
}
