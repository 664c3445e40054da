//! Programs that others wrote mount the server and copy with checksums: s3fs and rclone. Where
//! they are not installed a line says so and the test counts as passed.

// Tests find their tools through the environment and wait for mounts with the clock.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use penstock_devserver::{Credentials, Server, Settings};

const KEY_ID: &str = "tester";
const SECRET: &str = "a/secret+with=signs";
/// How long a mount may take to appear.
const MOUNT_MAX: Duration = Duration::from_secs(20);

fn start() -> Server {
    Server::start(Settings {
        buckets: vec!["peer-bucket".to_owned()],
        credentials: vec![Credentials::new(KEY_ID, SECRET)],
        verify_signatures: true,
        ..Settings::default()
    })
    .expect("a server")
}

/// A command without the variables that would send it elsewhere.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    for name in [
        "AWS_CA_BUNDLE",
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ] {
        command.env_remove(name);
    }
    command
}

fn is_installed(program: &str) -> bool {
    let found = command(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_err() {
        penstock_skips::skipped(format_args!("{program} is not installed"));
    }
    found.is_ok()
}

fn can_mount() -> bool {
    let can = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok();
    if !can {
        penstock_skips::skipped("/dev/fuse cannot be opened");
    }
    can
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{said}",
        output.status
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Bytes that no compression or zero detection shortens.
fn body(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    penstock_devserver::expected("peers", 0, &mut bytes);
    bytes
}

fn tree(directory: &Path) {
    fs::create_dir_all(directory.join("sub/é dir")).expect("directories");
    fs::write(directory.join("empty"), "").expect("a file");
    fs::write(directory.join("small +&.txt"), "hello").expect("a file");
    fs::write(directory.join("sub/é dir/medium"), body(300_000)).expect("a file");
    fs::write(directory.join("sub/large"), body((23 << 20) + 7)).expect("a file");
}

/// A mount in the foreground of a child, undone when dropped.
struct Mount<'a> {
    child: Child,
    point: &'a Path,
}

impl<'a> Mount<'a> {
    fn new(command: &mut Command, point: &'a Path) -> Self {
        let child = command.spawn().expect("the program starts");
        let mut mount = Self { child, point };
        let end = Instant::now() + MOUNT_MAX;
        while !mount.is_there() {
            let ended = mount.child.try_wait().expect("a child");
            assert!(ended.is_none(), "the mount ended with {ended:?}");
            assert!(Instant::now() < end, "no mount after {MOUNT_MAX:?}");
            thread::sleep(Duration::from_millis(50));
        }
        mount
    }

    fn is_there(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("procfs");
        let point = self.point.to_string_lossy();
        mounts
            .lines()
            .any(|line| line.split(' ').nth(1) == Some(&*point))
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("fusermount3")
            .arg("-u")
            .arg(self.point)
            .status();
        if !unmounted.is_ok_and(|status| status.success()) {
            let _ = Command::new("umount").arg("-l").arg(self.point).status();
        }
        let end = Instant::now() + MOUNT_MAX;
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if Instant::now() > end {
                let _ = self.child.kill();
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn rclone(server: &Server, directory: &Path) -> Command {
    let mut command = command("rclone");
    command.env("RCLONE_CONFIG", directory.join("none.conf"));
    for (name, value) in [
        ("TYPE", "s3"),
        ("PROVIDER", "Other"),
        ("ENV_AUTH", "false"),
        ("ACCESS_KEY_ID", KEY_ID),
        ("SECRET_ACCESS_KEY", SECRET),
        ("ENDPOINT", &server.url()),
    ] {
        command.env(format!("RCLONE_CONFIG_DEV_{name}"), value);
    }
    command
}

#[test]
fn rclone_copies_and_checks() {
    if !is_installed("rclone") {
        return;
    }
    let (server, directory) = (start(), tempfile::tempdir().expect("a directory"));
    let source = directory.path().join("source");
    tree(&source);
    let cut = ["--s3-upload-cutoff", "8M", "--s3-chunk-size", "5M"];
    run(rclone(&server, directory.path())
        .args(["copy", "--checksum"])
        .args(cut)
        .arg(&source)
        .arg("dev:peer-bucket/t"));
    run(rclone(&server, directory.path())
        .arg("check")
        .arg(&source)
        .arg("dev:peer-bucket/t"));
    run(rclone(&server, directory.path())
        .args(["check", "--download"])
        .arg(&source)
        .arg("dev:peer-bucket/t"));
    let listed = run(rclone(&server, directory.path()).args([
        "lsf",
        "-R",
        "--files-only",
        "dev:peer-bucket",
    ]));
    let mut listed: Vec<_> = listed.lines().collect();
    listed.sort_unstable();
    assert_eq!(
        listed,
        [
            "t/empty",
            "t/small +&.txt",
            "t/sub/large",
            "t/sub/é dir/medium"
        ]
    );
    run(rclone(&server, directory.path()).args(["copy", "dev:peer-bucket/t", "dev:peer-bucket/u"]));
    run(rclone(&server, directory.path()).args([
        "check",
        "dev:peer-bucket/t",
        "dev:peer-bucket/u",
    ]));
    run(rclone(&server, directory.path()).args(["purge", "dev:peer-bucket/t"]));
    assert_eq!(server.data().keys("peer-bucket").len(), 4);
    assert!(
        server
            .data()
            .get("peer-bucket", "u/sub/large")
            .expect("there")
            == body((23 << 20) + 7)
    );
}

#[test]
fn rclone_mounts() {
    if !is_installed("rclone") || !can_mount() {
        return;
    }
    let (server, directory) = (start(), tempfile::tempdir().expect("a directory"));
    server
        .data()
        .put("peer-bucket", "d/file", &body(3_000_000))
        .expect("memory");
    let point = directory.path().join("mount");
    fs::create_dir(&point).expect("a directory");
    let mut command = rclone(&server, directory.path());
    command
        .args(["mount", "--vfs-cache-mode", "writes", "--cache-dir"])
        .arg(directory.path().join("cache"));
    command
        .args(["--vfs-write-back", "0s"])
        .arg("dev:peer-bucket")
        .arg(&point);
    let mount = Mount::new(&mut command, &point);
    assert!(fs::read(point.join("d/file")).expect("readable") == body(3_000_000));
    fs::write(point.join("d/new"), "hello").expect("writable");
    drop(mount);
    assert_eq!(
        server.data().get("peer-bucket", "d/new").as_deref(),
        Some(&b"hello"[..])
    );
}

#[test]
fn s3fs_mounts_writes_and_reads_back() {
    if !is_installed("s3fs") || !can_mount() {
        return;
    }
    let (server, directory) = (start(), tempfile::tempdir().expect("a directory"));
    let (point, secrets) = (
        directory.path().join("mount"),
        directory.path().join("passwd"),
    );
    fs::create_dir(&point).expect("a directory");
    fs::write(&secrets, format!("{KEY_ID}:{SECRET}")).expect("a file");
    run(Command::new("chmod").arg("600").arg(&secrets));
    let mut command = command("s3fs");
    command
        .arg("peer-bucket")
        .arg(&point)
        .arg("-f")
        .stderr(Stdio::null())
        .stdout(Stdio::null());
    for option in [
        format!("url={}", server.url()),
        format!("passwd_file={}", secrets.display()),
        "use_path_request_style".to_owned(),
        "enable_content_md5".to_owned(),
        "multipart_size=5".to_owned(),
    ] {
        command.args(["-o", &option]);
    }
    let mount = Mount::new(&mut command, &point);
    tree(&point.join("t"));
    let mut names: Vec<_> = fs::read_dir(point.join("t"))
        .expect("a listing")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["empty", "small +&.txt", "sub"]);
    fs::rename(point.join("t/small +&.txt"), point.join("t/renamed")).expect("renamed");
    drop(mount);
    let mount = Mount::new(&mut command, &point);
    assert_eq!(
        fs::read_to_string(point.join("t/renamed")).expect("readable"),
        "hello"
    );
    assert!(fs::read(point.join("t/sub/large")).expect("readable") == body((23 << 20) + 7));
    assert!(fs::read(point.join("t/sub/é dir/medium")).expect("readable") == body(300_000));
    fs::remove_file(point.join("t/empty")).expect("removed");
    drop(mount);
    assert!(server.data().get("peer-bucket", "t/empty").is_none());
    assert!(
        server
            .counters()
            .operation(penstock_devserver::Operation::UploadPart)
            >= 4
    );
}
