//! What a mount writes down of itself for those who find it dead: where it stages.
//!
//! `ID.PID.staging` lies beside its socket and has the paths of the staging directories, with a zero between two of them; it
//! is empty where nothing is staged. The process holds a lock on it, by which a record of the living is told from one of
//! the dead, and removes it when it ends with a last word. What a dead mount left unsaved lies where its
//! record says until a mount with the same directory takes it over.
//!
//! Pods come and go, and each may have a mount point of its own: each mount that begins removes the old records of
//! dead ones that staged nothing, or whose staging directory is gone.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{SocketDirectory, directory::OfProcess};

/// How long after its beginning a dead mount is known to have left nothing; afterwards `umount` says that this is
/// not known.
const KEPT: Duration = Duration::from_hours(7 * 24);

/// What stands between two paths, none of which can have it.
const BETWEEN: u8 = 0;

/// The record of a mount that lives.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    _locked: File,
}

impl Record {
    /// Writes down where this process stages.
    pub(crate) fn write(
        place: &SocketDirectory,
        mountpoint: &Path,
        directories: &[&Path],
    ) -> io::Result<Self> {
        forget_taken_over(place, mountpoint, directories);
        forget_old(place);
        let path = place.record_of(mountpoint, std::process::id());
        let mut options = File::options();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        // In another container a process with the same number may live that wrote it.
        file.try_lock()?;
        file.set_len(0)?;
        let paths = directories.iter().map(|path| path.as_os_str().as_bytes());
        file.write_all(&paths.collect::<Vec<_>>().join(&BETWEEN))?;
        Ok(Self {
            path,
            _locked: file,
        })
    }

    /// The mount has told everything.
    pub fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes records of dead mounts which say nothing that the mount with these directories does not say.
fn forget_taken_over(place: &SocketDirectory, mountpoint: &Path, directories: &[&Path]) {
    for OfProcess { path: record, .. } in place.records(mountpoint) {
        let told = read(&record);
        let mut told = told.iter();
        let is_taken_over = told.all(|told| directories.contains(&told.as_path()));
        if is_taken_over && is_of_dead(&record) {
            let _ = fs::remove_file(record);
        }
    }
}

/// Removes old records of dead mounts that lead to no staging directory, wherever those were mounted.
fn forget_old(place: &SocketDirectory) {
    for record in place.all_records() {
        if is_older_than(&record, KEPT) && leads_nowhere(&record) && is_of_dead(&record) {
            let _ = fs::remove_file(record);
        }
    }
}

/// Whether the mount staged nothing, or nothing is where it staged.
fn leads_nowhere(record: &Path) -> bool {
    let is_gone = |staged: &PathBuf| staged.try_exists().is_ok_and(|exists| !exists);
    read(record).iter().all(is_gone)
}

fn is_older_than(record: &Path, age: Duration) -> bool {
    let written = fs::metadata(record).and_then(|metadata| metadata.modified());
    written.is_ok_and(|written| written.elapsed().is_ok_and(|elapsed| elapsed > age))
}

/// The staging directories of a process that serves, or served, the mount point.
pub fn staging_of(place: &SocketDirectory, mountpoint: &Path, process: u32) -> Vec<PathBuf> {
    read(&place.record_of(mountpoint, process))
}

/// What dead mounts left.
#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    /// They wrote nothing down.
    Unknown,
    /// Nothing that waits to be saved.
    Nothing,
    /// Unsaved files in these staging directories.
    Staged(Vec<PathBuf>),
}

/// What the dead mounts of the mount point left. `has_unsaved` looks into a staging directory.
pub fn left(
    place: &SocketDirectory,
    mountpoint: &Path,
    has_unsaved: impl Fn(&Path) -> io::Result<bool>,
) -> Left {
    let records = place.records(mountpoint).into_iter();
    let records = records.map(|record| record.path);
    let dead: Vec<_> = records.filter(|record| is_of_dead(record)).collect();
    if dead.is_empty() {
        return Left::Unknown;
    }
    let directories = dead.iter().flat_map(|record| read(record));
    let mut staged: Vec<_> = directories
        // What cannot be looked at may hold something.
        .filter(|directory| has_unsaved(directory).unwrap_or(true))
        .collect();
    staged.sort();
    staged.dedup();
    match staged.is_empty() {
        true => Left::Nothing,
        false => Left::Staged(staged),
    }
}

