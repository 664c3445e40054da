//! parrm on paths in buckets, without a mount.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
    time::Duration,
};

use penstock_devserver::{Fault, FaultRule, Faults, Operation, Server};
use support::{BUCKET, Ended, Scratch, run, strict_server, succeed, wait_until, with_access};

fn with_objects(keys: &[&str]) -> Server {
    let server = strict_server();
    for key in keys {
        put(&server, key);
    }
    server
}

fn put(server: &Server, key: &str) {
    server.data().put(BUCKET, key, b"four").expect("room");
}

fn parrm(scratch: &Scratch, server: &Server, arguments: &[&str]) -> Command {
    let mut command = scratch.called("parrm");
    with_access(&mut command, server).args(arguments);
    command
}

fn ended(scratch: &Scratch, server: &Server, arguments: &[&str]) -> Ended {
    run(&mut parrm(scratch, server, arguments))
}

fn url(path: &str) -> String {
    format!("s3://{BUCKET}{path}")
}

fn keys(server: &Server) -> Vec<String> {
    server.data().keys(BUCKET)
}

#[test]
fn what_is_below_a_path_goes_and_its_neighbours_stay() {
    for scheme in ["s3", "oss"] {
        let (scratch, server) = (
            Scratch::new(),
            with_objects(&["a", "a/", "a/b", "a/c/d", "ab", "c"]),
        );
        let path = format!("{scheme}://{BUCKET}/a");
        let removed = ended(&scratch, &server, &["-rf", "--json", &path]);
        assert_eq!(removed.code, Some(0), "{removed:#?}");
        assert!(removed.out.contains("\"files\": 4"), "{removed:#?}");
        assert_eq!(keys(&server), ["ab", "c"]);
    }
}

#[test]
fn several_objects_go_without_r() {
    let (scratch, server) = (Scratch::new(), with_objects(&["a", "b", "c", "d/e"]));
    let paths = [url("/a"), url("/c"), url("/d"), url("/none")];
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let removed = ended(&scratch, &server, &paths);
    assert_eq!(removed.code, Some(1));
    assert!(
        removed.err.contains(&format!(
            "cannot remove '{}': it is a directory; use -r",
            url("/d")
        )),
        "{removed:#?}"
    );
    assert!(
        removed.err.contains(&format!(
            "cannot remove '{}': there is no such object",
            url("/none")
        )),
        "{removed:#?}"
    );
    assert_eq!(keys(&server), ["b", "d/e"]);
}

#[test]
fn odd_names_go_too() {
    let odd = [
        "a/b c",
        "a/b+c",
        "a/%41",
        "a/ü日本",
        "a/tab\tnew\nline",
        "a/\u{1}\u{1f}",
        "a/&<>\"'",
        "a//x",
        "a/./y",
        "a/\u{7f}\u{85}",
        "a/\u{fffe}",
    ];
    for path in ["/a", "/a/"] {
        let (scratch, server) = (Scratch::new(), with_objects(&odd));
        put(&server, "a b/c");
        succeed(&mut parrm(&scratch, &server, &["-rf", &url(path)]));
        assert_eq!(keys(&server), ["a b/c"]);
        succeed(&mut parrm(&scratch, &server, &[&url("/a b/c")]));
        assert_eq!(keys(&server), [""; 0]);
    }
}

#[test]
fn nobody_who_could_answer_is_a_refusal_that_names_f() {
    let (scratch, server) = (Scratch::new(), with_objects(&["a/b"]));
    let refused = ended(&scratch, &server, &["-r", &url("/a")]);
    assert_eq!(refused.code, Some(1));
    assert_eq!(refused.err.lines().count(), 1, "{refused:#?}");
    assert!(refused.err.contains("use -f"), "{refused:#?}");
    let root = ended(&scratch, &server, &["-rf", &url("")]);
    assert_eq!(root.code, Some(1));
    assert!(root.err.contains("--no-preserve-root"), "{root:#?}");
    assert_eq!(keys(&server), ["a/b"]);
    let removed = ended(&scratch, &server, &["-rf", "--no-preserve-root", &url("")]);
    assert_eq!(removed.code, Some(0), "{removed:#?}");
    assert_eq!(keys(&server), [""; 0]);
}

