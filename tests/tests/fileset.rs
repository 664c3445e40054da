//! A fileset from its making to its end, mounted by the kernel.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    io::Read,
    os::unix::{
        fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
        process::CommandExt,
    },
    process::Command,
};

use penstock_tests::{Bucket, Fileset, Kind, Patience, Scratch, data::lines, run_within};

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

#[test]
fn times_of_access_are_kept_as_the_mount_says() {
    let fileset = Fileset::new("atime");
    let mount = fileset.mount();
    fs::write(mount.join("file"), b"content").unwrap();
    mount.unmount();
    // Each mount is another one, and knows nothing of what the one before has shown.
    let time_after = |mode, flags| {
        let mount = fileset.mount_with(&fileset.options().option("atime-mode", mode));
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(mount.join("file"))
            .unwrap();
        let mut content = String::new();
        (&file).read_to_string(&mut content).unwrap();
        assert_eq!(content, "content");
        drop(file);
        mount.unmount();
        let mount = fileset.mount();
        let file = fs::metadata(mount.join("file")).unwrap();
        mount.unmount();
        (file.atime(), file.atime_nsec())
    };
    let made = time_after("noatime", 0);
    assert_eq!(time_after("strictatime", libc::O_NOATIME), made);
    let once = time_after("relatime", 0);
    assert!(once > made, "{once:?} {made:?}");
    assert_eq!(time_after("relatime", 0), once);
    assert!(time_after("strictatime", 0) > once);
}

#[test]
fn a_bucket_has_no_times_of_access() {
    let bucket = Bucket::new(Kind::Local);
    let scratch = Scratch::new();
    let mut command = bucket.command("mount");
    command
        .arg("--atime-mode=relatime")
        .arg(scratch.folder("mnt"));
    let finished = run_within(Patience::seconds(60), &mut command);
    assert!(!finished.succeeded());
    assert!(
        finished.stderr.contains("atime-mode=relatime"),
        "{}",
        finished.stderr
    );
}

#[test]
fn set_id_bits_that_a_write_took_away_are_not_shown() {
    let fileset = Fileset::new("set-id");
    let mount = fileset.mount_with(&fileset.options().option("allow-other", "on"));
    let path = mount.join("program");
    fs::write(&path, b"content").unwrap();
    for change in ["echo >>", ":>"] {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        let script = format!("{change} '{}'", path.display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).uid(65534).gid(65534);
        run_within(Patience::seconds(20), &mut shell).expect_success();
        let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o777, "{change}");
    }
    mount.unmount();
}

#[test]
fn programs_and_devices_of_a_fileset_work_where_root_says_so() {
    let fileset = Fileset::new("trusted");
    let trusting = fileset
        .options()
        .option("suid", "on")
        .option("dev", "on")
        .option("allow-other", "on");
    for (options, works) in [(fileset.options(), false), (trusting, true)] {
        let mount = fileset.mount_with(&options);
        let (program, device) = (mount.join("id"), mount.join("null"));
        if !program.exists() {
            fs::copy("/usr/bin/id", &program).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
            let mut make = Command::new("mknod");
            make.arg(&device).args(["c", "1", "3"]);
            run_within(Patience::seconds(20), &mut make).expect_success();
        }
        assert_eq!(fs::write(&device, b"gone").is_ok(), works);
        if works {
            let mut id = Command::new(&program);
            id.arg("-u").uid(65534).gid(65534);
            let id = run_within(Patience::seconds(20), &mut id).expect_success();
            assert_eq!(id.stdout, "0\n");
        }
        mount.unmount();
    }
}
