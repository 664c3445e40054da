//! Stores that lack something: what they cannot do is done another way, or refused with a word; it
//! never costs data. Each lack is one of a store that people use; see docs/stores.md.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use penstock_devserver::{Fault, FaultRule, Faults, Lack, Operation};
use penstock_tests::{
    BUCKET, Bucket, Kind, Mount, MountOptions, Patience, Scratch,
    data::noise,
    files::{ANY, open, write},
    run_within, system,
};

const MIB: usize = 1 << 20;
const PATIENCE: Patience = Patience::seconds(60);
/// How long the store of a test is away.
const AWAY: Duration = Duration::from_secs(10);

/// A bucket on a store that lacks something, and a staging directory.
struct Bed {
    bucket: Bucket,
    scratch: Scratch,
}

impl Bed {
    fn lacking(faults: Faults) -> Self {
        let bucket = Bucket::new(Kind::S3);
        bucket.fail(faults);
        let scratch = Scratch::new();
        Self { bucket, scratch }
    }

    fn staged_options(&self) -> MountOptions {
        let staging = self.scratch.path().join("staging");
        self.bucket.staged_options(&staging)
    }

    #[track_caller]
    fn staged(&self) -> Mount {
        self.bucket.mount_with(&self.staged_options())
    }

    /// What another client sees.
    fn stored(&self, name: &str) -> Option<Vec<u8>> {
        self.bucket.data().get(BUCKET, name)
    }

    #[track_caller]
    fn expect_no_uploads(&self) {
        let uploads = || self.bucket.data().uploads(BUCKET);
        PATIENCE.until("uploads to be removed", || uploads().is_empty());
    }
}

fn lacking(lacks: &[Lack]) -> Bed {
    Bed::lacking(Faults::lacking(lacks))
}

/// A store that answers copies of parts with `status` and `code`.
fn without_part_copies(status: u16, code: &str) -> Bed {
    let code = code.to_owned();
    let refusal = FaultRule::new(Fault::Status { status, code });
    Bed::lacking(Faults::rule(refusal.on(&[Operation::UploadPartCopy])))
}

#[test]
fn recovery_overwrites_nobody_where_conditions_are_passed_over() {
    let bed = lacking(&[Lack::WriteConditions]);
    let mount = bed.staged();
    let new = open(&mount.join("new"), ANY);
    write(&new, 0, b"ours");
    mount.kill_and_unmount();
    drop(new);
    bed.bucket.put_outside("new", b"theirs");
    let mount = bed.staged();
    let kept = bed.scratch.path().join("staging/kept");
    PATIENCE.until("ours to be put aside", || {
        fs::read_dir(&kept).is_ok_and(|kept| kept.count() == 2)
    });
    assert_eq!(bed.stored("new").as_deref(), Some(&b"theirs"[..]));
    assert!(mount.log().contains("theirs stays"), "{}", mount.log());
    mount.unmount();
}

#[test]
fn a_link_replaces_nobody_where_conditions_are_passed_over() {
    let bed = lacking(&[Lack::WriteConditions]);
    let options = bed.staged_options().option("negative-timeout", "30s");
    let mount = bed.bucket.mount_with(&options);
    assert!(fs::symlink_metadata(mount.join("link")).is_err());
    bed.bucket.put_outside("link", b"theirs");
    let linked = std::os::unix::fs::symlink("target", mount.join("link"));
    let error = linked.expect_err("the name is taken");
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(bed.stored("link").as_deref(), Some(&b"theirs"[..]));
    mount.unmount();
}

