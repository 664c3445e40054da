//! Stream volumes end to end: listing, index, block devices, mount, and what fails.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use penstock_devserver::{Faults, Operation};
use penstock_tests::{
    Kind, Mount, Patience, Process,
    data::noise,
    devices::{
        devices, expect_io_error, is_mounted, listed, nothing_is_left, parent, server, stream,
    },
    penstock, run_within,
    stats::stats,
    stream::{Rig, WAYS, read_aside},
};

const PATIENCE: Patience = Patience::seconds(60);

/// What `penstock stream list` prints for people about this mount point.
fn printed(place: &Path) -> Option<String> {
    let text = stream(&["list"]).expect_success().stdout;
    let place = place.to_string_lossy().into_owned();
    text.lines()
        .find(|line| line.contains(&place))
        .map(str::to_owned)
}

#[test]
fn times_are_those_of_the_objects() {
    let mut rig = Rig::new(Kind::Local);
    rig.put("a/file", b"content".to_vec());
    let source = rig.bucket.source();
    let folder = PathBuf::from(source.trim_start_matches("file://"));
    let file = File::options()
        .write(true)
        .open(folder.join("a/file"))
        .expect("there");
    let then = std::time::UNIX_EPOCH + Duration::from_secs(1_234_567_890);
    file.set_modified(then).expect("ours");
    for way in WAYS {
        let mount = rig.mount(&rig.way(way).option("umask", "027"));
        let metadata = fs::metadata(mount.join("a/file")).expect("there");
        assert_eq!(metadata.mtime(), 1_234_567_890, "{way}");
        assert_eq!(metadata.mode() & 0o777, 0o750, "{way}");
        mount.unmount();
    }
}

#[test]
fn a_second_mount_lists_nothing_and_refresh_lists_anew() {
    let mut rig = Rig::with_small_files(Kind::S3, 50);
    rig.mount(&rig.options()).unmount();
    let listings = rig.count(Operation::ListObjects);
    rig.mount(&rig.options()).unmount();
    // One look at the bucket, whether it answers.
    assert!(rig.count(Operation::ListObjects) <= listings + 1);
    rig.put("set/new.jpg", noise(1, 10_000));
    let mount = rig.mount(&rig.options());
    assert!(!mount.join("set/new.jpg").exists(), "the index is older");
    mount.unmount();
    let mount = rig.mount(&rig.options().option("refresh", "on"));
    rig.compare(&mount);
    let log = mount.unmount();
    assert!(log.contains("added=1"), "{log}");
}

#[test]
fn an_index_that_is_older_than_it_may_be_is_listed_anew() {
    let mut rig = Rig::with_small_files(Kind::S3, 20);
    rig.mount(&rig.options()).unmount();
    rig.put("set/new.jpg", noise(1, 10_000));
    let mount = rig.mount(&rig.options().option("refresh", "1h"));
    assert!(!mount.join("set/new.jpg").exists(), "it is young enough");
    mount.unmount();
    thread::sleep(Duration::from_secs(3));
    let mount = rig.mount(&rig.options().option("refresh", "1s"));
    rig.compare(&mount);
    mount.unmount();
}

#[test]
fn a_small_file_is_one_request_in_direct_mode() {
    for way in WAYS {
        let rig = Rig::with_small_files(Kind::S3, 200);
        let mount = rig.mount(&rig.way(way).option("direct", "on"));
        let before = rig.sent();
        for (key, content) in &rig.objects {
            assert!(
                fs::read(mount.join(key)).expect("readable") == *content,
                "{key}"
            );
        }
        rig.assert_one_get_each(before);
        mount.unmount();
    }
}

/// The kernel joins requests for neighbouring blocks, and could cut what it joined within a file.
#[test]
fn neighbours_that_are_read_at_once_are_one_request_each_in_direct_mode() {
    for way in WAYS {
        let mut rig = Rig::new(Kind::S3);
        for number in 0..256 {
            let content = noise(number, 100_000);
            rig.put(&format!("set/{number:03}"), content);
        }
        let mount = rig.mount(&rig.way(way).option("direct", "on"));
        // So that all of them wait for the store together.
        rig.bucket.fail(Faults::latency(Duration::from_millis(20)));
        let before = rig.sent();
        thread::scope(|scope| {
            for (key, content) in &rig.objects {
                let path = mount.join(key);
                scope.spawn(move || assert!(fs::read(path).expect("readable") == *content));
            }
        });
        rig.assert_one_get_each(before);
        mount.unmount();
    }
}

