//! A mount from its command to its end.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use penstock_devserver::{Fault, FaultRule, Faults, Operation, Server};
use support::{
    BUCKET, Foreground, Scratch, is_mounted, run, strict_server, succeed, wait_until, with_access,
};

fn source() -> String {
    format!("s3://{BUCKET}")
}

/// Mounts the bucket of `server` in the background.
fn mount(scratch: &Scratch, server: &Server, options: &[&str]) -> PathBuf {
    let mountpoint = scratch.folder("mnt");
    let mut command = scratch.penstock();
    with_access(&mut command, server)
        .args(["mount", &source()])
        .arg(&mountpoint)
        .args(options);
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
    mountpoint
}

fn foreground(scratch: &Scratch, server: &Server, options: &[&str]) -> (Foreground, PathBuf) {
    let mountpoint = scratch.folder("mnt");
    let mut command = scratch.penstock();
    with_access(&mut command, server)
        .args(["mount", "-f", &source()])
        .arg(&mountpoint)
        .args(options);
    (Foreground::start(&mut command, &mountpoint), mountpoint)
}

fn umount(scratch: &Scratch, mountpoint: &Path) -> support::Ended {
    run(scratch.penstock().arg("umount").arg(mountpoint))
}

#[test]
fn a_local_directory_is_mounted_used_and_unmounted() {
    let scratch = Scratch::new();
    let (bucket, mountpoint) = (scratch.folder("bucket"), scratch.folder("mnt"));
    fs::create_dir(bucket.join("folder")).expect("writable");
    fs::write(bucket.join("folder/hello.txt"), "hello").expect("writable");
    let source = format!("file://{}", bucket.display());
    succeed(scratch.penstock().args(["mount", &source]).arg(&mountpoint));

    let text = fs::read_to_string(mountpoint.join("folder/hello.txt"));
    assert_eq!(text.expect("readable"), "hello");
    let copy = Command::new("cp")
        .arg("-r")
        .arg(mountpoint.join("folder"))
        .arg(mountpoint.join("copy"))
        .status();
    assert!(copy.expect("cp exists").success());
    let large = vec![7; 20 << 20];
    fs::write(mountpoint.join("large"), &large).expect("writable");

    assert_eq!(umount(&scratch, &mountpoint).code, Some(0));
    assert!(!is_mounted(&mountpoint));
    let copied = fs::read_to_string(bucket.join("copy/hello.txt"));
    assert_eq!(copied.expect("saved"), "hello");
    assert!(fs::read(bucket.join("large")).expect("saved") == large);
}

#[test]
fn the_command_returns_when_the_mount_is_usable() {
    let (scratch, server) = (Scratch::new(), strict_server());
    server
        .data()
        .put(BUCKET, "a/b.txt", b"there")
        .expect("room");
    let mountpoint = mount(&scratch, &server, &[]);
    let text = fs::read_to_string(mountpoint.join("a/b.txt"));
    assert_eq!(text.expect("readable"), "there");
    fs::write(mountpoint.join("c"), "new").expect("writable");
    assert_eq!(server.data().get(BUCKET, "c").as_deref(), Some(&b"new"[..]));
    assert_eq!(umount(&scratch, &mountpoint).code, Some(0));
    wait_until("it said so", || {
        scratch.log().contains("everything is saved")
    });
}

#[test]
fn a_store_that_is_busy_for_a_moment_is_mounted() {
    let (scratch, server) = (Scratch::new(), strict_server());
    for fault in [
        Fault::TooManyRequests { retry_after: None },
        Fault::InternalError,
    ] {
        let rule = FaultRule::new(fault).next(5);
        server.faults().set(Faults::rule(rule));
        let mountpoint = mount(&scratch, &server, &[]);
        assert_eq!(umount(&scratch, &mountpoint).code, Some(0));
    }
}

