//! parcp and partar from and to buckets and filesets without a mount.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod support;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use penstock_devserver::{Fault, FaultRule, Operation, Server};
use support::{
    BUCKET, Ended, Scratch, penstock, run, strict_server, succeed, wait_until, with_access,
};

/// A tree with something of each kind.
fn make_tree(scratch: &Scratch, files: usize) -> PathBuf {
    let tree = scratch.folder("tree");
    for directory in ["d/e", "empty"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    for number in 0..files {
        fs::write(tree.join(format!("d/f{number}")), format!("file {number}")).unwrap();
    }
    fs::write(tree.join("large"), vec![7; 20 << 20]).unwrap();
    fs::hard_link(tree.join("d/f0"), tree.join("again")).unwrap();
    symlink("d/f1", tree.join("link")).unwrap();
    fs::set_permissions(tree.join("d/f2"), fs::Permissions::from_mode(0o751)).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_000_000_000_123_456_789);
    let file = fs::File::open(tree.join("d/f3")).unwrap();
    file.set_modified(old).unwrap();
    fs::File::open(tree.join("d/e"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    tree
}

fn cp(scratch: &Scratch, server: &Server, arguments: &[&str]) -> Command {
    let mut command = penstock(scratch, server, &["cp", "-P", "8"]);
    command.args(arguments);
    command
}

fn make_fileset(scratch: &Scratch, server: &Server) {
    let store = format!("s3://{BUCKET}/fileset");
    let create = ["fileset", "create", "home", "--store", &store];
    succeed(&mut penstock(scratch, server, &create));
}

/// What `stat` says of everything in a tree that a copy keeps, and its content.
fn described(tree: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut waiting = vec![tree.to_owned()];
    while let Some(path) = waiting.pop() {
        let stat = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(tree).unwrap().display().to_string();
        let (mode, time) = (stat.mode(), (stat.mtime(), stat.mtime_nsec()));
        let content = match stat.file_type() {
            kind if kind.is_file() => format!("{:?}", crc(&fs::read(&path).unwrap())),
            kind if kind.is_symlink() => fs::read_link(&path).unwrap().display().to_string(),
            _ => {
                let entries = fs::read_dir(&path).unwrap();
                waiting.extend(entries.map(|entry| entry.unwrap().path()));
                String::new()
            }
        };
        lines.push(format!("{name} {mode:o} {time:?} {content}"));
    }
    lines.sort();
    lines
}

fn crc(bytes: &[u8]) -> (usize, u64) {
    let sum = bytes.iter().fold(0_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
    });
    (bytes.len(), sum)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn count(ended: &str, field: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(ended).unwrap();
    value[field].as_u64().unwrap()
}

/// There and back, twice; then as a mirror.
fn goes_both_ways(scratch: &Scratch, server: &Server, url: &str) -> PathBuf {
    let tree = make_tree(scratch, 60);
    let back = scratch.path("back");
    let copy = |from: &str, to: &str| {
        let arguments = ["--restore", "--delete", "--json", from, to];
        succeed(&mut cp(scratch, server, &arguments))
    };
    assert_eq!(count(&copy(text(&tree), url), "files"), 63);
    assert_eq!(count(&copy(text(&tree), url), "files"), 0);
    copy(url, text(&back));
    assert_eq!(described(&tree), described(&back));
    assert_eq!(count(&copy(url, text(&back)), "files"), 0);
    fs::remove_file(tree.join("d/f5")).unwrap();
    fs::remove_dir(tree.join("empty")).unwrap();
    fs::write(tree.join("d/f6"), "longer than before").unwrap();
    let mirrored = copy(text(&tree), url);
    assert_eq!(
        (count(&mirrored, "files"), count(&mirrored, "removed")),
        (1, 2)
    );
    copy(url, text(&back));
    assert_eq!(described(&tree), described(&back));
    back
}

#[test]
fn a_tree_goes_into_a_bucket_and_comes_back_as_it_was() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let back = goes_both_ways(&scratch, &server, &format!("s3://{BUCKET}/data"));
    assert_eq!(fs::metadata(back.join("again")).unwrap().nlink(), 1);
    let slashed = format!("oss://{BUCKET}/data/");
    let again = scratch.path("again");
    succeed(&mut cp(
        &scratch,
        &server,
        &["--restore", &slashed, text(&again)],
    ));
    assert_eq!(described(&back.join("d")), described(&again.join("d")));
}

#[test]
fn a_tree_goes_into_a_fileset_and_comes_back_with_its_hard_links() {
    let (scratch, server) = (Scratch::new(), strict_server());
    make_fileset(&scratch, &server);
    let back = goes_both_ways(&scratch, &server, "fileset://home/a");
    assert_eq!(fs::metadata(back.join("again")).unwrap().nlink(), 2);
    let bucket = format!("s3://{BUCKET}/b");
    succeed(&mut cp(
        &scratch,
        &server,
        &["-a", "fileset://home/a", &bucket],
    ));
    let last = scratch.path("last");
    succeed(&mut cp(
        &scratch,
        &server,
        &["--restore", &bucket, text(&last)],
    ));
    assert_eq!(described(&back), described(&last));
}

/// Puts a tree into an archive.
fn archived(scratch: &Scratch, server: &Server, tree: &Path) -> PathBuf {
    archive(scratch, server, "a.tar", &["-C", text(tree), "."])
}

/// Makes an archive of this name, of what arguments say.
fn archive(scratch: &Scratch, server: &Server, name: &str, of: &[&str]) -> PathBuf {
    let archive = scratch.path(name);
    let create = [&["tar", "-c", "-f", text(&archive)], of].concat();
    succeed(&mut penstock(scratch, server, &create));
    archive
}

#[test]
fn an_archive_that_is_extracted_into_a_bucket_or_a_fileset_is_there_as_it_was() {
    let (scratch, server) = (Scratch::new(), strict_server());
    make_fileset(&scratch, &server);
    let tree = make_tree(&scratch, 60);
    let archive = archived(&scratch, &server, &tree);
    let bucket = format!("s3://{BUCKET}/x");
    for (url, links) in [(bucket.as_str(), 1), ("fileset://home", 2)] {
        let extract = ["tar", "-x", "-f", text(&archive), url];
        succeed(&mut penstock(&scratch, &server, &extract));
        let back = scratch.path(&format!("back-{links}"));
        succeed(&mut cp(&scratch, &server, &["--restore", url, text(&back)]));
        assert_eq!(described(&tree), described(&back));
        assert_eq!(fs::metadata(back.join("again")).unwrap().nlink(), links);
    }
}

/// What an archive extracts to on this machine.
fn extracted(scratch: &Scratch, server: &Server, archive: &Path) -> PathBuf {
    let name = archive.file_stem().unwrap().to_str().unwrap();
    let into = scratch.folder(&format!("of-{name}"));
    let extract = ["tar", "-x", "-f", text(archive), "-C", text(&into)];
    succeed(&mut penstock(scratch, server, &extract));
    into
}

#[test]
fn an_archive_of_a_bucket_or_a_fileset_has_what_is_there() {
    let (scratch, server) = (Scratch::new(), strict_server());
    make_fileset(&scratch, &server);
    let tree = make_tree(&scratch, 60);
    let bucket = format!("s3://{BUCKET}/x");
    for (url, name, links) in [
        (bucket.as_str(), "bucket", 1),
        ("fileset://home/y", "fileset", 2),
    ] {
        succeed(&mut cp(&scratch, &server, &["--restore", text(&tree), url]));
        let make =
            |part: &str, of: &[&str]| archive(&scratch, &server, &format!("{name}{part}.tar"), of);
        let whole = make("", &[url]);
        let back = extracted(&scratch, &server, &whole);
        assert_eq!(described(&tree), described(&back), "{name}");
        assert_eq!(fs::metadata(back.join("again")).unwrap().nlink(), links);
        // The same again is the same archive, and a part of it has the names that lead there.
        let again = make("-again", &["-C", url, "."]);
        assert!(fs::read(&whole).unwrap() == fs::read(&again).unwrap());
        let part = make("-part", &["-C", url, "d", "--exclude", "f6"]);
        let back = extracted(&scratch, &server, &part);
        fs::remove_file(tree.join("d/f6")).unwrap_or_default();
        let there = described(&back.join("d"));
        assert_eq!(there.len(), described(&tree.join("d")).len(), "{name}");
        assert!(there.iter().all(|line| !line.starts_with("f6 ")));
    }
}

#[test]
fn an_archive_of_a_bucket_tells_what_it_has_not() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let tree = make_tree(&scratch, 4);
    let archive = scratch.path("a.tar");
    let refused = |arguments: &[&str], why: &str| {
        let mut whole = vec!["tar", "-c", "-f", text(&archive)];
        whole.extend(arguments);
        let ended: Ended = run(&mut penstock(&scratch, &server, &whole));
        assert!(
            ended.code == Some(2) && ended.err.contains(why),
            "{arguments:?}: {ended:?}"
        );
    };
    refused(&[&format!("s3://{BUCKET}/none")], "No such file");
    let data = format!("s3://{BUCKET}/data");
    succeed(&mut cp(
        &scratch,
        &server,
        &["--restore", text(&tree), &data],
    ));
    refused(&["-C", &data, "d/../.."], "leads out");
    refused(&["-C", text(&tree), &data], "one place");
    refused(&[&data, &data], "one place");
    let inside = format!("file://{}", text(scratch.path("a.tar").parent().unwrap()));
    refused(&[&inside], "in its own source");
}

