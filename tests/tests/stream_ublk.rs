//! Stream volumes over block devices of the driver ublk. Where the kernel has none they say so;
//! `make guest-test` runs them in a guest that has. What holds over nbd too is in
//! `penstock_tests::block_driver`.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use penstock_devserver::Faults;
use penstock_tests::{
    Kind,
    block_driver::{AT_ONCE, NBD, UBLK},
    data::noise,
    devices::{PATIENCE, devices, expect_io_error, nothing_is_left, parent, server, stream},
    penstock, run_within,
    stream::read_aside,
};

#[test]
fn a_tree_over_ublk_is_the_same() {
    UBLK.shows_the_same_tree();
}

#[test]
fn a_tree_is_the_same_over_every_block_transport() {
    let Some(mut rig) = UBLK.rig(Kind::S3, 0) else {
        return;
    };
    // Sizes around blocks, requests and parts; some files share blocks of a request.
    let sizes = [
        0,
        1,
        4095,
        4096,
        4097,
        70_000,
        (1 << 20) - 1,
        (1 << 20) + 1,
        5 << 20,
    ];
    for number in 0..90 {
        let size = sizes[number as usize % sizes.len()] + number as usize / 18;
        rig.put(&format!("{}/{number}", number % 7), noise(number, size));
    }
    for transport in ["loop", "nbd", "ublk"] {
        if transport == NBD.transport && !NBD.is_there() {
            penstock_skips::skipped("of three transports nbd is missing");
            continue;
        }
        let mount = rig.mount(&rig.options().option("transport", transport));
        let begun = Instant::now();
        rig.compare(&mount);
        println!("{transport}: the tree was read in {:?}", begun.elapsed());
        let (place, all) = (mount.path().to_owned(), devices(mount.path(), ""));
        mount.unmount();
        nothing_is_left(&place, &all);
    }
}

#[test]
fn many_readers_of_a_ublk_volume_read_at_once() {
    const READERS: usize = 100;
    const LATENCY: Duration = Duration::from_secs(1);
    let Some(rig) = UBLK.rig(Kind::S3, READERS as u64 + 20) else {
        return;
    };
    let options = UBLK
        .options(&rig)
        .option("disks", "1")
        .option("direct", "on");
    let mount = rig.mount(&options);
    rig.bucket.fail(Faults::latency(LATENCY));
    let begun = Instant::now();
    let readings: Vec<_> = (0..READERS)
        .map(|number| {
            let (key, content) = rig.object(number + 10);
            (read_aside(mount.join(key)), content)
        })
        .collect();
    for (reading, content) in readings {
        let read = reading.recv_timeout(PATIENCE.0).expect("in time");
        assert!(read.expect("readable") == content);
    }
    println!("{READERS} readers took {:?}", begun.elapsed());
    assert!(begun.elapsed() >= LATENCY && begun.elapsed() < LATENCY * READERS as u32 / 4);
    rig.bucket.heal();
    mount.unmount();
}

#[test]
fn unmounting_a_ublk_volume_by_any_means_leaves_nothing() {
    UBLK.unmounting_by_any_means_leaves_nothing();
}

#[test]
fn ending_a_ublk_volume_frees_the_reads_that_are_under_way() {
    let Some(rig) = UBLK.rig(Kind::S3, 30) else {
        return;
    };
    let mount = rig.mount(&UBLK.options(&rig));
    let (place, process) = (mount.path().to_owned(), mount.process());
    let devices = devices(&place, "");
    rig.bucket.without_server(|| {
        let reading = read_aside(place.join(rig.object(20).0));
        assert!(reading.recv_timeout(Duration::from_secs(2)).is_err());
        let begun = Instant::now();
        process.terminate();
        expect_io_error(&reading);
        PATIENCE.until("the process to end", || !process.is_alive());
        println!("it ended after {:?}", begun.elapsed());
        assert!(begun.elapsed() < AT_ONCE * 2);
    });
    stream(&["detach"]).expect_success();
    nothing_is_left(&place, &devices);
}

