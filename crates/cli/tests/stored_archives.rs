//! Archives that lie in buckets and filesets, and how long tools say to take.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod support;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use penstock_devserver::{Fault, FaultRule, Operation};
use support::{BUCKET, Scratch, penstock, run, strict_server, succeed};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Some small files and a large one.
fn make_tree(scratch: &Scratch) -> PathBuf {
    let tree = scratch.folder("tree");
    fs::create_dir(tree.join("d")).unwrap();
    for number in 0..40 {
        fs::write(tree.join(format!("d/f{number}")), format!("file {number}")).unwrap();
    }
    fs::write(tree.join("large"), vec![7; 12 << 20]).unwrap();
    tree
}

/// The content of each file in a tree.
fn contents(tree: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut contents = BTreeMap::new();
    let mut waiting = vec![tree.to_owned()];
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            waiting.extend(entries.map(|entry| entry.unwrap().path()));
        } else {
            let name = path.strip_prefix(tree).unwrap().display().to_string();
            contents.insert(name, fs::read(&path).unwrap());
        }
    }
    contents
}

fn assert_same(one: &Path, other: &Path) {
    let (one, other) = (contents(one), contents(other));
    assert!(one.keys().eq(other.keys()), "{:?}", other.keys());
    assert!(one == other, "contents differ");
}

#[test]
fn an_archive_is_made_listed_and_extracted_where_it_lies_in_a_bucket_or_a_fileset() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let store = format!("s3://{BUCKET}/fileset");
    let create = ["fileset", "create", "home", "--store", &store];
    succeed(&mut penstock(&scratch, &server, &create));
    let tree = make_tree(&scratch);
    let bucket = format!("s3://{BUCKET}/archives/a.tar.zst");
    for (number, url) in [bucket.as_str(), "fileset://home/a.tar"]
        .into_iter()
        .enumerate()
    {
        let tar = |arguments: &[&str]| {
            let arguments = [&["tar", "-f", url], arguments].concat();
            succeed(&mut penstock(&scratch, &server, &arguments))
        };
        tar(&["-c", "-a", "-C", text(&tree), "."]);
        let listed = tar(&["-t"]);
        assert_eq!(listed.lines().count(), 43, "{listed}");
        let back = scratch.folder(&format!("back-{number}"));
        tar(&["-x", "-C", text(&back)]);
        assert_same(&tree, &back);
        // Another one takes its place.
        tar(&["-c", "-a", "-C", text(&tree), "d/f1"]);
        assert_eq!(tar(&["-t"]), "d/f1\n");
    }
}

#[test]
fn an_archive_goes_from_one_volume_to_another_without_this_machines_disk() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let tree = make_tree(&scratch);
    let [data, archive, out] =
        ["data", "archives/a.tar.gz", "out"].map(|path| format!("s3://{BUCKET}/{path}"));
    succeed(&mut penstock(
        &scratch,
        &server,
        &["cp", "-r", text(&tree), &data],
    ));
    succeed(&mut penstock(
        &scratch,
        &server,
        &["tar", "-c", "-z", "-f", &archive, &data],
    ));
    succeed(&mut penstock(
        &scratch,
        &server,
        &["tar", "-x", "-f", &archive, &out],
    ));
    let back = scratch.path("back");
    succeed(&mut penstock(
        &scratch,
        &server,
        &["cp", "-r", &out, text(&back)],
    ));
    assert_same(&tree, &back);
    let refused = run(&mut penstock(
        &scratch,
        &server,
        &["tar", "-c", "-f", &format!("{data}/a.tar"), &data],
    ));
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("in its own source"), "{refused:?}");
}

#[test]
fn an_archive_that_cannot_be_stored_leaves_what_was_there() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let tree = make_tree(&scratch);
    server.data().put(BUCKET, "a.tar", b"old").expect("room");
    let refused = Fault::Status {
        status: 403,
        code: "AccessDenied".to_owned(),
    };
    let writing = [
        Operation::PutObject,
        Operation::UploadPart,
        Operation::CreateUpload,
    ];
    server.faults().add(FaultRule::new(refused).on(&writing));
    let url = format!("s3://{BUCKET}/a.tar");
    let make = ["tar", "-c", "-f", &url, "-C", text(&tree), "none", "."];
    let ended = run(&mut penstock(&scratch, &server, &make));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.contains("cannot write the archive"), "{ended:?}");
    assert!(
        ended.err.contains("'none'"),
        "what failed before is told: {ended:?}"
    );
    let stored = server.data().get(BUCKET, "a.tar").expect("it is there");
    assert_eq!(stored, b"old");
}

