//! The disk of the staging directory stands still: whoever needs it waits, and nobody else.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use penstock_tests::{Bucket, Disk, Kind, Mount, Patience, data::noise, run_within};

/// Less than the disk may stand still.
const SOON: Patience = Patience::seconds(30);
const WRITERS: u64 = 6;

/// Writers that all wait for the disk hold up nobody else, however few threads receive requests.
#[test]
fn a_disk_that_stands_still_holds_up_only_who_needs_it() {
    let Some(disk) = Disk::new() else { return };
    for threads in ["1", "2", "4"] {
        let bucket = Bucket::new(Kind::S3);
        bucket.put_outside("other", b"content");
        let options = bucket.staged_options(&disk.path().join("staging"));
        let mount = bucket.mount_with(&options.option("fuse-threads", threads));
        let path = mount.join("file");
        let file = File::create(&path).expect("a create");
        file.write_all_at(&noise(0, 4096), 0).expect("a write");
        let frozen = disk.freeze();
        let writers: Vec<_> = (1..=WRITERS)
            .map(|number| {
                // A file each: the kernel writes one file from one place at a time.
                let path = mount.join(format!("file {number}"));
                let write = move || {
                    let file = File::create(path)?;
                    file.write_all_at(&noise(number, 4096), 0)?;
                    file.set_len(5000)
                };
                thread::spawn(write)
            })
            .collect();
        thread::sleep(Duration::from_millis(500));
        for _ in 0..3 {
            // A process of its own, which can be given up.
            let read = run_within(SOON, Command::new("cat").arg(mount.join("other")));
            assert_eq!(read.expect_success().stdout, "content", "{threads}");
        }
        drop(frozen);
        for writer in writers {
            writer.join().expect("no panic").expect("the disk goes on");
        }
        drop(file);
        for number in 1..=WRITERS {
            let content = fs::read(mount.join(format!("file {number}"))).expect("a read");
            assert!(content.starts_with(&noise(number, 4096)) && content.len() == 5000);
        }
        mount.unmount();
    }
}

/// What closed files left is taken over or given up by whoever opens them next: that is for the disk,
/// not for those who look up, stat, list, open and read something else meanwhile.
#[test]
fn opening_what_was_closed_a_moment_ago_holds_up_nobody_else() {
    let Some(disk) = Disk::new() else { return };
    for threads in ["1", "4"] {
        let bucket = Bucket::new(Kind::S3);
        bucket.put_outside("other", b"content");
        let options = bucket.staged_options(&disk.path().join("staging"));
        let options = options.option("close-to-open", "on");
        let mount = bucket.mount_with(&options.option("fuse-threads", threads));
        for name in ["ours", "theirs"] {
            fs::write(mount.join(name), noise(0, 4096)).expect("a write");
        }
        let engaged = File::create(mount.join("engaged")).expect("a create");
        engaged.write_all_at(b"ours", 0).expect("a write");
        engaged.sync_all().expect("a save");
        for name in ["theirs", "engaged"] {
            bucket.put_outside(name, b"by another client");
        }
        let frozen = disk.freeze();
        let opening = ["ours", "theirs", "engaged"].map(|name| begin(&["cat"], &mount, name));
        thread::sleep(Duration::from_millis(500));
        expect_others_served(&mount, threads);
        drop(frozen);
        for opened in opening {
            expect_end(opened);
        }
        drop(engaged);
        mount.unmount();
    }
}

/// Who changes a file waits until the disk has noted that, and so does who saves it. The others look
/// at the file meanwhile, and open it.
#[test]
fn opening_a_file_whose_change_waits_for_the_disk_holds_up_nobody_else() {
    let Some(disk) = Disk::new() else { return };
    for threads in ["1", "4"] {
        let bucket = Bucket::new(Kind::S3);
        bucket.put_outside("other", b"content");
        let options = bucket.staged_options(&disk.path().join("staging"));
        let mount = bucket.mount_with(&options.option("fuse-threads", threads));
        let names = ["shortened", "saved", "written"];
        let files = names.map(|name| {
            let file = File::create(mount.join(name)).expect("a create");
            file.write_all_at(&noise(0, 4096), 0).expect("a write");
            file
        });
        files[0].sync_all().expect("a save");
        let frozen = disk.freeze();
        let changing = [
            begin(&["truncate", "-s", "2000"], &mount, "shortened"),
            begin(&["sync"], &mount, "saved"),
            begin(&["truncate", "-s", "9000"], &mount, "written"),
        ];
        thread::sleep(Duration::from_millis(500));
        let opening = names.map(|name| begin(&["head", "-c", "1000"], &mount, name));
        thread::sleep(Duration::from_millis(500));
        expect_others_served(&mount, threads);
        drop(frozen);
        for waiting in changing.into_iter().chain(opening) {
            expect_end(waiting);
        }
        drop(files);
        for (name, size) in [("shortened", 2000), ("saved", 4096), ("written", 9000)] {
            let content = fs::read(mount.join(name)).expect("a read");
            let written = noise(0, 4096);
            let there = size.min(4096);
            assert!(
                content[..there] == written[..there] && content.len() == size,
                "{name}"
            );
        }
        mount.unmount();
    }
}

/// Begins a program that may have to wait for the disk.
fn begin(command: &[&str], mount: &Mount, name: &str) -> Child {
    let mut program = Command::new(command[0]);
    program.args(&command[1..]).arg(mount.join(name));
    program.stdout(Stdio::null()).spawn().expect("a process")
}

fn expect_end(mut program: Child) {
    let ended = || program.try_wait().expect("ours").map(|end| end.success());
    assert_eq!(SOON.find(ended), Some(true));
}

/// Looks up, opens, reads, stats and lists what has nothing to do with the disk.
fn expect_others_served(mount: &Mount, threads: &str) {
    for _ in 0..3 {
        // Processes of their own, which can be given up.
        let read = run_within(SOON, Command::new("cat").arg(mount.join("other")));
        assert_eq!(read.expect_success().stdout, "content", "{threads}");
        let looked = run_within(SOON, Command::new("ls").arg("-l").arg(mount.path()));
        assert!(
            looked.expect_success().stdout.contains("other"),
            "{threads}"
        );
    }
}
