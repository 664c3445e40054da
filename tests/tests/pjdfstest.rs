//! pjdfstest, the suite that holds a file system against POSIX, on staged mounts that keep metadata, and on filesets.
//!
//! What no bucket can honour is listed here with its reason: the suite must fail exactly there.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

#[path = "machines/place.rs"]
mod place;
#[path = "../../crates/fileset/tests/database/server.rs"]
mod server;

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
};

use penstock_tests::{Bucket, Fileset, Kind, Mount, NfsMount, Patience, Scratch, run_within};
use place::Pair;

const PATIENCE: Patience = Patience::seconds(300);
/// The same where each call goes over a network, and everything is emulated.
const PATIENCE_OF_NFS: Patience = Patience::seconds(1800);

/// Tests that fail for one reason.
struct Group {
    /// Why a bucket cannot do it.
    reason: &'static str,
    /// How the names of the tests begin.
    tests: &'static [&'static str],
    /// Of what kinds of file; none if the tests are not about kinds.
    kinds: &'static [&'static str],
}

/// Everything but directories and links.
const KINDS: &[&str] = &["regular", "fifo", "block", "char", "socket"];

const EXPECTED: &[Group] = &[
    Group {
        reason: "an object has one name, so there are no hard links",
        tests: &[
            "link::changed_ctime_success",
            "link::remove_link",
            "link::share_metadata",
            "rename::preserve_metadata",
            "rename::to_multiply_linked",
            "unlink::unchanged_ctime_failed",
            "unlink::update_ctime_success",
        ],
        kinds: KINDS,
    },
    Group {
        reason: "a key has at most 1,023 bytes, so paths of 4,095 cannot be",
        tests: &[
            "chmod::enametoolong_path",
            "chown::enametoolong_path",
            "chown::lchown::enametoolong_path",
            "link::enametoolong_path",
            "mkdir::enametoolong_path",
            "mkfifo::enametoolong_path",
            "mknod::enametoolong_path",
            "mknod::privileged::enametoolong_path",
            "open::enametoolong_path",
            "rename::enametoolong_path",
            "rmdir::enametoolong_path",
            "symlink::enametoolong_path",
            "truncate::enametoolong_path",
            "unlink::enametoolong_path",
        ],
        kinds: &[],
    },
    Group {
        reason: "a directory has one link, since only a listing could count those in it",
        tests: &["rename::updates_link_parent"],
        kinds: &[],
    },
];

/// Through a mount target.
const EXPECTED_OF_NFS: &[Group] = &[
    Group {
        reason: "a client of NFSv3 renames what is removed while it is open, so it keeps its link",
        tests: &["unlink::open_file_not_freed"],
        kinds: &[],
    },
    Group {
        reason: "NFSv3 tells seconds since 1970 in 32 bits, and the test sets one more",
        tests: &["utimensat::y2038"],
        kinds: &[],
    },
];

/// Tests that cannot be run anywhere on Linux, or only where a limit is known.
const SKIPPED: &[&str] = &["link::link_count_max"];

/// Tests whose outcome is left to chance, and why.
const UNSTEADY: &[(&str, &str)] = &[(
    "open::etxtbsy",
    "Linux has a FUSE file emptied that is opened with O_RDONLY|O_TRUNC before it looks whether the \
     file is a running program, and one that is just starting dies of it",
)];

/// Fewer tests than this are not the suite that the lists were made for.
const TESTS_MIN: usize = 390;

impl Group {
    fn names(&self) -> Vec<String> {
        let of_kinds = |test: &&str| {
            let test = (*test).to_owned();
            if self.kinds.is_empty() {
                return vec![test];
            }
            let of_kind = |kind| format!("{test}::{kind}");
            self.kinds.iter().map(of_kind).collect()
        };
        self.tests.iter().flat_map(of_kinds).collect()
    }
}

/// What became of the tests of a run, by name.
#[derive(Debug, Default)]
struct Outcome {
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
    skipped: BTreeSet<String>,
}

