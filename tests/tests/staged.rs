//! Staged mode on real mounts: files are written anywhere, saved cheaply, and never lost.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File},
    io::Write,
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    process::Command,
};

use penstock_devserver::{Fault, FaultRule, Faults, Operation};
use penstock_tests::{
    BUCKET, Bucket, Kind, Mount, MountOptions, Patience, Scratch,
    data::noise,
    files::{ANY, open, write},
    penstock, run_within,
    soak::Chance,
    system::{self, Errno},
};

const MIB: usize = 1 << 20;
const PATIENCE: Patience = Patience::seconds(60);

/// A bucket and a staging directory, mounted as often as a test likes.
struct Bed {
    bucket: Bucket,
    scratch: Scratch,
}

impl Bed {
    fn new(kind: Kind) -> Self {
        Self {
            bucket: Bucket::new(kind),
            scratch: Scratch::new(),
        }
    }

    fn staging(&self) -> PathBuf {
        self.scratch.path().join("staging")
    }

    fn options(&self) -> MountOptions {
        self.bucket.staged_options(&self.staging())
    }

    #[track_caller]
    fn mount(&self) -> Mount {
        self.bucket.mount_with(&self.options())
    }

    /// Mounts, and waits until what an earlier mount left is saved or put aside.
    #[track_caller]
    fn mount_recovered(&self) -> Mount {
        self.recovered(self.mount())
    }

    #[track_caller]
    fn recovered(&self, mount: Mount) -> Mount {
        PATIENCE.until("what was left to be saved", || !self.has_journals());
        mount
    }

    fn has_journals(&self) -> bool {
        let files = fs::read_dir(self.staging().join("files")).expect("a staging directory");
        let mut names = files.flatten().map(|file| file.path());
        names.any(|name| name.extension().is_some_and(|ending| ending == "journal"))
    }

    /// What another client sees.
    fn stored(&self, name: &str) -> Option<Vec<u8>> {
        if self.bucket.kind() == Kind::Local {
            let folder = self.bucket.source();
            let folder = folder.strip_prefix("file://").expect("a local bucket");
            return fs::read(Path::new(folder).join(name)).ok();
        }
        self.bucket.data().get(BUCKET, name)
    }

    /// Bytes that the disk holds for the staging directory.
    fn staged(&self) -> u64 {
        let files = fs::read_dir(self.staging().join("files")).expect("a staging directory");
        let blocks = files.flatten().filter_map(|file| file.metadata().ok());
        blocks.map(|metadata| metadata.blocks() * 512).sum()
    }

    /// Makes every request fail.
    fn break_store(&self) {
        let rule = FaultRule::new(Fault::InternalError);
        self.bucket.fail(Faults::rule(rule));
    }
}

fn read_all(file: &OwnedFd) -> Vec<u8> {
    let size = system::status_open(file).expect("open").size as usize;
    let mut content = Vec::new();
    while content.len() < size {
        let at = content.len() as u64;
        let more = system::read_at(file, MIB, at).expect("a read");
        assert!(!more.is_empty(), "ends at {at} of {size}");
        content.extend(more);
    }
    content
}

/// Whether a call failed because the store did.
fn is_store_failure(result: Result<(), Errno>) -> bool {
    matches!(result, Err(Errno(libc::EIO | libc::ETIMEDOUT)))
}

#[test]
fn a_file_is_written_anywhere_in_any_order() {
    for kind in Kind::ALL {
        let bed = Bed::new(kind);
        let mount = bed.mount();
        let file = open(&mount.join("file"), ANY);
        let reader = open(&mount.join("file"), libc::O_RDONLY);
        let (mut expected, mut chance) = (Vec::new(), Chance::new(7));
        for round in 0..300 {
            let (offset, length) = (chance.below(3 * MIB), 1 + chance.below(70_000));
            let data = noise(round, length);
            expected.resize(expected.len().max(offset + length), 0);
            expected[offset..offset + length].copy_from_slice(&data);
            write(&file, offset as u64, &data);
            let from = chance.below(expected.len());
            let read = system::read_at(&reader, 50_000, from as u64).expect("a read");
            assert!(
                read == expected[from..expected.len().min(from + 50_000)],
                "round {round}"
            );
            if round % 100 == 50 {
                system::sync(&file).expect("a sync");
                assert!(
                    bed.stored("file").as_ref() == Some(&expected),
                    "round {round}"
                );
            }
        }
        assert!(read_all(&reader) == expected);
        system::close(file).expect("saved");
        assert!(bed.stored("file").as_ref() == Some(&expected));
        system::close(reader).expect("nothing to save");
        assert!(fs::read(mount.join("file")).expect("a read") == expected);
        mount.unmount();
        assert_eq!(bed.staged(), 0, "nothing stays behind");
    }
}