#[test]
fn the_question_says_how_much_there_is() {
    let (scratch, server) = (Scratch::new(), with_objects(&["b/c"]));
    for number in 0..1001 {
        put(&server, &format!("a/{number:04}"));
    }
    let answered = |path: &str, answer: &str| {
        let mut command = parrm(&scratch, &server, &["-rI", &url(path)]);
        let mut child = command
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it was just built");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(answer.as_bytes()).expect("it reads");
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let told = answered("/a", "n\n");
    assert!(told.contains("remove more than 1000 objects"), "{told}");
    assert_eq!(keys(&server).len(), 1002);
    let told = answered("/b", "y\n");
    assert!(told.contains("remove 1 object with 4 bytes"), "{told}");
    assert_eq!(keys(&server).len(), 1001);
}

#[test]
fn a_store_that_throttles_and_fails_is_asked_again() {
    let (scratch, server) = (Scratch::new(), strict_server());
    for number in 0..2500 {
        put(&server, &format!("a/{number:04}"));
    }
    let slow = FaultRule::new(Fault::SlowDown { retry_after: None });
    let failing = FaultRule::new(Fault::InternalError);
    let mut faults = Faults::rule(slow.on(&[Operation::DeleteObjects]).next(3));
    faults
        .rules
        .push(failing.on(&[Operation::DeleteObjects]).skip(1).next(1));
    server.faults().set(faults);
    succeed(&mut parrm(&scratch, &server, &["-rf", &url("/a")]));
    assert_eq!(server.counters().status(503), 3);
    assert_eq!(keys(&server), [""; 0]);
}

#[test]
fn keys_that_are_denied_are_told_each_and_the_rest_goes() {
    let (scratch, server) = (Scratch::new(), strict_server());
    for number in 0..1200 {
        put(&server, &format!("a/{number:04}"));
    }
    let denied = Fault::Status {
        status: 403,
        code: "AccessDenied".to_owned(),
    };
    let rule = FaultRule::new(denied).on(&[Operation::DeleteObject]);
    server.faults().set(Faults::rule(rule.below("a/010")));
    let removed = ended(&scratch, &server, &["-rf", &url("/a")]);
    assert_eq!(removed.code, Some(1));
    let lines = removed
        .err
        .lines()
        .filter(|line| line.contains("(AccessDenied)"));
    assert_eq!(lines.count(), 10, "{removed:#?}");
    assert!(
        removed.err.contains("10 failures; 1190 files"),
        "{removed:#?}"
    );
    server.faults().clear();
    assert_eq!(keys(&server).len(), 10);
}

#[test]
fn a_store_without_bulk_deletes_is_asked_for_each_object_by_many() {
    let (scratch, server) = (Scratch::new(), strict_server());
    for number in 0..600 {
        put(&server, &format!("a/{number:04}"));
    }
    let unknown = Fault::Status {
        status: 501,
        code: "NotImplemented".to_owned(),
    };
    let rule = FaultRule::new(unknown).on(&[Operation::DeleteObjects]);
    let mut faults = Faults::rule(rule);
    faults.latency_ms = 20;
    server.faults().set(faults);
    let removed = ended(&scratch, &server, &["-rf", "-P", "32", &url("/a")]);
    assert_eq!(removed.code, Some(0), "{removed:#?}");
    // One after the other they take 12 s.
    assert!(removed.took < Duration::from_secs(6), "{:?}", removed.took);
    assert_eq!(server.counters().operation(Operation::DeleteObjects), 1);
    assert_eq!(keys(&server), [""; 0]);
}

#[test]
fn an_interrupted_removal_says_what_it_did_and_goes_on_when_it_is_run_again() {
    let (scratch, server) = (Scratch::new(), strict_server());
    for number in 0..20_000 {
        put(&server, &format!("a/{number:05}"));
    }
    server.faults().set_latency(Duration::from_millis(100));
    let mut command = parrm(&scratch, &server, &["-rf", "-P", "2", "--json", &url("/a")]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it was just built");
    wait_until("something is removed", || {
        server.counters().operation(Operation::DeleteObjects) > 1
    });
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("interrupted") && told.contains("run it again"),
        "{told}"
    );
    server.faults().clear();
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let removed = summary["files"].as_u64().expect("a count");
    assert!(removed > 0);
    assert_eq!(keys(&server).len() as u64, 20_000 - removed);
    succeed(&mut parrm(&scratch, &server, &["-rf", &url("/a")]));
    assert_eq!(keys(&server), [""; 0]);
}

#[test]
fn a_bucket_in_a_directory_is_one_too() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let bucket = scratch.folder("bucket");
    for path in ["a/b/c", "a/d", "ab/e"] {
        fs::create_dir_all(bucket.join(path).parent().expect("a folder")).expect("room");
        fs::write(bucket.join(path), "four").expect("room");
    }
    let path = format!("file://{}/a", bucket.display());
    succeed(&mut parrm(&scratch, &server, &["-rf", &path]));
    let left = || fs::read_dir(&bucket).expect("a folder").count();
    assert_eq!(left(), 1, "a/ is gone, and nothing else was made");
    let path = format!("file://{}?prefix=ab/e", bucket.display());
    succeed(&mut parrm(&scratch, &server, &[&path]));
    assert_eq!(left(), 0);
}

