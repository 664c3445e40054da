//! A file that has its name only when it is whole.
//!
//! It is written under a name that follows from the last one, so that who comes after a crash finds what was left
//! and takes its place. A lock tells that from what another process is writing now.

use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    fs::{self, FlockOperation, Mode, OFlags},
    io::Errno,
};

use super::{Directory, FileId, close, flush};

/// What such names begin with.
const BEGINNING: &[u8] = b".parcp-";
/// How often the name is taken anew: the late requests of a process that was killed may take it meanwhile.
const ATTEMPTS_MAX: usize = 3;
/// How many digits follow.
const DIGITS: usize = 16;

/// The name under which `name` is written.
pub(crate) fn temporary_name(name: &CStr) -> CString {
    // Fixed keys: the same name from every process.
    let mut hasher = DefaultHasher::new();
    name.to_bytes().hash(&mut hasher);
    let digits = format!("{:0DIGITS$x}", hasher.finish());
    let bytes = [BEGINNING, digits.as_bytes()].concat();
    CString::new(bytes).unwrap_or_default()
}

/// Whether a file could be written under this name that will get another one.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    let digits = name.strip_prefix(BEGINNING);
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}

/// The name of a file on its way. Dropped before the file is whole, it is gone, unless another file has it by then.
#[derive(Debug)]
pub(crate) struct Unfinished {
    directory: Arc<Directory>,
    name: CString,
    file: FileId,
    is_whole: bool,
}

impl Unfinished {
    pub(crate) fn new(directory: &Arc<Directory>, name: CString, file: FileId) -> Self {
        Self {
            directory: Arc::clone(directory),
            name,
            file,
            is_whole: false,
        }
    }

    /// The file is whole.
    pub(crate) fn finish(&mut self) {
        self.is_whole = true;
    }

    /// Fails with `BUSY` if another file has the name.
    fn check(&self) -> rustix::io::Result<()> {
        check_name(&self.directory, &self.name, self.file)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_whole && self.check().is_ok() {
            let _ = self.directory.remove_file(&self.name);
        }
    }
}

/// A file on its way. Dropped before it is published, it is gone.
#[derive(Debug)]
pub(crate) struct Temporary {
    // The name goes before the file is closed, which could store it.
    name: Unfinished,
    file: OwnedFd,
}

impl Temporary {
    /// A new and empty file that will be `name` in `directory`. Only its owner may look at it. Fails with
    /// `ResourceBusy` if another process is about to write the same.
    pub(crate) fn create(directory: &Arc<Directory>, name: &CStr) -> io::Result<Self> {
        Self::create_alone(directory, name).map_err(explained)
    }

    fn create_alone(directory: &Arc<Directory>, name: &CStr) -> rustix::io::Result<Self> {
        let name = temporary_name(name);
        for _ in 0..ATTEMPTS_MAX {
            match create(directory, &name) {
                Err(Errno::EXIST) => remove_left(directory, &name)?,
                made => {
                    let (file, id) = made?;
                    let name = Unfinished::new(directory, name, id);
                    return Ok(Self { name, file });
                }
            }
        }
        Err(Errno::BUSY)
    }

    /// Gives it its name, in the place of what has it. Nobody ever sees less than all of it.
    pub(crate) fn publish(self, name: &CStr) -> io::Result<()> {
        self.publish_by(name, &|directory, on_its_way, _| {
            Ok(fs::renameat(directory, on_its_way, directory, name)?)
        })
    }

    /// The same by who is told the directory, the name that it has, and which file it is.
    pub(crate) fn publish_by(
        self,
        name: &CStr,
        rename: &dyn Fn(&Directory, &CStr, FileId) -> io::Result<()>,
    ) -> io::Result<()> {
        flush(&self.file)?;
        let Self {
            file,
            name: mut on_its_way,
        } = self;
        let own = on_its_way.file;
        on_its_way.check().map_err(explained)?;
        rename(&on_its_way.directory, &on_its_way.name, own)?;
        on_its_way.finish();
        close(file).inspect_err(|_| age(&on_its_way.directory, name, own))
    }
}

impl AsFd for Temporary {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Takes the time of a copy away that could not be stored, as well as that goes: else the next run takes it for the same.
fn age(directory: &Directory, name: &CStr, own: FileId) {
    if check_name(directory, name, own).is_ok() {
        let begin = fs::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let times = fs::Timestamps {
            last_access: begin,
            last_modification: begin,
        };
        let _ = fs::utimensat(directory, name, &times, fs::AtFlags::SYMLINK_NOFOLLOW);
    }
}

fn explained(error: Errno) -> io::Error {
    match error {
        Errno::BUSY => io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another process is writing the same file now, or another user's was cut off; try again when it has ended, or remove .parcp-*",
        ),
        other => other.into(),
    }
}

/// Removes the content that a copy which was killed was about to give this name, before something without content takes it: of
/// the names of one file that one is written as a file which is met first, and that need not be the same each time. What another
/// process is writing now stays, and so does what cannot be removed, such as another user's: it is in nobody's way.
pub(crate) fn clear_way(directory: &Directory, name: &CStr) {
    let _ = remove_left(directory, &temporary_name(name));
}