#[test]
fn a_file_is_truncated_and_extended_to_any_size() {
    for kind in Kind::ALL {
        let bed = Bed::new(kind);
        let mount = bed.mount();
        let path = mount.join("file");
        let mut expected = noise(1, 200_000);
        fs::write(&path, &expected).expect("a write");
        for size in [100_001, 300_000, 4096, 4097, 0, 10] {
            system::truncate(&path, size as u64).expect("a truncation");
            expected.resize(size, 0);
            assert!(
                bed.stored("file").as_ref() == Some(&expected),
                "{size}: durable at once"
            );
        }
        let file = open(&path, libc::O_RDWR);
        for (size, at) in [(50, 20), (30, 29), (500_000, 499_990), (499_995, 0)] {
            system::truncate_open(&file, size as u64).expect("a truncation");
            expected.resize(size, 0);
            write(&file, at as u64, b"x");
            expected[at] = b'x';
            assert!(read_all(&file) == expected, "{size}");
        }
        let before = bed.stored("file").map(|content| content.len());
        assert_eq!(
            before,
            Some(10),
            "a truncation through a handle waits for the close"
        );
        system::close(file).expect("saved");
        assert!(bed.stored("file") == Some(expected));
        mount.unmount();
    }
}

#[test]
fn appending_goes_on_after_what_the_store_has() {
    for kind in Kind::ALL {
        let bed = Bed::new(kind);
        bed.bucket.put_outside("log", b"one\n");
        let mount = bed.mount();
        let flags = libc::O_WRONLY | libc::O_APPEND;
        let (one, other) = (
            open(&mount.join("log"), flags),
            open(&mount.join("log"), flags),
        );
        write(&one, 0, b"two\n");
        write(&other, 0, b"three\n");
        write(&one, 0, b"four\n");
        drop((one, other));
        assert_eq!(
            bed.stored("log").as_deref(),
            Some(&b"one\ntwo\nthree\nfour\n"[..])
        );
        mount.unmount();
    }
}

#[test]
fn a_sparse_file_takes_no_space_before_it_is_saved() {
    let bed = Bed::new(Kind::S3);
    let mount = bed.mount();
    let file = open(&mount.join("sparse"), ANY);
    write(&file, 60 * MIB as u64, b"end");
    assert!(bed.staged() < MIB as u64);
    system::close(file).expect("saved");
    let stored = bed.stored("sparse").expect("saved");
    assert_eq!(stored.len(), 60 * MIB + 3);
    assert!(stored[..60 * MIB].iter().all(|byte| *byte == 0));
    mount.unmount();
}

#[test]
fn a_shared_mapping_is_written_back() {
    for kind in Kind::ALL {
        let bed = Bed::new(kind);
        let mount = bed.mount();
        let mut expected = noise(3, 100_000);
        fs::write(mount.join("file"), &expected).expect("a write");
        let file = open(&mount.join("file"), libc::O_RDWR);
        system::write_mapped(&file, 100_000, 50_000, b"through a mapping").expect("mapped");
        expected[50_000..50_017].copy_from_slice(b"through a mapping");
        assert!(read_all(&file) == expected);
        system::close(file).expect("saved");
        assert!(bed.stored("file") == Some(expected));
        mount.unmount();
    }
}

