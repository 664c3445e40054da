//! The trash of a fileset, through the kernel, through NFS and by tools that remove much.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::{
    fs::{self, File},
    io::{Read, Seek, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use penstock_tests::{Fileset, NfsMount, Patience, penstock, run_within};

const PATIENCE: Patience = Patience::seconds(120);

/// Files that a tree has which is removed, each with its own bytes.
const FILES: usize = 60;

fn fill(directory: &Path) {
    for number in 0..FILES {
        let above = directory.join(format!("d{}", number % 3));
        fs::create_dir_all(&above).unwrap();
        fs::write(
            above.join(format!("file-{number}")),
            format!("bytes of {number}"),
        )
        .unwrap();
    }
}

/// All files below `.trash`.
fn kept(root: &Path) -> Vec<PathBuf> {
    let entries = |path: &Path| {
        let entries = fs::read_dir(path).unwrap();
        entries
            .map(|entry| entry.unwrap().path())
            .collect::<Vec<_>>()
    };
    let hours = entries(&root.join(".trash"));
    hours.iter().flat_map(|hour| entries(hour)).collect()
}

/// The files of the tree are in the trash, whole.
fn all_are_kept(root: &Path) {
    let mut texts: Vec<_> = kept(root)
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    texts.sort();
    let mut expected: Vec<_> = (0..FILES)
        .map(|number| format!("bytes of {number}"))
        .collect();
    expected.sort();
    assert_eq!(texts, expected);
}

#[track_caller]
fn listed(fileset: &Fileset) -> Vec<serde_json::Value> {
    let listed = fileset.trash("list", &["--json"]).expect_success();
    serde_json::from_str(&listed.stdout).unwrap()
}

fn state(fileset: &Fileset) -> (u64, u64) {
    let shown = fileset.trash("show", &["--json"]).expect_success();
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    let number = |name: &str| shown[name].as_u64().unwrap();
    (number("days"), number("files"))
}

#[test]
fn what_rm_removes_through_the_kernel_lies_in_the_trash_and_comes_back() {
    let fileset = Fileset::made_with("trash-rm", &["--trash=7"]);
    let mount = fileset.mount();
    let root = mount.join("");
    fill(&root.join("tree"));
    let modes = fs::metadata(root.join(".trash")).unwrap();
    assert_eq!(
        (modes.permissions().mode() & 0o777, modes.uid()),
        (0o700, 0)
    );
    run_within(
        PATIENCE,
        Command::new("rm").arg("-rf").arg(root.join("tree")),
    )
    .expect_success();
    all_are_kept(&root);
    let names = fs::read_dir(&root).unwrap();
    assert_eq!(names.count(), 0, "no listing shows the trash");
    assert_eq!(state(&fileset), (7, FILES as u64));
    // Root moves one out, and one comes back by the command.
    let first = kept(&root).remove(0);
    let text = fs::read_to_string(&first).unwrap();
    fs::rename(&first, root.join("back")).unwrap();
    assert_eq!(fs::read_to_string(root.join("back")).unwrap(), text);
    assert_eq!(fs::metadata(root.join("back")).unwrap().nlink(), 1);
    let entry = listed(&fileset)[0]["entry"].as_str().unwrap().to_owned();
    let gone = fileset.trash("restore", &[&entry]);
    assert!(
        gone.stderr.contains("say where it is to go"),
        "{}",
        gone.stderr
    );
    let there = fileset.trash("restore", &[&entry, "/back"]);
    assert!(
        there.stderr.contains("name another TARGET"),
        "{}",
        there.stderr
    );
    let restored = fileset
        .trash("restore", &[&entry, "/again"])
        .expect_success();
    assert_eq!(restored.stdout, "/again\n");
    assert!(root.join("again").exists());
    // What is in the way of nothing stays out of it.
    for (from, to) in [("back", ".trash/x"), ("back", ".trash")] {
        assert!(fs::rename(root.join(from), root.join(to)).is_err());
    }
    assert!(fs::write(root.join(".trash/x"), "x").is_err());
    let young = fileset
        .trash("purge", &["--older-than", "1d"])
        .expect_success();
    assert_eq!(young.stdout, "0 files were removed\n");
    let left = FILES - 2;
    mount.unmount();
    // The same of one that nobody has mounted.
    let info = fileset.run("info", &[]).expect_success().stdout;
    assert!(
        info.contains(&format!("trash       {left} files")),
        "{info}"
    );
    let gc = fileset.run("gc", &[]).expect_success().stdout;
    assert!(gc.contains(&format!("{left} files")), "{gc}");
    assert_eq!(listed(&fileset).len(), left);
    let purged = fileset.trash("purge", &[]).expect_success();
    assert_eq!(purged.stdout, format!("{left} files were removed\n"));
    fileset.trash("set", &["--days", "0"]).expect_success();
    assert_eq!(state(&fileset), (0, 0));
    fileset.run("check", &[]).expect_success();
}

#[test]
fn an_open_file_that_is_removed_goes_on_through_the_kernel() {
    let fileset = Fileset::made_with("trash-open", &["--trash=7"]);
    let mount = fileset.mount();
    fs::write(mount.join("file"), "12345").unwrap();
    let mut file = File::options()
        .read(true)
        .append(true)
        .open(mount.join("file"))
        .unwrap();
    fs::remove_file(mount.join("file")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all(b"678").unwrap();
    file.sync_all().unwrap();
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "12345678");
    drop(file);
    let kept = kept(&mount.join(""));
    assert_eq!(fs::read_to_string(&kept[0]).unwrap(), "12345678");
    // A file that another one replaces comes there too.
    fs::write(mount.join("old"), "old").unwrap();
    fs::write(mount.join("new"), "new").unwrap();
    fs::rename(mount.join("new"), mount.join("old")).unwrap();
    assert_eq!(state(&fileset), (7, 2));
    mount.unmount();
    fileset.run("check", &[]).expect_success();
}

#[test]
fn what_parrm_removes_lies_in_the_trash() {
    let fileset = Fileset::made_with("trash-parrm", &["--trash=7"]);
    let mount = fileset.mount();
    let root = mount.join("");
    fill(&root.join("tree"));
    run_within(
        PATIENCE,
        penstock().args(["rm", "-r"]).arg(root.join("tree")),
    )
    .expect_success();
    all_are_kept(&root);
    mount.unmount();
    fileset.run("check", &[]).expect_success();
}

#[test]
fn what_is_removed_through_nfs_lies_in_the_trash() {
    if !NfsMount::is_possible() {
        return;
    }
    let fileset = std::rc::Rc::new(Fileset::made_with("trash-nfs", &["--trash=7"]));
    let served = std::rc::Rc::clone(&fileset);
    let mount = NfsMount::new(move || served.command("serve"));
    let root = mount.path();
    fill(&root.join("tree"));
    run_within(
        PATIENCE,
        Command::new("rm").arg("-rf").arg(root.join("tree")),
    )
    .expect_success();
    all_are_kept(root);
    let first = kept(root).remove(0);
    fs::rename(first, root.join("back")).unwrap();
    assert!(
        fs::read_to_string(root.join("back"))
            .unwrap()
            .starts_with("bytes of")
    );
    drop(mount);
    fileset.run("check", &[]).expect_success();
    assert_eq!(state(&fileset), (7, FILES as u64 - 1));
}

#[test]
fn a_killed_mount_leaves_each_file_in_its_place_or_in_the_trash() {
    let fileset = Fileset::made_with("trash-kill", &["--trash=7"]);
    for round in 0..4u64 {
        let mount = fileset.mount();
        let tree = mount.join(format!("tree-{round}"));
        fill(&tree);
        thread::scope(|scope| {
            let removing = scope.spawn(|| {
                run_within(PATIENCE, Command::new("rm").arg("-rf").arg(&tree));
            });
            thread::sleep(Duration::from_millis(round * 7));
            mount.process().kill();
            removing.join().unwrap();
        });
        mount.kill_and_unmount();
        fileset.run("check", &[]).expect_success();
        let mount = fileset.mount();
        let places: Vec<_> = (0..=round)
            .flat_map(|round| (0..3).map(move |part| format!("tree-{round}/d{part}")))
            .filter_map(|path| fs::read_dir(mount.join(path)).ok())
            .flatten()
            .map(|entry| entry.unwrap().path())
            .collect();
        let kept = kept(&mount.join(""));
        assert_eq!(
            (places.len() + kept.len()) as u64,
            (round + 1) * FILES as u64
        );
        for path in &kept {
            assert!(fs::read_to_string(path).unwrap().starts_with("bytes of"));
        }
        mount.unmount();
    }
}
