//! What ordinary programs do with files, seen from the bucket.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File},
    io::Write,
    process::Command,
};

use penstock_tests::{Bucket, Kind, Patience, data::noise, run_within};

const MIB: usize = 1 << 20;
const PATIENCE: Patience = Patience::seconds(30);

/// What the bucket holds, asked for without the mount.
#[track_caller]
fn listed(bucket: &Bucket) -> String {
    run_within(PATIENCE, &mut bucket.command("ls"))
        .expect_success()
        .stdout
}

#[test]
fn a_fork_while_a_file_is_written_shows_nothing_half() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        let mount = bucket.mount();
        fs::write(mount.join("other"), "other").expect("a write");
        let content = noise(1, 20 * MIB);
        let (first, second) = content.split_at(11 * MIB);
        let mut file = File::create(mount.join("file")).expect("a create");
        file.write_all(first).expect("a write");
        // The child gets a copy of the descriptor and closes it.
        run_within(PATIENCE, &mut Command::new("true")).expect_success();
        assert!(
            !listed(&bucket).contains("file"),
            "{kind:?}: half a file is visible"
        );
        file.write_all(second).expect("a write");
        drop(file);
        assert!(listed(&bucket).contains("file"), "{kind:?}: closing saves");
        assert!(fs::read(mount.join("file")).expect("a read") == content);
        mount.unmount();
    }
}

#[test]
fn what_a_child_wrote_is_saved_when_it_ends() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        let mount = bucket.mount();
        let output = File::create(mount.join("output")).expect("a create");
        let stdout = output.try_clone().expect("a file can be shared");
        let script = "printf one; /bin/echo two; printf three";
        let status = Command::new("bash")
            .args(["-c", script])
            .stdout(stdout)
            .status();
        assert!(status.expect("bash runs").success());
        assert!(
            listed(&bucket).contains("output"),
            "{kind:?}: the writer is done"
        );
        drop(output);
        let text = fs::read(mount.join("output")).expect("a read");
        assert_eq!(text, b"onetwo\nthree", "{kind:?}");
        mount.unmount();
    }
}

#[test]
fn a_shell_redirects_into_a_file() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        let mount = bucket.mount();
        let script = r#"
            cd "$1"
            echo first > log
            echo second >> log
            { cat log; echo third; seq 1 100000; } > all
            test "$(head -n 3 all | tr '\n' ' ')" = 'first second third '
            test "$(wc -l < all)" = 100003
            sort -n all > sorted
            gzip -c sorted > sorted.gz
            gunzip -c sorted.gz | cmp - sorted
            : > empty
            test -e empty && test ! -s empty
            mv sorted.gz moved.gz && test ! -e sorted.gz
        "#;
        let mut shell = Command::new("bash");
        shell.args(["-euc", script, "bash"]).arg(mount.path());
        run_within(PATIENCE, &mut shell).expect_success();
        mount.unmount();
    }
}