#[test]
fn a_store_that_is_away_for_ten_seconds_costs_no_writer_a_file() {
    let bed = Bed::lacking(Faults::default());
    let mount = bed.bucket.mount();
    let content = noise(3, 160 * MIB);
    // Slow enough that many parts are on their way whenever the store goes.
    let slow = Faults {
        bandwidth: Some(MIB as u64),
        ..Faults::default()
    };
    bed.bucket.fail(slow);
    let gone = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut file = File::create(mount.join("file")).expect("a create");
            for piece in content.chunks(MIB) {
                file.write_all(piece)?;
            }
            assert!(gone.load(Ordering::SeqCst), "it was written too soon");
            file.sync_all()
        });
        PATIENCE.until("parts to be on their way", || {
            let parts = |server: &penstock_devserver::Server| {
                server.counters().operation(Operation::UploadPart)
            };
            bed.bucket.server(parts) >= 16
        });
        gone.store(true, Ordering::SeqCst);
        bed.bucket.without_server(|| thread::sleep(AWAY));
        let written = writer.join().expect("no panic");
        written.expect("nobody noticed");
    });
    assert!(bed.stored("file") == Some(content));
    mount.unmount();
    bed.expect_no_uploads();
}

#[test]
fn a_file_in_parts_is_itself_where_its_tag_is_told_wrong() {
    let bed = lacking(&[Lack::TagOfUpload]);
    let mount = bed.bucket.mount();
    for (name, size) in [("first", 20 * MIB), ("second", 80 * MIB)] {
        let content = noise(4, size);
        fs::write(mount.join(name), &content).expect("a write");
        let read = fs::read(mount.join(name)).expect("a read");
        assert!(read == content, "{name}");
        let moved = mount.join(format!("{name} moved"));
        fs::rename(mount.join(name), &moved).expect("a rename");
        assert!(fs::read(moved).expect("a read") == content, "{name}");
        assert_eq!(bed.stored(name), None);
    }
    mount.unmount();
}

#[test]
fn a_file_is_saved_twice_where_its_tag_is_told_wrong() {
    let bed = lacking(&[Lack::TagOfUpload]);
    let mount = bed.staged();
    let mut content = noise(5, 40 * MIB);
    fs::write(mount.join("file"), &content).expect("a write");
    for at in [1, 30 * MIB] {
        let file = open(&mount.join("file"), libc::O_RDWR);
        write(&file, at as u64, b"a change");
        system::close(file).expect("it is saved");
        content[at..at + 8].copy_from_slice(b"a change");
        assert!(bed.stored("file").as_ref() == Some(&content), "at {at}");
    }
    assert!(!mount.log().contains("is kept in"), "{}", mount.log());
    mount.unmount();
}

#[test]
fn a_file_goes_on_after_fsync_where_its_tag_is_told_wrong() {
    let bed = lacking(&[Lack::TagOfUpload]);
    let mount = bed.bucket.mount();
    let mut content = noise(10, 20 * MIB);
    let mut file = File::create(mount.join("file")).expect("a create");
    file.write_all(&content).expect("a write");
    file.sync_all().expect("it is saved");
    file.write_all(b"more").expect("a write");
    file.sync_all().expect("nobody else changed it");
    drop(file);
    content.extend(b"more");
    assert!(bed.stored("file") == Some(content));
    mount.unmount();
}

#[test]
fn what_cannot_be_copied_in_parts_is_fetched_and_sent() {
    for (status, code) in [
        (501, "NotImplemented"),
        (411, "MissingContentLength"),
        (405, "MethodNotAllowed"),
    ] {
        let bed = without_part_copies(status, code);
        let mut content = noise(6, 300 * MIB);
        bed.bucket.put_outside("file", &content);
        let mount = bed.staged();
        for at in [150 * MIB, 7] {
            let file = open(&mount.join("file"), libc::O_RDWR);
            write(&file, at as u64, b"a change");
            system::close(file).expect("it is saved");
            content[at..at + 8].copy_from_slice(b"a change");
            assert!(bed.stored("file").as_ref() == Some(&content), "{status}");
        }
        let copies = |server: &penstock_devserver::Server| {
            server.counters().operation(Operation::UploadPartCopy)
        };
        let tried = bed.bucket.server(copies);
        assert!((1..=8).contains(&tried), "{status}: tried {tried} times");
        let log = mount.log();
        assert!(log.contains("UploadPartCopy"), "{log}");
        mount.unmount();
        bed.expect_no_uploads();
    }
}

