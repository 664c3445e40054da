//! Programs that wait for a store that hangs can be ended, whatever they wait in.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use penstock_devserver::{Fault, FaultRule, Operation, Server};
use support::{BUCKET, Foreground, Scratch, strict_server, with_access};

/// How long a program that was told to end may take to do so.
const PROMPT: Duration = Duration::from_secs(3);

/// How long the store hangs, much longer than any test waits.
const HANG: Fault = Fault::Hang {
    duration_ms: 120_000,
};

/// What a program waits in: a name, Python for it, and the requests that hang. `p` is the mount
/// point. What is printed tells that the wait is about to begin.
struct Wait {
    name: &'static str,
    code: &'static str,
    hangs: &'static [Operation],
}

const SAVES: &[Operation] = &[
    Operation::PutObject,
    Operation::CreateUpload,
    Operation::UploadPart,
    Operation::CompleteUpload,
];
const LOOKS: &[Operation] = &[
    Operation::HeadObject,
    Operation::ListObjectsV2,
    Operation::GetObject,
];

const WAITS: &[Wait] = &[
    Wait {
        name: "read of a small file",
        code: "f = os.open(p + '/small', os.O_RDONLY); go(); os.read(f, 10)",
        hangs: &[Operation::GetObject],
    },
    Wait {
        name: "write",
        code: "f = os.open(p + '/new', os.O_WRONLY | os.O_CREAT); go()\n\
               while True: os.write(f, bytes(1 << 20))",
        hangs: SAVES,
    },
    Wait {
        name: "fsync",
        code: "f = os.open(p + '/new', os.O_WRONLY | os.O_CREAT); os.write(f, b'x'); go(); \
               os.fsync(f)",
        hangs: SAVES,
    },
    Wait {
        name: "close",
        code: "f = os.open(p + '/new', os.O_WRONLY | os.O_CREAT); os.write(f, b'x'); go(); \
               os.close(f)",
        hangs: SAVES,
    },
    Wait {
        name: "stat",
        code: "go(); os.stat(p + '/unknown')",
        hangs: LOOKS,
    },
    Wait {
        name: "open of a new file",
        code: "go(); os.open(p + '/new', os.O_WRONLY | os.O_CREAT)",
        hangs: LOOKS,
    },
    Wait {
        name: "listing",
        code: "go(); os.listdir(p + '/folder')",
        hangs: &[Operation::ListObjectsV2],
    },
    Wait {
        name: "rename of a directory",
        code: "os.stat(p + '/folder'); go(); os.rename(p + '/folder', p + '/other')",
        hangs: &[Operation::CopyObject],
    },
    Wait {
        name: "rename of a file",
        code: "os.stat(p + '/small'); go(); os.rename(p + '/small', p + '/other')",
        hangs: &[Operation::CopyObject],
    },
    Wait {
        name: "unlink",
        code: "os.stat(p + '/small'); go(); os.unlink(p + '/small')",
        hangs: &[Operation::DeleteObject],
    },
    Wait {
        name: "mkdir",
        code: "go(); os.mkdir(p + '/made')",
        hangs: &[Operation::PutObject],
    },
];

fn mounted(scratch: &Scratch, server: &Server) -> (Foreground, PathBuf) {
    let data = server.data();
    data.put(BUCKET, "small", b"small").expect("room");
    data.put(BUCKET, "folder/file", b"x").expect("room");
    let mountpoint = scratch.folder("mnt");
    let mut command = scratch.penstock();
    with_access(&mut command, server)
        .args(["mount", "-f", &format!("s3://{BUCKET}")])
        .arg(&mountpoint)
        // So little that a writer soon waits for memory.
        .args(["--memory", "64MiB"]);
    (Foreground::start(&mut command, &mountpoint), mountpoint)
}

