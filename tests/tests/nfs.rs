//! Mount targets mounted by the NFS client of the kernel. Where the kernel has none they say so; `make guest-test` runs
//! them in a guest that has.

#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    path::Path,
};

use penstock_tests::{Bucket, Fileset, Kind, NfsMount};

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 % 251) as u8).collect()
}

/// What every target does.
fn copies_and_lists(place: &Path) {
    let all = content(9_000_001);
    fs::create_dir(place.join("directory")).expect("made");
    fs::write(place.join("directory/file"), &all).expect("written");
    assert!(fs::read(place.join("directory/file")).expect("read") == all);
    for number in 0..300 {
        fs::write(place.join(format!("directory/{number:03}")), b"small").expect("written");
    }
    let listed = fs::read_dir(place.join("directory"))
        .expect("listed")
        .count();
    assert_eq!(listed, 301);
    fs::rename(place.join("directory/000"), place.join("directory/moved")).expect("moved");
    assert_eq!(
        fs::read(place.join("directory/moved")).expect("read"),
        b"small"
    );
    fs::remove_dir_all(place.join("directory")).expect("removed");
    assert!(!place.join("directory").exists());
}

#[test]
fn the_kernel_mounts_a_fileset_as_a_posix_file_system() {
    if !NfsMount::is_possible() {
        return;
    }
    let fileset = std::rc::Rc::new(Fileset::new("nfs"));
    let served = std::rc::Rc::clone(&fileset);
    let mut mounted = NfsMount::new(move || served.command("serve"));
    let place = mounted.path().to_owned();
    copies_and_lists(&place);
    let (file, other) = (place.join("file"), place.join("other"));
    fs::write(&file, content(200_000)).expect("written");
    fs::hard_link(&file, &other).expect("linked");
    symlink("file", place.join("link")).expect("linked");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("set");
    let seen = fs::metadata(place.join("link")).expect("there");
    assert_eq!(
        (seen.nlink(), seen.mode() & 0o7777, seen.len()),
        (2, 0o640, 200_000)
    );
    let mut open = fs::File::options()
        .read(true)
        .write(true)
        .open(&file)
        .expect("opened");
    open.write_all_at(b"over", 100_000).expect("written");
    open.set_len(150_000).expect("cut");
    open.sync_all().expect("synced");
    fs::remove_file(&file).expect("removed while it is open");
    fs::remove_file(&other).expect("removed");
    let mut bytes = [0; 4];
    open.seek(SeekFrom::Start(100_000)).expect("sought");
    open.read_exact(&mut bytes)
        .expect("it lives until it is closed");
    assert_eq!(&bytes, b"over");
    drop(open);
    let mut appended = fs::File::options()
        .append(true)
        .create(true)
        .open(&file)
        .expect("new");
    for number in 0..20 {
        writeln!(appended, "line {number}").expect("appended");
    }
    appended.sync_all().expect("synced");
    mounted.kill_and_start();
    writeln!(appended, "and one after the kill").expect("appended");
    appended.sync_all().expect("synced");
    let text = fs::read_to_string(&file).expect("the same handle");
    assert_eq!(text.lines().count(), 21);
}

#[test]
fn what_programs_write_while_a_target_is_killed_is_all_there() {
    if !NfsMount::is_possible() {
        return;
    }
    let fileset = std::rc::Rc::new(Fileset::new("nfs-kill"));
    let served = std::rc::Rc::clone(&fileset);
    let mut mounted = NfsMount::new(move || served.command("serve"));
    let place = mounted.path().to_owned();
    let writing = std::thread::spawn(move || {
        for number in 0..60 {
            let bytes = content(100_000 + number);
            fs::write(place.join(format!("file {number}")), &bytes).expect("written");
        }
        let mut large = fs::File::create(place.join("large")).expect("made");
        for piece in content(20_000_000).chunks(100_000) {
            large.write_all(piece).expect("written");
        }
        large.sync_all().expect("synced");
        place
    });
    let mut kills = 0;
    while !writing.is_finished() && kills < 5 {
        std::thread::sleep(std::time::Duration::from_secs(2));
        mounted.kill_and_start();
        kills += 1;
    }
    let place = writing.join().expect("no program saw an error");
    for number in 0..60 {
        let found = fs::read(place.join(format!("file {number}"))).expect("read");
        assert!(found == content(100_000 + number), "file {number}");
    }
    assert!(fs::read(place.join("large")).expect("read") == content(20_000_000));
}

/// A client asks again what it has no answer to: a name that it took away is gone by then, and one that it made is taken.
#[test]
fn names_that_change_while_a_target_is_killed_change_once() {
    if !NfsMount::is_possible() {
        return;
    }
    let fileset = std::rc::Rc::new(Fileset::new("nfs-names"));
    let served = std::rc::Rc::clone(&fileset);
    let mut mounted = NfsMount::new(move || served.command("serve"));
    let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let changing: Vec<_> = (0..8)
        .map(|number| {
            let (place, is_over) = (
                mounted.path().join(format!("of {number}")),
                std::sync::Arc::clone(&is_over),
            );
            std::thread::spawn(move || {
                let mut rounds = 0;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    change_names(&place);
                    rounds += 1;
                }
                rounds
            })
        })
        .collect();
    for _ in 0..6 {
        std::thread::sleep(std::time::Duration::from_secs(3));
        mounted.kill_and_start();
    }
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    for changing in changing {
        let rounds: u32 = changing.join().expect("no program saw an error");
        assert!(rounds > 0);
    }
    assert_eq!(
        fs::read_dir(mounted.path()).expect("listed").count(),
        0,
        "what was made was removed"
    );
    drop(mounted);
    fileset.run("check", &[]).expect_success();
}

/// Makes a tree of names below `place`, each in a way that fails if it is done twice, and removes it.
fn change_names(place: &Path) {
    fs::create_dir(place).expect("made once");
    let (file, other) = (place.join("file"), place.join("other"));
    fs::File::create_new(&file).expect("made once");
    fs::hard_link(&file, &other).expect("linked once");
    symlink("file", place.join("link")).expect("linked once");
    fs::rename(&other, place.join("moved")).expect("moved once");
    for name in ["moved", "link", "file"] {
        fs::remove_file(place.join(name)).expect("removed once");
    }
    fs::remove_dir(place).expect("removed once");
}

#[test]
fn the_kernel_mounts_a_bucket_and_writes_files_from_front_to_back() {
    if !NfsMount::is_possible() {
        return;
    }
    let bucket = std::rc::Rc::new(Bucket::new(Kind::S3));
    let served = std::rc::Rc::clone(&bucket);
    let mounted = NfsMount::new(move || served.command("serve"));
    copies_and_lists(mounted.path());
}