#[test]
fn an_object_that_changed_is_an_error_and_is_counted() {
    for way in WAYS {
        let rig = Rig::with_small_files(Kind::S3, 20);
        let mount = rig.mount(&rig.way(way));
        let (first, rest) = rig
            .objects
            .iter()
            .next()
            .map(|first| (first, rig.objects.iter().skip(1)))
            .expect("twenty");
        rig.bucket.put_outside(first.0, &noise(999, first.1.len()));
        let error = fs::read(mount.join(first.0)).expect_err("it is another object now");
        let expected = if way == "fuse" {
            libc::ESTALE
        } else {
            libc::EIO
        };
        assert_eq!(error.raw_os_error(), Some(expected), "{way}");
        for (key, content) in rest {
            assert!(
                fs::read(mount.join(key)).expect("unchanged") == *content,
                "{key}"
            );
        }
        let stats = run_within(PATIENCE, penstock().arg("stats").arg(mount.path()));
        assert!(
            stats
                .expect_success()
                .stdout
                .contains("stream_changed_objects_total"),
            "{way}"
        );
        mount.unmount();
    }
}

#[test]
fn reads_wait_for_a_server_that_comes_back() {
    for way in WAYS {
        let rig = Rig::with_small_files(Kind::S3, 10);
        let mount = rig.mount(&rig.way(way));
        let (key, content) = rig.objects.iter().next().expect("ten");
        let mut reading = None;
        rig.bucket.without_server(|| {
            let waiting = read_aside(mount.join(key));
            let early = waiting.recv_timeout(Duration::from_secs(2));
            assert!(early.is_err(), "{way}: it did not wait: {early:?}");
            let names = fs::read_dir(mount.join("set"))
                .expect("names need no server")
                .count();
            assert_eq!(names, 10, "{way}");
            reading = Some(waiting);
        });
        let read = reading
            .expect("begun")
            .recv_timeout(PATIENCE.0)
            .expect("it goes on");
        assert!(read.expect("the server is back") == *content, "{way}");
        mount.unmount();
    }
}

#[test]
fn reads_fail_when_a_server_stays_away() {
    for way in WAYS {
        let rig = Rig::with_small_files(Kind::S3, 10);
        let options = rig.way(way).option("retry-timeout", "3s");
        let mount = rig.mount(&options.option("request-timeout", "1s"));
        let (key, content) = rig.objects.iter().next().expect("ten");
        rig.bucket.without_server(|| {
            let begun = Instant::now();
            let outcome = read_aside(mount.join(key)).recv_timeout(PATIENCE.0);
            assert!(outcome.expect("in time").is_err(), "{way}");
            assert!(
                begun.elapsed() > Duration::from_secs(2),
                "{way}: it gave up at once"
            );
        });
        let again = read_aside(mount.join(key)).recv_timeout(PATIENCE.0);
        assert!(
            again.expect("in time").expect("the server is back") == *content,
            "{way}"
        );
        mount.unmount();
    }
}

#[test]
fn a_killed_volume_keeps_its_names_and_detach_removes_it() {
    let rig = Rig::with_small_files(Kind::S3, 30);
    let mount = rig.mount(&rig.options().option("transport", "loop"));
    let place = mount.path().to_owned();
    let devices = devices(&place, "");
    assert_eq!(devices.len(), 3, "an image and two disks: {devices:?}");
    assert!(printed(&place).is_some_and(|line| line.contains("mounted")));
    mount.process().kill();
    let names = fs::read_dir(place.join("set"))
        .expect("names are local")
        .count();
    assert_eq!(names, 17);
    let (key, _) = rig.objects.iter().next().expect("thirty");
    expect_io_error(&read_aside(place.join(key)));
    assert!(printed(&place).is_some_and(|line| line.contains("dead")));
    let told = stream(&["detach"]).expect_success().stdout;
    assert!(told.contains("removed what was left of"), "{told}");
    nothing_is_left(&place, &devices);
}