#[test]
fn a_link_that_is_extracted_into_a_fileset_has_the_mode_of_a_link() {
    let (scratch, server) = (Scratch::new(), strict_server());
    make_fileset(&scratch, &server);
    let archive = archived(&scratch, &server, &make_tree(&scratch, 4));
    let extract = ["tar", "-x", "-f", text(&archive), "fileset://home"];
    succeed(&mut penstock(&scratch, &server, &extract));
    let mountpoint = scratch.folder("mnt");
    let mount = ["mount", "fileset://home", text(&mountpoint)];
    succeed(&mut penstock(&scratch, &server, &mount));
    let link = fs::symlink_metadata(mountpoint.join("link")).unwrap();
    succeed(&mut penstock(
        &scratch,
        &server,
        &["umount", text(&mountpoint)],
    ));
    assert_eq!(link.mode() & 0o7777, 0o777);
}

#[test]
fn a_file_that_an_archive_has_in_part_is_not_in_the_bucket() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let archive = archived(&scratch, &server, &make_tree(&scratch, 4));
    let whole = fs::read(&archive).unwrap();
    let cut = scratch.path("cut.tar");
    fs::write(&cut, &whole[..10 << 20]).unwrap();
    let url = format!("s3://{BUCKET}/x");
    let extract = ["tar", "-x", "-f", text(&cut), &url];
    let ended = run(&mut penstock(&scratch, &server, &extract));
    assert!(
        ended.code == Some(2) && ended.err.contains("cut off"),
        "{ended:?}"
    );
    assert!(!keys(&scratch, &server, "x").contains("large"));
}

