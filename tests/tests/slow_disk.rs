//! The disk of the staging directory stands still: whoever needs it waits, and nobody else.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    process::Command,
    thread,
    time::Duration,
};

use penstock_tests::{Bucket, Disk, Kind, Patience, data::noise, run_within};

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
