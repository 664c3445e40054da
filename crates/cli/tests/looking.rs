//! Looking into a bucket without mounting it.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods)]

mod support;

use std::process::Command;

use penstock_devserver::{Fault, FaultRule, Faults, Lack, Operation, Server};
use support::{BUCKET, Scratch, run, strict_server, succeed, with_access};

fn with_objects() -> Server {
    let server = strict_server();
    for (key, text) in [("a.txt", "one"), ("dir/b.txt", "four"), ("dir/deep/c", "")] {
        server
            .data()
            .put(BUCKET, key, text.as_bytes())
            .expect("room");
    }
    server
}

fn penstock(scratch: &Scratch, server: &Server, arguments: &[&str]) -> Command {
    let mut command = scratch.penstock();
    with_access(&mut command, server).args(arguments);
    command
}

#[test]
fn ls_lists_like_a_directory() {
    let (scratch, server) = (Scratch::new(), with_objects());
    for scheme in ["s3", "oss"] {
        let ls = |path: &str, options: &[&str]| {
            let source = format!("{scheme}://{BUCKET}{path}");
            let arguments = [&["ls", &source], options].concat();
            succeed(&mut penstock(&scratch, &server, &arguments))
        };
        assert_eq!(ls("", &[]), "a.txt\ndir/\n");
        assert_eq!(ls("/dir", &[]), "b.txt\ndeep/\n");
        assert_eq!(ls("/dir/b.txt", &[]), "b.txt\n");
        assert_eq!(ls("", &["-R"]), "a.txt\ndir/b.txt\ndir/deep/c\n");
        let long = ls("/dir/b.txt", &["-l"]);
        assert!(long.trim_start().starts_with("4  20"), "{long}");
        let line: serde_json::Value =
            serde_json::from_str(&ls("/dir/b.txt", &["--json"])).expect("JSON");
        assert_eq!(
            (line["key"].as_str(), line["size"].as_u64()),
            (Some("b.txt"), Some(4))
        );
    }
}

#[test]
fn ls_of_nothing_is_an_error_unless_it_is_the_bucket() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let source = format!("s3://{BUCKET}");
    assert_eq!(
        succeed(&mut penstock(&scratch, &server, &["ls", &source])),
        ""
    );
    let source = format!("s3://{BUCKET}/none");
    let ended = run(&mut penstock(&scratch, &server, &["ls", &source]));
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (scratch, server) = (Scratch::new(), strict_server());
    for number in 0..3000 {
        let key = format!("{number:06}-{}", "x".repeat(200));
        server.data().put(BUCKET, &key, b"").expect("room");
    }
    let mut command = penstock(&scratch, &server, &["ls", "-R", &format!("s3://{BUCKET}")]);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it was just built");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("our own child");
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output.stderr.is_empty(),
        "{:?}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn stat_shows_one_object() {
    let (scratch, server) = (Scratch::new(), with_objects());
    let source = format!("s3://{BUCKET}/dir/b.txt");
    let text = succeed(&mut penstock(&scratch, &server, &["stat", &source]));
    assert!(text.contains("\nsize          4\n"), "{text}");
    let json = succeed(&mut penstock(
        &scratch,
        &server,
        &["stat", "--json", &source],
    ));
    let facts: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(facts["size"], 4);
    let missing = format!("s3://{BUCKET}/dir/none");
    let ended = run(&mut penstock(&scratch, &server, &["stat", &missing]));
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("no such object"), "{}", ended.err);
}

#[test]
fn check_finds_nothing_wrong_with_a_good_bucket() {
    let (scratch, server) = (Scratch::new(), strict_server());
    for scheme in ["s3", "oss"] {
        let source = format!("{scheme}://{BUCKET}");
        let text = succeed(&mut penstock(&scratch, &server, &["check", &source]));
        for what in [
            "credentials",
            "list",
            "look up",
            "write",
            "read",
            "clock",
            "multipart",
            "delete",
        ] {
            let line = text
                .lines()
                .find(|line| line.contains(&format!("  {what}  ")));
            assert!(
                line.is_some_and(|line| line.starts_with("ok ")),
                "{what}: {text}"
            );
        }
        assert_eq!(
            server.data().keys(BUCKET),
            Vec::<String>::new(),
            "it cleans up"
        );
    }
}