impl Outcome {
    /// Adds what the suite printed: the lines that name a test end with what became of it.
    fn add(&mut self, printed: &str) {
        for line in printed.lines() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(what), None) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let tests = match what {
                "ok" => &mut self.passed,
                "FAILED" => &mut self.failed,
                "skipped" => &mut self.skipped,
                _ => continue,
            };
            tests.insert(name.to_owned());
        }
    }

    #[track_caller]
    fn compare(&self, expected: &[Group], printed: &str) {
        let expected: BTreeSet<String> = expected.iter().flat_map(Group::names).collect();
        let skipped: BTreeSet<String> = SKIPPED.iter().map(|name| (*name).to_owned()).collect();
        let is_unsteady = |name: &&String| UNSTEADY.iter().any(|(test, _)| test == *name);
        let newly_failed = self.failed.difference(&expected);
        let newly_failed: Vec<_> = newly_failed.filter(|name| !is_unsteady(name)).collect();
        assert!(newly_failed.is_empty(), "{newly_failed:#?}\n{printed}");
        let newly_passed: Vec<_> = expected.difference(&self.failed).collect();
        assert!(
            newly_passed.is_empty(),
            "no longer fail, take them off the list: {newly_passed:#?}"
        );
        assert_eq!(self.skipped, skipped, "others were skipped");
        let all = self.passed.len() + self.failed.len() + self.skipped.len();
        assert!(all >= TESTS_MIN, "only {all} tests:\n{printed}");
    }
}

/// Where something is mounted, and what the suite needs beside it.
struct Bed {
    place: PathBuf,
    scratch: Scratch,
    patience: Patience,
}

impl Bed {
    fn over(place: &Path, patience: Patience) -> Self {
        let (place, scratch) = (place.to_owned(), Scratch::new());
        let above = place.parent().expect("it has a scratch folder");
        // Users that are nobody come by.
        fs::set_permissions(above, Permissions::from_mode(0o755)).expect("it is ours");
        // A helper of the file system's type would be asked to remount it.
        let mount_program = scratch.folder("bin").join("mount");
        let text = "#!/bin/sh\nPATH=$OUTER_PATH exec mount --internal-only \"$@\"\n";
        fs::write(&mount_program, text).expect("scratch is writable");
        fs::set_permissions(&mount_program, Permissions::from_mode(0o755)).expect("it is ours");
        Self {
            place,
            scratch,
            patience,
        }
    }

    /// Runs the tests whose names contain one of `patterns`, or all, and returns what was printed.
    fn run(&self, users: &str, allow_remount: bool, patterns: &[&str]) -> String {
        let configuration = self.scratch.path().join("pjdfstest.toml");
        let text = format!(
            "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\n\
             utimensat = {{}}\n[settings]\nnaptime = 0.01\nallow_remount = {allow_remount}\n\
             [dummy_auth]\nentries = {users}\n"
        );
        fs::write(&configuration, text).expect("scratch is writable");
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.scratch.folder("bin");
        let mut suite = Command::new("pjdfstest");
        suite
            .env("NO_COLOR", "1")
            .env("OUTER_PATH", &path)
            .env("PATH", format!("{}:{path}", bin.display()))
            .arg("-c")
            .arg(&configuration)
            .arg("-s")
            .arg(self.scratch.folder("other"))
            .arg("-p")
            .arg(&self.place)
            .args(patterns);
        let finished = run_within(self.patience, &mut suite);
        println!("{:?}: {}", patterns, summary(&finished.stdout));
        finished.stdout + &finished.stderr
    }
}

fn summary(printed: &str) -> &str {
    let summary = printed.lines().find(|line| line.starts_with("Summary"));
    summary.unwrap_or("the suite did not end")
}

/// Two users with their groups, as the suite is told of them; `None` if it cannot run here.
fn users() -> Option<String> {
    let look = r#"test "$(id -u)" = 0; command -v pjdfstest >&2
        printf '[["nobody", "%s"], ["daemon", "%s"]]' "$(id -gn nobody)" "$(id -gn daemon)""#;
    let found = run_within(PATIENCE, Command::new("sh").args(["-ec", look]));
    if !found.succeeded() {
        penstock_skips::skipped(
            "not root, or there is no pjdfstest, or no users nobody and daemon",
        );
        return None;
    }
    Some(found.stdout)
}

