//! What the end-to-end tests of the command share: a server of their own, a private place for
//! files and mount points that are let go of whatever happens, and commands with a clean
//! environment.

// Tests live in the ambient world, and no test file uses all of this.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stderr
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use penstock_devserver::{Credentials, Server, Settings};
use tempfile::TempDir;

/// The bucket that every server has.
pub const BUCKET: &str = "bucket-test";
/// The key that signs.
pub const KEY_ID: &str = "yourAccessKeyID";
/// Its secret.
pub const SECRET: &str = "yourAccessKeySecret";
/// The region that servers insist on.
pub const REGION: &str = "cn-hangzhou";
/// How long anything that should happen may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A folder for one test, with mount points that are let go of at its end.
pub struct Scratch {
    folder: TempDir,
}

impl Scratch {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a temporary folder can be made"),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A folder below.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("scratch is writable");
        path
    }

    /// A file below.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("scratch is writable");
        path
    }

    /// The program, called by its own name.
    pub fn penstock(&self) -> Command {
        self.command(Path::new(env!("CARGO_BIN_EXE_penstock")))
    }

    /// The program, called by another name through a symbolic link.
    pub fn called(&self, name: &str) -> Command {
        let link = self.path(name);
        if !link.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_penstock"), &link)
                .expect("scratch is writable");
        }
        self.command(&link)
    }

    /// Without the credentials and settings of whoever runs the test.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("USER", "tester")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("PENSTOCK_LOG_FILE", self.path("log"))
            .stdin(Stdio::null());
        let processors = "PENSTOCK_TEST_PROCESSORS";
        command.envs(std::env::var_os(processors).map(|count| (processors, count)));
        command
    }

    /// What mounts logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for mount in mounts_below(self.folder.path()) {
            let _ = Command::new("umount").arg("-l").arg(&mount).status();
        }
        if std::thread::panicking() {
            eprintln!("--- log ---\n{}-----------", self.log());
        }
    }
}

/// Every mount point below `folder`.
fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = table.lines().filter_map(|line| line.split(' ').nth(1));
    let places = places.map(PathBuf::from);
    places.filter(|place| place.starts_with(folder)).collect()
}

/// Whether something is mounted there, dead or alive, without touching it.
pub fn is_mounted(place: &Path) -> bool {
    !mounts_below(place).is_empty()
}

/// An object server with one bucket that checks signatures.
pub fn strict_server() -> Server {
    server_with(|_| ())
}

/// The same with other settings.
pub fn server_with(change: impl FnOnce(&mut Settings)) -> Server {
    let mut settings = Settings::with_bucket(BUCKET);
    settings.credentials = vec![Credentials::new(KEY_ID, SECRET)];
    settings.verify_signatures = true;
    settings.region = Some(REGION.to_owned());
    change(&mut settings);
    Server::start(settings).expect("a free port")
}

/// Gives a command what it needs to speak to `server`.
pub fn with_access<'a>(command: &'a mut Command, server: &Server) -> &'a mut Command {
    command
        .env("PENSTOCK_ENDPOINT", server.url())
        .env("PENSTOCK_REGION", REGION)
        .env("PENSTOCK_ACCESS_KEY_ID", KEY_ID)
        .env("PENSTOCK_ACCESS_KEY_SECRET", SECRET)
}

/// The program with these arguments, what it needs to speak to `server`, and a place for filesets.
pub fn penstock(scratch: &Scratch, server: &Server, arguments: &[&str]) -> Command {
    let mut command = scratch.penstock();
    with_access(&mut command, server)
        .env("PENSTOCK_FILESET_DIR", scratch.path("filesets"))
        .args(arguments);
    command
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    pub took: Duration,
}

/// Runs a command to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Ended {
    let begun = Instant::now();
    let output: Output = command.output().expect("it was just built");
    Ended {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        took: begun.elapsed(),
    }
}

/// Runs a command that must succeed; returns what it printed.
#[track_caller]
pub fn succeed(command: &mut Command) -> String {
    let ended = run(command);
    assert_eq!(ended.code, Some(0), "{command:?}: {ended:#?}");
    ended.out
}

/// Unmounts with the system's own command. A process that another test starts has copies of this one's
/// open files for a moment.
#[track_caller]
pub fn umount(mountpoint: &Path) {
    wait_until("nobody uses the mount", || {
        let ended = run(Command::new("umount").arg(mountpoint));
        assert!(
            ended.code == Some(0) || ended.err.contains("busy"),
            "{ended:#?}"
        );
        ended.code == Some(0)
    });
    assert!(!is_mounted(mountpoint));
}

/// Waits until `condition` holds.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A mount in the foreground, which is killed when the test ends.
pub struct Foreground(pub Child);

impl Foreground {
    /// Starts a command and waits until `mountpoint` is mounted.
    #[track_caller]
    pub fn start(command: &mut Command, mountpoint: &Path) -> Self {
        let child = command
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut foreground = Self(child.expect("it was just built"));
        wait_until("it is mounted", || {
            if foreground.0.try_wait().expect("our own child").is_some() {
                panic!("it ended: {:#?}", foreground.end());
            }
            is_mounted(mountpoint)
        });
        foreground
    }

    /// Signals by the system call: a process made for it would close copies of the test's files,
    /// which saves them.
    #[allow(unsafe_code)]
    pub fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.0.id()).expect("a process id");
        // SAFETY: the process is our own child, which was not waited for yet.
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0, "the process is there");
    }

    /// Waits until it ends; returns its code and what it complained about.
    #[track_caller]
    pub fn end(&mut self) -> (Option<i32>, String) {
        let mut status = None;
        wait_until("it ends", || {
            status = self.0.try_wait().expect("our own child");
            status.is_some()
        });
        let mut text = String::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut stderr, &mut text);
        }
        (status.and_then(|status| status.code()), text)
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program of ours in the background, killed with the test.
pub struct Background(pub Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