#[test]
fn a_new_file_is_one_put_and_a_read_one_is_one_get() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let tree = scratch.folder("many");
    for number in 0..200 {
        fs::write(tree.join(number.to_string()), [7; 4096]).unwrap();
    }
    let url = format!("s3://{BUCKET}/many");
    server.reset_counters();
    succeed(&mut cp(&scratch, &server, &["-r", text(&tree), &url]));
    let total = server
        .counters()
        .requests
        .values()
        .flat_map(|by| by.values())
        .sum::<u64>();
    assert!(total < 210, "{total} requests for 200 files");
    server.reset_counters();
    succeed(&mut cp(
        &scratch,
        &server,
        &["-r", &url, text(&scratch.path("back"))],
    ));
    let total = server
        .counters()
        .requests
        .values()
        .flat_map(|by| by.values())
        .sum::<u64>();
    assert!(total < 210, "{total} requests for 200 files");
}

#[test]
fn what_cannot_be_written_is_told_and_nothing_of_it_is_there() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let tree = make_tree(&scratch, 5);
    let denied = Fault::Status {
        status: 403,
        code: "AccessDenied".to_owned(),
    };
    let rule = FaultRule::new(denied.clone()).on(&[Operation::UploadPart]);
    server.faults().add(rule);
    server.faults().add(
        FaultRule::new(denied)
            .on(&[Operation::PutObject])
            .below("x/d/f3"),
    );
    let url = format!("s3://{BUCKET}/x");
    let ended = run(&mut cp(&scratch, &server, &["-a", text(&tree), &url]));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for name in ["large", "d/f3"] {
        let path = text(&tree.join(name)).to_owned();
        assert!(
            ended.err.contains(&format!("cannot copy '{path}'")),
            "{ended:?}"
        );
    }
    assert!(!ended.err.contains("could not be saved"), "{ended:?}");
    let keys = keys(&scratch, &server, "x");
    assert!(
        keys.contains("d/f2") && !keys.contains("d/f3") && !keys.contains("large"),
        "{keys}"
    );
    server.faults().clear();
    succeed(&mut cp(
        &scratch,
        &server,
        &["--restore", text(&tree), &url],
    ));
    let back = scratch.path("back");
    succeed(&mut cp(
        &scratch,
        &server,
        &["--restore", &url, text(&back)],
    ));
    assert_eq!(described(&tree), described(&back));
}

