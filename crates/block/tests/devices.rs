//! Real loop devices, real file systems, real mounts: what the kernel reads is what the disks have,
//! and nothing is left afterwards.

#![allow(clippy::disallowed_methods, clippy::panic)]

mod support;

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::FileExt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use penstock_base::FsError;
use penstock_block::{
    Availability, BlockError, FileSystem, TransportKind, available, clean, tagged_devices, volumes,
};
use penstock_fuse::UnmountMode;

use support::{Rig, Trouble, within};

#[test]
fn an_erofs_volume_shows_every_file_as_it_is() {
    let rig = Rig::erofs(2);
    let volume = rig.mount();
    let record = volume.record().clone();
    assert!(record.mounted);
    assert_eq!(record.devices.len(), 2, "an image and a disk: {record:?}");
    rig.compare();
    rig.unmount(volume);
}

#[test]
fn an_ext4_volume_shows_every_file_as_it_is() {
    let rig = Rig::ext4();
    let volume = rig.mount();
    rig.compare();
    rig.unmount(volume);
}

#[test]
fn a_volume_is_read_only() {
    let rig = Rig::erofs(1);
    let volume = rig.mount();
    let refused = fs::write(rig.mount_point.join("new"), "x").expect_err("read-only");
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    rig.unmount(volume);
}

#[test]
fn data_devices_do_direct_io_and_read_ahead_is_set_and_given_back() {
    let rig = Rig::erofs(1);
    let volume = rig.mount();
    let record = volume.record().clone();
    let attribute = |name: &str, what: &str| {
        let path = format!("/sys/block/{name}/{what}");
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    for device in &record.devices {
        assert_eq!(attribute(&device.name, "queue/read_ahead_kb"), "16384");
    }
    assert_eq!(attribute(&record.devices[1].name, "loop/dio"), "1");
    rig.unmount(volume);
    for device in &record.devices {
        let before = device.read_ahead_before.expect("known").to_string();
        assert_eq!(attribute(&device.name, "queue/read_ahead_kb"), before);
    }
}

#[test]
fn a_disk_that_fails_is_an_input_output_error_and_not_zeros() {
    let rig = Rig::erofs(1);
    let volume = rig.mount();
    for trouble in [FsError::Stale, FsError::TimedOut("no answer".to_owned())] {
        rig.gate.fail(Trouble::Error(trouble));
        let path = rig.mount_point.join("large");
        let error = within("reading", move || fs::read(&path)).expect_err("the disk fails");
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }
    rig.gate.fail(Trouble::Short);
    let path = rig.mount_point.join("large");
    let error = within("reading", move || fs::read(path)).expect_err("too short");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    rig.gate.fail(Trouble::None);
    assert_eq!(
        fs::read(rig.mount_point.join("large")).expect("well again"),
        fs::read(rig.tree.join("large")).expect("ours")
    );
    rig.unmount(volume);
}

#[test]
fn names_are_there_while_the_data_is_not() {
    let rig = Rig::erofs(1);
    let volume = rig.mount();
    rig.gate.close();
    let many = rig.mount_point.join("many");
    let names = within("listing", move || {
        fs::read_dir(many).expect("listed").count()
    });
    assert!(names > 50);
    let reader = {
        let path = rig.mount_point.join("large");
        std::thread::spawn(move || fs::read(path))
    };
    let gate = Arc::clone(&rig.gate);
    support::wait_until("a read waits", || gate.waiting.load(Ordering::SeqCst) > 0);
    assert!(!reader.is_finished());
    rig.gate.open();
    let read = reader.join().expect("no panic").expect("goes on");
    assert_eq!(read, fs::read(rig.tree.join("large")).expect("ours"));
    rig.unmount(volume);
}

#[test]
fn unmounting_by_another_program_takes_everything_away() {
    let rig = Rig::erofs(2);
    let volume = rig.mount();
    let tag = volume.record().tag.clone();
    let status = std::process::Command::new("umount")
        .arg(&rig.mount_point)
        .status();
    assert!(status.expect("installed").success());
    rig.wait_for_the_end(&volume);
    assert_eq!(tagged_devices(&tag), Vec::<String>::new());
    assert_eq!(rig.state_files(), 0);
}

#[test]
fn open_files_keep_a_volume_busy_and_go_on_after_a_lazy_unmount() {
    let rig = Rig::erofs(1);
    let volume = rig.mount();
    let open = File::open(rig.mount_point.join("large")).expect("opened");
    let plain = rig.block_on(volume.unmount(UnmountMode::Plain));
    assert!(plain.expect_err("in use").to_string().contains("in use"));
    rig.block_on(volume.unmount(UnmountMode::Lazy))
        .expect("out of sight");
    let open = within("reading", move || {
        let size = open.metadata().expect("known").len();
        open.read_exact_at(&mut [0; 4], size - 4)
            .expect("still readable");
        open
    });
    assert!(!rig.ended_within(&volume, Duration::from_millis(300)));
    drop(open);
    rig.wait_for_the_end(&volume);
    assert_eq!(rig.state_files(), 0);
}

#[test]
fn a_place_that_is_taken_is_refused() {
    let rig = Rig::erofs(1);
    let volume = rig.mount();
    let error = rig.try_mount(FileSystem::Erofs).expect_err("taken");
    assert!(matches!(error, BlockError::Busy(_)), "{error}");
    let listed = volumes(&rig.state);
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].source, "test");
    rig.unmount(volume);
    assert!(volumes(&rig.state).is_empty());
}

#[test]
fn what_is_alive_is_never_cleaned() {
    let rig = Rig::erofs(1);
    let volume = rig.mount();
    assert!(rig.block_on(clean(&rig.state)).is_empty());
    let mut text = String::new();
    let file = File::open(rig.mount_point.join("many/7"));
    file.expect("there")
        .read_to_string(&mut text)
        .expect("read");
    assert_eq!(text, "7");
    rig.unmount(volume);
}

#[test]
fn a_transport_that_the_kernel_lacks_is_refused_with_what_it_needs() {
    let rig = Rig::raw(1);
    for (kind, word) in [(TransportKind::Nbd, "nbd"), (TransportKind::Ublk, "ublk")] {
        if available(kind) == Availability::Ready {
            continue;
        }
        let error = rig.try_transport(kind).expect_err("not here").to_string();
        assert!(error.contains(word), "{error}");
    }
    assert_eq!(rig.state_files(), 0);
}