#[test]
fn detach_and_umount_of_one_volume_leave_other_dead_ones_alone() {
    let rig = Rig::with_small_files(Kind::Local, 5);
    let mounts = [0, 1, 2].map(|_| rig.mount(&rig.options().option("transport", "loop")));
    let places = mounts.each_ref().map(|mount| mount.path().to_owned());
    for mount in &mounts {
        mount.process().kill();
    }
    let [first, second, third] = places.each_ref().map(PathBuf::as_path);
    let told = stream(&["detach", &first.to_string_lossy()]).expect_success();
    assert_eq!(told.stdout.lines().count(), 1, "{told:?}");
    assert!(!is_mounted(first) && is_mounted(second) && is_mounted(third));
    run_within(PATIENCE, penstock().arg("umount").arg(second)).expect_success();
    assert!(!is_mounted(second) && is_mounted(third));
    assert!(printed(third).is_some_and(|line| line.contains("dead")));
    let names = fs::read_dir(third.join("set")).expect("names are local");
    assert_eq!(names.count(), 5);
    stream(&["detach"]).expect_success();
    assert!(!is_mounted(third));
    assert_eq!(listed(third), None);
}

#[test]
fn the_next_start_cleans_up_after_a_killed_volume() {
    let rig = Rig::with_small_files(Kind::Local, 5);
    let mount = rig.mount(&rig.options().option("transport", "loop"));
    let place = mount.path().to_owned();
    let open = File::open(place.join("set")).expect("a directory");
    mount.process().kill();
    drop(open);
    let other = rig.mount(&rig.options().option("transport", "loop"));
    assert!(!is_mounted(&place));
    assert_eq!(listed(&place), None);
    rig.compare(&other);
    other.unmount();
}

#[test]
fn umount_removes_a_killed_volume() {
    let rig = Rig::with_small_files(Kind::Local, 5);
    let mount = rig.mount(&rig.options().option("transport", "loop"));
    mount.process().kill();
    run_within(PATIENCE, penstock().arg("umount").arg(mount.path())).expect_success();
    assert!(!is_mounted(mount.path()));
}

#[test]
fn plain_umount_and_sigterm_leave_nothing() {
    let rig = Rig::with_small_files(Kind::Local, 5);
    for by_signal in [false, true] {
        let mut mount = rig.mount(&rig.options().option("transport", "loop"));
        let place = mount.path().to_owned();
        let devices = devices(&place, "");
        if by_signal {
            mount.process().terminate();
        } else {
            run_within(PATIENCE, Command::new("umount").arg(&place)).expect_success();
        }
        PATIENCE.until("the process to end", || {
            !mount.is_alive() && !is_mounted(&place)
        });
        let process = mount.process();
        PATIENCE.until("the process to end", || !process.is_alive());
        nothing_is_left(&place, &devices);
        assert!(
            mount
                .last_words()
                .contains("ExitStatus(unix_wait_status(0))"),
            "{}",
            mount.last_words()
        );
    }
}

#[test]
fn the_background_returns_when_it_is_mounted_or_says_why_not() {
    let rig = Rig::with_small_files(Kind::Local, 5);
    let place = rig.indexes.folder("mnt");
    let index = format!("--index-dir={}", rig.indexes.folder("index").display());
    let log = format!("--log-file={}", rig.indexes.path().join("log").display());
    let (source, mountpoint) = (rig.bucket.source(), place.to_string_lossy().into_owned());
    let arguments = [&*source, &*mountpoint, &*index, &*log];
    stream(&arguments).expect_success();
    assert!(is_mounted(&place));
    let again = stream(&arguments);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("is busy"), "{again:?}");
    run_within(PATIENCE, penstock().arg("umount").arg(&place)).expect_success();
    let refused = stream(&["file:///no/such/bucket", &*mountpoint, &*index, &*log]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let refused = stream(&[&*source, &*mountpoint, &*index, &*log, "--transport=nbd"]);
    let has_nbd = Path::new("/dev/nbd0").exists();
    assert!(
        has_nbd || refused.stderr.contains("modprobe nbd"),
        "{refused:?}"
    );
}

/// A volume in the background, which is unmounted when the test ends.
struct Background(PathBuf);

impl Background {
    #[track_caller]
    fn mount(rig: &Rig) -> Self {
        Self::mount_over(rig, "auto")
    }

    #[track_caller]
    fn mount_over(rig: &Rig, transport: &str) -> Self {
        Self(rig.background(transport))
    }

