//! A fileset that survives the loss of its machine.

#![allow(clippy::unwrap_used)]

use std::{fs, io::Write};

use penstock_tests::{Fileset, Patience, penstock, run_within};

fn shipped(what: &str) -> Fileset {
    Fileset::made_with(what, &["--durability", "store"])
}

/// As when its machine burns down.
fn lose(name: &str) {
    fs::remove_dir_all(Fileset::state(name)).unwrap();
}

#[test]
fn what_was_synced_survives_the_loss_of_its_machine() {
    let fileset = shipped("lost");
    let mount = fileset.mount();
    let large: Vec<u8> = (0..6_000_000_u32).map(|at| (at / 241) as u8).collect();
    fs::create_dir(mount.join("directory")).unwrap();
    for (name, content) in [("large", &large[..]), ("directory/small", b"small")] {
        let mut file = fs::File::create(mount.join(name)).unwrap();
        file.write_all(content).unwrap();
        file.sync_all().unwrap();
    }
    fs::write(mount.join("closed"), b"closed").unwrap();
    fs::rename(mount.join("directory"), mount.join("moved")).unwrap();
    fs::File::open(mount.join(".")).unwrap().sync_all().unwrap();
    mount.kill_and_unmount();
    lose(fileset.name());
    assert!(!fileset.is_shown());
    fileset.attach(fileset.name());
    let mount = fileset.mount();
    assert!(fs::read(mount.join("large")).unwrap() == large);
    assert_eq!(fs::read(mount.join("moved/small")).unwrap(), b"small");
    assert_eq!(fs::read(mount.join("closed")).unwrap(), b"closed");
    fs::write(mount.join("more"), b"more").unwrap();
    mount.unmount();
    fileset.run("check", &[]).expect_success();
    let info = fileset.run("info", &["--json"]);
    assert!(info.stdout.contains("\"behind\": 0"), "{}", info.stdout);
}

#[test]
fn a_machine_that_was_shut_out_acknowledges_nothing() {
    let fileset = shipped("fenced");
    let other = format!("{}-other", fileset.name());
    let mount = fileset.mount();
    let mut file = fs::File::create(mount.join("file")).unwrap();
    file.write_all(b"first").unwrap();
    file.sync_all().unwrap();
    fileset.attach(&other);
    let elsewhere = fileset.mount_as(&other);
    assert_eq!(fs::read(elsewhere.join("file")).unwrap(), b"first");
    file.write_all(b"second").unwrap();
    assert!(file.sync_all().is_err(), "it was taken over");
    assert!(fs::write(mount.join("late"), b"late").is_err());
    drop(file);
    mount.kill_and_unmount();
    fs::write(elsewhere.join("file"), b"theirs").unwrap();
    elsewhere.unmount();
    // Mounting does not take it back, attaching does.
    let mut again = fileset.command("mount");
    let point = penstock_tests::Scratch::new();
    again.arg(point.folder("mnt"));
    let refused = run_within(Patience::seconds(60), &mut again);
    assert!(refused.stderr.contains("attach"), "{}", refused.stderr);
    fileset.attach(fileset.name());
    let mount = fileset.mount_as_kept();
    assert_eq!(fs::read(mount.join("file")).unwrap(), b"theirs");
    assert!(!mount.join("late").exists());
    mount.unmount();
    lose(&other);
}

#[test]
fn a_machine_that_was_shut_out_destroys_nothing_in_the_bucket() {
    let fileset = shipped("kept");
    let other = format!("{}-other", fileset.name());
    fileset.attach(&other);
    let elsewhere = fileset.mount_as(&other);
    fs::write(elsewhere.join("file"), b"theirs").unwrap();
    let refused = fileset.run("destroy", &["--yes"]);
    assert!(
        refused.stderr.contains("--local-only"),
        "{}",
        refused.stderr
    );
    let removed = fileset.run("destroy", &["--yes", "--local-only"]);
    removed.expect_success();
    assert!(!fileset.is_shown());
    let mut file = fs::File::create(elsewhere.join("more")).unwrap();
    file.write_all(b"more").unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::read(elsewhere.join("file")).unwrap(), b"theirs");
    elsewhere.unmount();
    lose(&other);
}

#[test]
fn a_directory_that_was_damaged_is_brought_back_from_the_bucket() {
    let fileset = shipped("damaged");
    let mount = fileset.mount();
    for number in 0..20 {
        let mut file = fs::File::create(mount.join(format!("file-{number}"))).unwrap();
        file.write_all(b"content").unwrap();
        file.sync_all().unwrap();
    }
    mount.kill_and_unmount();
    let metadata = Fileset::state(fileset.name()).join("metadata");
    let entries = fs::read_dir(metadata).unwrap();
    let mut logs = entries.map(|entry| entry.unwrap().path());
    let log = logs.find(|path| {
        path.to_string_lossy().contains("/log.") && fs::metadata(path).unwrap().len() > 1000
    });
    let log = log.unwrap();
    let mut bytes = fs::read(&log).unwrap();
    bytes[500] ^= 1;
    fs::write(&log, bytes).unwrap();
    let mut again = fileset.command("mount");
    let point = penstock_tests::Scratch::new();
    again.arg(point.folder("mnt"));
    let refused = run_within(Patience::seconds(60), &mut again);
    assert!(refused.stderr.contains("is damaged"), "{}", refused.stderr);
    fileset.attach(fileset.name());
    let mount = fileset.mount();
    for number in 0..20 {
        let content = fs::read(mount.join(format!("file-{number}"))).unwrap();
        assert_eq!(content, b"content");
    }
    mount.unmount();
}

#[test]
fn a_fileset_whose_place_another_one_took_is_not_mounted() {
    for durability in ["store", "local"] {
        let what = format!("taken-{durability}");
        let fileset = Fileset::made_with(&what, &["--durability", durability]);
        fileset.replace_label();
        let mut again = fileset.command("mount");
        let point = penstock_tests::Scratch::new();
        again.arg(point.folder("mnt"));
        let refused = run_within(Patience::seconds(60), &mut again);
        let told = "does not hold this file system";
        assert!(refused.stderr.contains(told), "{}", refused.stderr);
        lose(fileset.name());
    }
}

#[test]
fn a_fileset_whose_metadata_is_on_one_machine_is_not_attached() {
    let fileset = Fileset::new("not-shipped");
    let mut command = penstock();
    command.args([
        "fileset",
        "attach",
        "test-elsewhere",
        "--store",
        "file:///nowhere",
    ]);
    assert!(!run_within(Patience::seconds(60), &mut command).succeeded());
    let mount = fileset.mount();
    fs::write(mount.join("file"), b"content").unwrap();
    mount.unmount();
    let info = fileset.run("info", &[]);
    assert!(info.stdout.contains("durability  local"), "{}", info.stdout);
}

#[test]
fn how_its_store_is_reached_is_kept_with_a_fileset() {
    let fileset = Fileset::new("kept");
    let mount = fileset.mount_as_kept();
    fs::write(mount.join("file"), b"content").unwrap();
    mount.unmount();
    let record = fs::read_to_string(Fileset::state(fileset.name()).join("fileset.json")).unwrap();
    assert!(record.contains("endpoint"), "{record}");
    for secret in ["access", "secret"] {
        assert!(!record.contains(secret), "{record}");
    }
}