#[test]
fn holes_are_punched_and_ranges_zeroed() {
    for kind in Kind::ALL {
        let bed = Bed::new(kind);
        let mount = bed.mount();
        let mut expected = noise(4, 400_000);
        fs::write(mount.join("file"), &expected).expect("a write");
        let file = open(&mount.join("file"), libc::O_RDWR);
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        let punch = libc::FALLOC_FL_PUNCH_HOLE | keep;
        system::allocate(&file, punch, 100, 100_000).expect("a hole");
        expected[100..100_100].fill(0);
        assert!(read_all(&file) == expected);
        system::allocate(&file, punch, 399_000, 50_000).expect("a hole at the end");
        expected[399_000..].fill(0);
        system::allocate(&file, libc::FALLOC_FL_ZERO_RANGE, 398_000, 3000).expect("zeros");
        expected.resize(401_000, 0);
        expected[398_000..].fill(0);
        system::allocate(&file, keep, 0, 900_000).expect("room");
        system::allocate(&file, 0, 0, 500_000).expect("room");
        expected.resize(500_000, 0);
        assert!(read_all(&file) == expected);
        let refused = system::allocate(&file, libc::FALLOC_FL_COLLAPSE_RANGE, 0, 4096);
        assert_eq!(refused, Err(Errno(libc::EOPNOTSUPP)));
        system::close(file).expect("saved");
        assert!(bed.stored("file") == Some(expected));
        mount.unmount();
    }
}

#[test]
fn an_open_file_outlives_its_name() {
    for kind in Kind::ALL {
        let bed = Bed::new(kind);
        let mount = bed.mount();
        for name in ["read", "written", "replaced"] {
            bed.bucket.put_outside(name, b"old content");
        }
        let read = open(&mount.join("read"), libc::O_RDONLY);
        let written = open(&mount.join("written"), libc::O_RDWR);
        let replaced = open(&mount.join("replaced"), libc::O_RDWR);
        let new = open(&mount.join("new"), ANY);
        write(&written, 4, b"CONTENT!");
        write(&replaced, 0, b"NEW");
        write(&new, 0, b"never stored");
        for name in ["read", "written", "new"] {
            system::remove(&mount.join(name)).expect("a removal");
            assert_eq!(bed.stored(name), None);
        }
        fs::write(mount.join("other"), "other content").expect("a write");
        system::rename(&mount.join("other"), &mount.join("replaced"), 0).expect("a rename");
        assert_eq!(read_all(&read), b"old content");
        assert_eq!(read_all(&written), b"old CONTENT!");
        assert_eq!(read_all(&replaced), b"NEW content");
        write(&new, 12, b", but kept");
        assert_eq!(read_all(&new), b"never stored, but kept");
        for file in [read, written, replaced, new] {
            system::sync(&file).expect("nothing to save");
            system::close(file).expect("nothing to save");
        }
        let names = Ok(vec!["replaced".into()]);
        assert_eq!(system::list(mount.path()), names);
        assert_eq!(
            bed.stored("replaced").as_deref(),
            Some(&b"other content"[..])
        );
        mount.unmount();
        assert_eq!(bed.staged(), 0);
    }
}

#[test]
fn a_file_with_unsaved_bytes_is_renamed() {
    for kind in Kind::ALL {
        let bed = Bed::new(kind);
        let mount = bed.mount();
        fs::create_dir(mount.join("from")).expect("a directory");
        let file = open(&mount.join("from/one"), ANY);
        write(&file, 0, b"before the first, ");
        system::rename(&mount.join("from/one"), &mount.join("from/two"), 0).expect("a rename");
        write(&file, 18, b"before the second, ");
        system::rename(&mount.join("from"), &mount.join("to"), 0).expect("a rename");
        write(&file, 37, b"after both");
        system::close(file).expect("saved");
        let expected = b"before the first, before the second, after both";
        assert_eq!(bed.stored("to/two").as_deref(), Some(&expected[..]));
        assert_eq!(bed.stored("from/two"), None);
        mount.unmount();
    }
}

#[test]
fn a_small_change_of_a_large_object_sends_little() {
    const SIZE: usize = 256 * MIB;
    for kind in Kind::REMOTE {
        let bed = Bed::new(kind);
        let mut expected = noise(5, SIZE);
        bed.bucket.put_outside("large", &expected);
        let mount = bed.mount();
        bed.bucket
            .server(penstock_devserver::Server::reset_counters);
        let change = noise(6, MIB);
        let file = open(&mount.join("large"), libc::O_RDWR);
        write(&file, 100 * MIB as u64 + 12_345, &change);
        system::close(file).expect("saved");
        let sent = bed.bucket.server(|server| server.counters().bytes_in);
        assert!(sent < 10 * MIB as u64, "a change sent {sent} bytes");
        let mut file = File::options()
            .append(true)
            .open(mount.join("large"))
            .expect("opens");
        file.write_all(&change).expect("an append");
        drop(file);
        let sent = bed.bucket.server(|server| server.counters().bytes_in);
        assert!(
            sent < 20 * MIB as u64,
            "a change and an append sent {sent} bytes"
        );
        let start = 100 * MIB + 12_345;
        expected[start..start + MIB].copy_from_slice(&change);
        expected.extend(&change);
        assert!(
            bed.stored("large").as_ref() == Some(&expected),
            "the rest is as it was"
        );
        system::truncate(&mount.join("large"), 200 * MIB as u64 + 1).expect("a truncation");
        let sent = bed.bucket.server(|server| server.counters().bytes_in);
        assert!(sent < 20 * MIB as u64, "with a truncation {sent} bytes");
        expected.truncate(200 * MIB + 1);
        assert!(bed.stored("large") == Some(expected));
        mount.unmount();
    }
}