#[test]
fn an_archive_that_is_not_there_or_a_directory_is_refused_in_one_line() {
    let (scratch, server) = (Scratch::new(), strict_server());
    server.data().put(BUCKET, "d/f", b"text").expect("room");
    let back = scratch.folder("back");
    for (key, why) in [
        ("none.tar", "No such file"),
        ("d", "directory"),
        ("d/", "directory"),
    ] {
        let url = format!("s3://{BUCKET}/{key}");
        for what in ["-x", "-c"] {
            if what == "-c" && key == "none.tar" {
                continue;
            }
            let arguments = ["tar", what, "-f", &url, "-C", text(&back), "."];
            let ended = run(&mut penstock(&scratch, &server, &arguments));
            assert_eq!(ended.code, Some(2), "{what} {key}: {ended:?}");
            assert!(ended.err.contains(why), "{what} {key}: {ended:?}");
            assert_eq!(ended.err.lines().count(), 1, "{what} {key}: {ended:?}");
        }
    }
}

/// What a command shows on a terminal. None where script(1) is missing.
fn on_terminal(scratch: &Scratch, command: &Command) -> Option<String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut script = Command::new("script");
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            script.env(name, value);
        }
    }
    script.current_dir(command.get_current_dir().unwrap_or(&scratch.path("")));
    script.args(["-q", "-e", "-c", &words.join(" "), "/dev/null"]);
    let shown = script.stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.status.success(), "{text}");
    Some(text)
}

#[test]
fn a_terminal_shows_how_long_files_of_this_machine_still_take() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let tree = make_tree(&scratch);
    let (url, out) = (format!("s3://{BUCKET}/x"), format!("s3://{BUCKET}/a.tar"));
    server.faults().set_latency(Duration::from_millis(50));
    for (arguments, is_counted) in [
        (&["cp", "-P", "1", "-r", text(&tree), &url][..], true),
        (
            &["cp", "-P", "1", "-r", &url, text(&scratch.path("back"))],
            false,
        ),
        (&["tar", "-c", "-P", "1", "-f", &out, text(&tree)], true),
    ] {
        let command = penstock(&scratch, &server, arguments);
        let Some(shown) = on_terminal(&scratch, &command) else {
            return penstock_skips::skipped("script(1) is not here");
        };
        assert_eq!(
            shown.contains(" s left"),
            is_counted,
            "{arguments:?}: {shown}"
        );
    }
}

/// A count of the source held up a tool that was done for as long as a listing is tried.
#[test]
fn a_tool_that_is_done_waits_for_no_count() {
    let (scratch, server) = (Scratch::new(), strict_server());
    server.data().put(BUCKET, "d/a", b"text").expect("room");
    let hangs = Fault::Hang {
        duration_ms: 60_000,
    };
    // The first two are of the opening and of the tool.
    server.faults().add(FaultRule {
        skip: 2,
        ..FaultRule::new(hangs).on(&[Operation::ListObjectsV2])
    });
    let (url, back) = (format!("s3://{BUCKET}/d/a"), scratch.path("back"));
    let copy = ["cp", "--retry-timeout", "20s", &url, text(&back)];
    let begun = Instant::now();
    if on_terminal(&scratch, &penstock(&scratch, &server, &copy)).is_none() {
        return penstock_skips::skipped("script(1) is not here");
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn an_archive_of_the_directory_that_its_bucket_lies_in_is_refused() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let tree = make_tree(&scratch);
    let url = format!("file://{}/d/a.tar", text(&tree));
    let make = ["tar", "-c", "-f", &url, "-C", text(&tree), "."];
    let ended = run(&mut penstock(&scratch, &server, &make));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.contains("in its own source"), "{ended:?}");
}

/// 1 stands for files that changed while they were read.
#[test]
fn a_store_that_cannot_be_opened_is_a_failure_of_partar() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let back = scratch.folder("back");
    for url in ["s3://no-such-bucket/a.tar", "fileset://none/a.tar"] {
        let arguments = ["tar", "-x", "-f", url, "-C", text(&back)];
        let ended = run(&mut penstock(&scratch, &server, &arguments));
        assert_eq!(ended.code, Some(2), "{url}: {ended:?}");
    }
}

#[test]
fn an_archive_keeps_the_mode_of_what_it_replaces_in_a_fileset() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let store = format!("s3://{BUCKET}/fileset");
    let create = ["fileset", "create", "home", "--store", &store];
    succeed(&mut penstock(&scratch, &server, &create));
    let old = scratch.file("old", "old");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
    let url = "fileset://home/a.tar";
    succeed(&mut penstock(
        &scratch,
        &server,
        &["cp", "-p", text(&old), url],
    ));
    let folder = scratch.path("");
    let make = ["tar", "-c", "-f", url, "-C", text(&folder), "old"];
    succeed(&mut penstock(&scratch, &server, &make));
    let back = scratch.path("back.tar");
    succeed(&mut penstock(
        &scratch,
        &server,
        &["cp", "-p", url, text(&back)],
    ));
    let mode = fs::metadata(&back).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(fs::read(&back).unwrap().len() > 1024);
}
