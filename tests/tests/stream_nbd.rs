//! Stream volumes over network block devices, with the kernel's own driver. Where the kernel has
//! none they say so; `make guest-test` runs them in a guest that has. What holds over ublk too is in
//! `penstock_tests::block_driver`.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    fs,
    time::{Duration, Instant},
};

use penstock_tests::{
    Kind,
    block_driver::{NBD, NBD_REQUEST_TIMEOUT},
    devices::{PATIENCE, devices, expect_io_error, nothing_is_left, stream},
    stream::read_aside,
};

/// How long readers wait when nobody is connected.
const NOBODY_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_tree_over_nbd_is_the_same() {
    NBD.shows_the_same_tree();
}

#[test]
fn unmounting_an_nbd_volume_by_any_means_leaves_nothing() {
    NBD.unmounting_by_any_means_leaves_nothing();
}

#[test]
fn readers_of_an_nbd_volume_outlive_its_process() {
    NBD.readers_outlive_the_process();
}

#[test]
fn readers_of_a_dead_nbd_volume_wait_and_then_get_errors() {
    let Some(rig) = NBD.rig(Kind::S3, 30) else {
        return;
    };
    let mount = rig.mount(&NBD.options(&rig));
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
    NBD.readers_of_a_dead_volume_wait_until_it_is_detached();
}

#[test]
fn the_next_start_cleans_up_after_a_killed_nbd_volume() {
    NBD.the_next_start_cleans_up();
}

#[test]
fn reads_over_nbd_are_patient_with_a_store_as_long_as_was_asked_for() {
    let Some(rig) = NBD.rig(Kind::S3, 30) else {
        return;
    };
    // Longer than the driver waits for an answer.
    let patience = NBD_REQUEST_TIMEOUT * 3 / 2;
    let limit = format!("{}s", patience.as_secs());
    let mount = rig.mount(&NBD.options(&rig).option("retry-timeout", &limit));
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