    /// The process that serves it.
    fn process(&self) -> Process {
        server(&self.0)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if is_mounted(&self.0) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

#[test]
fn a_volume_in_the_background_survives_the_death_of_its_process() {
    let rig = Rig::with_small_files(Kind::S3, 40);
    let volume = Background::mount(&rig);
    let server = volume.process();
    let keeper = parent(server);
    let mut keys = rig.objects.iter();
    for round in 0..3 {
        let (key, content) = keys.next().expect("forty");
        let (later, later_content) = keys.next_back().expect("forty");
        let mut waiting = None;
        rig.bucket.without_server(|| {
            // A read that the dead process had taken, and one that comes while nobody is there.
            waiting = Some(read_aside(volume.0.join(key)));
            thread::sleep(Duration::from_millis(300));
            let dead = volume.process();
            dead.kill();
            PATIENCE.until("another process goes on", || volume.process() != dead);
            thread::sleep(Duration::from_millis(500));
        });
        let read = waiting
            .expect("begun")
            .recv_timeout(PATIENCE.0)
            .expect("it goes on");
        assert!(
            read.expect("it was asked for again") == *content,
            "round {round}"
        );
        let read = read_aside(volume.0.join(later)).recv_timeout(PATIENCE.0);
        assert!(read.expect("in time").expect("readable") == *later_content);
    }
    assert!(volume.process() != server && keeper.is_alive());
    let server = volume.process();
    run_within(PATIENCE, penstock().arg("umount").arg(&volume.0)).expect_success();
    assert_eq!(listed(&volume.0), None);
    PATIENCE.until("both processes to end", || {
        !server.is_alive() && !keeper.is_alive()
    });
}

/// The process that serves a mount in the background which is no device.
fn fuse_server(place: &Path) -> Process {
    let pid = stats(place)["pid"].as_u64().expect("a number");
    Process(u32::try_from(pid).expect("a process id"))
}

#[test]
fn a_killed_fuse_volume_is_replaced_by_the_next_start_at_its_place() {
    let rig = Rig::with_small_files(Kind::S3, 10);
    let (key, content) = rig.objects.first_key_value().expect("ten");
    for round in 0..3 {
        let volume = Background::mount_over(&rig, "fuse");
        assert!(
            fs::read(volume.0.join(key)).expect("readable") == *content,
            "{round}"
        );
        let open = File::open(volume.0.join(key)).expect("it opens");
        let server = fuse_server(&volume.0);
        let keeper = parent(server);
        server.kill();
        PATIENCE.until("the keeper to give up", || !keeper.is_alive());
        let error = fs::read(volume.0.join(key)).expect_err("nobody answers");
        assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
        // Left for the next round, whoever has files open there.
        std::mem::forget(volume);
        drop(open);
    }
    let volume = Background::mount_over(&rig, "fuse");
    assert!(fs::read(volume.0.join(key)).expect("readable") == *content);
    fuse_server(&volume.0).kill();
    run_within(PATIENCE, penstock().arg("umount").arg(&volume.0)).expect_success();
    assert!(!is_mounted(&volume.0));
    assert!(
        fs::read_dir(&volume.0)
            .expect("empty again")
            .next()
            .is_none()
    );
}

#[test]
fn a_volume_whose_keeper_was_killed_too_is_cleaned_up() {
    let rig = Rig::with_small_files(Kind::Local, 10);
    let volume = Background::mount(&rig);
    let devices = devices(&volume.0, "");
    let server = volume.process();
    parent(server).kill();
    let (key, content) = rig.objects.iter().next().expect("ten");
    assert!(fs::read(volume.0.join(key)).expect("nothing happened") == *content);
    server.kill();
    stream(&["detach"]).expect_success();
    nothing_is_left(&volume.0, &devices);
}

#[test]
fn a_manifest_takes_the_place_of_a_listing() {
    let mut rig = Rig::with_small_files(Kind::S3, 20);
    let mut text = "key,size,etag\n".to_owned();
    for (key, content) in &rig.objects {
        text.push_str(&format!("{key},{},\n", content.len()));
    }
    let manifest = rig.indexes.path().join("manifest.csv");
    fs::write(&manifest, text).expect("written");
    let manifest = manifest.to_string_lossy().into_owned();
    rig.bucket.put_outside("not/in/the/manifest", b"x");
    let before = rig.count(Operation::ListObjects);
    let mount = rig.mount(&rig.options().option("manifest", &manifest));
    // One look at the bucket, whether it answers.
    assert!(rig.count(Operation::ListObjects) <= before + 1);
    rig.compare(&mount);
    mount.unmount();
    rig.objects
        .insert("not/in/the/manifest".to_owned(), b"x".to_vec());
    let mount = rig.mount(&rig.options());
    rig.compare(&mount);
    mount.unmount();
}

#[test]
fn a_manifest_may_lie_in_the_bucket() {
    let mut rig = Rig::new(Kind::S3);
    let mut text = String::new();
    for number in 0..20_u64 {
        let key = format!("{number:02}.jpg");
        let content = noise(number, 5000 + number as usize);
        rig.bucket.put_outside(&format!("train/{key}"), &content);
        text.push_str(&format!("b,train/{key},{},,\n", content.len()));
        rig.objects.insert(key, content);
    }
    text.push_str("b,other/key,5,,\n");
    rig.bucket.put_outside("inventory.csv", text.as_bytes());
    rig.bucket.put_outside("train/not in the manifest", b"x");
    let source = format!("{}/train", rig.bucket.source());
    let manifest = format!("{}/inventory.csv", rig.bucket.source());
    let options = rig.options().option("manifest", &manifest);
    let options = options.option("manifest-columns", "bucket,key,size,mtime,etag");
    let mount = Mount::stream(&source, &options);
    rig.compare(&mount);
    mount.unmount();
    // Another manifest makes another index.
    text.push_str("b,train/not in the manifest,1,,\n");
    rig.bucket.put_outside("inventory.csv", text.as_bytes());
    rig.objects
        .insert("not in the manifest".to_owned(), b"x".to_vec());
    let mount = Mount::stream(&source, &options);
    rig.compare(&mount);
    mount.unmount();
}

#[test]
fn a_manifest_that_cannot_be_had_is_named_with_the_remedy() {
    let rig = Rig::with_small_files(Kind::S3, 3);
    rig.bucket.put_outside("packed.csv.gz", b"\x1f\x8b\x08");
    rig.bucket
        .put_outside("elsewhere.txt", b"other/a\nother/b\n");
    let bucket = rig.bucket.source();
    for (manifest, part) in [
        (format!("{bucket}/missing.csv"), "check the path"),
        (format!("{bucket}/packed.csv.gz"), "gunzip"),
        (format!("{bucket}/elsewhere.txt"), "begins with `set/`"),
        ("oss://bucket/keys".to_owned(), "another kind of store"),
        (format!("{bucket}/folder/"), "is no object"),
        ("/no/such/file".to_owned(), "check its path"),
    ] {
        let place = rig.indexes.folder("mnt");
        let set = format!("{bucket}/set");
        let mut command = rig.bucket.command_on("stream", &set);
        command.arg(&place).arg("-f");
        command.arg(format!("--index-dir={}", rig.indexes.folder("i").display()));
        command.arg(format!("--manifest={manifest}"));
        let refused = run_within(PATIENCE, &mut command);
        assert!(!refused.succeeded(), "{manifest}");
        assert!(refused.stderr.contains(part), "{manifest}: {refused:?}");
    }
}

#[test]
fn build_writes_an_image_that_the_kernel_can_mount() {
    let rig = Rig::with_small_files(Kind::Local, 30);
    let image = rig.indexes.path().join("an image");
    let index = format!("--index-dir={}", rig.indexes.path().display());
    let source = rig.bucket.source();
    let told = stream(&[
        "build",
        &source,
        "-o",
        &image.to_string_lossy(),
        &index,
        "--disks=1",
    ]);
    let told = told.expect_success().stdout;
    assert!(told.contains("30 objects"), "{told}");
    assert!(rig.indexes.path().join("an image.objects").exists());
    let magic = fs::read(&image).expect("written")[1024..1028].to_vec();
    assert_eq!(
        magic,
        0xE0F5_E1E2_u32.to_le_bytes(),
        "the superblock of EROFS"
    );
    let kept = stream(&["build", &source, &index]).expect_success().stdout;
    assert!(kept.contains("the index is kept"), "{kept}");
}
