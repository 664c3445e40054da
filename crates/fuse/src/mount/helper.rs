//! `fusermount3`, for users other than root.
//!
//! The helper finds the number of a socket in `_FUSE_COMMFD` and sends the open `/dev/fuse` over
//! it. The socket is given as its standard input, number 0, which needs no tricks with
//! close-on-exec.
//!
//! The helper may hang: on a mount point below a dead server, or on a mount that it is to take
//! away. It gets [`HELPER_TIME_MAX`] and is killed then.

use std::{
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use penstock_base::clock;

use super::{MountError, UnmountError, UnmountMode};
use crate::{FuseSettings, system};

const HELPER: &str = "fusermount3";
/// How long the helper may take to mount or to unmount.
pub(super) const HELPER_TIME_MAX: Duration = Duration::from_secs(20);
/// How often it is looked whether the helper is done.
const LOOK_PERIOD: Duration = Duration::from_millis(2);
/// Bytes of the helper's complaint that are read.
const COMPLAINT_MAX: u64 = 4 << 10;

pub(super) fn mount(place: &Path, settings: &FuseSettings) -> Result<OwnedFd, MountError> {
    let (ours, theirs) = UnixStream::pair().map_err(MountError::System)?;
    let child = Command::new(HELPER)
        .env("_FUSE_COMMFD", "0")
        .arg("-o")
        .arg(options(settings))
        .arg("--")
        .arg(place)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(not_started)?;
    receive(child, &ours, HELPER_TIME_MAX)
}

/// Waits for the connection, and for the helper's end.
fn receive(child: Child, ours: &UnixStream, limit: Duration) -> Result<OwnedFd, MountError> {
    ours.set_read_timeout(Some(limit))
        .map_err(MountError::System)?;
    let connection = system::receive_descriptor(ours.as_fd());
    let left = match &connection {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Duration::ZERO,
        _ => limit,
    };
    let ended = end_of(child, left).map_err(MountError::System)?;
    let ended = ended.ok_or(MountError::HelperHangs(limit))?;
    match connection {
        Ok(Some(connection)) if ended.status.success() => Ok(connection),
        _ => Err(refused(&ended)),
    }
}

/// How the helper ended.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    complaint: String,
}

/// Waits until the helper ends; `None` when it had to be killed.
fn end_of(mut child: Child, limit: Duration) -> io::Result<Option<Ended>> {
    let begun = clock::now();
    loop {
        if let Some(status) = child.try_wait()? {
            let complaint = match status.success() {
                true => String::new(),
                false => complaint(&mut child, status),
            };
            return Ok(Some(Ended { status, complaint }));
        }
        if begun.elapsed() >= limit {
            child.kill()?;
            // It may be stuck in the kernel, where not even a kill ends it; somebody must see
            // its end, but nobody needs to wait for it.
            thread::spawn(move || child.wait());
            return Ok(None);
        }
        thread::park_timeout(LOOK_PERIOD);
    }
}

fn options(settings: &FuseSettings) -> String {
    let access = if settings.read_only { "ro" } else { "rw" };
    let source = escaped(&settings.source);
    let mut options = format!("{access},nosuid,nodev,fsname={source},subtype=penstock");
    let switches = [
        (settings.allow_other, ",allow_other"),
        (settings.checks_permissions(), ",default_permissions"),
        (settings.noexec, ",noexec"),
        (settings.noatime, ",noatime"),
    ];
    for (_, text) in switches.iter().filter(|(set, _)| *set) {
        options.push_str(text);
    }
    options
}

/// Commas separate options and backslashes escape them.
fn escaped(source: &str) -> String {
    source.replace('\\', "\\\\").replace(',', "\\,")
}

fn not_started(error: io::Error) -> MountError {
    match error.kind() {
        io::ErrorKind::NotFound => MountError::NoHelper,
        _ => MountError::System(error),
    }
}

fn refused(ended: &Ended) -> MountError {
    let text = ended.complaint.clone();
    if !text.contains("/dev/fuse") {
        return MountError::Helper(text);
    }
    match text.contains("denied") {
        true => MountError::DeviceDenied(text),
        false => MountError::NoDevice,
    }
}

/// What the helper said, without its name in front.
fn complaint(child: &mut Child, status: ExitStatus) -> String {
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        // What cannot be read was not said.
        let _ = stderr.take(COMPLAINT_MAX).read_to_end(&mut said);
    }
    let text = String::from_utf8_lossy(&said);
    let lines = text.lines().map(|line| {
        line.trim_start_matches(HELPER)
            .trim_start_matches(':')
            .trim()
    });
    let text = lines.collect::<Vec<_>>().join("; ");
    if text.is_empty() {
        return status.to_string();
    }
    text
}

pub(super) fn unmount(place: &Path, mode: UnmountMode) -> Result<(), UnmountError> {
    let switches = match mode {
        UnmountMode::Plain => "-u",
        UnmountMode::Lazy | UnmountMode::Force => "-uz",
    };
    let failed = |text: String| UnmountError::Failed(place.to_path_buf(), text);
    let child = Command::new(HELPER)
        .args([switches, "--"])
        .arg(place)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let ended = end_of(child, HELPER_TIME_MAX).map_err(|error| failed(error.to_string()))?;
    let Some(ended) = ended else {
        return Err(UnmountError::HelperHangs(
            place.to_path_buf(),
            HELPER_TIME_MAX,
        ));
    };
    if ended.status.success() {
        return Ok(());
    }
    if ended.complaint.contains("busy") {
        return Err(UnmountError::Busy(place.to_path_buf()));
    }
    Err(failed(ended.complaint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_what_would_end_an_option() {
        let settings = FuseSettings {
            allow_other: true,
            ..FuseSettings::new("/mnt", "file:///a,b\\c")
        };
        assert_eq!(
            options(&settings),
            "rw,nosuid,nodev,fsname=file:///a\\,b\\\\c,subtype=penstock,\
             allow_other,default_permissions"
        );
    }

    /// A stand-in for the helper, which has the socket as its standard input.
    fn helper(script: &str) -> (Child, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::piped())
            .spawn();
        (child.expect("sh exists"), ours)
    }

    #[test]
    fn a_helper_that_hangs_is_given_up() {
        // Before it sends the connection, and after it closed the socket.
        for script in ["exec sleep 30", "exec sleep 30 <&-"] {
            let (child, ours) = helper(script);
            let begun = clock::now();
            let refused = receive(child, &ours, Duration::from_millis(100));
            assert!(
                matches!(refused, Err(MountError::HelperHangs(_))),
                "{refused:?}"
            );
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
    }

    #[test]
    fn what_the_helper_says_is_passed_on() {
        let (child, ours) = helper("echo 'fusermount3: too many mounts' >&2; exit 1");
        let refused = receive(child, &ours, HELPER_TIME_MAX)
            .err()
            .map(|error| error.to_string());
        assert_eq!(
            refused.as_deref(),
            Some("fusermount3 refused: too many mounts")
        );
    }
}