/// The names under which copies that were killed left content in a directory, which is read from its beginning and wound back.
pub(crate) fn left_in(directory: &Directory) -> rustix::io::Result<HashSet<CString>> {
    let mut left = HashSet::new();
    loop {
        let page = directory.next_page()?;
        if page.is_empty() {
            directory.rewind()?;
            return Ok(left);
        }
        let names = page.into_iter().map(|entry| entry.name);
        left.extend(names.filter(|name| is_temporary(name.to_bytes())));
    }
}

/// Makes what is no file with content, such as a link, under its name at once, or where that is taken under another one that
/// then takes its place. It may be taken since it was looked for, as by the late requests of a copy that was killed.
pub(crate) fn make_under(
    directory: &Directory,
    (name, is_taken): (&CStr, bool),
    make: &dyn Fn(&CStr) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    if !is_taken {
        match make(name) {
            Err(Errno::EXIST) => {}
            made => return made,
        }
    }
    let temporary = temporary_name(name);
    match make(&temporary) {
        Err(Errno::EXIST) => {
            remove_left(directory, &temporary)?;
            make(&temporary)?;
        }
        made => made?,
    }
    let renamed = fs::renameat(directory, &temporary, directory, name);
    // Where both are names of one file by now, rename(2) leaves both as they are.
    let removed = directory.remove_file(&temporary);
    renamed?;
    match removed {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

fn create(directory: &Directory, name: &CStr) -> rustix::io::Result<(OwnedFd, FileId)> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
    lock(&file)?;
    let stat = fs::fstat(&file)?;
    let own = FileId::from(&stat);
    if stat.st_nlink == 0 {
        // Who came before the lock took it for one that was left; or the file system counts no names.
        check_name(directory, name, own)?;
    }
    Ok((file, own))
}

/// Locks a file for this process. Fails with `BUSY` if another has it; a file system without locks has none.
fn lock(file: &OwnedFd) -> rustix::io::Result<()> {
    match fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Errno::BUSY),
        _ => Ok(()),
    }
}

/// Removes what a process that is no more has left.
fn remove_left(directory: &Directory, name: &CStr) -> rustix::io::Result<()> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Locked until it is removed: who comes meanwhile sees that.
    let left = match fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => Some(file),
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ACCESS | Errno::PERM) => return remove_closed(directory, name),
        // A link or what is no file, which nobody writes.
        Err(_) => None,
    };
    if let Some(file) = &left {
        lock(file)?;
        check_name(directory, name, FileId::from(&fs::fstat(file)?))?;
    }
    directory.remove_file(name)
}

/// The same of what may not be written: what this user left got the mode of its source already, and another user's may be
/// written by that one.
fn remove_closed(directory: &Directory, name: &CStr) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Some(left) = directory.stat_if_any(name)? else {
        return Ok(());
    };
    if left.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::BUSY);
    }
    if let Ok(file) = fs::openat(directory, name, flags, Mode::empty()) {
        lock(&file)?;
    }
    check_name(directory, name, FileId::from(&left))?;
    directory.remove_file(name)
}

/// Fails with `BUSY` if another process has put its own file in the place of this one.
fn check_name(directory: &Directory, name: &CStr, own: FileId) -> rustix::io::Result<()> {
    match directory.stat_if_any(name)? {
        Some(named) if FileId::from(&named) == own => Ok(()),
        _ => Err(Errno::BUSY),
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Barrier, thread};

    use super::*;

    #[test]
    fn a_link_that_another_made_meanwhile_is_no_reason_to_leave_its_other_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("first"), b"content").unwrap();
        std::fs::hard_link(at("first"), at("name")).unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        make_under(&directory, (c"name", true), &|under| {
            fs::linkat(
                &directory,
                c"first",
                &directory,
                under,
                fs::AtFlags::empty(),
            )
        })
        .unwrap();
        let names = std::fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["first", "name"]);
    }

    /// It was published, half written as it was, or removed.
    #[test]
    fn what_another_writes_under_the_same_name_stays_there() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let own = Temporary::create(&directory, c"name").unwrap();
        directory.remove_file(&own.name.name).unwrap();
        let other = Temporary::create(&directory, c"name").unwrap();
        let error = own.publish(c"name").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert!(directory.stat_if_any(c"name").unwrap().is_none());
        let make = |under: &CStr| fs::symlinkat(c"x", &directory, under);
        let made = make_under(&directory, (c"name", true), &make);
        assert_eq!(made, Err(Errno::BUSY));
        other.publish(c"name").unwrap();
    }

    #[test]
    fn who_takes_over_what_was_left_does_not_remove_what_another_makes_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path: &Path = folder.path();
        let directory = Directory::open(path).unwrap();
        let begin = Barrier::new(3);
        for _ in 0..3000 {
            drop(create(&directory, &temporary_name(c"a")).unwrap());
            let made = thread::scope(|scope| {
                let make = || {
                    begin.wait();
                    Temporary::create(&directory, c"a").ok()
                };
                let threads = [(); 3].map(|()| scope.spawn(make));
                threads.map(|thread| thread.join().unwrap())
            });
            let made: Vec<_> = made.into_iter().flatten().collect();
            assert!(
                made.len() <= 1,
                "{} think that they have the name",
                made.len()
            );
        }
    }
}
