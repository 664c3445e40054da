//! A fileset from its making to its end, mounted by the kernel.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, symlink},
};

use penstock_tests::{Fileset, Patience, Scratch, data::lines, run_within};

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

#[test]
fn compression_is_set_and_changed_while_a_fileset_is_mounted() {
    let fileset = Fileset::made_with("compressed", &["--compression", "zstd:5"]);
    let setting = || fileset.run("compression", &[]).expect_success().stdout;
    assert_eq!(setting(), "zstd:5\n");
    let mount = fileset.mount();
    assert_eq!(setting(), "zstd:5\n");
    fs::write(mount.join("compressed"), lines(1, 3_000_000)).unwrap();
    fileset.run("compression", &["none"]).expect_success();
    assert_eq!(setting(), "none\n");
    fs::write(mount.join("plain"), lines(2, 3_000_000)).unwrap();
    fileset.run("compression", &["lz4"]).expect_success();
    let refused = fileset.run("compression", &["zstd:99"]);
    assert!(
        refused.stderr.contains("none, lz4 or zstd"),
        "{}",
        refused.stderr
    );
    mount.unmount();
    let info = fileset.run("info", &["--json"]).expect_success().stdout;
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let spared = info["spared"].as_u64().unwrap();
    assert_eq!(info["compression"], "lz4");
    // What older versions cannot read.
    assert_eq!(info["format"], 5);
    assert!((1_500_000..3_000_000).contains(&spared), "{info}");
    let ratio = info["ratio"].as_f64().unwrap();
    assert!((1.3..2.0).contains(&ratio), "{info}");
    let text = fileset.run("info", &[]).expect_success().stdout;
    assert!(text.contains("compression lz4, which spares"), "{text}");
    let found = fileset.run("gc", &["--json"]).expect_success().stdout;
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["live"]["bytes"], 6_000_000 - spared);
    assert_eq!(found["unused_bytes"], 0);
    fileset.run("check", &["--data"]).expect_success();
    let mount = fileset.mount();
    assert!(fs::read(mount.join("compressed")).unwrap() == lines(1, 3_000_000));
    assert!(fs::read(mount.join("plain")).unwrap() == lines(2, 3_000_000));
    mount.unmount();
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
