//! What stream volumes do while the network, the server, the objects or the program fail.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File},
    io::Read,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use penstock_devserver::{Faults, Operation};
use penstock_tests::{
    BUCKET, Bucket, Kind, Mount, Patience,
    data::{digest, digest_of, noise},
    faults::{cut_body, damaged_bodies, passing_faults},
    penstock, run_within,
    stats::metric,
    stream::{Rig, WAYS, read_aside},
};

const PATIENCE: Patience = Patience::seconds(60);
const MIB: usize = 1 << 20;
/// Bytes of a body that arrive before it is reset or cut.
const RESET_AFTER: u64 = 10_000;
/// What the mounts here are told: how long a silent request and a failing read may last.
const REQUEST_TIMEOUT: &str = "2s";
const RETRY_TIMEOUT: &str = "40s";
/// Small files for each fault.
const FILES: u64 = 40;

/// GET requests that the server got, however it answered.
fn gets(bucket: &Bucket) -> u64 {
    bucket.server(|server| server.counters().operation(Operation::GetObject))
}

/// Each file of the mount has its content.
#[track_caller]
fn compare(mount: &Mount, files: &[(&String, &Vec<u8>)], what: &str) {
    for (key, content) in files {
        let found = digest(&mount.join(key));
        assert_eq!(found.expect(what), digest_of(content), "{what}: {key}");
    }
}

#[test]
fn reads_of_a_volume_ride_out_every_passing_fault() {
    /// They wait for the faults side by side.
    const READERS: usize = 4;
    let faults = [passing_faults(RESET_AFTER), vec![cut_body(RESET_AFTER)]].concat();
    for way in WAYS {
        let mut rig = Rig::new(Kind::S3);
        for (number, _) in faults.iter().enumerate() {
            for file in 0..FILES {
                let seed = number as u64 * FILES + file;
                rig.put(
                    &format!("{number}/{file:02}"),
                    noise(seed, 20_000 + seed as usize),
                );
            }
            let large = noise(number as u64, 6 * MIB + number);
            rig.put(&format!("{number}-large"), large);
        }
        let options = rig.way(way).option("request-timeout", REQUEST_TIMEOUT);
        let mount = rig.mount(&options.option("retry-timeout", RETRY_TIMEOUT));
        for (number, (name, rule)) in faults.iter().enumerate() {
            let before = gets(&rig.bucket);
            let rule = rule.clone().on(&[Operation::GetObject]);
            rig.bucket.fail(Faults::rule(rule));
            let ours = format!("{number}");
            let files = rig.objects.iter().filter(|(key, _)| key.starts_with(&ours));
            let files: Vec<_> = files.collect();
            thread::scope(|scope| {
                for files in files.chunks(files.len().div_ceil(READERS)) {
                    let mount = &mount;
                    scope.spawn(move || compare(mount, files, &format!("{way}: {name}")));
                }
            });
            rig.bucket.heal();
            assert!(
                gets(&rig.bucket) > before,
                "{way}: {name}: nothing was asked"
            );
        }
        assert!(
            metric(&mount, "object_retries_total", "") > 0,
            "{way}: nothing failed"
        );
        mount.unmount();
    }
}

/// The kernel answers an error of a read with reads of single pages, which come without a checksum.
#[test]
fn a_small_file_of_a_volume_that_always_arrives_damaged_is_an_error_and_never_wrong_bytes() {
    for (way, direct) in WAYS.into_iter().flat_map(|way| [(way, "on"), (way, "off")]) {
        let rig = Rig::with_small_files(Kind::S3, 30);
        let mount = rig.mount(&rig.way(way).option("direct", direct));
        let (key, content) = rig.object(20);
        rig.bucket.fail(damaged_bodies());
        for _ in 0..3 {
            let error = fs::read(mount.join(key)).expect_err("every answer is damaged");
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{way}");
        }
        rig.bucket.heal();
        assert!(fs::read(mount.join(key)).expect("whole") == content);
        mount.unmount();
    }
}

