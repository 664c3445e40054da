//! The disk cache of a mount: what was read once is read again without the store.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use penstock_tests::{
    BUCKET, Bucket, Fileset, Kind, Mount, Patience, Scratch, SmallDisk,
    data::{digest, lines},
    penstock, run_within,
    stats::metric,
};

const MIB: usize = 1 << 20;
const PATIENCE: Patience = Patience::seconds(120);

/// A bucket with objects of `mebibytes`.
fn filled(count: usize, mebibytes: usize) -> Bucket {
    let bucket = Bucket::new(Kind::S3);
    bucket.fill(&format!("objects/:{count}:{mebibytes}MiB"));
    bucket
}

fn mount(bucket: &Bucket, directory: &Path, size: &str) -> Mount {
    let options = bucket
        .options()
        .option("cache-dir", &directory.display().to_string())
        .option("cache-size", size)
        .option("cache-free-ratio", "0");
    bucket.mount_with(&options)
}

fn gets(mount: &Mount) -> u64 {
    metric(mount, "object_operations_total", "\"get\"")
}

fn cache(arguments: &[&str]) -> String {
    let mut command = penstock();
    command.arg("cache").args(arguments);
    run_within(PATIENCE, &mut command).expect_success().stdout
}

/// The paths of the first `count` objects in a mount.
fn paths(bucket: &Bucket, mount: &Mount) -> Vec<PathBuf> {
    let keys = bucket.data().keys(BUCKET);
    keys.iter().map(|key| mount.join(key)).collect()
}

/// The reads of a fileset name no version, and so none of them was kept.
#[test]
fn a_fileset_is_read_again_after_a_remount_without_the_store() {
    let scratch = Scratch::new();
    for durability in ["local", "store"] {
        let fileset = Fileset::made_with("cached", &["--durability", durability]);
        let directory = scratch.path().join(durability);
        let options = fileset
            .options()
            .option("cache-dir", &directory.display().to_string())
            .option("cache-free-ratio", "0");
        let mounted = fileset.mount_with(&options);
        fs::write(mounted.join("large"), lines(1, 20 * MIB)).expect("it is stored");
        for number in 0..50 {
            let small = lines(number, 3000 + number as usize);
            fs::write(mounted.join(format!("small-{number}")), small).expect("it is stored");
        }
        mounted.unmount();
        let read_all = |mounted: &Mount| {
            let before = gets(mounted);
            assert!(fs::read(mounted.join("large")).expect("a read") == lines(1, 20 * MIB));
            for number in 0..50 {
                let small = fs::read(mounted.join(format!("small-{number}")));
                assert!(small.expect("a read") == lines(number, 3000 + number as usize));
            }
            gets(mounted) - before
        };
        let mounted = fileset.mount_with(&options);
        assert!(read_all(&mounted) > 0);
        mounted.unmount();
        let mounted = fileset.mount_with(&options);
        assert_eq!(read_all(&mounted), 0, "{durability}: {}", mounted.log());
        fs::remove_file(mounted.join("large")).expect("it is removed");
        let used = || metric(&mounted, "cache_used_bytes", "");
        PATIENCE.until("its bytes leave the cache", || used() < 2 * MIB as u64);
        mounted.unmount();
    }
}

#[test]
fn what_was_read_is_read_again_after_a_remount_without_the_store() {
    let scratch = Scratch::new();
    let directory = scratch.path().join("cache");
    let bucket = filled(2, 40);
    let mounted = mount(&bucket, &directory, "1GiB");
    let root = mounted.path().display().to_string();
    cache(&["warm", &root]);
    let first = paths(&bucket, &mounted)
        .iter()
        .map(|path| digest(path).expect("a read"))
        .collect::<Vec<_>>();
    assert!(gets(&mounted) > 0);
    mounted.unmount();

    let mounted = mount(&bucket, &directory, "1GiB");
    let second = paths(&bucket, &mounted)
        .iter()
        .map(|path| digest(path).expect("a read"))
        .collect::<Vec<_>>();
    assert_eq!(first, second);
    assert_eq!(gets(&mounted), 0, "{}", mounted.log());
    let shown = directory.display().to_string();
    assert!(cache(&["show", &shown]).contains("80.0 MiB"));
    assert!(cache(&["drop", &shown]).starts_with("2 objects"));
    assert_eq!(metric(&mounted, "cache_used_bytes", ""), 0);
    mounted.unmount();
    assert!(cache(&["show", &shown, "--json"]).contains("\"objects\":0"));
}

#[test]
fn a_mount_that_is_killed_again_and_again_serves_what_the_store_has() {
    let scratch = Scratch::new();
    let directory = scratch.path().join("cache");
    let bucket = filled(1, 48);
    let plain = bucket.mount();
    let expected = digest(&paths(&bucket, &plain)[0]).expect("a read");
    plain.unmount();
    for round in 1..=4 {
        let mounted = mount(&bucket, &directory, "1GiB");
        let path = paths(&bucket, &mounted).remove(0);
        let mut file = File::open(&path).expect("an open");
        let mut buffer = vec![0; round * 9 * MIB];
        file.read_exact(&mut buffer).expect("a read");
        mounted.process().kill();
        drop(file);
        drop(mounted);
    }
    let mounted = mount(&bucket, &directory, "1GiB");
    let path = paths(&bucket, &mounted).remove(0);
    assert_eq!(digest(&path).expect("a read"), expected);
    assert!(metric(&mounted, "cache_read_bytes_total", "") > 0);
    assert_eq!(metric(&mounted, "cache_corrupt_blocks_total", ""), 0);
    mounted.unmount();
}

