//! Devices of the kernel's own driver, read as what they are. Where the kernel has none these say
//! so; `make guest-test` runs them in a guest that has.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use penstock_base::{FsError, FsResult, Payload};
use penstock_vfs::Disk;
use tokio::{runtime::Runtime, sync::watch};

use crate::{
    tags::{is_tagged, tagged_devices},
    ublk::{
        DEPTH,
        control::Control,
        driver,
        layout::feature::{RECOVERY, RECOVERY_REISSUE},
        owner,
        served::{Served, Wanted, recover},
    },
};

const SIZE: u64 = 48 << 20;
const BLOCK: u64 = 4096;
const BROKEN: u64 = 1000 * BLOCK;

/// Every byte follows from its place, the block at [`BROKEN`] cannot be read, and nothing can while
/// the gate is closed.
struct Pattern {
    open: watch::Sender<bool>,
    waiting: AtomicUsize,
}

/// Counts a read, also one that is given up.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn pattern(offset: u64, length: usize) -> Vec<u8> {
    let byte = |at: u64| (at / BLOCK).wrapping_mul(31).wrapping_add(at % 251) as u8;
    (offset..offset + length as u64).map(byte).collect()
}

#[async_trait]
impl Disk for Pattern {
    fn size(&self) -> u64 {
        SIZE
    }

    async fn read(&self, offset: u64, length: u32) -> FsResult<Payload> {
        let waiting = Waiting::new(&self.waiting);
        let _ = self.open.subscribe().wait_for(|open| *open).await;
        drop(waiting);
        if (offset..offset + u64::from(length)).contains(&BROKEN) {
            return Err(FsError::Stale);
        }
        // In slices of odd sizes.
        let mut payload = Payload::new();
        for part in pattern(offset, length as usize).chunks(3001) {
            payload.push(part.to_vec().into());
        }
        Ok(payload)
    }
}

struct Rig {
    served: Option<Served>,
    disk: Arc<Pattern>,
    tag: String,
    runtime: Runtime,
}

impl Rig {
    /// None where the kernel lacks the driver.
    fn new() -> Option<Self> {
        Self::with(0)
    }

    /// With more than what every device is asked for.
    fn with(features: u64) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(900_000);
        if let Err(why) = driver::look_for_driver() {
            penstock_skips::skipped(format_args!("see `make guest-test`: {why}"));
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let tag = format!("penstock-{}-{number}", std::process::id());
        let disk = Arc::new(Pattern {
            open: watch::Sender::new(true),
            waiting: AtomicUsize::new(0),
        });
        let runtime = Runtime::new().expect("threads");
        let wanted = Wanted {
            owner: owner::number_of(&tag).expect("of this form"),
            features: driver::NEEDED | features,
        };
        let control = Arc::new(Control::open().expect("looked at before"));
        let of_disk = Arc::clone(&disk) as Arc<dyn Disk>;
        let served = Served::attach(control, &of_disk, wanted, runtime.handle());
        Some(Self {
            served: Some(served.expect("attached")),
            disk,
            tag,
            runtime,
        })
    }

    fn open(&self) -> Arc<File> {
        let name = self.served.as_ref().expect("attached").name();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECT);
        Arc::new(options.open(name.node()).expect("the node is there"))
    }

    fn close_gate(&self) {
        self.disk.open.send_replace(false);
    }

    fn waiting(&self) -> usize {
        self.disk.waiting.load(Ordering::SeqCst)
    }
}

/// Reads around the page cache, which wants memory that begins with a page.
fn read(device: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut memory = vec![0; length + BLOCK as usize];
    let skip = memory.as_ptr().align_offset(BLOCK as usize);
    let count = device.read_at(&mut memory[skip..skip + length], offset)?;
    Ok(memory[skip..skip + count].to_vec())
}

#[track_caller]
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "until {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_byte_of_a_ublk_device_is_that_of_its_disk() {
    let Some(rig) = Rig::new() else { return };
    let device = rig.open();
    let readers = (0..16_u64).map(|reader| {
        let device = Arc::clone(&device);
        thread::spawn(move || {
            for round in 0..12 {
                let block = (reader * 7919 + round * 104_729) % 11_000;
                let blocks = [1, 3, 64, 256, 700][(reader + round) as usize % 5];
                let (offset, length) = (block * BLOCK, (blocks * BLOCK) as usize);
                if (offset..offset + length as u64).contains(&BROKEN) {
                    continue;
                }
                let bytes = read(&device, offset, length).expect("readable");
                assert!(bytes == pattern(offset, length), "{offset}+{length}");
            }
        })
    });
    for reader in readers.collect::<Vec<_>>() {
        reader.join().expect("the bytes are those of the disk");
    }
}

#[test]
fn a_read_of_a_ublk_device_that_fails_is_the_only_one() {
    let Some(rig) = Rig::new() else { return };
    let device = rig.open();
    for _ in 0..2 {
        let error = read(&device, BROKEN, 4096).expect_err("it cannot be read");
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        for offset in [BROKEN - BLOCK, BROKEN + BLOCK] {
            let bytes = read(&device, offset, 4096).expect("readable");
            assert!(bytes == pattern(offset, 4096));
        }
    }
    let end = read(&device, SIZE, 4096).expect("nothing is there");
    assert!(end.is_empty());
}