#[test]
fn what_a_link_in_a_directory_leads_to_stays() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let bucket = scratch.folder("bucket");
    fs::create_dir(bucket.join("a")).expect("room");
    fs::create_dir(bucket.join("b")).expect("room");
    fs::write(bucket.join("a/x"), "four").expect("room");
    fs::write(bucket.join("b/x"), "four").expect("room");
    for (target, link) in [("../b", "a/directory"), ("../b/x", "a/file"), ("b", "c")] {
        std::os::unix::fs::symlink(target, bucket.join(link)).expect("room");
    }
    for path in ["a", "c"] {
        let path = format!("file://{}/{path}", bucket.display());
        succeed(&mut parrm(&scratch, &server, &["-rf", &path]));
    }
    assert!(!bucket.join("a/x").exists());
    assert!(bucket.join("b/x").exists());
}

#[test]
fn a_tree_in_a_fileset_goes_without_a_mount() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let bucket = format!("file://{}", scratch.folder("bucket").display());
    let filesets = scratch.folder("filesets");
    let program = |name: &str, arguments: &[&str]| {
        let mut command = match name {
            "penstock" => scratch.penstock(),
            other => scratch.called(other),
        };
        command
            .env("PENSTOCK_FILESET_DIR", &filesets)
            .args(arguments);
        run(&mut command)
    };
    let done = |name: &str, arguments: &[&str]| {
        let ended = program(name, arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:#?}");
        ended.out
    };
    done(
        "penstock",
        &["fileset", "create", "home", "--store", &bucket],
    );
    let tree = scratch.folder("tree");
    for number in 0..300 {
        let directory = tree.join((number % 7).to_string());
        fs::create_dir_all(&directory).expect("room");
        fs::write(directory.join(number.to_string()), "text").expect("room");
    }
    let tree = tree.display().to_string();
    done("parcp", &["-a", &tree, "fileset://home"]);
    done("parcp", &["-a", &tree, "fileset://home/other"]);
    let refused = program("parrm", &["-r", "fileset://home"]);
    assert_eq!(refused.code, Some(1), "{refused:#?}");
    assert!(refused.err.contains("--no-preserve-root"), "{refused:#?}");
    let refused = program("parrm", &["fileset://home/tree"]);
    assert!(refused.err.contains("Is a directory"), "{refused:#?}");
    let removed = done("parrm", &["-r", "--json", "fileset://home/tree"]);
    assert!(
        removed.contains("\"files\": 300") && removed.contains("\"directories\": 8"),
        "{removed}"
    );
    assert_eq!(
        program("parrm", &["-r", "fileset://home/tree"]).code,
        Some(1)
    );
    let back = scratch.path("back").display().to_string();
    done("parcp", &["-r", "fileset://home/other", &back]);
    assert_eq!(fs::read_dir(&back).expect("a folder").count(), 7);
    drop(server);
}

#[test]
fn local_files_and_objects_go_in_one_command() {
    let (scratch, server) = (Scratch::new(), with_objects(&["a", "b"]));
    let file = scratch.file("here", "text");
    succeed(&mut parrm(
        &scratch,
        &server,
        &[&file.display().to_string(), &url("/a")],
    ));
    assert!(!file.exists());
    assert_eq!(keys(&server), ["b"]);
}
