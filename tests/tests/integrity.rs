//! What was written is what is read, whatever programs write and read it.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
    thread,
};

use penstock_tests::{
    Bucket, Kind, Patience,
    data::{digest, digest_of, make_tree, noise},
    faults::damaged_bodies,
    run_within,
};

const MIB: usize = 1 << 20;
const PATIENCE: Patience = Patience::seconds(120);

/// Runs a shell script with `$1`, `$2`, … set to `arguments`, and fails the test if it fails.
#[track_caller]
fn shell(script: &str, arguments: &[&Path]) -> String {
    let mut command = Command::new("bash");
    command.args(["-euc", script, "bash"]).args(arguments);
    run_within(PATIENCE, &mut command).expect_success().stdout
}

/// Writes with one fio, then reads and verifies with another.
#[track_caller]
fn fio(folder: &Path, jobs: u32, block: &str, size: &str) {
    let run = |mode: &[&str]| {
        let mut command = Command::new("fio");
        command
            .arg(format!("--directory={}", folder.display()))
            .arg(format!("--name=verify-{block}"))
            .arg(format!("--numjobs={jobs}"))
            .arg(format!("--bs={block}"))
            .arg(format!("--size={size}"))
            .args(["--verify=crc32c", "--verify_fatal=1", "--ioengine=psync"])
            .args([
                "--fallocate=none",
                "--create_on_open=1",
                "--group_reporting",
            ])
            .args(mode)
            .current_dir(std::env::temp_dir());
        run_within(PATIENCE, &mut command).expect_success();
    };
    run(&["--rw=write", "--do_verify=0", "--end_fsync=1"]);
    run(&["--rw=read", "--do_verify=1"]);
}

#[test]
fn fio_verifies_what_it_wrote_in_blocks_of_every_size() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        let mount = bucket.mount();
        fio(mount.path(), 1, "4k", "4m");
        fio(mount.path(), 2, "128k", "32m");
        fio(mount.path(), 4, "1m", "64m");
        mount.unmount();
    }
}

#[test]
fn a_big_file_keeps_its_digest_across_a_remount() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        let content = noise(1, 300 * MIB + 12_345);
        let mount = bucket.mount();
        fs::write(mount.join("big"), &content).expect("a write of 300 MiB");
        assert_eq!(
            digest(&mount.join("big")).expect("a read"),
            digest_of(&content)
        );
        mount.unmount();
        let mount = bucket.mount();
        assert_eq!(
            digest(&mount.join("big")).expect("a read"),
            digest_of(&content)
        );
        mount.unmount();
    }
}

#[test]
fn many_writers_and_readers_at_once_do_not_mix_their_bytes() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        let mount = bucket.mount();
        thread::scope(|scope| {
            for number in 0..8u64 {
                let path = mount.join(format!("stream-{number}"));
                scope.spawn(move || {
                    let content = noise(number, 20 * MIB + number as usize);
                    fs::write(&path, &content).expect("a write");
                    assert_eq!(digest(&path).expect("a read"), digest_of(&content));
                });
            }
        });
        mount.unmount();
    }
}

/// The kernel answers an error of a read with reads of single pages, which come without a checksum.
#[test]
fn a_small_file_that_always_arrives_damaged_is_an_error_and_never_wrong_bytes() {
    for kind in Kind::REMOTE {
        let bucket = Bucket::new(kind);
        let content = noise(1, 131_144);
        bucket.put_outside("small", &content);
        let mount = bucket.mount();
        bucket.fail(damaged_bodies());
        for _ in 0..3 {
            let error = fs::read(mount.join("small")).expect_err("every answer is damaged");
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{kind:?}");
        }
        bucket.heal();
        assert!(fs::read(mount.join("small")).expect("whole") == content);
        mount.unmount();
    }
}

/// Kernels read the middle of a file alone when the pages around it are in their cache.
#[test]
fn a_piece_of_a_small_file_is_never_wrong_bytes() {
    for kind in Kind::REMOTE {
        let bucket = Bucket::new(kind);
        let content = noise(1, 300_000);
        bucket.put_outside("small", &content);
        let mount = bucket.mount();
        bucket.fail(damaged_bodies());
        let file = File::open(mount.join("small")).expect("it is there");
        let mut piece = [0; 4096];
        let error = file
            .read_exact_at(&mut piece, 163_840)
            .expect_err("every answer is damaged");
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{kind:?}");
        bucket.heal();
        file.read_exact_at(&mut piece, 163_840).expect("whole");
        assert!(piece == content[163_840..][..4096]);
        drop(file);
        mount.unmount();
    }
}

#[test]
fn a_tree_copied_by_cp_and_tar_is_identical() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        let source = penstock_tests::Scratch::new();
        make_tree(source.path());
        let mount = bucket.mount();
        let places = [source.path(), mount.path()];
        shell(
            r#"cp -r "$1/." "$2/copied"; diff -r "$1" "$2/copied""#,
            &places,
        );
        shell(
            r#"cp -a "$1/." "$2/archived"; diff -r "$1" "$2/archived""#,
            &places,
        );
        shell(
            r#"mkdir "$2/unpacked"; tar -C "$1" -cf - . | tar -C "$2/unpacked" -xf -; diff -r "$1" "$2/unpacked""#,
            &places,
        );
        mount.unmount();
        let mount = bucket.mount();
        let places = [source.path(), mount.path()];
        for name in ["copied", "archived", "unpacked"] {
            shell(&format!(r#"diff -r "$1" "$2/{name}""#), &places);
        }
        shell(
            r#"mv "$2/copied" "$2/moved"; diff -r "$1" "$2/moved""#,
            &places,
        );
        shell(r#"rm -r "$2"/*; test -z "$(ls -A "$2")""#, &places);
        mount.unmount();
    }
}

#[test]
fn a_log_grows_by_appending_over_many_opens() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        let mount = bucket.mount();
        let path = mount.join("log");
        let mut expected = Vec::new();
        for number in 0..12u64 {
            let piece = noise(number, 700_000 + number as usize);
            let mut file = fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)
                .expect("an open for appending");
            file.write_all(&piece).expect("an append");
            expected.extend(piece);
        }
        assert_eq!(fs::read(&path).expect("a read").len(), expected.len());
        assert_eq!(digest(&path).expect("a read"), digest_of(&expected));
        mount.unmount();
    }
}