#[test]
fn a_full_disk_stops_caching_and_no_reader_notices() {
    let Some(disk) = SmallDisk::new(16) else {
        return;
    };
    let bucket = filled(1, 64);
    let mounted = mount(&bucket, &disk.path().join("cache"), "1GiB");
    let path = paths(&bucket, &mounted).remove(0);
    let first = digest(&path);
    let full = metric(&mounted, "cache_skipped_bytes_total", "");
    mounted.unmount();
    let plain = bucket.mount();
    let expected = digest(&paths(&bucket, &plain)[0]).expect("a read");
    plain.unmount();
    drop(disk);
    assert_eq!(first.expect("the read succeeds"), expected);
    assert!(full >= 40 << 20, "{full}");
}

#[test]
fn two_mounts_do_not_share_a_cache_directory() {
    let scratch = Scratch::new();
    let directory = scratch.path().join("cache");
    let bucket = filled(1, 1);
    let mounted = mount(&bucket, &directory, "64MiB");
    let mut second = bucket.command("mount");
    second
        .arg(scratch.folder("mnt"))
        .args(["-f", "--cache-dir"])
        .arg(&directory);
    let refused = run_within(PATIENCE, &mut second);
    assert!(!refused.succeeded());
    let pid = format!("process {}", mounted.process().0);
    assert!(refused.stderr.contains(&pid), "{}", refused.stderr);
    mounted.unmount();
    assert!(fs::metadata(directory.join("objects/lock")).is_ok());
}

/// Waits until the cache has written this much.
fn wait_for_written(mount: &Mount, bytes: usize) {
    let written = || metric(mount, "cache_written_bytes_total", "") >= bytes as u64;
    PATIENCE.until("the cache to be written", written);
}

fn kernel_reads(mount: &Mount) -> u64 {
    metric(mount, "fuse_requests_total", "\"read\"")
}

/// A mount whose cache has all of a file, which was read once before.
fn with_a_cached_file(bucket: &Bucket, directory: &Path, size: usize) -> (Mount, PathBuf) {
    let mounted = mount(bucket, directory, "1GiB");
    let path = paths(bucket, &mounted).remove(0);
    digest(&path).expect("a read");
    wait_for_written(&mounted, size);
    mounted.unmount();
    let mounted = mount(bucket, directory, "1GiB");
    let path = paths(bucket, &mounted).remove(0);
    digest(&path).expect("a read that compares each block");
    let fetched = metric(&mounted, "object_operations_total", "\"get\"");
    assert_eq!(
        fetched, 0,
        "a block that the disk did not deliver is not compared"
    );
    (mounted, path)
}

#[test]
fn the_kernel_reads_by_itself_what_was_compared_and_not_what_was_changed_since() {
    let scratch = Scratch::new();
    let directory = scratch.path().join("cache");
    let bucket = filled(1, 24);
    let (mounted, path) = with_a_cached_file(&bucket, &directory, 24 * MIB);
    let expected = digest(&path).expect("a read");
    let before = kernel_reads(&mounted);
    assert_eq!(digest(&path).expect("a read"), expected);
    let lent = metric(&mounted, "cache_lent_total", "");
    assert_eq!(lent, 2);
    if kernel_reads(&mounted) != before {
        penstock_skips::skipped(
            "this kernel reads no local files for FUSE, or this user may not ask",
        );
        return;
    }
    flip_a_byte(&directory);
    assert_eq!(digest(&path).expect("a read"), expected);
    assert_eq!(metric(&mounted, "cache_lent_total", ""), lent, "not lent");
    assert_eq!(metric(&mounted, "cache_corrupt_blocks_total", ""), 1);
    PATIENCE.until("the block to be mended", || {
        digest(&path).expect("a read");
        metric(&mounted, "cache_lent_total", "") > lent
    });
    assert_eq!(digest(&path).expect("a read"), expected);
    mounted.unmount();
}

/// Damages the one data file of a cache in its middle.
fn flip_a_byte(directory: &Path) {
    let mut found = Vec::new();
    for folder in fs::read_dir(directory.join("objects")).expect("a cache") {
        let entries = fs::read_dir(folder.expect("readable").path());
        let paths = entries.into_iter().flatten().flatten();
        found.extend(paths.map(|entry| entry.path()));
    }
    found.retain(|path| path.extension().is_some_and(|ending| ending == "data"));
    assert_eq!(found.len(), 1, "{found:?}");
    let file = File::options().read(true).write(true).open(&found[0]);
    let file = file.expect("an open");
    let at = file.metadata().expect("sizes").len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a read");
    file.write_all_at(&[byte[0] ^ 0x10], at).expect("a write");
}

#[test]
fn who_reads_a_lent_file_keeps_its_version_and_others_get_on() {
    let scratch = Scratch::new();
    let directory = scratch.path().join("cache");
    let bucket = filled(1, 3);
    let (mounted, path) = with_a_cached_file(&bucket, &directory, 3 * MIB);
    let mut old = Vec::new();
    let mut reader = File::open(&path).expect("an open");
    reader.read_to_end(&mut old).expect("a read");
    let mut writer = File::create(&path).expect("a second handle");
    writer.write_all(b"new").expect("a write");
    let mut again = vec![0; old.len()];
    reader
        .read_exact_at(&mut again, 0)
        .expect("the old version");
    assert!(again == old);
    drop(writer);
    let second = File::open(&path).expect("beside the old version");
    let mut byte = [0; 3];
    second.read_exact_at(&mut byte, 0).expect("the new version");
    assert_eq!(&byte, b"new");
    reader
        .read_exact_at(&mut again, 0)
        .expect("the old version");
    assert!(again == old);
    drop((reader, second));
    assert_eq!(fs::read(&path).expect("a read"), b"new");
    mounted.unmount();
}