/// Starts Python code that calls `go` before it waits, and returns when it waits.
fn start(scratch: &Scratch, code: &str, mountpoint: &Path, waits: impl FnOnce()) -> Child {
    let went = scratch.path("went");
    let _ = fs::remove_file(&went);
    let code = format!(
        // Whoever starts the tests in the background has it ignored.
        "import os, signal, sys, time\np, went = sys.argv[1:]\n\
         signal.signal(signal.SIGINT, signal.default_int_handler)\n\
         def go():\n  open(went, 'x').close()\n  while os.path.exists(went): time.sleep(0.01)\n\
         {code}"
    );
    let child = Command::new("python3")
        .args(["-c", &code])
        .arg(mountpoint)
        .arg(&went)
        .stderr(Stdio::null())
        .spawn()
        .expect("python3 is there");
    support::wait_until("it goes", || went.exists());
    waits();
    fs::remove_file(&went).expect("it was made");
    child
}

#[allow(unsafe_code)]
fn ends_promptly(mut child: Child, signal: libc::c_int, name: &str) {
    let pid = libc::pid_t::try_from(child.id()).expect("a process id");
    let alive = child.try_wait().expect("our own child").is_none();
    assert!(alive, "{name}: it does not wait");
    let begun = Instant::now();
    // SAFETY: the process is our own child, which was not waited for yet.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    let ended = || {
        while begun.elapsed() < PROMPT {
            if child.try_wait().expect("our own child").is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    };
    let mut ended = ended;
    assert!(
        ended(),
        "{name}: it lives on {PROMPT:?} after signal {signal}"
    );
}

/// Lets each of the programs wait and ends it with `signal`.
fn all_end(signal: libc::c_int) {
    std::thread::scope(|scope| {
        for wait in WAITS {
            scope.spawn(move || one_ends(wait, signal));
        }
    });
}

/// Each has a mount of its own: what was ended may go on behind its back.
fn one_ends(wait: &Wait, signal: libc::c_int) {
    let (scratch, server) = (Scratch::new(), strict_server());
    let (_mounted, mountpoint) = mounted(&scratch, &server);
    let hang = || {
        server.faults().add(FaultRule::new(HANG).on(wait.hangs));
    };
    let child = start(&scratch, wait.code, &mountpoint, hang);
    std::thread::sleep(Duration::from_millis(1500));
    ends_promptly(child, signal, wait.name);
    assert!(fs::metadata(&mountpoint).is_ok(), "the mount lives on");
}

#[test]
fn whoever_waits_for_a_store_that_hangs_can_be_killed() {
    all_end(libc::SIGKILL);
}

/// Python handles the signal first, and then ends.
#[test]
fn whoever_waits_for_a_store_that_hangs_can_be_interrupted_from_the_keyboard() {
    all_end(libc::SIGINT);
}

/// The kernel reads into its own cache here and asks nobody to stop.
#[test]
fn whoever_waits_for_the_page_cache_can_be_killed() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let large = vec![7; 64 << 20];
    server.data().put(BUCKET, "large", &large).expect("room");
    let (_mounted, mountpoint) = mounted(&scratch, &server);
    for signal in [libc::SIGKILL, libc::SIGINT, libc::SIGTERM] {
        let hang = FaultRule::new(HANG).on(&[Operation::GetObject]);
        server.faults().add(hang);
        // Whoever starts the tests in the background has this one ignored.
        let child = Command::new("env")
            .args(["--default-signal=INT", "cat"])
            .arg(mountpoint.join("large"))
            .stdout(Stdio::null())
            .spawn();
        std::thread::sleep(Duration::from_millis(700));
        ends_promptly(child.expect("cat exists"), signal, "cat");
    }
}

/// Its file is saved behind it, when the store answers again.
#[test]
fn what_a_killed_process_wrote_is_saved_behind_it() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let (_mounted, mountpoint) = mounted(&scratch, &server);
    let code = "f = os.open(p + '/new', os.O_WRONLY | os.O_CREAT); os.write(f, b'text'); go(); \
                time.sleep(60)";
    let slow = Fault::Hang { duration_ms: 4000 };
    let hang = || {
        server
            .faults()
            .add(FaultRule::new(slow).on(&[Operation::PutObject]));
    };
    let child = start(&scratch, code, &mountpoint, hang);
    ends_promptly(child, libc::SIGKILL, "a process with a file open");
    assert!(
        server.data().get(BUCKET, "new").is_none(),
        "it did not wait"
    );
    support::wait_until("it is saved", || {
        server.data().get(BUCKET, "new").as_deref() == Some(b"text")
    });
}
