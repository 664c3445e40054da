//! Whose close saves a file: shells and Python write in all the ways that copy descriptors, and
//! the bucket has the whole file when they are done, or they hear why not.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use penstock_devserver::{Fault, FaultRule, Operation, Server};
use support::{BUCKET, Foreground, Scratch, strict_server, wait_until, with_access};

const SHELLS: [&str; 2] = ["bash", "dash"];

/// Scripts that write `$f`, and what must be in the bucket when the shell has ended.
const SCRIPTS: &[(&str, &str)] = &[
    ("(echo one; echo two) > $f", "one\ntwo\n"),
    ("(/bin/echo one; /bin/echo two) > $f", "one\ntwo\n"),
    (
        "{ /bin/echo one; echo two; /bin/echo three; } > $f",
        "one\ntwo\nthree\n",
    ),
    ("exec 3>$f; echo a >&3; echo b >&3; exec 3>&-", "a\nb\n"),
    (
        "exec 3>$f; /bin/echo a >&3; echo b >&3; /bin/echo c >&3; exec 3>&-",
        "a\nb\nc\n",
    ),
    (
        "exec 3>$f; /bin/echo a >&3; sleep 0.1; echo b >&3; exec 3>&-",
        "a\nb\n",
    ),
    ("exec > $f; echo a; /bin/echo b; echo c", "a\nb\nc\n"),
    (
        "for i in 1 2 3; do echo $i; /bin/echo -; done > $f",
        "1\n-\n2\n-\n3\n-\n",
    ),
    (
        "(dd if=/dev/zero bs=1 count=3 status=none | tr '\\0' x; echo) > $f",
        "xxx\n",
    ),
    ("(printf xyz | dd of=$f status=none & wait)", "xyz"),
    (
        "echo a > $f; echo b >> $f; (echo c; /bin/echo d) >> $f",
        "a\nb\nc\nd\n",
    ),
    (
        "(echo a; echo b >&2; /bin/echo c >&2) > $f 2>&1",
        "a\nb\nc\n",
    ),
    ("echo x | tee $f > /dev/null", "x\n"),
    (
        "{ echo start; (sleep 0.1; echo late) & echo end; wait; } > $f",
        "start\nend\nlate\n",
    ),
    (": > $f", ""),
    ("touch $f", ""),
];

const PYTHON: &[(&str, &str)] = &[
    (
        "with open(f, 'w') as o:\n\
         \x20 o.write('head\\n'); o.flush()\n\
         \x20 subprocess.run(['echo', 'child'], stdout=o)\n\
         \x20 o.write('tail\\n')",
        "head\nchild\ntail\n",
    ),
    (
        "with open(f, 'wb') as o:\n\
         \x20 subprocess.run(['sh', '-c', 'echo one; echo two'], stdout=o)\n\
         \x20 subprocess.run(['/bin/echo', 'three'], stdout=o)",
        "one\ntwo\nthree\n",
    ),
    (
        "o = os.open(f, os.O_WRONLY | os.O_CREAT); os.set_inheritable(o, True)\n\
         os.write(o, b'a'); subprocess.run(['true'], close_fds=False)\n\
         os.write(o, b'b'); os.close(os.dup(o)); os.write(o, b'c')\n\
         child = os.fork()\n\
         if child == 0: os.write(o, b'd'); os._exit(0)\n\
         os.waitpid(child, 0); os.write(o, b'e'); os.close(o)",
        "abcde",
    ),
    (
        "o = open(f, 'w'); o.write('never closed')\nos.dup(o.fileno())",
        "never closed",
    ),
];

fn mounted(scratch: &Scratch, server: &Server) -> (Foreground, PathBuf) {
    mounted_in("streaming", scratch, server)
}

fn mounted_in(mode: &str, scratch: &Scratch, server: &Server) -> (Foreground, PathBuf) {
    let mountpoint = scratch.folder("mnt");
    let mut command = scratch.penstock();
    with_access(&mut command, server)
        .args(["mount", "-f", &format!("s3://{BUCKET}"), "--mode", mode])
        .arg(&mountpoint);
    (Foreground::start(&mut command, &mountpoint), mountpoint)
}

fn shell(shell: &str, script: &str, file: &Path) -> Output {
    let command = Command::new(shell)
        .args(["-c", script])
        .env("f", file)
        .output();
    command.expect("the shell is there")
}