#[test]
fn a_queue_of_a_ublk_device_has_all_its_requests_in_flight() {
    let Some(rig) = Rig::new() else { return };
    let device = rig.open();
    rig.close_gate();
    let readers = (0..u64::from(DEPTH) + 30).map(|reader| {
        let device = Arc::clone(&device);
        thread::spawn(move || {
            let bytes = read(&device, reader * BLOCK, 4096).expect("readable");
            assert!(bytes == pattern(reader * BLOCK, 4096));
        })
    });
    let readers: Vec<_> = readers.collect();
    wait_until("as many wait", || rig.waiting() >= usize::from(DEPTH));
    rig.disk.open.send_replace(true);
    for reader in readers {
        reader.join().expect("every read has its own bytes");
    }
}

#[test]
fn taking_a_ublk_device_away_frees_its_readers() {
    let Some(mut rig) = Rig::new() else { return };
    let device = rig.open();
    rig.close_gate();
    let readers: Vec<_> = (0..20_u64)
        .map(|reader| {
            let device = Arc::clone(&device);
            thread::spawn(move || read(&device, reader * BLOCK, 4096))
        })
        .collect();
    wait_until("they wait", || rig.waiting() == readers.len());
    let name = rig.served.as_ref().expect("attached").name();
    let begun = Instant::now();
    rig.served = None;
    for reader in readers {
        let error = reader.join().expect("no panic").expect_err("it is gone");
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }
    assert!(begun.elapsed() < Duration::from_secs(30));
    wait_until("nobody waits for the disk", || rig.waiting() == 0);
    // Somebody still has it open, but there is no block device any more.
    assert!(!name.exists());
    drop(device);
    wait_until("its number is free", || !is_tagged(&name, &rig.tag));
}

#[test]
fn a_ublk_device_is_found_by_its_tag_and_can_be_given_up() {
    let Some(mut rig) = Rig::new() else { return };
    let name = rig.served.as_ref().expect("attached").name();
    assert_eq!(tagged_devices(&rig.tag), [name.0.as_str()]);
    driver::release(&name, "penstock-1-1");
    assert!(is_tagged(&name, &rig.tag), "another's");
    driver::release(&name, &rig.tag);
    assert!(!name.exists());
    rig.served = None;
    wait_until("it is gone", || tagged_devices(&rig.tag).is_empty());
}

#[test]
fn a_ublk_device_goes_on_also_when_another_had_begun_to_recover_it() {
    let Some(mut rig) = Rig::with(RECOVERY | RECOVERY_REISSUE) else {
        return;
    };
    let device = rig.open();
    rig.close_gate();
    let reader = {
        let device = Arc::clone(&device);
        thread::spawn(move || read(&device, 8 * BLOCK, 4096))
    };
    wait_until("it waits", || rig.waiting() == 1);
    let name = rig.served.as_ref().expect("attached").name();
    let place = (
        driver::number_of(&name).expect("its number"),
        owner::number_of(&rig.tag).expect("of this form"),
    );
    let control = Arc::new(Control::open().expect("the driver is there"));
    rig.served.take().expect("attached").forsake();
    let begun = recover(&control, place.0, place.1);
    rig.runtime.block_on(begun).expect("begun");
    rig.disk.open.send_replace(true);
    let of_disk = Arc::clone(&rig.disk) as Arc<dyn Disk>;
    let resumed = Served::resume(control, place, of_disk);
    rig.served = Some(rig.runtime.block_on(resumed).expect("recovered"));
    let read = reader.join().expect("no panic").expect("asked for again");
    assert!(read == pattern(8 * BLOCK, 4096));
}

#[test]
fn a_ublk_device_of_somebody_else_is_not_recovered() {
    let Some(rig) = Rig::new() else { return };
    let name = rig.served.as_ref().expect("attached").name();
    let device = driver::number_of(&name).expect("its number");
    let control = Arc::new(Control::open().expect("the driver is there"));
    let other = owner::number_of("penstock-1-1").expect("of this form");
    let of_disk = Arc::clone(&rig.disk) as Arc<dyn Disk>;
    let resumed = rig
        .runtime
        .block_on(Served::resume(control, (device, other), of_disk));
    assert!(resumed.is_err());
    let bytes = read(&rig.open(), 0, 4096).expect("it is as it was");
    assert!(bytes == pattern(0, 4096));
}

#[test]
fn a_ublk_device_goes_when_a_queue_is_not_served_any_more() {
    let Some(mut rig) = Rig::with(RECOVERY | RECOVERY_REISSUE) else {
        return;
    };
    let served = Arc::new(rig.served.take().expect("attached"));
    let name = served.name();
    // As a file system has it.
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_EXCL | libc::O_DIRECT);
    let device = options.open(name.node()).expect("nobody else has it");
    rig.close_gate();
    let reader = thread::spawn(move || read(&device, 0, 4096));
    wait_until("it waits", || rig.waiting() == 1);
    let mut end = rig.runtime.spawn(Arc::clone(&served).go_with_last_user());
    let early = async { tokio::time::timeout(Duration::from_secs(1), &mut end).await };
    assert!(rig.runtime.block_on(early).is_err(), "it is in use");
    served.lose_a_queue();
    rig.runtime.block_on(end).expect("no panic");
    assert!(!name.exists());
    let error = reader.join().expect("no panic").expect_err("it is gone");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
}
