//! Stream volumes over network block devices, with the kernel's own driver. Where the kernel has
//! none they say so; `make guest-test` runs them in a guest that has.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use penstock_tests::{
    Kind, MountOptions,
    data::noise,
    devices::{
        PATIENCE, background, devices, expect_io_error, expect_read_only, is_attached, is_mounted,
        listed, nothing_is_left, parent, server, stream,
    },
    penstock, run_within,
    stream::{Rig, read_aside},
};

/// How long readers wait when nobody is connected.
const NOBODY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an answer may take before the driver asks again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// None where the kernel lacks the driver.
fn rig(kind: Kind, files: u64) -> Option<Rig> {
    if !Path::new("/sys/module/nbd").exists() {
        println!("skipped: this kernel has no driver nbd; see `make guest-test`");
        return None;
    }
    Some(Rig::with_small_files(kind, files))
}

fn options(rig: &Rig) -> MountOptions {
    rig.options().option("transport", "nbd")
}

#[test]
fn a_tree_over_nbd_is_the_same() {
    let Some(mut rig) = rig(Kind::S3, 300) else {
        return;
    };
    rig.put("large", noise(5, 12 << 20));
    rig.put("with space/ünï", noise(6, 1));
    for (fs, disks) in [("erofs", "2"), ("ext4", "1")] {
        let options = options(&rig).option("fs", fs).option("disks", disks);
        let mount = rig.mount(&options);
        let place = mount.path().to_owned();
        let nbds = devices(&place, "nbd");
        assert_eq!(nbds.len().to_string(), disks, "{fs}");
        for device in &nbds {
            expect_read_only(device);
        }
        rig.compare(&place);
        let all = devices(&place, "");
        mount.unmount();
        nothing_is_left(&place, &all);
    }
}

#[test]
fn unmounting_an_nbd_volume_by_any_means_leaves_nothing() {
    let Some(rig) = rig(Kind::Local, 5) else {
        return;
    };
    for by_signal in [false, true] {
        let mount = rig.mount(&options(&rig));
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
    let Some(rig) = rig(Kind::S3, 40) else {
        return;
    };
    let place = background(&rig.bucket, &rig.indexes, "nbd");
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
    let Some(rig) = rig(Kind::S3, 30) else {
        return;
    };
    let mount = rig.mount(&options(&rig));
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
    let Some(rig) = rig(Kind::S3, 30) else {
        return;
    };
    let mount = rig.mount(&options(&rig));
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
    let Some(rig) = rig(Kind::S3, 30) else {
        return;
    };
    let dead = rig.mount(&options(&rig));
    let old = devices(dead.path(), "");
    dead.process().kill();
    let mount = rig.mount(&options(&rig));
    assert!(!is_mounted(dead.path()));
    assert_eq!(listed(dead.path()), None);
    assert!(is_attached(&old[0]), "its numbers are taken again");
    rig.compare(mount.path());
    mount.unmount();
    nothing_is_left(dead.path(), &old);
}

#[test]
fn reads_over_nbd_are_patient_with_a_store_as_long_as_was_asked_for() {
    let Some(rig) = rig(Kind::S3, 30) else {
        return;
    };
    // Longer than the driver waits for an answer.
    let patience = REQUEST_TIMEOUT * 3 / 2;
    let limit = format!("{}s", patience.as_secs());
    let mount = rig.mount(&options(&rig).option("retry-timeout", &limit));
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