#[test]
fn statistics_are_shown_and_mounts_are_listed() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = mount(&scratch, &server, &[]);
    fs::write(mountpoint.join("x"), "text").expect("writable");

    let list = succeed(scratch.penstock().arg("stats"));
    let shown = mountpoint.display().to_string();
    assert!(list.lines().any(|line| line.starts_with(&shown)), "{list}");
    let text = succeed(scratch.penstock().arg("stats").arg(&mountpoint));
    assert!(text.contains("memory "), "{text}");
    let json = succeed(
        scratch
            .penstock()
            .args(["stats", "--json"])
            .arg(&mountpoint),
    );
    let status: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(status["source"], source());
    assert_eq!(status["mountpoint"], shown);
    assert!(status["memory"]["total"].as_u64() > status["memory"]["used"].as_u64());
    let metrics = status["metrics"].as_array().expect("a list");
    let write = metrics.iter().find(|metric| {
        metric["labels"]["operation"] == "write" && metric["name"] == "fuse_requests_total"
    });
    assert!(write.is_some_and(|metric| metric["value"] == 1), "{json}");
    umount(&scratch, &mountpoint);
    let ended = run(scratch.penstock().arg("stats").arg(&mountpoint));
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.err.starts_with("penstock: no mount "),
        "{}",
        ended.err
    );
}

#[test]
fn metrics_are_served_to_prometheus() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let address = {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        probe.local_addr().expect("bound").to_string()
    };
    let mountpoint = mount(&scratch, &server, &["--metrics-address", &address]);
    let mut stream = TcpStream::connect(&address).expect("it listens");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    assert!(text.contains("\npenstock_memory_total_bytes "), "{text}");
    assert!(
        text.contains("\n# TYPE penstock_fuse_requests_total counter\n"),
        "{text}"
    );
    umount(&scratch, &mountpoint);
}

#[test]
fn a_mount_that_is_in_use_is_not_unmounted() {
    let (scratch, server) = (Scratch::new(), strict_server());
    server.data().put(BUCKET, "open", b"x").expect("room");
    let mountpoint = mount(&scratch, &server, &[]);
    let open = File::open(mountpoint.join("open")).expect("readable");
    let ended = umount(&scratch, &mountpoint);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("is in use; "), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1);
    assert!(is_mounted(&mountpoint));
    drop(open);
    assert_eq!(umount(&scratch, &mountpoint).code, Some(0));
}

#[test]
fn a_lazy_unmount_waits_for_open_files_out_of_sight() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = mount(&scratch, &server, &[]);
    let mut open = File::create(mountpoint.join("open")).expect("writable");
    open.write_all(b"before ").expect("taken");
    let mut command = scratch.penstock();
    command
        .args(["umount", "--lazy", "--timeout", "1s"])
        .arg(&mountpoint);
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(
        ended.err.contains("not everything was saved within 1s"),
        "{}",
        ended.err
    );
    assert!(!is_mounted(&mountpoint));
    open.write_all(b"after").expect("taken");
    drop(open);
    assert_eq!(
        server.data().get(BUCKET, "open").as_deref(),
        Some(&b"before after"[..])
    );
}

#[test]
fn unmounting_waits_for_an_upload() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = mount(&scratch, &server, &[]);
    // No part is on its way any more while the upload is completed.
    let slow = [Operation::UploadPart, Operation::CompleteUpload];
    server
        .faults()
        .add(FaultRule::new(Fault::Hang { duration_ms: 1500 }).on(&slow));
    let file = mountpoint.join("large");
    let writer = std::thread::spawn(move || fs::write(file, vec![1; 12 << 20]));
    wait_until("parts are on their way", || {
        !server.data().uploads(BUCKET).is_empty()
    });
    let begun = Instant::now();
    let ended = umount(&scratch, &mountpoint);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(
        begun.elapsed() > Duration::from_millis(500),
        "it did not wait"
    );
    writer.join().expect("no panic").expect("written");
    let saved = server.data().get(BUCKET, "large").expect("saved");
    assert_eq!(saved.len(), 12 << 20);
}

#[test]
fn terminating_saves_what_is_open_and_leaves() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let (mut mounted, mountpoint) = foreground(&scratch, &server, &[]);
    fs::write(mountpoint.join("closed"), "kept").expect("writable");
    mounted.signal(libc::SIGTERM);
    let (code, complaint) = mounted.end();
    assert_eq!(code, Some(0), "{complaint}");
    assert!(!is_mounted(&mountpoint));
    assert!(server.data().get(BUCKET, "closed").is_some());
}

#[test]
fn what_cannot_be_saved_is_listed_when_it_leaves() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let options = ["--retry-timeout", "1s"];
    let (mut mounted, mountpoint) = foreground(&scratch, &server, &options);
    let mut open = File::create(mountpoint.join("doomed")).expect("writable");
    open.write_all(b"some text").expect("taken");
    let denied = Fault::Status {
        status: 403,
        code: "AccessDenied".to_owned(),
    };
    server.faults().add(FaultRule::new(denied));
    mounted.signal(libc::SIGTERM);
    let (code, complaint) = mounted.end();
    assert_eq!(code, Some(3), "{complaint}");
    assert!(
        complaint.contains("could not save `doomed`: "),
        "{complaint}"
    );
    drop(open);
}