#[test]
fn what_was_written_before_a_kill_is_saved_by_the_next_mount() {
    for kind in Kind::ALL {
        let bed = Bed::new(kind);
        let old = noise(1, 12 * MIB);
        bed.bucket.put_outside("changed", &old);
        bed.bucket.put_outside("emptied", b"something long");
        let mount = bed.mount();
        let new = open(&mount.join("new"), ANY);
        let new_content = noise(2, 3 * MIB);
        write(&new, 5, &new_content[..MIB]);
        write(&new, 5 + MIB as u64, &new_content[MIB..]);
        let changed = open(&mount.join("changed"), libc::O_RDWR);
        write(&changed, 7 * MIB as u64, b"a change");
        system::truncate_open(&changed, 11 * MIB as u64).expect("a truncation");
        let emptied = open(&mount.join("emptied"), libc::O_RDWR | libc::O_TRUNC);
        write(&emptied, 0, b"anew");
        let removed = open(&mount.join("removed"), ANY);
        write(&removed, 0, b"removed");
        system::remove(&mount.join("removed")).expect("a removal");
        mount.kill_and_unmount();
        drop((new, changed, emptied, removed));

        let mount = bed.mount_recovered();
        for name in ["new", "changed", "emptied"] {
            let told = format!("recovered `{name}`");
            PATIENCE.until(&told, || mount.log().contains(&told));
        }
        let mut expected = vec![0; 5];
        expected.extend(&new_content);
        assert!(bed.stored("new") == Some(expected));
        let mut expected = old;
        expected[7 * MIB..7 * MIB + 8].copy_from_slice(b"a change");
        expected.truncate(11 * MIB);
        assert!(bed.stored("changed") == Some(expected));
        assert_eq!(bed.stored("emptied").as_deref(), Some(&b"anew"[..]));
        assert_eq!(bed.stored("removed"), None);
        mount.unmount();
        assert_eq!(bed.staged(), 0);
    }
}

#[test]
fn a_new_file_keeps_its_owner_and_mode_through_a_kill() {
    let bed = Bed::new(Kind::S3);
    let options = || bed.options().option("posix-metadata", "on");
    let mount = bed.bucket.mount_with(&options());
    let path = mount.join("new");
    let file = open(&path, ANY);
    write(&file, 0, b"never stored");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("a change of mode");
    std::os::unix::fs::chown(&path, Some(12), Some(34)).expect("a change of owner");
    mount.kill_and_unmount();
    drop(file);

    let mount = bed.recovered(bed.bucket.mount_with(&options()));
    assert_eq!(bed.stored("new").as_deref(), Some(&b"never stored"[..]));
    let found = fs::metadata(mount.join("new")).expect("it is there");
    let shown = (found.uid(), found.gid(), found.mode() & 0o7777);
    assert_eq!(shown, (12, 34, 0o640));
    mount.unmount();
    assert_eq!(bed.staged(), 0);
}

