//! The local disk under a `file://` bucket fills up.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use penstock_devserver::{Fault, FaultRule, Faults};
use penstock_tests::{Bucket, Kind, Mount, MountOptions, SmallDisk, data::noise, system};

const MIB: usize = 1 << 20;

/// A disk of 48 MiB.
fn small_disk() -> Option<SmallDisk> {
    SmallDisk::new(48)
}

/// Mounts a bucket in a folder of the disk.
#[track_caller]
fn mount_bucket(disk: &SmallDisk) -> Mount {
    let bucket = disk.path().join("bucket");
    fs::create_dir_all(&bucket).expect("the disk is empty");
    Mount::new(
        &format!("file://{}", bucket.display()),
        &MountOptions::new(),
    )
}

/// Writes `content` without closing.
fn write_open(path: &Path, content: &[u8]) -> io::Result<File> {
    let mut file = File::create(path)?;
    for piece in content.chunks(MIB) {
        file.write_all(piece)?;
    }
    Ok(file)
}

/// Writes, syncs and closes: the first error of any of them.
fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    write_open(path, content)?.sync_all()
}

#[test]
fn a_full_disk_is_reported_to_the_writer_and_shows_nothing_half() {
    let Some(disk) = small_disk() else { return };
    let mount = mount_bucket(&disk);
    fs::write(mount.join("before"), "intact").expect("there is room");
    let error = write_file(&mount.join("too big"), &noise(1, 80 * MIB)).expect_err("no room");
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
    mount.unmount();

    let mount = mount_bucket(&disk);
    assert_eq!(system::list(mount.path()), Ok(vec!["before".into()]));
    assert_eq!(fs::read(mount.join("before")).expect("a read"), b"intact");
    let content = noise(2, 20 * MIB);
    write_file(&mount.join("fits"), &content).expect("what failed gave its room back");
    assert!(fs::read(mount.join("fits")).expect("a read") == content);
    mount.unmount();
}

#[test]
fn an_overwrite_that_does_not_fit_leaves_the_old_version() {
    let Some(disk) = small_disk() else { return };
    let mount = mount_bucket(&disk);
    let old = noise(3, 8 * MIB);
    write_file(&mount.join("file"), &old).expect("there is room");
    let error = write_file(&mount.join("file"), &noise(4, 80 * MIB)).expect_err("no room");
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
    mount.unmount();
    let mount = mount_bucket(&disk);
    assert!(fs::read(mount.join("file")).expect("a read") == old);
    mount.unmount();
}

#[test]
fn a_full_staging_disk_fails_the_write_only_when_the_store_takes_nothing() {
    let Some(disk) = small_disk() else { return };
    let bucket = Bucket::new(Kind::S3);
    let options = bucket.staged_options(&disk.path().join("staging"));
    let mount = bucket.mount_with(&options.option("retry-timeout", "1s"));
    let content = noise(5, 80 * MIB);
    let file = write_open(&mount.join("passes"), &content).expect("saved on the way");
    drop(file);
    assert!(fs::read(mount.join("passes")).expect("a read") == content);
    fs::write(mount.join("stuck"), "").expect("there is room");
    let stuck = File::options()
        .write(true)
        .open(mount.join("stuck"))
        .expect("it is there");
    let write = |offset| std::os::unix::fs::FileExt::write_at(&stuck, &content[..MIB], offset);
    // The first write may ask which version it changes.
    let mut taken = write(0).expect("there is room") as u64;
    bucket.fail(Faults::rule(FaultRule::new(Fault::InternalError)));
    // What else fills the disk counts, too.
    fs::write(disk.path().join("other"), noise(6, 20 * MIB)).expect("there is room");
    let error = loop {
        match write(taken) {
            Ok(count) => taken += count as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
    assert!(
        (4 * MIB as u64..48 * MIB as u64).contains(&taken),
        "{taken}"
    );
    bucket.heal();
    stuck.sync_all().expect("what was accepted is saved");
    drop(stuck);
    assert_eq!(
        fs::metadata(mount.join("stuck"))
            .expect("it is there")
            .len(),
        taken
    );
    mount.unmount();
}