#[test]
fn reads_of_a_volume_go_on_when_the_server_dies_and_returns() {
    const READERS: usize = 8;
    for way in WAYS {
        let rig = Rig::with_small_files(Kind::S3, 400);
        let options = rig.way(way).option("direct", "on");
        let mount = rig.mount(&options.option("retry-timeout", RETRY_TIMEOUT));
        let (done, read) = (AtomicBool::new(false), AtomicU64::new(0));
        let files: Vec<_> = rig.objects.iter().collect();
        thread::scope(|scope| {
            for reader in 0..READERS {
                let (files, mount, done, read) = (&files, &mount, &done, &read);
                scope.spawn(move || {
                    for step in 0.. {
                        let (key, content) = files[(step * READERS + reader) % files.len()];
                        let found = fs::read(mount.join(key)).expect("it waits, and goes on");
                        assert!(found == *content, "{way}: {key}");
                        read.fetch_add(1, Ordering::Relaxed);
                        if done.load(Ordering::Relaxed) && step * READERS >= files.len() {
                            break;
                        }
                        // The server's death should come in the middle.
                        thread::sleep(Duration::from_millis(5));
                    }
                });
            }
            for _ in 0..2 {
                thread::sleep(Duration::from_millis(50));
                rig.bucket
                    .without_server(|| thread::sleep(Duration::from_secs(1)));
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(read.load(Ordering::Relaxed) >= 400, "{way}");
        mount.unmount();
    }
}

#[test]
fn an_object_of_a_volume_that_is_replaced_while_it_is_read_is_never_mixed() {
    for way in WAYS {
        let mut rig = Rig::new(Kind::S3);
        let old = noise(1, 96 * MIB);
        rig.put("file", old.clone());
        let mount = rig.mount(&rig.way(way));
        let mut file = File::open(mount.join("file")).expect("an open");
        let mut read = vec![0; MIB];
        file.read_exact(&mut read).expect("a read");
        let new = noise(2, 96 * MIB);
        rig.bucket.data().put(BUCKET, "file", &new).expect("memory");
        let expected = if way == "fuse" {
            libc::ESTALE
        } else {
            libc::EIO
        };
        let error = file.read_to_end(&mut read).expect_err("it changed");
        assert_eq!(error.raw_os_error(), Some(expected), "{way}");
        drop(file);
        assert!(old.starts_with(&read), "{way}: two versions were mixed");
        let counted = metric(&mount, "stream_changed_objects_total", "");
        assert!(counted > 0, "{way}: it is not counted");
        mount.unmount();
    }
}

#[test]
fn an_object_of_a_volume_that_is_gone_is_an_error_and_its_neighbours_are_not() {
    for way in WAYS {
        let rig = Rig::with_small_files(Kind::S3, 20);
        let mount = rig.mount(&rig.way(way));
        let (gone, _) = rig.objects.first_key_value().expect("twenty");
        assert!(rig.bucket.data().delete(BUCKET, gone));
        let begun = Instant::now();
        let error = fs::read(mount.join(gone)).expect_err("it is gone");
        let expected = if way == "fuse" {
            [libc::ESTALE, libc::ENOENT]
        } else {
            [libc::EIO; 2]
        };
        let number = error.raw_os_error().unwrap_or(0);
        assert!(expected.contains(&number), "{way}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{way}");
        for (key, content) in rig.objects.iter().skip(1) {
            assert!(fs::read(mount.join(key)).expect(key) == *content, "{way}");
        }
        mount.unmount();
    }
}

#[test]
fn a_killed_fuse_volume_fails_what_it_is_asked_and_is_mounted_again() {
    let rig = Rig::with_small_files(Kind::S3, 20);
    let mount = rig.mount(&rig.way("fuse"));
    let (key, content) = rig.objects.first_key_value().expect("twenty");
    mount.process().kill();
    let outcome = read_aside(mount.join(key)).recv_timeout(PATIENCE.0);
    let error = outcome.expect("in time").expect_err("nobody answers");
    // The one hears it who asks afterwards, the other whose question was under way.
    let number = error.raw_os_error().unwrap_or(0);
    assert!(
        [libc::ENOTCONN, libc::ECONNABORTED].contains(&number),
        "{error}"
    );
    run_within(PATIENCE, penstock().arg("umount").arg(mount.path())).expect_success();
    drop(mount);
    let again = rig.mount(&rig.way("fuse"));
    assert!(fs::read(again.join(key)).expect("as before") == *content);
    rig.compare(&again);
    again.unmount();
}