/// Each file that was left waited for its own deadline, two minutes by default.
#[test]
fn a_copy_ends_when_the_store_does_not_answer_and_goes_on_when_it_does() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let tree = make_tree(&scratch, 60);
    let unavailable = Fault::Status {
        status: 503,
        code: "ServiceUnavailable".to_owned(),
    };
    let rule = FaultRule::new(unavailable).on(&[Operation::PutObject]);
    server.faults().add(rule.below("x/d/f"));
    let url = format!("s3://{BUCKET}/x");
    let restore = ["--restore", "--retry-timeout=6s", text(&tree), &url];
    let mut copying = cp(&scratch, &server, &restore);
    copying.env("PENSTOCK_RETRY_ATTEMPTS", "100");
    let ended = run(&mut copying);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(ended.err.matches("does not answer").count(), 1, "{ended:?}");
    let failed = ended.err.matches("cannot copy").count();
    assert!((4..=16).contains(&failed), "{failed} of 60: {ended:?}");
    server.faults().clear();
    succeed(&mut cp(&scratch, &server, &restore));
    let back = scratch.path("back");
    succeed(&mut cp(
        &scratch,
        &server,
        &["--restore", &url, text(&back)],
    ));
    assert_eq!(described(&tree), described(&back));
}

#[test]
fn an_object_that_could_not_be_replaced_stays() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let file = scratch.file("o", "old");
    let url = format!("s3://{BUCKET}/o");
    succeed(&mut cp(&scratch, &server, &[text(&file), &url]));
    let denied = Fault::Status {
        status: 403,
        code: "AccessDenied".to_owned(),
    };
    let rule = FaultRule::new(denied).on(&[Operation::PutObject]);
    server.faults().add(rule);
    fs::write(&file, "newer").unwrap();
    let ended = run(&mut cp(&scratch, &server, &[text(&file), &url]));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let stored = server.data().get(BUCKET, "o").expect("it is there");
    assert_eq!(stored, b"old");
}

