//! A fileset from its making to its end, mounted by the kernel.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, symlink},
};

use penstock_tests::{Fileset, Patience, Scratch, run_within};

#[test]
fn a_fileset_is_made_mounted_filled_checked_and_destroyed() {
    let fileset = Fileset::new("life");
    let again = fileset.run("create", &["--store", "file:///nowhere"]);
    assert!(!again.succeeded(), "the name is taken");
    let mount = fileset.mount();
    let content: Vec<u8> = (0..9_000_000_u32).map(|at| (at / 251) as u8).collect();
    fs::create_dir(mount.join("directory")).unwrap();
    fs::write(mount.join("directory/file"), &content).unwrap();
    fs::hard_link(mount.join("directory/file"), mount.join("second name")).unwrap();
    symlink("directory/file", mount.join("link")).unwrap();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(mount.join("link"))
        .unwrap();
    file.write_all_at(b"over", 4_194_302).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs::rename(mount.join("directory"), mount.join("moved")).unwrap();
    assert!(!fileset.is_shown(), "it is in use");
    mount.unmount();
    let checked = fileset.run("check", &[]);
    checked.expect_success();
    let collected = fileset.run("gc", &["--json"]).expect_success();
    let found: serde_json::Value = serde_json::from_str(&collected.stdout).unwrap();
    assert_eq!(found["live"]["bytes"], content.len() as u64 + 4);
    assert_eq!(found["unused_bytes"], 4);
    assert_eq!(found["leaked"]["objects"], 0);
    let mount = fileset.mount();
    let mut expected = content;
    expected[4_194_302..4_194_306].copy_from_slice(b"over");
    assert!(fs::read(mount.join("second name")).unwrap() == expected);
    assert_eq!(fs::metadata(mount.join("moved/file")).unwrap().nlink(), 2);
    mount.unmount();
    fileset.run("destroy", &["--yes"]).expect_success();
    assert!(!fileset.is_shown(), "it is gone");
}

#[test]
fn what_was_closed_before_a_kill_is_there_after_it() {
    let fileset = Fileset::new("kill");
    let mount = fileset.mount();
    for number in 0..50 {
        fs::write(
            mount.join(format!("file-{number}")),
            format!("content {number}"),
        )
        .unwrap();
    }
    mount.kill_and_unmount();
    let mount = fileset.mount();
    for number in 0..50 {
        let content = fs::read_to_string(mount.join(format!("file-{number}"))).unwrap();
        assert_eq!(content, format!("content {number}"));
    }
    mount.unmount();
    fileset.run("check", &[]).expect_success();
}

/// Its metadata is here, and so is what the bucket has not got yet.
#[test]
fn a_fileset_is_mounted_while_its_bucket_is_away() {
    let fileset = Fileset::new("away");
    let mount = fileset.mount();
    fs::write(mount.join("large"), vec![7; 5_000_000]).unwrap();
    mount.unmount();
    let options = fileset.options();
    fileset.without_store(|| {
        let mount = fileset.mount_with(&options);
        assert_eq!(fs::metadata(mount.join("large")).unwrap().len(), 5_000_000);
        fs::write(mount.join("new"), b"written meanwhile").unwrap();
        let read = fs::read(mount.join("new")).unwrap();
        assert_eq!(read, b"written meanwhile");
        mount.kill_and_unmount();
    });
    let mount = fileset.mount();
    let read = fs::read(mount.join("new")).unwrap();
    assert_eq!(read, b"written meanwhile");
    assert!(fs::read(mount.join("large")).unwrap() == vec![7; 5_000_000]);
    mount.unmount();
    fileset.run("check", &[]).expect_success();
}

#[test]
fn an_option_that_means_nothing_for_a_fileset_is_refused() {
    let fileset = Fileset::new("options");
    let scratch = Scratch::new();
    let mut command = fileset.command("mount");
    command.arg("--mode=staged").arg(scratch.folder("mnt"));
    let finished = run_within(Patience::seconds(60), &mut command);
    assert!(!finished.succeeded());
    assert!(finished.stderr.contains("--mode"), "{}", finished.stderr);
}