fn python(code: &str, file: &Path) -> Output {
    let code = format!("import os, subprocess, sys\nf = sys.argv[1]\n{code}");
    let command = Command::new("python3")
        .args(["-c", &code])
        .arg(file)
        .output();
    command.expect("python3 is there")
}

fn stored(server: &Server, key: &str) -> Option<String> {
    let content = server.data().get(BUCKET, key)?;
    Some(String::from_utf8_lossy(&content).into_owned())
}

fn refuse_uploads(server: &Server) {
    refuse_uploads_below(server, "");
}

fn refuse_uploads_below(server: &Server, prefix: &str) {
    let denied = Fault::Status {
        status: 403,
        code: "AccessDenied".to_owned(),
    };
    let rule = FaultRule::new(denied).on(&[Operation::PutObject, Operation::CreateUpload]);
    server.faults().add(rule.below(prefix));
}

#[test]
fn whatever_a_shell_redirects_is_whole_when_it_ends() {
    redirect_in("streaming");
}

#[test]
fn whatever_a_shell_redirects_to_a_staged_file_is_whole_when_it_ends() {
    redirect_in("staged");
}

fn redirect_in(mode: &str) {
    let (scratch, server) = (Scratch::new(), strict_server());
    let (_mounted, mountpoint) = mounted_in(mode, &scratch, &server);
    for name in SHELLS {
        for (number, (script, expected)) in SCRIPTS.iter().enumerate() {
            let key = format!("{name}-{number}");
            let ended = shell(name, script, &mountpoint.join(&key));
            assert!(ended.status.success(), "{name}: {script}: {ended:?}");
            let found = stored(&server, &key);
            assert_eq!(found.as_deref(), Some(*expected), "{name}: {script}");
        }
    }
}

#[test]
fn whatever_python_shares_with_its_children_is_whole_when_it_ends() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let (_mounted, mountpoint) = mounted(&scratch, &server);
    for (number, (code, expected)) in PYTHON.iter().enumerate() {
        let key = format!("python-{number}");
        let ended = python(code, &mountpoint.join(&key));
        assert!(ended.status.success(), "{code}: {ended:?}");
        assert_eq!(stored(&server, &key).as_deref(), Some(*expected), "{code}");
    }
}

/// The shell has the file open until it ends.
#[test]
fn a_command_that_inherited_a_descriptor_saves_when_it_ends_in_both_modes() {
    for mode in ["streaming", "staged"] {
        let (scratch, server) = (Scratch::new(), strict_server());
        let (_mounted, mountpoint) = mounted_in(mode, &scratch, &server);
        let script = "exec 3> $f; /bin/echo one >&3; read line; echo two >&3";
        let mut child = Command::new("bash")
            .args(["-c", script])
            .env("f", mountpoint.join("file"))
            .stdin(Stdio::piped())
            .spawn()
            .expect("the shell is there");
        wait_until(mode, || stored(&server, "file").as_deref() == Some("one\n"));
        drop(child.stdin.take());
        assert!(child.wait().expect("our own child").success());
        assert_eq!(
            stored(&server, "file").as_deref(),
            Some("one\ntwo\n"),
            "{mode}"
        );
    }
}

/// The shell closes a copy of the descriptor before the command runs.
#[test]
fn a_redirection_shows_nothing_before_its_command_has_written() {
    let (scratch, server) = (Scratch::new(), strict_server());
    server.data().put(BUCKET, "old", b"before").expect("room");
    let (_mounted, mountpoint) = mounted(&scratch, &server);
    for name in SHELLS {
        for (key, before) in [("new", None), ("old", Some("before"))] {
            let gate = scratch.path("gate");
            std::fs::write(&gate, "").expect("writable");
            let script = "(/bin/echo there >&2; while test -e $gate; do sleep 0.02; done; \
                          echo after) > $f 2> $there";
            let there = scratch.path("there");
            let mut child = Command::new(name)
                .args(["-c", script])
                .env("f", mountpoint.join(key))
                .env("gate", &gate)
                .env("there", &there)
                .spawn()
                .expect("the shell is there");
            wait_until("it is there", || {
                std::fs::read(&there).is_ok_and(|text| !text.is_empty())
            });
            std::thread::sleep(Duration::from_millis(200));
            assert_eq!(stored(&server, key).as_deref(), before, "{name}: {key}");
            std::fs::remove_file(&gate).expect("it was made");
            assert!(child.wait().expect("our own child").success());
            assert_eq!(stored(&server, key).as_deref(), Some("after\n"), "{name}");
            std::fs::remove_file(&there).expect("it was made");
            server.data().put(BUCKET, "old", b"before").expect("room");
            server.data().delete(BUCKET, "new");
        }
        std::thread::sleep(Duration::from_millis(1100));
        let _ = std::fs::remove_file(mountpoint.join("new"));
    }
}

