//! Mounts behave as the model says, whatever programs do in whatever order.

#![allow(clippy::disallowed_methods, clippy::panic, clippy::print_stdout)]

use std::{
    cell::RefCell,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_devserver::Faults;
use penstock_tests::{
    Bucket, Kind, Mount, MountOptions, Scratch,
    data::digest,
    model::{
        Access, Action, OpenMode, Place, Planted, Position, Rules, Sequence, Settings, check,
        compare,
    },
    shortage::{self, Mode},
};

/// Hands out new directories of one mount, and mounts again when the mount is dead, so that a
/// crash is found and shrunk like any other difference.
struct Folders {
    bucket: Bucket,
    options: MountOptions,
    mount: RefCell<Mount>,
    count: u32,
    /// How long the mount may believe that nothing is where another client has just put something.
    absence: Duration,
}

impl Folders {
    fn new(kind: Kind) -> Self {
        let bucket = Bucket::new(kind);
        let options = bucket.options();
        Self::with(bucket, options)
    }

    fn with(bucket: Bucket, options: MountOptions) -> Self {
        let mount = RefCell::new(bucket.mount_with(&options));
        Self {
            bucket,
            options,
            mount,
            count: 0,
            absence: Duration::ZERO,
        }
    }

    fn next(&mut self, planted: Planted) -> PathBuf {
        let mount = self.mount.get_mut();
        if !mount.is_alive() {
            println!("the mount died: {}", mount.last_words());
            self.mount.replace(self.bucket.mount_with(&self.options));
        }
        self.count += 1;
        let name = format!("case-{}", self.count);
        for path in planted {
            let key = format!("{name}/{path}");
            self.bucket.put_outside(&key, path.as_bytes());
        }
        let path = self.mount.get_mut().join(name);
        if !planted.is_empty() {
            std::thread::sleep(self.absence);
        }
        if planted.is_empty() {
            fs::create_dir(&path).expect("mkdir in a live mount");
        }
        path
    }
}

/// For how long a mount that saves behind believes a listing in which a name was not.
const LISTED_MAX: Duration = Duration::from_millis(1100);

/// Makes long runs: multiplies how many sequences each test tries.
const EFFORT_VARIABLE: &str = "PENSTOCK_TEST_EFFORT";

fn effort() -> u32 {
    std::env::var(EFFORT_VARIABLE)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1)
}

#[track_caller]
fn check_kind(kind: Kind, cases: u32) {
    check_streaming(Folders::new(kind), cases);
}

#[track_caller]
fn check_streaming(mut folders: Folders, cases: u32) {
    let settings = Settings {
        rules: Rules::Streaming,
        cases: cases * effort(),
        length: 40,
        regressions: Some("proptest-regressions/model.txt"),
    };
    check(&settings, |planted| folders.next(planted));
    folders.mount.into_inner().unmount();
}

#[test]
fn a_local_bucket_keeps_the_rules_of_streaming() {
    check_kind(Kind::Local, 100);
}

#[test]
fn an_s3_bucket_keeps_the_rules_of_streaming() {
    check_kind(Kind::S3, 60);
}

#[test]
fn an_oss_bucket_keeps_the_rules_of_streaming() {
    check_kind(Kind::Oss, 60);
}

/// Holds a staged mount against the rules of a local file system, and then what another mount of
/// the bucket shows against it.
#[track_caller]
fn check_staged(kind: Kind, cases: u32) {
    let (bucket, scratch) = (Bucket::new(kind), Scratch::new());
    let options = bucket.staged_options(&scratch.path().join("staging"));
    check_posix(Folders::with(bucket, options), cases);
}

#[track_caller]
fn check_posix(mut folders: Folders, cases: u32) {
    let settings = Settings {
        rules: Rules::Posix,
        cases: cases * effort(),
        length: 40,
        regressions: Some("proptest-regressions/model-staged.txt"),
    };
    check(&settings, |planted| folders.next(planted));
    let shown = contents(folders.mount.get_mut().path());
    let Folders { bucket, mount, .. } = folders;
    mount.into_inner().unmount();
    let other = bucket.mount();
    assert!(
        contents(other.path()) == shown,
        "what was closed is not what is read back"
    );
    other.unmount();
}

/// Some files are saved in the middle of what is done with them, most are not.
#[test]
fn a_bucket_that_is_saved_behind_keeps_the_rules_of_posix() {
    let (bucket, scratch) = (Bucket::new(Kind::S3), Scratch::new());
    let options = bucket.staged_options(&scratch.path().join("staging"));
    let options = options.option("save", "behind");
    let folders = Folders {
        absence: LISTED_MAX,
        ..Folders::with(bucket, options.option("save-after", "30ms"))
    };
    check_posix(folders, 60);
}