/// It was removed, and what it had replaced was gone.
#[test]
fn an_object_that_could_not_be_verified_stays() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let file = scratch.file("o", "whole");
    let url = format!("s3://{BUCKET}/o");
    let denied = Fault::Status {
        status: 403,
        code: "AccessDenied".to_owned(),
    };
    let rule = FaultRule::new(denied).on(&[Operation::GetObject]);
    server.faults().add(rule);
    let ended = run(&mut cp(&scratch, &server, &["--verify", text(&file), &url]));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("cannot verify"), "{ended:?}");
    let stored = server.data().get(BUCKET, "o").expect("it is there");
    assert_eq!(stored, b"whole");
}

#[test]
fn a_mirror_does_not_remove_the_source_that_lies_in_it() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let file = scratch.file("f", "text");
    let inner = format!("s3://{BUCKET}/x/a/f");
    succeed(&mut cp(&scratch, &server, &["-r", text(&file), &inner]));
    let (source, target) = (format!("s3://{BUCKET}/x/a"), format!("s3://{BUCKET}/x"));
    let mirror = ["--restore", "--delete", &source, &target];
    let ended = run(&mut cp(&scratch, &server, &mirror));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.contains("lies in the target"), "{ended:?}");
    assert!(server.data().get(BUCKET, "x/a/f").is_some());
}

#[test]
fn objects_that_no_file_can_show_are_told_as_not_copied() {
    let (scratch, server) = (Scratch::new(), strict_server());
    for key in ["d//dbl", "d/m", "d/m/in", "d/ok"] {
        server.data().put(BUCKET, key, b"text").expect("room");
    }
    let (source, back) = (format!("s3://{BUCKET}/d"), scratch.path("back"));
    let ended = run(&mut cp(&scratch, &server, &["-r", &source, text(&back)]));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("2 entries of listings"), "{ended:?}");
    assert_eq!(fs::read(back.join("ok")).unwrap(), b"text");
}

fn keys(scratch: &Scratch, server: &Server, prefix: &str) -> String {
    let source = format!("s3://{BUCKET}/{prefix}");
    let mut command = scratch.penstock();
    run(with_access(&mut command, server).args(["ls", "-R", &source])).out
}

/// Ends a copy in the middle with a signal, and copies once more.
fn goes_on_after(signal: &str, url: &str, scratch: &Scratch, server: &Server) -> Option<i32> {
    let tree = make_tree(scratch, 300);
    server.faults().set_latency(Duration::from_millis(20));
    let mut copying = cp(scratch, server, &["--restore", text(&tree), url]);
    let mut copying = copying.stderr(Stdio::null()).spawn().unwrap();
    wait_until("some are copied", || {
        keys(scratch, server, "").lines().count() > 20
    });
    let id = copying.id().to_string();
    succeed(Command::new("kill").args([signal, &id]));
    let code = copying.wait().unwrap().code();
    server.faults().set_latency(Duration::ZERO);
    succeed(&mut cp(scratch, server, &["--restore", text(&tree), url]));
    let back = scratch.path("back");
    succeed(&mut cp(scratch, server, &["--restore", url, text(&back)]));
    assert_eq!(described(&tree), described(&back));
    code
}

#[test]
fn a_copy_that_is_killed_goes_on_where_it_was() {
    let (scratch, server) = (Scratch::new(), strict_server());
    goes_on_after("-KILL", &format!("s3://{BUCKET}/x"), &scratch, &server);
}