#[test]
fn a_shell_that_keeps_a_descriptor_open_does_not_upload_at_every_echo() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let (_mounted, mountpoint) = mounted(&scratch, &server);
    for name in SHELLS {
        let script = "exec 3>$f; i=0; while test $i -lt 50; do echo $i >&3; i=$((i+1)); done";
        let before = server.counters().operation(Operation::PutObject);
        let ended = shell(name, script, &mountpoint.join(name));
        assert!(ended.status.success());
        let puts = server.counters().operation(Operation::PutObject) - before;
        assert!(puts <= 3, "{name}: {puts} uploads");
        let lines = stored(&server, name).expect("saved").lines().count();
        assert_eq!(lines, 50, "{name}");
    }
}

#[test]
fn whoever_closes_a_file_that_could_not_be_saved_hears_of_it() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let source = scratch.file("source", "text");
    let (_mounted, mountpoint) = mounted(&scratch, &server);
    refuse_uploads(&server);
    let copy = Command::new("cp")
        .arg(&source)
        .arg(mountpoint.join("copy"))
        .output();
    let copy = copy.expect("cp exists");
    assert!(!copy.status.success(), "{copy:?}");
    for script in [
        "/bin/echo a > $f",
        "(/bin/echo a) > $f",
        "printf xyz | dd of=$f status=none",
        "exec 3>$f; /bin/echo a >&3",
        "touch $f",
        "echo x | tee $f",
    ] {
        let ended = shell("bash", script, &mountpoint.join("file"));
        assert!(!ended.status.success(), "{script}: {ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("Permission denied"), "{script}: {said}");
    }
    // The child does not care, but the parent's close is told.
    let code = "o = open(f, 'w')\n\
                subprocess.run(['sh', '-c', 'echo a'], stdout=o)\n\
                try:\n  o.close()\nexcept PermissionError:\n  sys.exit(7)";
    let ended = python(code, &mountpoint.join("file"));
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    assert_eq!(stored(&server, "file"), None);
}

/// Only the last close of a file tells, and partar, and parcp of what it renames before, did not ask it.
#[test]
fn parcp_and_partar_tell_what_a_mount_could_not_save() {
    for mode in ["streaming", "staged"] {
        let (scratch, server) = (Scratch::new(), strict_server());
        let folder = scratch.folder("source");
        std::fs::write(folder.join("refused"), "text").expect("writable");
        let archive = scratch.path("archive.tar");
        let tool = |name: &str, arguments: &[&str], paths: &[&Path]| {
            let mut command = scratch.penstock();
            command.args(["as", name]).args(arguments).args(paths);
            command.output().expect("it starts")
        };
        let above = folder.parent().expect("it has one");
        let create = tool(
            "partar",
            &["-cf"],
            &[&archive, Path::new("-C"), above, Path::new("source")],
        );
        assert!(create.status.success(), "{create:?}");
        let (_mounted, mountpoint) = mounted_in(mode, &scratch, &server);
        // In streaming mode a file is stored before it is renamed.
        for begin in ["copy/.parcp-", "copy/refused", "source/refused"] {
            refuse_uploads_below(&server, begin);
        }
        let copied = tool("parcp", &["-aT"], &[&folder, &mountpoint.join("copy")]);
        assert_eq!(copied.status.code(), Some(1), "{mode}: {copied:?}");
        let extracted = tool(
            "partar",
            &["-xf"],
            &[&archive, Path::new("-C"), &mountpoint],
        );
        assert_eq!(extracted.status.code(), Some(2), "{mode}: {extracted:?}");
        // It is not taken for the same, though it shows what the copy has.
        let again = tool("parcp", &["-aT"], &[&folder, &mountpoint.join("copy")]);
        let again = (mode == "staged").then_some(again);
        for told in [copied, extracted].into_iter().chain(again) {
            let said = String::from_utf8_lossy(&told.stderr).into_owned();
            assert!(
                said.contains("refused': Permission denied"),
                "{mode}: {said}"
            );
        }
        server.faults().clear();
    }
}