#[test]
fn what_cannot_be_copied_in_parts_is_appended_to_all_the_same() {
    let bed = without_part_copies(501, "NotImplemented");
    let mut content = noise(7, 30 * MIB);
    bed.bucket.put_outside("file", &content);
    let mount = bed.bucket.mount();
    let path = mount.join("file");
    for _ in 0..2 {
        let mut file = OpenOptions::new().append(true).open(&path).expect("open");
        file.write_all(b"more").expect("a write");
        file.sync_all().expect("it is saved");
        file.write_all(b" and more").expect("a write");
        drop(file);
        content.extend(b"more and more");
    }
    PATIENCE.until("the close to be saved", || {
        bed.stored("file").as_ref() == Some(&content)
    });
    mount.unmount();
    bed.expect_no_uploads();
}

#[test]
fn an_append_whose_answer_is_lost_is_known_again_where_no_tag_tells_of_it() {
    let bed = Bed::lacking(Faults::default());
    let mut content = noise(11, 34 * MIB);
    bed.bucket.put_outside("file", &content);
    let mount = bed.bucket.mount();
    let path = mount.join("file");
    let mut file = OpenOptions::new().append(true).open(&path).expect("open");
    let lost = FaultRule::new(Fault::LoseAnswer).on(&[Operation::CompleteUpload]);
    bed.bucket.fail(Faults::rule(lost.next(1)));
    file.write_all(b"more").expect("a write");
    file.sync_all().expect("the store has it");
    file.write_all(b" and more").expect("a write");
    file.sync_all().expect("it goes on after it");
    drop(file);
    content.extend(b"more and more");
    assert!(bed.stored("file") == Some(content));
    mount.unmount();
}

#[test]
fn a_file_that_was_only_cut_is_saved_though_the_answer_is_lost_and_no_tag_tells_of_it() {
    let bed = Bed::lacking(Faults::default());
    let content = noise(12, 40 * MIB);
    bed.bucket.put_outside("file", &content);
    let mount = bed.bucket.mount_with(&bed.staged_options());
    let file = OpenOptions::new().write(true).open(mount.join("file"));
    let file = file.expect("an open");
    let lost = FaultRule::new(Fault::LoseAnswer).on(&[Operation::CompleteUpload]);
    for size in [35, 33] {
        bed.bucket.fail(Faults::rule(lost.clone().next(1)));
        file.set_len(size << 20).expect("it is cut");
        file.sync_all().expect("the store has it");
        assert!(bed.stored("file").as_deref() == Some(&content[..(size << 20) as usize]));
    }
    drop(file);
    mount.unmount();
}

#[test]
fn part_copies_that_are_missing_are_made_up_for_in_little_memory() {
    let bed = without_part_copies(501, "NotImplemented");
    let mut content = noise(8, 300 * MIB);
    bed.bucket.put_outside("file", &content);
    let options = bed.staged_options().option("memory", "64MiB");
    let mount = bed.bucket.mount_with(&options);
    let file = open(&mount.join("file"), libc::O_RDWR);
    write(&file, 99, b"a change");
    system::close(file).expect("it is saved");
    content[99..107].copy_from_slice(b"a change");
    assert!(bed.stored("file") == Some(content));
    let peak = mount.process().peak_resident();
    assert!(peak < 160 * MIB as u64, "{} MiB", peak / MIB as u64);
    mount.unmount();
}

#[test]
fn files_are_read_where_checksums_cannot_be_asked_for() {
    let bed = lacking(&[Lack::ChecksumMode]);
    let content = noise(9, 20 * MIB);
    bed.bucket.put_outside("large", &content);
    bed.bucket.put_outside("small", b"small");
    let mount = bed.bucket.mount();
    assert_eq!(fs::read(mount.join("small")).expect("a read"), b"small");
    assert!(fs::read(mount.join("large")).expect("a read") == content);
    fs::write(mount.join("new"), "new").expect("a write");
    assert_eq!(fs::read(mount.join("new")).expect("a read"), b"new");
    let refused = bed.bucket.server(|server| server.counters().status(501));
    assert!((1..=4).contains(&refused), "asked {refused} times in vain");
    mount.unmount();
}