#[test]
fn a_second_signal_leaves_at_once() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let (mut mounted, mountpoint) = foreground(&scratch, &server, &[]);
    let _open = File::create(mountpoint.join("open")).expect("writable");
    mounted.signal(libc::SIGTERM);
    wait_until("it began to leave", || {
        scratch.log().contains("asked to leave")
    });
    mounted.signal(libc::SIGINT);
    let begun = Instant::now();
    let (code, complaint) = mounted.end();
    assert_eq!(code, Some(3), "{complaint}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(complaint.contains("left at once"), "{complaint}");
}

#[test]
fn the_log_file_is_opened_again_on_hangup() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let (mut mounted, _mountpoint) = foreground(&scratch, &server, &[]);
    wait_until("it logged", || scratch.log().contains("mounted"));
    fs::rename(scratch.path("log"), scratch.path("log.1")).expect("ours");
    mounted.signal(libc::SIGHUP);
    wait_until("there is a new file", || {
        scratch.log().contains("opened again")
    });
    mounted.signal(libc::SIGTERM);
    assert_eq!(mounted.end().0, Some(0));
}

/// It was taken for an empty one: "nothing is mounted".
#[test]
fn where_the_mount_table_cannot_be_read_nothing_is_said_of_what_is_mounted() {
    if run(Command::new("unshare").args(["-m", "true"])).code != Some(0) {
        return penstock_skips::skipped("only root may hide /proc");
    }
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = mount(&scratch, &server, &[]);
    let elsewhere = scratch.folder("elsewhere");
    for command in ["umount", "stats", "unsaved"] {
        for place in [&mountpoint, &elsewhere] {
            let program = scratch.penstock();
            let mut blind = Command::new("unshare");
            let script = "mount -t tmpfs none /proc && exec \"$@\"";
            blind
                .args(["-m", "sh", "-c", script, "sh"])
                .arg(program.get_program())
                .args([command.as_ref(), place.as_os_str()])
                .env("XDG_RUNTIME_DIR", scratch.path("run"));
            let ended = run(&mut blind);
            assert_eq!(ended.code, Some(1), "{ended:#?}");
            let told = ended.err.contains("what is mounted is not known");
            assert!(told && ended.err.contains("mountinfo"), "{}", ended.err);
        }
    }
    assert!(support::is_mounted(&mountpoint));
    let ended = umount(&scratch, &mountpoint);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
}

#[test]
fn mounting_on_a_dead_mount_removes_it_with_a_warning() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let (mut mounted, mountpoint) = foreground(&scratch, &server, &[]);
    let mut open = File::create(mountpoint.join("lost")).expect("writable");
    open.write_all(b"text").expect("taken");
    mounted.signal(libc::SIGKILL);
    mounted.end();
    assert!(is_mounted(&mountpoint));
    let mut again = scratch.penstock();
    with_access(&mut again, &server)
        .args(["mount", &source()])
        .arg(&mountpoint);
    let ended = run(&mut again);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let warning = "penstock: warning: removed the dead mount on `";
    assert!(ended.err.starts_with(warning), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    fs::write(mountpoint.join("new"), "text").expect("writable");
    assert!(server.data().get(BUCKET, "new").is_some());
    assert!(open.write_all(b"more").is_err(), "its mount is gone");
    // One that lives is not touched.
    let refused = run(&mut again);
    assert_eq!(refused.code, Some(1), "{refused:#?}");
    assert!(refused.err.contains(" is busy: "), "{}", refused.err);
    assert_eq!(umount(&scratch, &mountpoint).code, Some(0));
    assert!(!is_mounted(&mountpoint));
}

#[test]
fn a_dead_mount_is_unmounted_even_while_it_is_in_use() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let (mut mounted, mountpoint) = foreground(&scratch, &server, &[]);
    server.data().put(BUCKET, "open", b"x").expect("room");
    let _open = File::open(mountpoint.join("open")).expect("readable");
    mounted.signal(libc::SIGKILL);
    mounted.end();
    assert!(is_mounted(&mountpoint));
    let ended = run(scratch.penstock().arg("stats").arg(&mountpoint));
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.err.contains("no mount of this user answers"),
        "{}",
        ended.err
    );
    let ended = umount(&scratch, &mountpoint);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    assert!(!is_mounted(&mountpoint));
}