/// What a record says; nothing if there is none.
fn read(record: &Path) -> Vec<PathBuf> {
    let text = fs::read(record).unwrap_or_default();
    let paths = text
        .split(|byte| *byte == BETWEEN)
        .filter(|path| !path.is_empty());
    paths
        .map(|path| OsString::from_vec(path.to_vec()).into())
        .collect()
}

fn is_of_dead(record: &Path) -> bool {
    File::open(record).is_ok_and(|file| file.try_lock_shared().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a staging directory is looked at for.
    fn has_unsaved(directory: &Path) -> io::Result<bool> {
        Ok(directory.join("unsaved").exists())
    }

    #[test]
    fn a_record_tells_what_a_dead_mount_left_until_its_directory_is_taken_over() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let (place, mountpoint) = (
            SocketDirectory::at(&scratch.path().join("run")),
            Path::new("/mnt/x"),
        );
        place.prepare().expect("it can be made");
        let staging = scratch.path().join("staging");
        fs::create_dir_all(&staging).expect("room");
        assert_eq!(left(&place, mountpoint, has_unsaved), Left::Unknown);

        let dead = place.record_of(mountpoint, 1);
        fs::write(&dead, staging.as_os_str().as_bytes()).expect("room");
        assert_eq!(left(&place, mountpoint, has_unsaved), Left::Nothing);
        fs::write(staging.join("unsaved"), "").expect("room");
        assert_eq!(
            left(&place, mountpoint, has_unsaved),
            Left::Staged(vec![staging.clone()])
        );

        Record::write(&place, mountpoint, &[])
            .expect("written")
            .remove();
        assert!(dead.exists(), "nobody took it over");
        let living = Record::write(&place, mountpoint, &[&staging]).expect("written");
        assert!(!dead.exists());
        assert_eq!(left(&place, mountpoint, has_unsaved), Left::Unknown);
        let process = std::process::id();
        assert_eq!(staging_of(&place, mountpoint, process), [staging]);
        living.remove();
        assert_eq!(
            staging_of(&place, mountpoint, process),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn a_record_tells_of_every_staging_directory() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let (place, mountpoint) = (
            SocketDirectory::at(&scratch.path().join("run")),
            Path::new("/nfs/etc/serve.toml"),
        );
        place.prepare().expect("it can be made");
        let staging = ["one", "other"].map(|name| scratch.path().join(name));
        for directory in &staging {
            fs::create_dir(directory).expect("room");
        }
        let paths = staging.each_ref().map(PathBuf::as_path);
        let living = Record::write(&place, mountpoint, &paths).expect("written");
        let process = std::process::id();
        assert_eq!(staging_of(&place, mountpoint, process), staging);
        let text = fs::read(&living.path).expect("written");
        living.remove();

        let dead = place.record_of(mountpoint, 1);
        fs::write(&dead, text).expect("room");
        fs::write(staging[1].join("unsaved"), "").expect("room");
        let left = || left(&place, mountpoint, has_unsaved);
        assert_eq!(left(), Left::Staged(vec![staging[1].clone()]));
        Record::write(&place, mountpoint, &paths[..1])
            .expect("written")
            .remove();
        assert!(dead.exists(), "of one of them it is still needed");
        Record::write(&place, mountpoint, &paths)
            .expect("written")
            .remove();
        assert!(!dead.exists());
    }

    #[test]
    fn old_records_of_dead_mounts_that_lead_to_no_staging_directory_are_removed() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let place = SocketDirectory::at(&scratch.path().join("run"));
        place.prepare().expect("it can be made");
        let written = |process, age: Duration, staging: &str| {
            let path = place.record_of(Path::new("/mnt/pod"), process);
            fs::write(&path, staging).expect("room");
            let file = File::options().append(true).open(&path).expect("there");
            let then = penstock_base::clock::wall_time() - age;
            file.set_modified(then).expect("our own");
            path
        };
        let (young, old) = (written(1, KEPT / 2, ""), written(2, KEPT * 2, ""));
        let staging = scratch.path().to_str().expect("plain");
        let (living, staged) = (written(3, KEPT * 2, ""), written(4, KEPT * 2, staging));
        let gone = written(5, KEPT * 2, "/no/such/directory");
        let lock = File::open(&living).expect("there");
        lock.lock().expect("nobody has it");

        let begun = Record::write(&place, Path::new("/mnt/x"), &[]).expect("written");
        let exist = [&young, &old, &living, &staged, &gone].map(|record| record.exists());
        assert_eq!(exist, [true, false, true, true, false]);
        begun.remove();
    }
}