#[test]
fn an_open_file_keeps_a_ublk_volume_after_a_lazy_unmount() {
    let Some(rig) = UBLK.rig(Kind::Local, 30) else {
        return;
    };
    let mount = rig.mount(&UBLK.options(&rig));
    let (place, process) = (mount.path().to_owned(), mount.process());
    let devices = devices(&place, "");
    let (key, content) = rig.object(20);
    let mut open = fs::File::open(mount.join(key)).expect("opened");
    run_within(PATIENCE, Command::new("umount").arg("-l").arg(&place)).expect_success();
    thread::sleep(Duration::from_secs(2));
    let mut read = Vec::new();
    std::io::Read::read_to_end(&mut open, &mut read).expect("still readable");
    assert!(read == content && process.is_alive());
    drop(open);
    PATIENCE.until("the process to end", || !process.is_alive());
    nothing_is_left(&place, &devices);
}

#[test]
fn readers_of_a_ublk_volume_outlive_its_process() {
    UBLK.readers_outlive_the_process();
}

#[test]
fn a_ublk_volume_that_is_killed_while_it_recovers_recovers() {
    let Some(rig) = UBLK.rig(Kind::S3, 40) else {
        return;
    };
    let place = UBLK.background(&rig);
    let keeper = parent(server(&place));
    let devices = devices(&place, "");
    let mut readings = Vec::new();
    // Each is killed a little later after it took over the volume.
    for (round, life) in [0, 50, 150, 400].into_iter().enumerate() {
        let dead = server(&place);
        dead.kill();
        readings.push((read_aside(place.join(rig.object(20 + round).0)), 20 + round));
        PATIENCE.until("another process goes on", || server(&place) != dead);
        thread::sleep(Duration::from_millis(life));
    }
    server(&place).kill();
    for (reading, number) in readings {
        let read = reading.recv_timeout(PATIENCE.0).expect("in time");
        assert!(read.expect("asked for again") == rig.object(number).1);
    }
    rig.compare(&place);
    run_within(PATIENCE, penstock().arg("umount").arg(&place)).expect_success();
    PATIENCE.until("the keeper to end", || !keeper.is_alive());
    nothing_is_left(&place, &devices);
}

#[test]
fn a_read_of_a_ublk_volume_that_fails_is_an_error_of_its_readers_alone() {
    let Some(rig) = UBLK.rig(Kind::S3, 30) else {
        return;
    };
    let mount = rig.mount(&UBLK.options(&rig).option("retry-timeout", "3s"));
    let (changed, _) = rig.object(20);
    rig.bucket.put_outside(changed, &noise(99, 20_740));
    expect_io_error(&read_aside(mount.join(changed)));
    rig.bucket.without_server(|| {
        expect_io_error(&read_aside(mount.join(rig.object(21).0)));
    });
    for number in [10, 21, 22] {
        let (key, content) = rig.object(number);
        let read = read_aside(mount.join(key)).recv_timeout(PATIENCE.0);
        assert!(read.expect("in time").expect("readable") == content);
    }
    mount.unmount();
}

#[test]
fn a_killed_ublk_volume_without_a_keeper_keeps_its_names_and_fails_reads_at_once() {
    let Some(rig) = UBLK.rig(Kind::S3, 30) else {
        return;
    };
    let mount = rig.mount(&UBLK.options(&rig));
    let place = mount.path().to_owned();
    let devices = devices(&place, "");
    let mut readings = None;
    rig.bucket.without_server(|| {
        // One that the dead process had taken, and one that comes when nobody is there.
        let begun = read_aside(place.join(rig.object(10).0));
        thread::sleep(Duration::from_secs(1));
        mount.process().kill();
        readings = Some((
            begun,
            read_aside(place.join(rig.object(20).0)),
            Instant::now(),
        ));
    });
    let (begun, next, killed) = readings.expect("begun");
    expect_io_error(&begun);
    expect_io_error(&next);
    println!("reads failed after {:?}", killed.elapsed());
    assert!(killed.elapsed() < AT_ONCE);
    let names = fs::read_dir(place.join("set")).expect("names are local");
    assert_eq!(names.count(), 17);
    stream(&["detach"]).expect_success();
    nothing_is_left(&place, &devices);
}

#[test]
fn readers_of_a_dead_ublk_volume_wait_until_it_is_detached() {
    UBLK.readers_of_a_dead_volume_wait_until_it_is_detached();
}

#[test]
fn the_next_start_cleans_up_after_a_killed_ublk_volume() {
    UBLK.the_next_start_cleans_up();
}