/// A store may carry out late what a copy asked for that was killed. The next copy, which had looked already, failed
/// with "File exists".
#[test]
fn what_appears_after_a_copy_looked_is_copied_over() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let tree = scratch.folder("tree");
    fs::create_dir(tree.join("d")).unwrap();
    fs::write(tree.join("d/a"), "a").unwrap();
    fs::write(tree.join("d/b"), "new").unwrap();
    symlink("a", tree.join("d/c")).unwrap();
    fs::create_dir(tree.join("d/e")).unwrap();
    let late = FaultRule::new(Fault::Hang { duration_ms: 3_000 });
    let late = late.on(&[Operation::PutObject]).below("x/d/").next(1);
    server.faults().add(late);
    server.data().put(BUCKET, "x/d/there", b"").expect("room");
    let url = format!("s3://{BUCKET}/x");
    let mut copying = cp(
        &scratch,
        &server,
        &["-P", "1", "--restore", text(&tree), &url],
    );
    let mut copying = copying.spawn().unwrap();
    wait_until("it is at the first of them", || {
        server
            .faults()
            .get()
            .rules
            .iter()
            .all(|rule| rule.next == Some(0))
    });
    for key in ["x/d/a", "x/d/b", "x/d/c", "x/d/e/"] {
        server.data().put(BUCKET, key, b"").expect("room");
    }
    assert!(copying.wait().unwrap().success());
    let back = scratch.path("back");
    succeed(&mut cp(
        &scratch,
        &server,
        &["--restore", &url, text(&back)],
    ));
    let mut copied = described(&back);
    copied.retain(|line| !line.starts_with("d/there "));
    assert_eq!(described(&tree), copied);
}

/// A copy that was killed between an upload and its description left a file whose time was right but for its
/// fraction, for good.
#[test]
fn a_time_that_an_object_has_of_its_store_is_made_exact() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let file = scratch.file("f", "text");
    let url = format!("s3://{BUCKET}/f");
    server.data().put(BUCKET, "f", b"text").expect("room");
    let back = scratch.path("back");
    succeed(&mut cp(&scratch, &server, &["-p", &url, text(&back)]));
    let stored = fs::metadata(&back).unwrap().modified().unwrap();
    let exact = stored + Duration::from_nanos(123_456_789);
    let open = fs::File::options().write(true).open(&file).unwrap();
    open.set_modified(exact).unwrap();
    succeed(&mut cp(
        &scratch,
        &server,
        &["--restore", text(&file), &url],
    ));
    succeed(&mut cp(
        &scratch,
        &server,
        &["--restore", &url, text(&back)],
    ));
    assert_eq!(fs::metadata(&back).unwrap().modified().unwrap(), exact);
}

#[test]
fn a_copy_that_is_interrupted_says_so_and_goes_on() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let code = goes_on_after("-INT", &format!("s3://{BUCKET}/x"), &scratch, &server);
    assert_eq!(code, Some(130));
}

#[test]
fn what_cannot_be_right_is_refused_in_one_line() {
    let (scratch, server) = (Scratch::new(), strict_server());
    make_fileset(&scratch, &server);
    let tree = make_tree(&scratch, 5);
    let data = format!("s3://{BUCKET}/data");
    succeed(&mut cp(
        &scratch,
        &server,
        &["-r", "--exclude", "link", text(&tree), &data],
    ));
    let refused = |arguments: &[&str], why: &str| {
        let ended: Ended = run(&mut cp(&scratch, &server, arguments));
        assert_ne!(ended.code, Some(0), "{arguments:?}");
        assert!(ended.err.contains(why), "{arguments:?}: {ended:?}");
    };
    refused(&["-r", &data, &format!("{data}/x")], "in its own source");
    refused(&["-r", "gopher://x/y", text(&tree)], "is no source");
    refused(&["-r", &format!("{data}x"), text(&tree)], "No such file");
    refused(&["-r", &format!("{data}x/"), text(&tree)], "No such file");
    refused(&[&data, text(&tree)], "-r not specified");
    refused(
        &["-r", "fileset://none/x", text(&tree)],
        "no fileset `none`",
    );
    let inside = format!("file://{}/d/e", text(&tree));
    refused(&["-r", text(&tree), &inside], "in its own source");
}