#[test]
fn what_another_client_wrote_after_a_kill_stays() {
    for kind in Kind::ALL {
        let bed = Bed::new(kind);
        bed.bucket.put_outside("file", b"the first version");
        let mount = bed.mount();
        let file = open(&mount.join("file"), libc::O_RDWR);
        write(&file, 4, b"FIRST");
        let new = open(&mount.join("new"), ANY);
        write(&new, 0, b"ours");
        mount.kill_and_unmount();
        drop((file, new));
        bed.bucket.put_outside("file", b"theirs");
        bed.bucket.put_outside("new", b"theirs");
        let mount = bed.mount_recovered();
        let kept = bed.staging().join("kept");
        PATIENCE.until("both in the log", || {
            mount.log().matches("is kept in").count() == 2
        });
        let log = mount.log();
        assert!(log.contains(&kept.display().to_string()), "{log}");
        for name in ["file", "new"] {
            assert_eq!(bed.stored(name).as_deref(), Some(&b"theirs"[..]));
        }
        let kept = fs::read_dir(kept).expect("a directory");
        assert_eq!(kept.flatten().count(), 4, "content and journal of both");
        mount.unmount();
    }
}

#[test]
fn an_answer_that_knows_of_no_object_is_no_other_version() {
    let bed = Bed::new(Kind::S3);
    bed.bucket.put_outside("file", b"the first version");
    let mount = bed.mount();
    let file = open(&mount.join("file"), libc::O_RDWR);
    write(&file, 4, b"FIRST");
    // As from a balancer that has lost its store.
    let (status, code) = (404, String::new());
    let lost = FaultRule::new(Fault::Status { status, code });
    bed.bucket
        .fail(Faults::rule(lost.on(&[Operation::PutObject])));
    assert!(system::sync(&file).is_err());
    drop(file);
    std::thread::sleep(std::time::Duration::from_secs(2));
    bed.bucket.heal();
    let expected = &b"the FIRST version"[..];
    PATIENCE.until("the file to be saved", || {
        bed.stored("file").as_deref() == Some(expected)
    });
    assert_eq!(
        fs::read_dir(bed.staging().join("kept"))
            .expect("a directory")
            .count(),
        0
    );
    mount.unmount();
}

#[test]
fn a_change_by_another_client_is_never_overwritten() {
    for kind in Kind::ALL {
        let bed = Bed::new(kind);
        bed.bucket.put_outside("file", b"the first version");
        let mount = bed.mount();
        let file = open(&mount.join("file"), libc::O_RDWR);
        write(&file, 4, b"FIRST");
        bed.bucket.put_outside("file", b"theirs");
        assert_eq!(system::sync(&file), Err(Errno(libc::EBUSY)));
        assert_eq!(read_all(&file), b"the FIRST version");
        assert_eq!(system::close(file), Err(Errno(libc::EBUSY)));
        PATIENCE.until("their version to show", || {
            fs::read(mount.join("file")).is_ok_and(|content| content == b"theirs")
        });
        assert!(mount.log().contains("is kept in"), "{}", mount.log());
        mount.unmount();
    }
}

/// How a program changes two bytes of a file that it or another has read.
type Change = fn(&Path);

fn in_place(path: &Path) {
    let file = File::options().write(true).open(path).expect("it is there");
    file.write_all_at(b"AA", 0).expect("a write");
    file.sync_all().expect("a save");
}

fn at_the_end(path: &Path) {
    let mut file = File::options()
        .append(true)
        .open(path)
        .expect("it is there");
    file.write_all(b"AA").expect("a write");
    file.sync_all().expect("a save");
}

/// The kernel has pages of the version that was read, and the change is based on another.
#[test]
fn a_change_of_what_another_client_stored_is_not_mixed_with_pages_of_before() {
    let bed = Bed::new(Kind::S3);
    let mount = bed.mount();
    for (number, size) in [8192, 3 * MIB].into_iter().enumerate() {
        for (change, kind) in [(in_place as Change, "place"), (at_the_end, "end")] {
            for stays_open in [true, false] {
                let name = format!("{number}-{kind}-{stays_open}");
                bed.bucket.put_outside(&name, &vec![b'1'; size]);
                let path = mount.join(&name);
                let mut reader = Some(File::open(&path).expect("it is there"));
                // The second time the kernel keeps the pages of a small file.
                for _ in 0..2 {
                    assert_eq!(fs::read(&path).expect("it is there").len(), size);
                }
                reader.take_if(|_| !stays_open);
                bed.bucket.put_outside(&name, &vec![b'2'; size]);
                change(&path);
                let stored = bed.stored(&name).expect("it was saved");
                for time in ["first", "later"] {
                    let shown = fs::read(&path).expect("it is there");
                    assert!(shown == stored, "{name}: the {time} look");
                }
            }
        }
    }
}