#[test]
fn check_tells_where_credentials_came_from() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let source = format!("s3://{BUCKET}");
    let line = |command: &mut Command| {
        let text = run(command).out;
        let line = text.lines().find(|line| line.contains("  credentials  "));
        line.unwrap_or(&text).to_owned()
    };
    let mut given = penstock(&scratch, &server, &["check", &source]);
    let told = line(&mut given);
    assert!(
        told.starts_with("ok ") && told.contains("access-key-id"),
        "{told}"
    );
    let own = |variables: &[(&str, &str)]| {
        let mut command = scratch.penstock();
        command
            .env("PENSTOCK_ENDPOINT", server.url())
            .env("PENSTOCK_REGION", support::REGION)
            .envs(variables.iter().copied())
            .args(["check", "--no-write", &source]);
        command
    };
    let pair = [
        ("AWS_ACCESS_KEY_ID", support::KEY_ID),
        ("AWS_SECRET_ACCESS_KEY", support::SECRET),
    ];
    let told = line(&mut own(&pair));
    assert!(
        told.ends_with("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        "{told}"
    );
    std::fs::create_dir(scratch.path(".aws")).expect("writable");
    let text = format!(
        "[work]\naws_access_key_id = {}\naws_secret_access_key = {}\n",
        support::KEY_ID,
        support::SECRET
    );
    let file = scratch.file(".aws/credentials", &text);
    let told = line(&mut own(&[("AWS_PROFILE", "work")]));
    let expected = format!("from the profile `work` of {}", file.display());
    assert!(told.ends_with(&expected), "{told}");
    assert!(!told.contains(support::SECRET) && !told.contains(support::KEY_ID));
    let told = line(&mut own(&[("AWS_PROFILE", "none")]));
    assert!(
        told.starts_with("FAILED ") && told.contains("profile `none`"),
        "{told}"
    );
}

#[test]
fn check_tells_by_how_many_seconds_the_clock_is_wrong() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let skewed = Fault::Status {
        status: 403,
        code: "RequestTimeTooSkewed".to_owned(),
    };
    server.faults().add(FaultRule::new(skewed));
    let source = format!("s3://{BUCKET}");
    let ended = run(&mut penstock(&scratch, &server, &["check", &source]));
    assert_eq!(ended.code, Some(1));
    let clock = ended.out.lines().find(|line| line.contains("  clock  "));
    assert!(
        clock.is_some_and(|line| line.starts_with("FAILED ") && line.contains("set it")),
        "{ended:#?}"
    );
}

#[test]
fn check_names_what_is_not_permitted() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let denied = Fault::Status {
        status: 403,
        code: "AccessDenied".to_owned(),
    };
    server
        .faults()
        .add(FaultRule::new(denied).on(&[Operation::PutObject]));
    let source = format!("s3://{BUCKET}");
    let ended = run(&mut penstock(&scratch, &server, &["check", &source]));
    assert_eq!(ended.code, Some(1));
    let write = ended.out.lines().find(|line| line.contains("  write  "));
    assert!(
        write.is_some_and(|line| line.starts_with("FAILED")),
        "{ended:#?}"
    );
    let arguments = ["check", "--no-write", "--json", &source];
    let json = succeed(&mut penstock(&scratch, &server, &arguments));
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(report["findings"][1]["verdict"], "good");
}