#[test]
fn metadata_is_changed_where_copies_are_answered_with_nothing() {
    let bed = lacking(&[Lack::AnswerToCopy]);
    let mount = bed.staged();
    let path = mount.join("file");
    fs::write(&path, "content").expect("a write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("a change of mode");
    std::os::unix::fs::chown(&path, Some(12), Some(34)).expect("a change of owner");
    fs::rename(&path, mount.join("moved")).expect("a rename");
    let file = OpenOptions::new().write(true).open(mount.join("moved"));
    let file = file.expect("it is there");
    file.write_all_at(b"C", 0).expect("a write");
    file.sync_all().expect("the version is known");
    drop(file);
    assert_eq!(bed.stored("moved").as_deref(), Some(&b"Content"[..]));
    mount.unmount();
}

#[test]
fn a_file_that_another_client_replaced_is_renamed_and_not_mixed() {
    let bed = lacking(&[Lack::CopyConditions]);
    let mount = bed.staged();
    fs::write(mount.join("file"), vec![b'o'; 34 * MIB]).expect("a write");
    let file = OpenOptions::new().write(true).open(mount.join("file"));
    let file = file.expect("it is there");
    file.write_all_at(b"ours", 0).expect("a write");
    file.sync_all().expect("it is saved");
    let theirs = vec![b't'; 34 * MIB];
    bed.bucket.put_outside("file", &theirs);
    fs::rename(mount.join("file"), mount.join("moved")).expect("it moves as it is now");
    let changed = file.write_all_at(b"a change", 20 * MIB as u64);
    let error = changed.expect_err("another client changed it");
    assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    assert!(bed.stored("moved") == Some(theirs));
}

#[test]
fn a_change_of_mode_takes_nobodys_version_where_copies_are_answered_with_nothing() {
    let bed = lacking(&[Lack::AnswerToCopy]);
    let mount = bed.staged();
    let path = mount.join("file");
    fs::write(&path, vec![b'o'; 34 * MIB]).expect("a write");
    let file = OpenOptions::new().write(true).open(&path);
    let file = file.expect("it is there");
    file.write_all_at(b"ours", 0).expect("a write");
    file.sync_all().expect("it is saved");
    let slow = FaultRule::new(Fault::Hang { duration_ms: 2000 });
    let mut faults = Faults::lacking(&[Lack::AnswerToCopy]);
    faults.rules = vec![slow.on(&[Operation::HeadObject])];
    bed.bucket.fail(faults);
    let copies =
        |server: &penstock_devserver::Server| server.counters().operation(Operation::CopyObject);
    let theirs = vec![b't'; 34 * MIB];
    thread::scope(|scope| {
        let change = scope.spawn(|| fs::set_permissions(&path, fs::Permissions::from_mode(0o640)));
        PATIENCE.until("the copy", || bed.bucket.server(copies) > 0);
        bed.bucket.put_outside("file", &theirs);
        let changed = change.join().expect("no panic");
        changed.expect("their version has the mode");
    });
    bed.bucket.fail(Faults::lacking(&[Lack::AnswerToCopy]));
    let changed = file.write_all_at(b"a change", 20 * MIB as u64);
    let error = changed.expect_err("another client changed it");
    assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    assert!(bed.stored("file") == Some(theirs));
}

#[test]
fn a_directory_is_renamed_where_its_marker_cannot_be_copied() {
    let bed = lacking(&[Lack::CopyOfMarker]);
    let mount = bed.staged();
    fs::create_dir(mount.join("directory")).expect("a directory");
    let mode = fs::Permissions::from_mode(0o750);
    fs::set_permissions(mount.join("directory"), mode).expect("a change of mode");
    fs::write(mount.join("directory/file"), "content").expect("a write");
    fs::create_dir(mount.join("directory/empty")).expect("a directory");
    fs::rename(mount.join("directory"), mount.join("moved")).expect("a rename");
    mount.unmount();
    let mount = bed.staged();
    let moved = mount.join("moved");
    assert_eq!(names(&moved), ["empty", "file"]);
    assert_eq!(fs::read(moved.join("file")).expect("a read"), b"content");
    let mode = fs::metadata(&moved).expect("it is there").permissions();
    assert_eq!(mode.mode() & 0o7777, 0o750);
    assert_eq!(names(mount.path()), ["moved"]);
    mount.unmount();
}

#[test]
fn a_name_that_is_spoilt_hides_no_other() {
    let bed = lacking(&[Lack::EncodedNames]);
    for name in ["d/a\u{1}b", "d/a b", "d/z"] {
        bed.bucket.put_outside(name, b"content");
    }
    let mount = bed.bucket.mount();
    assert_eq!(names(&mount.join("d")), ["a b", "z"]);
    assert_eq!(fs::read(mount.join("d/z")).expect("a read"), b"content");
    assert!(mount.log().contains("encoding-type"), "{}", mount.log());
    mount.unmount();
}

#[test]
fn names_with_the_sign_for_what_cannot_be_said_are_shown() {
    let bed = lacking(&[Lack::EncodedNames]);
    for name in ["d/a\u{fffd}b", "d/a\u{1}b", "d/e\u{fffd}/x", "d/e\u{1}/x"] {
        bed.bucket.put_outside(name, name.as_bytes());
    }
    let mount = bed.bucket.mount();
    let d = mount.join("d");
    assert_eq!(names(&d), ["a\u{fffd}b", "e\u{fffd}"]);
    let read = |name: &str| fs::read(d.join(name)).expect("a read");
    assert_eq!(read("a\u{fffd}b"), "d/a\u{fffd}b".as_bytes());
    assert_eq!(names(&d.join("e\u{fffd}")), ["x"]);
    assert!(mount.log().contains("2 names"), "{}", mount.log());
    mount.unmount();
}

#[test]
fn a_directory_with_names_that_cannot_be_said_is_neither_removed_nor_moved() {
    let bed = lacking(&[Lack::EncodedNames]);
    for name in ["d/a\u{1}b", "d/z", "only/a\u{1}b"] {
        bed.bucket.put_outside(name, b"content");
    }
    let mount = bed.bucket.mount();
    let moved = fs::rename(mount.join("d"), mount.join("e")).expect_err("part would stay");
    assert_eq!(moved.raw_os_error(), Some(libc::EOPNOTSUPP));
    fs::remove_file(mount.join("d/z")).expect("a removal");
    for name in ["d", "only"] {
        let removed = fs::remove_dir(mount.join(name)).expect_err("something is in it");
        assert_eq!(removed.raw_os_error(), Some(libc::ENOTEMPTY), "{name}");
    }
    assert_eq!(names(mount.path()), ["d", "only"]);
    mount.unmount();
    assert!(bed.stored("d/a\u{1}b").is_some());
}

#[test]
fn uploads_are_listed_where_there_are_none_or_pages_are_refused() {
    for lack in [Lack::EmptyUploads, Lack::MaxUploads] {
        let bed = lacking(&[lack]);
        let listed = run_within(PATIENCE, &mut bed.bucket.command("uploads"));
        assert!(listed.succeeded(), "{lack:?}: {listed:?}");
    }
}

#[test]
fn objects_are_deleted_one_by_one_where_many_cannot_be() {
    let code = "NotImplemented".to_owned();
    let refusal = FaultRule::new(Fault::Status { status: 501, code });
    let bed = Bed::lacking(Faults::rule(refusal.on(&[Operation::DeleteObjects])));
    let mount = bed.bucket.mount();
    fs::create_dir(mount.join("directory")).expect("a directory");
    for name in 0..5 {
        fs::write(mount.join(format!("directory/{name}")), "content").expect("a write");
    }
    fs::rename(mount.join("directory"), mount.join("moved")).expect("a rename");
    fs::remove_dir_all(mount.join("moved")).expect("a removal");
    assert_eq!(names(mount.path()), [""; 0]);
    mount.unmount();
    assert_eq!(bed.bucket.data().keys(BUCKET), [""; 0]);
}

fn names(directory: &Path) -> Vec<String> {
    let mut names = system::list(directory).expect("a directory");
    names.sort();
    names
}