#[test]
fn a_store_that_fails_is_told_at_fsync_and_close_and_nothing_is_lost() {
    for kind in Kind::REMOTE {
        let bed = Bed::new(kind);
        let mount = bed
            .bucket
            .mount_with(&bed.options().option("retry-timeout", "1s"));
        let file = open(&mount.join("file"), ANY);
        write(&file, 0, b"not lost");
        bed.break_store();
        assert!(is_store_failure(system::sync(&file)));
        assert_eq!(read_all(&file), b"not lost");
        assert!(is_store_failure(system::close(file)));
        assert_eq!(fs::read(mount.join("file")).expect("a read"), b"not lost");
        bed.bucket.heal();
        PATIENCE.until("the file to be saved", || {
            bed.stored("file").as_deref() == Some(&b"not lost"[..])
        });
        // The mount ends while the store fails: the next one saves.
        let file = open(&mount.join("late"), ANY);
        write(&file, 0, b"saved later");
        bed.break_store();
        assert!(is_store_failure(system::close(file)));
        drop(mount);
        bed.bucket.heal();
        let mount = bed.mount();
        assert_eq!(
            fs::read(mount.join("late")).expect("a read"),
            b"saved later"
        );
        mount.unmount();
    }
}

#[test]
fn a_full_staging_directory_fails_the_write_and_never_the_close() {
    let bed = Bed::new(Kind::S3);
    let options = bed
        .options()
        .option("staging-size", "8MiB")
        .option("retry-timeout", "1s");
    let mount = bed.bucket.mount_with(&options);
    let file = open(&mount.join("file"), ANY);
    bed.break_store();
    let (piece, mut taken) = (noise(1, MIB), 0);
    let error = loop {
        match system::write_at(&file, &piece, taken) {
            Ok(count) => taken += count as u64,
            Err(error) => break error,
        }
        assert!(taken <= 8 * MIB as u64, "more than fits");
    };
    assert_eq!(error, Errno(libc::ENOSPC));
    assert!(taken >= 4 * MIB as u64, "{taken}");
    bed.bucket.heal();
    system::close(file).expect("what was accepted is saved");
    let stored = bed.stored("file").expect("saved");
    assert_eq!(stored.len() as u64, taken);
    assert!(
        stored
            .chunks(MIB)
            .all(|chunk| *chunk == piece[..chunk.len()])
    );
    mount.unmount();
}

#[test]
fn large_files_pass_through_a_small_staging_directory() {
    for kind in Kind::ALL {
        let bed = Bed::new(kind);
        let mount = bed
            .bucket
            .mount_with(&bed.options().option("staging-size", "16MiB"));
        let mut file = File::create(mount.join("large")).expect("a create");
        let content = noise(1, 60 * MIB);
        for piece in content.chunks(MIB) {
            file.write_all(piece).expect("there is room after a save");
            assert!(
                bed.staged() <= 17 * MIB as u64,
                "{} bytes are staged",
                bed.staged()
            );
        }
        drop(file);
        assert!(bed.stored("large").as_ref() == Some(&content));
        assert!(fs::read(mount.join("large")).expect("a read") == content);
        mount.unmount();
    }
}

#[test]
fn a_file_with_much_unsaved_is_saved_while_it_is_written() {
    let bed = Bed::new(Kind::S3);
    let mount = bed
        .bucket
        .mount_with(&bed.options().option("max-dirty-data", "5MiB"));
    let file = File::create(mount.join("file")).expect("a create");
    file.write_all_at(&noise(1, 12 * MIB), 0).expect("a write");
    PATIENCE.until("the file to be in the store", || {
        bed.stored("file").is_some()
    });
    drop(file);
    assert!(bed.stored("file") == Some(noise(1, 12 * MIB)));
    mount.unmount();
}

#[test]
fn two_mounts_never_share_a_staging_directory() {
    let bed = Bed::new(Kind::Local);
    let mount = bed.mount();
    let second = bed.scratch.folder("second");
    let mut command: Command = penstock();
    command
        .args(["mount", "-f", &bed.bucket.source()])
        .arg(&second);
    command.arg("--mode=staged");
    command.arg(format!("--staging-dir={}", bed.staging().display()));
    let refused = run_within(PATIENCE, &mut command);
    assert!(!refused.succeeded());
    assert!(
        refused.stderr.contains("in use by process"),
        "{}",
        refused.stderr
    );
    mount.unmount();
}