/// Every file with its content's digest, in order.
fn contents(root: &Path) -> Vec<(PathBuf, u64)> {
    let (mut found, mut waiting) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below it").to_owned();
                found.push((name, digest(&path).expect("readable")));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_staged_local_bucket_keeps_the_rules_of_posix() {
    check_staged(Kind::Local, 100);
}

#[test]
fn a_staged_s3_bucket_keeps_the_rules_of_posix() {
    check_staged(Kind::S3, 60);
}

#[test]
fn a_staged_oss_bucket_keeps_the_rules_of_posix() {
    check_staged(Kind::Oss, 60);
}

/// Checks a mount that has little of everything.
#[track_caller]
fn check_short(mode: Mode, cases: u32) {
    let (bucket, scratch) = (Bucket::new(Kind::S3), Scratch::new());
    let options = shortage::options(&bucket, mode, &scratch.path().join("staging"));
    bucket.fail(Faults::latency(Duration::from_millis(2)));
    let absence = match mode {
        Mode::Behind => LISTED_MAX,
        Mode::Streaming | Mode::Staged | Mode::Gathered => Duration::ZERO,
    };
    let folders = Folders {
        absence,
        ..Folders::with(bucket, options)
    };
    match mode {
        Mode::Streaming => check_streaming(folders, cases),
        Mode::Staged | Mode::Gathered | Mode::Behind => check_posix(folders, cases),
    }
}

#[test]
fn the_rules_of_streaming_are_kept_where_memory_is_short_and_the_store_slow() {
    check_short(Mode::Streaming, 20);
}

#[test]
fn the_rules_of_posix_are_kept_where_memory_and_staging_are_short_and_the_store_slow() {
    check_short(Mode::Staged, 20);
}

#[test]
fn the_rules_of_posix_are_kept_where_a_short_mount_has_its_writes_gathered() {
    check_short(Mode::Gathered, 20);
}

#[test]
fn the_rules_of_posix_are_kept_where_a_short_mount_saves_behind() {
    check_short(Mode::Behind, 10);
}

// What was found once, shrunk, and by its name: seeds mean something else when the actions change.

const IN_ROOT: u8 = 0;
/// Any other number that leads to the first directory below the root.
const IN_FIRST: u8 = 1;
const A: u8 = 0;
const C: u8 = 2;

const CREATE: OpenMode = OpenMode {
    access: Access::Write,
    create: true,
    exclusive: false,
    append: false,
    truncate: false,
};

const fn at(parent: u8, name: u8) -> Place {
    Place { parent, name }
}

/// Does the same on every kind of bucket.
#[track_caller]
fn replay(actions: &[Action]) {
    let sequence = Sequence {
        planted: &[],
        actions: actions.to_vec(),
    };
    for kind in Kind::ALL {
        let mut folders = Folders::new(kind);
        let root = folders.next(sequence.planted);
        if let Err(difference) = compare(Rules::Streaming, &sequence, &root) {
            panic!("{kind:?}:\n{difference}");
        }
        folders.mount.into_inner().unmount();
    }
}

#[test]
fn a_writer_goes_on_after_its_directory_was_renamed() {
    replay(&[
        Action::MakeDirectory(at(IN_ROOT, C)),
        Action::Open(at(IN_FIRST, A), CREATE),
        Action::Write(0, Position::End, 1),
        Action::Rename(at(IN_ROOT, C), at(IN_ROOT, A), false),
        Action::Write(0, Position::End, 1),
    ]);
}

#[test]
fn a_file_that_is_created_for_reading_stays() {
    let read = OpenMode {
        access: Access::Read,
        ..CREATE
    };
    replay(&[Action::Open(at(IN_ROOT, A), read), Action::Close(0)]);
}

#[test]
fn a_removed_directory_that_is_open_does_not_disturb_files() {
    let read = OpenMode {
        access: Access::Read,
        create: false,
        ..CREATE
    };
    replay(&[
        Action::Open(at(IN_ROOT, A), CREATE),
        Action::MakeDirectory(at(IN_ROOT, C)),
        Action::Open(at(IN_ROOT, C), read),
        Action::RemoveDirectory(at(IN_ROOT, C)),
        Action::StatusOpen(1),
    ]);
}
