//! What others on the machine can prepare, read or pretend: nothing that a mount believes.
//!
//! The places that nobody names are the same for all who run as root, so each test has a `/var/tmp`,
//! `/var/lib`, ... of its own, in a mount namespace that ends with it. The program and the test's own folder,
//! which may lie below one of them, are seen at `/mnt` there. Without root these tests cannot be made, and say so.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods, clippy::print_stderr)]

mod support;

use std::{fs, process::Command};

use support::{Ended, Scratch, run};

/// Begins each script: places of its own, a bucket in a directory, and what is done over and over.
const PRELUDE: &str = r#"
    touch program; mount --bind $PROGRAM program
    mount --rbind . /mnt; cd /mnt
    export HOME=$PWD
    PENSTOCK=$PWD/program

    places="/var/tmp /var/lib /var/log /var/cache /run"
    for place in $places; do
        mkdir -p .own$place; chmod 755 .own$place; mount --bind .own$place $place
    done
    chmod 1777 /var/tmp
    mkdir -p bucket mnt

    # Mounts in the foreground, and waits until it can be used.
    serve() {
        $PENSTOCK mount -f --mode=staged "$@" file://$PWD/bucket mnt 2>>log & pid=$!
        for i in $(seq 1200); do mountpoint -q mnt && return; sleep 0.05; done
        cat log; exit 9
    }
    # Leaves what was written to NAME unsaved in the staging directory, as a crash does.
    leave_unsaved() {
        serve; exec 3>mnt/$1; echo unsaved >&3; kill -9 $pid; wait $pid || true; exec 3>&-; umount -l mnt
        journal=$(find /var/tmp /var/lib -name '*.journal'); test -n "$journal"
    }
    # Mounts once more, and leaves in good order.
    mount_again() { serve "$@"; umount mnt; wait $pid; }
"#;

/// Runs a script as root where only it sees what it does; none without the rights for it.
fn alone(scratch: &Scratch, script: &str) -> Option<Ended> {
    let may = run(Command::new("unshare").args(["-m", "true"]));
    if may.code != Some(0) {
        eprintln!("skipped: only root can have places of the system for itself");
        return None;
    }
    let mut command = Command::new("unshare");
    command
        .args(["-m", "bash", "-euxc"])
        .arg(format!("{PRELUDE}\n{script}"))
        .current_dir(scratch.folder("."))
        .env("PROGRAM", env!("CARGO_BIN_EXE_penstock"));
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    Some(ended)
}

fn bucket(scratch: &Scratch) -> Vec<String> {
    let entries = fs::read_dir(scratch.path("bucket")).expect("made");
    let names = entries.map(|entry| entry.expect("readable").file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into()).collect();
    names.retain(|name: &String| !name.starts_with('.'));
    names.sort();
    names
}

fn log(scratch: &Scratch) -> String {
    fs::read_to_string(scratch.path("log")).unwrap_or_default()
}

/// Of everything in the old staging directory of root, with the lock that a mount left there, `nobody`
/// owns what each case says: nothing in it is uploaded with root's credentials, nothing is lost.
#[test]
fn what_another_user_left_where_root_staged_is_not_saved() {
    for prepared in [
        // All of it: he was first after the machine was installed.
        "chown -R nobody /var/tmp/penstock-staging-0",
        // The directory above only: he can exchange all below.
        "chown nobody /var/tmp/penstock-staging-0",
        // A journal that he brought in while anybody could write there.
        "chown nobody $left/files/*.journal",
        "chown nobody $left/files/*.data",
        "chmod 777 /var/tmp/penstock-staging-0",
        // A link to where he has it.
        "mv $left /var/tmp/his; chown -R nobody /var/tmp/his; ln -s /var/tmp/his $left",
        "mv /var/tmp/penstock-staging-0 /var/tmp/his; ln -s his /var/tmp/penstock-staging-0",
    ] {
        let scratch = Scratch::new();
        let script = format!(
            "{LEFT_BY_AN_OLDER_VERSION}
             {prepared}
             mount_again
             test -n \"$(find -L /var/tmp /var/lib -name '*.journal')\""
        );
        if alone(&scratch, &script).is_none() {
            return;
        }
        assert_eq!(bucket(&scratch), Vec::<String>::new(), "{prepared}");
        let said = log(&scratch);
        assert!(
            said.contains("/var/tmp/penstock-staging-0"),
            "{prepared}: {said}"
        );
    }
}