/// How far the command for a mount is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Started,
    LogMade,
    SplitOff,
    StoreAsked,
}

impl Moment {
    fn is_reached(self, scratch: &Scratch, server: &Server, command: u32) -> bool {
        match self {
            Self::Started => true,
            Self::LogMade => scratch.path("log").exists(),
            Self::SplitOff => {
                let children = format!("/proc/{command}/task/{command}/children");
                !fs::read_to_string(children).expect("it waits").is_empty()
            }
            Self::StoreAsked => server.counters().total() > 0,
        }
    }
}

/// Kills the command for a mount of a store that hangs at that moment, and returns when all that it started has let go
/// of its output.
fn interrupt(scratch: &Scratch, server: &Server, moment: Moment) {
    server
        .faults()
        .add(FaultRule::new(Fault::Hang { duration_ms: 2000 }));
    let mut command = scratch.penstock();
    with_access(&mut command, server)
        .args(["mount", &source()])
        .arg(scratch.folder("mnt"))
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("it was just built");
    wait_until("it is that far", || {
        moment.is_reached(scratch, server, child.id())
    });
    child.kill().expect("it still waits");
    child.wait_with_output().expect("our own child");
    server.faults().clear();
}

#[test]
fn nothing_is_left_when_the_command_is_interrupted_while_it_waits() {
    let (scratch, server) = (Scratch::new(), strict_server());
    interrupt(&scratch, &server, Moment::StoreAsked);
    let mountpoint = scratch.folder("mnt");
    assert!(!is_mounted(&mountpoint));
    assert!(scratch.log().contains("has gone"));
}

#[test]
fn nothing_is_left_when_the_command_is_interrupted_before_it_waits() {
    for moment in [Moment::Started, Moment::LogMade, Moment::SplitOff] {
        let (scratch, server) = (Scratch::new(), strict_server());
        interrupt(&scratch, &server, moment);
        assert!(!is_mounted(&scratch.folder("mnt")), "{moment:?}");
        let mountpoint = mount(&scratch, &server, &[]);
        assert_eq!(umount(&scratch, &mountpoint).code, Some(0), "{moment:?}");
    }
}

#[test]
fn mount_8_calls_the_helper() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = scratch.folder("mnt");
    let mut helper = scratch.called("mount.penstock");
    with_access(&mut helper, &server)
        .arg(source())
        .arg(&mountpoint)
        .args([
            "-n",
            "-o",
            "rw,_netdev,nofail,x-systemd.automount,file_mode=0600",
        ]);
    succeed(&mut helper);
    fs::write(mountpoint.join("x"), "").expect("writable");
    let mode = fs::metadata(mountpoint.join("x"))
        .expect("there")
        .permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o600
    );
    // A second time: what mount(8) reports as "mount failed".
    assert_eq!(run(&mut helper).code, Some(32));
    assert_eq!(umount(&scratch, &mountpoint).code, Some(0));
    // A dry run mounts nothing.
    helper.arg("-f");
    succeed(&mut helper);
    assert!(!is_mounted(&mountpoint));
}

#[test]
fn mount_fuse3_names_no_command() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = scratch.folder("mnt");
    let mut command = scratch.penstock();
    with_access(&mut command, &server)
        .arg(source())
        .arg(&mountpoint)
        .args(["-o", "ro,dev,suid"]);
    succeed(&mut command);
    assert!(fs::write(mountpoint.join("x"), "").is_err());
    assert_eq!(umount(&scratch, &mountpoint).code, Some(0));
}

#[test]
fn options_come_from_a_file() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let text = format!(
        "endpoint = \"{}\"\nregion = \"{}\"\naccess-key-id = \"{}\"\naccess-key-secret = \"{}\"\n\
         dir-mode = \"0711\"\n",
        server.url(),
        support::REGION,
        support::KEY_ID,
        support::SECRET
    );
    let file = scratch.file("p.toml", &text);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&file, mode).expect("ours");
    let mountpoint = scratch.folder("mnt");
    let mut command = scratch.penstock();
    command
        .args(["mount", "--config"])
        .arg(&file)
        .arg(source())
        .arg(&mountpoint);
    succeed(&mut command);
    let mode = fs::metadata(&mountpoint).expect("there").permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o711
    );
    assert_eq!(umount(&scratch, &mountpoint).code, Some(0));
    assert!(!scratch.log().contains(support::SECRET));
}
