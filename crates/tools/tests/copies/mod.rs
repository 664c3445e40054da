//! Copies that tests make.

#![allow(dead_code, clippy::disallowed_methods, clippy::unwrap_used)]

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use penstock_skips::skipped;
use penstock_tools::{
    Patterns, Report, Stop, Summary, Threads,
    copy::{Preserve, Settings, Unchanged, copy},
};

pub(crate) fn restore() -> Settings {
    Settings {
        recursive: true,
        one_file_system: true,
        preserve: Preserve::ALL,
        unchanged: Unchanged::ByTime,
        exact: true,
        delete: false,
        update: false,
        dry_run: false,
        verify: false,
        exclude: Patterns::default(),
        umask: 0o022,
        threads: Threads::Fixed(8),
    }
}

pub(crate) fn plain() -> Settings {
    Settings {
        recursive: false,
        one_file_system: false,
        preserve: Preserve::NOTHING,
        unchanged: Unchanged::Never,
        exact: false,
        ..restore()
    }
}

pub(crate) fn copied(sources: &[&Path], target: &Path, settings: &Settings) -> Summary {
    let report = Report::default();
    let sources: Vec<PathBuf> = sources.iter().map(|path| path.to_path_buf()).collect();
    copy(&sources, target, settings, &report, &Stop::default());
    report.summary()
}

/// A folder with a directory `from` in it, and the path `to`.
pub(crate) fn folder() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    fs::create_dir(&from).unwrap();
    let to = folder.path().join("to");
    (folder, from, to)
}

/// Something mounted at a place, until it is dropped.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    /// What `mount` mounts there when it is told `what`.
    pub(crate) fn new(place: &Path, what: &[&str]) -> Option<Self> {
        let is_mounted = Command::new("mount")
            .args(what)
            .arg(place)
            .status()
            .is_ok_and(|status| status.success());
        if !is_mounted {
            skipped("nothing can be mounted here");
        }
        is_mounted.then(|| Self(place.to_path_buf()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The list that lets user 1001 read and write, and the group of the file do nothing.
pub(crate) fn set_list(path: &Path) {
    let list = Command::new("setfacl")
        .args(["-m", "u:1001:rw"])
        .arg(path)
        .status();
    assert!(list.unwrap().success());
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

pub(crate) fn recursive() -> Settings {
    Settings {
        recursive: true,
        exact: true,
        ..plain()
    }
}

pub(crate) fn date(path: &Path, seconds: u64) {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The name under which `name` is written.
pub(crate) fn name_on_its_way(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    name.as_bytes().hash(&mut hasher);
    format!(".parcp-{:016x}", hasher.finish())
}