/// Puts the staging directory, with a file that was not saved, where older versions had it.
const LEFT_BY_AN_OLDER_VERSION: &str = r#"
    leave_unsaved victim
    staged=$(dirname $(dirname $journal))
    left=/var/tmp/penstock-staging-0/$(basename $staged)
    mkdir -p -m 700 /var/tmp/penstock-staging-0
    test $staged = $left || mv $staged $left
"#;

#[test]
fn what_an_older_version_left_of_roots_own_is_saved() {
    let scratch = Scratch::new();
    let script = format!("{LEFT_BY_AN_OLDER_VERSION}\n mount_again");
    if alone(&scratch, &script).is_some() {
        assert_eq!(bucket(&scratch), ["victim"]);
    }
}

#[test]
fn a_given_staging_directory_of_another_user_is_refused_with_his_lock_in_it() {
    let scratch = Scratch::new();
    let script = r#"
        mkdir -p given/files given/kept; touch given/lock; chown -R nobody given
        ! timeout -s KILL 20 $PENSTOCK mount -f --mode=staged --staging-dir=given file://$PWD/bucket mnt 2>>log
    "#;
    if alone(&scratch, script).is_some() {
        let said = log(&scratch);
        assert!(said.contains("belongs to another user"), "{said}");
        let owner = std::os::unix::fs::MetadataExt::uid;
        let files = fs::metadata(scratch.path("given/files")).expect("there");
        assert_ne!(owner(&files), 0);
    }
}

/// Nobody but its owner can look into anything that a mount makes, whatever the umask.
#[test]
fn all_that_a_mount_makes_is_private() {
    let scratch = Scratch::new();
    let script = r#"
        umask 0
        echo data >bucket/object
        mkdir cache
        $PENSTOCK mount --mode=staged --cache-dir=cache file://$PWD/bucket mnt
        cat mnt/object; exec 3>mnt/new; echo text >&3
        find /var/lib/penstock /var/log/penstock /run/penstock cache/objects ! -name CACHEDIR.TAG -printf '%y %m %p\n' >found
        exec 3>&-; $PENSTOCK umount mnt
        $PENSTOCK stream build file://$PWD/bucket
        find /var/cache/penstock -printf '%y %m %p\n' >>found
    "#;
    if alone(&scratch, script).is_none() {
        return;
    }
    let found = fs::read_to_string(scratch.path("found")).expect("written");
    for wanted in [
        "lock",
        ".data",
        ".journal",
        ".log",
        ".sock",
        "image",
        "objects",
        "about.json",
    ] {
        assert!(found.contains(wanted), "no {wanted} in {found}");
    }
    for line in found.lines() {
        let mode = line.split(' ').nth(1).expect("three words");
        assert!(mode.ends_with("00"), "{line}");
    }
}

/// Whoever may write a directory can exchange what a mount has in it.
#[test]
fn what_others_can_write_of_a_given_directory_is_taken_from_them() {
    let scratch = Scratch::new();
    let script = r#"
        mkdir -m 777 given cache; mkdir -m 1777 common
        echo data >bucket/object
        serve --staging-dir=given --cache-dir=cache; cat mnt/object; umount mnt; wait $pid
        serve --staging-dir=common; umount mnt; wait $pid
        stat -c '%a %n' given cache common >found
    "#;
    if alone(&scratch, script).is_some() {
        let found = fs::read_to_string(scratch.path("found")).expect("written");
        assert_eq!(found, "755 given\n755 cache\n1777 common\n");
    }
}

#[test]
fn a_given_cache_directory_of_another_user_is_refused() {
    let scratch = Scratch::new();
    let script = r#"
        mkdir cache; chown nobody cache
        ! timeout -s KILL 20 $PENSTOCK mount -f --cache-dir=cache file://$PWD/bucket mnt 2>>log
    "#;
    if alone(&scratch, script).is_some() {
        let said = log(&scratch);
        assert!(said.contains("belongs to another user"), "{said}");
        assert!(!scratch.path("cache/objects").exists());
    }
}
