//! What the kernel writes back while there is no memory for it.

#![allow(
    unsafe_code,
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used
)]

mod support;

use std::{
    fs::{self, File},
    io::{self, Write},
    os::fd::AsRawFd,
    path::Path,
    ptr, slice,
    sync::Arc,
    thread,
};

use penstock_base::MIB;
use penstock_fuse::FuseSettings;
use support::{MemoryVolume, Stop, TestMount, can_mount, eventually, pattern, writes_of};

const LENGTH: usize = 24 * MIB as usize + 4097;
/// What four threads and what is held for writes take of it leaves a little.
const MEMORY: u64 = 12 * MIB;

/// A volume whose writes wait, mounted with all memory taken.
fn crowded(change: impl FnOnce(&mut FuseSettings)) -> (Arc<MemoryVolume>, TestMount) {
    let volume = MemoryVolume::with_direct(false);
    volume.add_file("file", vec![0; LENGTH]);
    volume.hooks.stop(&writes_of("file"), Stop::Gate);
    let mount = TestMount::with_memory(volume.clone(), MEMORY, change).expect("mounted");
    (volume, mount)
}

fn spill_here(settings: &mut FuseSettings) {
    settings.spill_directory = Some(std::env::temp_dir());
}

fn write_and_sync(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Through a shared mapping, as msync and fsync see it.
fn map_and_sync(path: &Path, content: &[u8]) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let (length, shared) = (content.len(), libc::MAP_SHARED);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(ptr::null_mut(), length, access, shared, file.as_raw_fd(), 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: the mapping has that length, is unmapped last, and nobody else knows it.
    let synced = unsafe {
        slice::from_raw_parts_mut(start.cast::<u8>(), length).copy_from_slice(content);
        let synced = libc::msync(start, length, libc::MS_SYNC);
        libc::munmap(start, length);
        synced
    };
    match synced {
        0 => file.sync_all(),
        _ => Err(io::Error::last_os_error()),
    }
}

struct OpensGate<'a>(&'a MemoryVolume);

impl Drop for OpensGate<'_> {
    fn drop(&mut self) {
        self.0.hooks.open_gate();
    }
}

/// Writes the file while all writes wait for memory or at the gate, and opens the gate when some wait
/// on the disk.
#[track_caller]
fn check(change: impl FnOnce(&mut FuseSettings), write: fn(&Path, &[u8]) -> io::Result<()>) {
    let (volume, mount) = crowded(|settings| {
        spill_here(settings);
        change(settings);
    });
    let budget = mount.pool.budget();
    let everything = budget.try_reserve(budget.available());
    let content = pattern(LENGTH, 5);
    thread::scope(|scope| {
        // Also when the test fails, or it would wait for the writer for ever.
        let gate = OpensGate(&volume);
        let writer = scope.spawn(|| write(&mount.path("file"), &content));
        eventually("some wait on the disk", || {
            mount.counted("fuse_writes_spilled_total", None) > 0
        });
        drop(gate);
        writer.join().unwrap().unwrap();
    });
    assert_eq!(mount.counted("fuse_writes_shortened_total", None), 0);
    drop(everything);
    // Not what the kernel still has of it.
    let mount = {
        mount.unmount();
        TestMount::new(volume)
    };
    assert!(fs::read(mount.path("file")).unwrap() == content);
}

#[test]
fn what_the_kernel_gathered_is_taken_whole() {
    if can_mount() {
        check(|settings| settings.writeback_cache = true, write_and_sync);
    }
}

#[test]
fn what_was_written_through_a_mapping_is_taken_whole() {
    if can_mount() {
        check(|_| {}, map_and_sync);
    }
}

#[test]
fn a_mount_without_a_disk_says_that_it_has_no_memory() {
    if !can_mount() {
        return;
    }
    let (volume, mount) = crowded(|_| {});
    let budget = mount.pool.budget();
    let _everything = budget.try_reserve(budget.available());
    volume
        .hooks
        .set_latency(std::time::Duration::from_millis(20));
    volume.hooks.open_gate();
    let synced = map_and_sync(&mount.path("file"), &pattern(LENGTH, 6));
    assert!(synced.is_err(), "what could not be taken is told");
}