#[test]
fn a_server_that_is_not_trusted_is_told_as_that() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let source = format!("s3://{BUCKET}");
    let mut command = penstock(&scratch, &server, &["ls", &source]);
    command.env("PENSTOCK_ENDPOINT", server.url().replace("http:", "https:"));
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    for part in ["is not trusted", "speaks no TLS"] {
        assert!(ended.err.contains(part), "{ended:#?}");
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "one story")]
fn check_tells_what_a_store_lacks_and_what_that_stops() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let source = format!("s3://{BUCKET}");
    let check = |faults: Faults, what: &str| {
        server.faults().set(faults);
        let ended = run(&mut penstock(&scratch, &server, &["check", &source]));
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        let column = format!("  {what}");
        let line = ended.out.lines().find(|line| line.contains(&column));
        let line = line.unwrap_or_else(|| panic!("{what}: {}", ended.out));
        (line.to_owned(), ended.out)
    };
    let refuses = |operation: Operation, status: u16, code: &str| {
        let code = code.to_owned();
        Faults::rule(FaultRule::new(Fault::Status { status, code }).on(&[operation]))
    };
    let lacks = |lack: Lack| Faults::lacking(&[lack]);
    for (faults, what, stops) in [
        (
            lacks(Lack::WriteConditions),
            "conditional write",
            "If-None-Match",
        ),
        (
            lacks(Lack::WriteConditions),
            "conditional replacement",
            "If-Match",
        ),
        (
            lacks(Lack::CopyConditions),
            "conditional copy",
            "copy-source-if-match",
        ),
        (
            lacks(Lack::ChecksumMode),
            "reads that ask for a checksum",
            "TCP and TLS only",
        ),
        (
            lacks(Lack::TagOfUpload),
            "the ETag of a completed upload",
            "looked up",
        ),
        (lacks(Lack::AnswerToCopy), "answers to copies", "looked up"),
        (
            lacks(Lack::CopyOfMarker),
            "copies of directory markers",
            "written anew",
        ),
        (lacks(Lack::EncodedNames), "encoded names", "hidden"),
        (
            refuses(Operation::UploadPartCopy, 411, "MissingContentLength"),
            "copies of parts",
            "sent again",
        ),
        (
            refuses(Operation::AbortUpload, 405, "MethodNotAllowed"),
            "multipart given up",
            "stay in the bucket",
        ),
        (
            refuses(Operation::ListUploads, 501, "NotImplemented"),
            "multipart listed",
            "penstock uploads",
        ),
        (
            refuses(Operation::DeleteObjects, 501, "NotImplemented"),
            "deleting many objects",
            "one by one",
        ),
    ] {
        let (line, text) = check(faults, what);
        assert!(
            line.starts_with("note ") && line.contains(stops),
            "{what}: {text}"
        );
        assert!(!text.contains("use another store"), "{text}");
    }
    let (line, _) = check(lacks(Lack::WriteConditions), "store");
    assert!(!line.contains("atomic creation"), "{line}");
    let (line, text) = check(Faults::default(), "store");
    assert!(line.contains("atomic creation"), "{line}");
    assert!(!text.contains("missing: "), "{text}");
}

#[test]
fn unfinished_uploads_are_listed_and_removed() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let source = format!("s3://{BUCKET}");
    let uploads = |options: &[&str]| {
        let arguments = [&["uploads", &source], options].concat();
        succeed(&mut penstock(&scratch, &server, &arguments))
    };
    assert_eq!(uploads(&[]), "0 unfinished\n");
    begin_upload(&scratch, &server);
    let list = uploads(&[]);
    assert!(list.ends_with("half-written\n1 unfinished\n"), "{list}");
    // It is younger than a day, so it may still be in use.
    assert!(uploads(&["--abort"]).ends_with("0 removed\n"));
    assert!(uploads(&["--abort", "--older-than", "0s"]).ends_with("1 removed\n"));
    assert!(server.data().uploads(BUCKET).is_empty());
}

/// A mount that is killed while it writes a large file.
fn begin_upload(scratch: &Scratch, server: &Server) {
    use std::io::Write;
    let mountpoint = scratch.folder("mnt");
    let mut command = penstock(scratch, server, &["mount", "-f", &format!("s3://{BUCKET}")]);
    command.arg(&mountpoint);
    let mut mounted = support::Foreground::start(&mut command, &mountpoint);
    let mut file = std::fs::File::create(mountpoint.join("half-written")).expect("writable");
    file.write_all(&vec![1; 20 << 20]).expect("taken");
    support::wait_until("the upload began", || {
        !server.data().uploads(BUCKET).is_empty()
    });
    mounted.signal(libc::SIGKILL);
    mounted.end();
}
