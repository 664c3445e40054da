//! `fusermount3`, for users other than root.
//!
//! The helper finds the number of a socket in `_FUSE_COMMFD` and sends the open `/dev/fuse` over
//! it. The socket is given as its standard input, number 0, which needs no tricks with
//! close-on-exec.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    process::{Command, Output, Stdio},
};

use super::{MountError, UnmountError, UnmountMode};
use crate::{FuseSettings, system};

const HELPER: &str = "fusermount3";

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
    let connection = system::receive_descriptor(ours.as_fd());
    let output = child.wait_with_output().map_err(MountError::System)?;
    match connection {
        Ok(Some(connection)) if output.status.success() => Ok(connection),
        _ => Err(refused(&output)),
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

fn refused(output: &Output) -> MountError {
    let text = complaint(output);
    if !text.contains("/dev/fuse") {
        return MountError::Helper(text);
    }
    match text.contains("denied") {
        true => MountError::DeviceDenied(text),
        false => MountError::NoDevice,
    }
}

/// What the helper said, without its name in front.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = text.lines().map(|line| {
        line.trim_start_matches(HELPER)
            .trim_start_matches(':')
            .trim()
    });
    let text = lines.collect::<Vec<_>>().join("; ");
    if text.is_empty() {
        return output.status.to_string();
    }
    text
}

pub(super) fn unmount(place: &Path, mode: UnmountMode) -> Result<(), UnmountError> {
    let switches = match mode {
        UnmountMode::Plain => "-u",
        UnmountMode::Lazy | UnmountMode::Force => "-uz",
    };
    let failed = |text: String| UnmountError::Failed(place.to_path_buf(), text);
    let output = Command::new(HELPER)
        .args([switches, "--"])
        .arg(place)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = complaint(&output);
    if text.contains("busy") {
        return Err(UnmountError::Busy(place.to_path_buf()));
    }
    Err(failed(text))
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
}
