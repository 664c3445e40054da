//! Programs, loop devices and mounts, which are gone with what stands for them.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use penstock_base::clock;

/// How long a mount may be busy with what nobody uses.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// A folder that is removed in the end; what stays mounted in it is found by its name.
pub(crate) fn scratch() -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("penstock-test-").tempdir();
    folder.expect("a folder")
}

/// Whether this test can mount; says why it is skipped if not.
pub(crate) fn can_mount() -> bool {
    let is_root = run(Command::new("id").arg("-u")).stdout == b"0\n";
    let works = is_root && Path::new("/dev/loop-control").exists();
    if !works {
        penstock_skips::skipped("mounting a loop device takes root and /dev/loop-control");
    }
    works
}

/// Whether a program is there; says that the test is skipped if not.
pub(crate) fn have(program: &str) -> bool {
    let found = Command::new(program).arg("-V").output().is_ok();
    if !found {
        penstock_skips::skipped(format_args!("{program} is not installed"));
    }
    found
}

/// Runs a command that must succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the program is there");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

/// A read-only loop device over a file.
pub(crate) struct LoopDevice(pub(crate) PathBuf);

impl LoopDevice {
    pub(crate) fn attach(file: &Path) -> Self {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", "--read-only"]).arg(file);
        let output = run(&mut command);
        let path = String::from_utf8(output.stdout).expect("a path");
        Self(PathBuf::from(path.trim_end()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run(Command::new("losetup").arg("--detach").arg(&self.0));
    }
}

/// A mounted file system.
pub(crate) struct Mount {
    pub(crate) path: PathBuf,
    _devices: Vec<LoopDevice>,
}

impl Mount {
    /// Mounts `image` of `kind` at `path`; `options` take the data devices, in order.
    pub(crate) fn new(
        kind: &str,
        (image, disks): (&Path, &[PathBuf]),
        path: &Path,
        options: impl Fn(&[LoopDevice]) -> String,
    ) -> Self {
        std::fs::create_dir_all(path).expect("a mount point");
        let mut devices: Vec<LoopDevice> =
            disks.iter().map(|disk| LoopDevice::attach(disk)).collect();
        let options = options(&devices);
        let device = LoopDevice::attach(image);
        let mut command = Command::new("mount");
        command.args(["-t", kind, "-o", &options]);
        run(command.arg(&device.0).arg(path));
        devices.push(device);
        Self {
            path: path.to_owned(),
            _devices: devices,
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let began = clock::now();
        let umount = || Command::new("umount").arg(&self.path).output();
        loop {
            let output = umount().expect("the program is there");
            let said = String::from_utf8_lossy(&output.stderr);
            if output.status.success() {
                return;
            }
            // A child of another test has the open files of all until it runs its program.
            let may_pass = said.contains("busy") && began.elapsed() < BUSY_MAX;
            assert!(may_pass, "{}: {said}", self.path.display());
            clock::pause(Duration::from_millis(5));
        }
    }
}
