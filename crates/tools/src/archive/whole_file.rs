//! An archive in a file, which has its name when it is whole.

use std::{
    ffi::CString,
    fs::{self, File, Metadata},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fchmod, openat},
    io::Errno,
};

use super::FileId;
use crate::local::{self, Attributes, Place, Temporary, kind_of, permissions};

/// Links that are followed from one to the next, as the system has it.
const LINKS_MAX: usize = 40;

/// A file on its way. Dropped before it is published, it is gone.
#[derive(Debug)]
pub struct WholeFile {
    file: Temporary,
    name: CString,
    existing: Option<Stat>,
    /// Its access list, which is not taken over; none where it has none.
    list: Option<Attributes>,
    umask: u32,
}

impl WholeFile {
    /// A new file that will be `path`, or what a link there leads to, with the rights that `umask` leaves.
    pub fn create(path: &Path, umask: u32) -> io::Result<Self> {
        let place = Place::of(&followed(path)?)?;
        let existing = place.directory.stat_if_any(&place.name)?;
        match existing.as_ref().map(kind_of) {
            None | Some(FileType::RegularFile) => {}
            Some(FileType::Directory) => return Err(Errno::ISDIR.into()),
            Some(_) => return Err(io::Error::other("what has its name is no file")),
        }
        let list = existing.as_ref().and_then(|_| {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = openat(&place.directory, &place.name, flags, Mode::empty()).ok()?;
            local::access_list(file).ok()
        });
        Ok(Self {
            file: Temporary::create(&place.directory, &place.name)?,
            name: place.name,
            existing,
            list,
            umask,
        })
    }

    /// What is no part of the archive: itself, and what it replaces.
    pub fn except(&self) -> io::Result<Vec<FileId>> {
        let own = FileId::of(&self.file)?;
        let existing = self.existing.as_ref().map(FileId::from);
        Ok(own.into_iter().chain(existing).collect())
    }

    /// Writes to it.
    pub fn writer(&self) -> Writer<'_> {
        Writer(self.file.as_fd())
    }

    /// Gives it its name, in the place of what has it, and whose owner and mode it gets.
    pub fn publish(self) -> io::Result<()> {
        let mode = match &self.existing {
            None => Mode::from_raw_mode(0o666 & !self.umask),
            Some(existing) => {
                local::give(&self.file, local::owner(existing))?;
                permissions(existing) & Mode::from_raw_mode(0o777)
            }
        };
        match (&self.existing, &self.list) {
            (Some(_), Some(list)) => local::set_mode(&self.file, mode, list)?,
            // What a list that cannot be read gives the group is not known.
            (Some(_), None) => fchmod(&self.file, mode.difference(Mode::RWXG))?,
            (None, _) => fchmod(&self.file, mode)?,
        }
        self.file.publish(&self.name)
    }
}

/// Writes to a file without closing it, which would tell an error that nobody hears.
#[derive(Debug)]
pub struct Writer<'a>(BorrowedFd<'a>);

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens what an archive is written to and never replaced by: a pipe, a device, or what a process has open, such as
/// /dev/stdout. None for everything else.
pub fn open_in_place(path: &Path) -> io::Result<Option<File>> {
    let path = followed(path)?;
    let Ok(found) = fs::symlink_metadata(&path) else {
        return Ok(None);
    };
    let kind = found.file_type();
    if kind.is_symlink() {
        return open_again(&path).map(Some);
    }
    match kind.is_fifo() || kind.is_char_device() || kind.is_block_device() {
        true => File::options().write(true).open(path).map(Some),
        false => Ok(None),
    }
}

/// What a process has open. Standard output stays at its place in the file, for what others write before and behind.
fn open_again(path: &Path) -> io::Result<File> {
    let own = format!("/proc/{}/fd", std::process::id());
    let above = path.parent().map(fs::canonicalize).transpose()?;
    match above == Some(own.into()) && path.ends_with("1") {
        true => Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
        false => File::options().append(true).open(path),
    }
}

/// Where links lead from `path`, which may not be there. A link of /proc, which is what a process has open, stays.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let found = fs::symlink_metadata(&path);
        let above = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let Some(link) = found.ok().filter(Metadata::is_symlink) else {
            return Ok(path);
        };
        if is_of_proc(&above) {
            return Ok(path);
        }
        refuse_planted(&link, &above)?;
        path = above.join(fs::read_link(&path)?);
    }
    Err(Errno::LOOP.into())
}

/// Refuses a link that somebody else made where everybody may, as the system does with `fs.protected_symlinks`: what it
/// leads to would be replaced with the rights of who runs this.
fn refuse_planted(link: &Metadata, above: &Path) -> io::Result<()> {
    const STICKY_FOR_ALL: u32 = 0o1002;
    let above = match above.as_os_str().is_empty() {
        true => Path::new("."),
        false => above,
    };
    let directory = fs::metadata(above)?;
    let is_open = directory.mode() & STICKY_FOR_ALL == STICKY_FOR_ALL;
    let is_trusted = [directory.uid(), rustix::process::geteuid().as_raw()].contains(&link.uid());
    match is_open && !is_trusted {
        true => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is a link of another user, in a directory in which everybody may make one",
        )),
        false => Ok(()),
    }
}

fn is_of_proc(directory: &Path) -> bool {
    let system = rustix::fs::statfs(directory);
    system.is_ok_and(|system| system.f_type == PROC_SUPER_MAGIC)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::*;

    #[test]
    fn a_link_that_another_user_left_for_everybody_is_not_followed() {
        if !local::is_root() {
            penstock_skips::skipped("links of other users need root");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let [open, link] = ["open", "open/link"].map(|name| folder.path().join(name));
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).expect("set");
        symlink("../precious", &link).expect("made");
        assert!(WholeFile::create(&link, 0o022).is_ok(), "one of our own");
        lchown(&link, Some(1001), None).expect("given");
        let error = WholeFile::create(&link, 0o022).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(open_in_place(&link).is_err());
        // Nobody else may have made it there.
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("set");
        assert!(WholeFile::create(&link, 0o022).is_ok());
    }
}
