//! A mounted bucket.

use std::{
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{Patience, Process, Scratch, binary::penstock, run_within, system};

const MOUNT_PATIENCE: Patience = Patience::seconds(20);
const UNMOUNT_PATIENCE: Patience = Patience::seconds(30);

/// How to mount.
#[derive(Debug, Clone, Default)]
pub struct MountOptions {
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl MountOptions {
    /// Nothing but defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `--name=value`.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.arguments.push(format!("--{name}={value}").into());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Adds everything to a command line.
    pub fn apply(&self, command: &mut Command) {
        command
            .args(&self.arguments)
            .envs(self.environment.iter().cloned());
    }
}

/// A bucket mounted by a process of its own, in the foreground so that the test owns it.
/// Dropping it lets go of the mount point whatever state it is in.
#[derive(Debug)]
pub struct Mount {
    child: Child,
    path: PathBuf,
    scratch: Scratch,
}

impl Mount {
    /// Mounts `source`, or fails the test with what penstock complained about.
    #[track_caller]
    pub fn new(source: &str, options: &MountOptions) -> Self {
        Self::by("mount", source, options)
    }

    /// Mounts a stream volume of `source`, or fails the test.
    #[track_caller]
    pub fn stream(source: &str, options: &MountOptions) -> Self {
        Self::by("stream", source, options)
    }

    #[track_caller]
    fn by(name: &str, source: &str, options: &MountOptions) -> Self {
        let scratch = Scratch::new();
        let path = scratch.folder("mnt");
        let log = File::create(scratch.path().join("log")).expect("scratch is writable");
        let mut command: Command = penstock();
        command
            .args([name, "-f", source])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be shared"))
            .stderr(log);
        options.apply(&mut command);
        let child = command.spawn().expect("penstock was just built");
        let mut mount = Self {
            child,
            path,
            scratch,
        };
        mount.wait_until_mounted(source);
        mount
    }

    /// Where the bucket can be seen.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of something in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// The process that serves it.
    pub fn process(&self) -> Process {
        Process::of(&self.child)
    }

    /// What the process printed so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// How the process ended, if it did, and what it printed.
    pub fn last_words(&mut self) -> String {
        let status = self.child.try_wait().expect("our own child");
        format!("{status:?}\n{}", self.log())
    }

    /// Whether the mount answers.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_none()) && is_mounted(&self.path)
    }

    /// Unmounts as a user would, waits for the process to end, and fails the test unless both
    /// went well. Returns what the process printed.
    #[track_caller]
    pub fn unmount(mut self) -> String {
        run_within(UNMOUNT_PATIENCE, penstock().arg("umount").arg(&self.path)).expect_success();
        let status = UNMOUNT_PATIENCE
            .find(|| self.child.try_wait().expect("our own child"))
            .unwrap_or_else(|| panic!("penstock lives on after umount:\n{}", self.log()));
        assert!(status.success(), "penstock: {status}\n{}", self.log());
        assert!(!is_mounted(&self.path), "the mount point is still in use");
        self.log()
    }

    /// Kills the process, and waits until whoever uses the dead mount hears so: what was under way
    /// hears something else.
    #[track_caller]
    pub fn kill(&self) {
        self.process().kill();
        UNMOUNT_PATIENCE.until("a dead mount to say so", || {
            system::status(&self.join("anything")) == Err(system::Errno(libc::ENOTCONN))
        });
    }

    /// Kills the process and lets go of the dead mount point as the documents say.
    #[track_caller]
    pub fn kill_and_unmount(self) {
        self.kill();
        unmount_dead(&self.path);
    }

    #[track_caller]
    fn wait_until_mounted(&mut self, source: &str) {
        let settled = MOUNT_PATIENCE.find(|| {
            let ended = self.child.try_wait().expect("our own child");
            (ended.is_some() || is_mounted(&self.path)).then_some(ended)
        });
        match settled {
            Some(None) => {}
            Some(Some(status)) => panic!("cannot mount {source}: {status}:\n{}", self.log()),
            None => panic!("{source} is not mounted in time:\n{}", self.log()),
        }
    }
}

impl AsRef<Path> for Mount {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- where its threads wait ---\n{}---",
                self.process().waits()
            );
        }
        if is_mounted(&self.path) {
            system::detach(&self.path);
        }
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            eprintln!("--- what penstock printed ---\n{}---", self.log());
        }
    }
}

/// Whether something is mounted at `path`, dead or alive, without touching it.
pub fn is_mounted(path: &Path) -> bool {
    let wanted = path.to_string_lossy();
    fs::read_to_string("/proc/self/mounts")
        .unwrap_or_default()
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(&*wanted))
}

/// Lets go of the dead mount at `place`. What it staged is unsaved, which the command tells.
#[track_caller]
pub fn unmount_dead(place: &Path) {
    const UNSAVED: i32 = 3;
    let ended = run_within(UNMOUNT_PATIENCE, penstock().arg("umount").arg(place));
    assert!(matches!(ended.code, Some(0 | UNSAVED)), "{ended:?}");
}