#[track_caller]
fn the_suite_fails_where_expected(kind: Kind) {
    let Some(users) = users() else { return };
    let (bucket, scratch) = (Bucket::new(kind), Scratch::new());
    let options = bucket.staged_options(&scratch.path().join("staging"));
    let mount = bucket.mount_with(&options.option("allow-other", "on"));
    hold(mount, &users, EXPECTED);
}

/// Holds a mount against the suite.
#[track_caller]
fn hold(mount: Mount, users: &str, expected: &[Group]) {
    let bed = Bed::over(mount.path(), PATIENCE);
    let mut outcome = Outcome::default();
    // Some tests leave files open for writing, after which nothing can be remounted read-only by
    // the same process: those that do so have one of their own.
    let remounting = bed.run(users, true, &["erofs"]);
    let others = bed.run(users, false, &[]);
    outcome.add(&others);
    outcome.skipped.retain(|name| !name.contains("::erofs_"));
    outcome.add(&remounting);
    outcome.compare(expected, &format!("{remounting}\n{others}"));
    assert!(is_empty(mount.path()), "the suite left something");
    mount.unmount();
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

#[test]
fn posix_is_kept_on_s3_but_for_what_no_bucket_can_do() {
    the_suite_fails_where_expected(Kind::S3);
}

#[test]
fn posix_is_kept_on_oss_but_for_what_no_bucket_can_do() {
    the_suite_fails_where_expected(Kind::Oss);
}

#[test]
fn posix_is_kept_on_a_fileset() {
    let Some(users) = users() else { return };
    let fileset = Fileset::new("posix");
    let options = fileset.options().option("allow-other", "on");
    hold(fileset.mount_with(&options), &users, &[]);
    fileset.run("check", &[]).expect_success();
}

/// Whose metadata is in a database, and which another machine has mounted: nothing that was seen before is believed.
#[test]
fn posix_is_kept_on_a_fileset_of_several_machines() {
    let Some(users) = users() else { return };
    let Some(mut pair) = Pair::new(Bucket::new(Kind::S3)) else {
        return;
    };
    let mount = pair.mount(|options| {
        options
            .option("allow-other", "on")
            .option("coherence", "strict")
    });
    hold(mount, &users, &[]);
    pair.end();
}

#[test]
fn posix_is_kept_on_a_fileset_through_nfs() {
    if !NfsMount::is_possible() {
        return;
    }
    let Some(users) = users() else { return };
    let fileset = Rc::new(Fileset::new("posix-nfs"));
    let served = Rc::clone(&fileset);
    let mounted = NfsMount::new(move || served.command("serve"));
    let bed = Bed::over(mounted.path(), PATIENCE_OF_NFS);
    let printed = bed.run(&users, false, &[]);
    let mut outcome = Outcome::default();
    outcome.add(&printed);
    // A mount beside others of the same server is not remounted read-only.
    outcome.skipped.retain(|name| !name.contains("::erofs_"));
    outcome.compare(EXPECTED_OF_NFS, &printed);
    assert!(is_empty(mounted.path()), "the suite left something");
    drop(mounted);
    fileset.run("check", &[]).expect_success();
}

#[test]
fn what_is_expected_to_fail_is_named_once_and_has_a_reason() {
    let groups = || EXPECTED.iter().chain(EXPECTED_OF_NFS);
    let all: Vec<String> = groups().flat_map(Group::names).collect();
    let distinct: BTreeSet<&String> = all.iter().collect();
    assert_eq!(all.len(), distinct.len());
    assert!(groups().all(|group| !group.reason.is_empty()));
    for (test, reason) in UNSTEADY {
        println!("{test}: {reason}");
    }
    for group in groups() {
        println!("{}: {}", group.names().len(), group.reason);
    }
}
