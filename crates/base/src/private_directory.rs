//! Directories that hold what is private, and that nobody else can have prepared.
//!
//! Who owns a directory can exchange what lies in it, and who may write the one above can exchange
//! the directory. In `/tmp` and `/var/tmp` anybody can make a directory before we do, under any name
//! that can be guessed. So there are three ways to one:
//!
//! - A directory that *nobody named* lies below one of the system ([`make_own_directory`]). Each
//!   component is opened by itself, without following links, must belong to this user, and not
//!   everybody may write it. Where everybody may make directories, its group may not either, and it
//!   must lie on the same file system: who mounts one there says himself who owns what.
//! - A directory that the *user named* ([`make_named_directory`]) is looked at itself. It may
//!   belong to whoever this user is on its file system: those of a network give files to others than
//!   who makes them, which shows in a file that was just made. It may have other uses, so others
//!   may go on reading it.
//! - What *we make in it* ([`make_private_directory`]) nobody else may enter.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io::{self, ErrorKind},
    os::{
        fd::AsFd,
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Component, Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

use crate::{random, user_id};

/// What only its user may enter.
const PRIVATE: u32 = 0o700;
/// Lets the group or everybody write.
const OTHERS_WRITE: u32 = 0o022;
/// Lets everybody write.
const ALL_WRITE: u32 = 0o002;
/// Everybody may write, but exchange only what is his own.
const STICKY: u32 = 0o1000;
/// All that a mode permits.
const PERMISSIONS: u32 = 0o7777;
/// Who may exchange everything anyway.
const ROOT: u32 = 0;

/// Makes `below` in `system`, a directory of the system, private to this user, and returns its path.
///
/// Fails when any component of `below` is a link, or belongs to or can be written by somebody else.
pub fn make_own_directory(system: &Path, below: &Path) -> io::Result<PathBuf> {
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE)
        .create(system)?;
    walk(system, below, true).map(|()| system.join(below))
}

/// The path of `below` in `system` if it is there, and what [`make_own_directory`] would make.
pub fn find_own_directory(system: &Path, below: &Path) -> io::Result<Option<PathBuf>> {
    match walk(system, below, false) {
        Ok(()) => Ok(Some(system.join(below))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a directory, and those above it that are missing, private to this user. Of one that is there
/// nobody else can exchange what lies in it afterwards: his right to write it is taken away, unless it
/// is one in which everybody keeps what is his own.
///
/// Fails when the directory is somebody else's; but one of root's will do that not everybody may write.
pub fn make_named_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE)
        .create(path)?;
    let directory = File::open(path)?;
    let found = directory.metadata()?;
    let (owner, mode) = (found.uid(), found.mode() & PERMISSIONS);
    let is_shared = mode & STICKY != 0;
    let user = user_id();
    if owner == ROOT && user != ROOT {
        return match mode & ALL_WRITE != 0 && !is_shared {
            true => Err(writable(path)),
            false => Ok(()),
        };
    }
    if owner != user && owner != identity_in(path)? {
        return Err(foreign(path, owner));
    }
    if mode & OTHERS_WRITE == 0 || is_shared {
        return Ok(());
    }
    directory.set_permissions(fs::Permissions::from_mode(mode & !OTHERS_WRITE))
}

/// Makes a directory, and those above it that are missing, and one that is there already private to
/// its user. What is no directory, a symbolic link to one included, or somebody else's, is refused.
pub fn make_private_directory(path: &Path) -> io::Result<()> {
    refuse_link(path)?;
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE)
        .create(path)?;
    let directory = open_in(CWD, path)?;
    let owner = directory.metadata()?.uid();
    if owner != user_id() && owner != identity_in(path)? {
        return Err(foreign(path, owner));
    }
    directory.set_permissions(fs::Permissions::from_mode(PRIVATE))
}

/// Whom the file system of a directory takes this user for.
pub(crate) fn identity_in(directory: &Path) -> io::Result<u32> {
    let path = directory.join(format!(".penstock-{}", random::token()));
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    let owner = made.metadata().map(|made| made.uid());
    fs::remove_file(&path)?;
    owner
}

/// It belongs to the user `owner`, who is not us.
pub(crate) fn foreign(path: &Path, owner: u32) -> io::Error {
    let text = format!("{} belongs to another user, {owner}", path.display());
    io::Error::new(ErrorKind::PermissionDenied, text)
}

/// Follows `below` from `system` component by component, and makes what is missing if `make` says so.
fn walk(system: &Path, below: &Path, make: bool) -> io::Result<()> {
    let above = File::open(system)?;
    let shared = above.metadata()?;
    let is_shared = shared.mode() & ALL_WRITE != 0;
    if is_shared && shared.mode() & STICKY == 0 {
        return Err(writable(system));
    }
    let refused = if is_shared { OTHERS_WRITE } else { ALL_WRITE };
    let (mut directory, mut path) = (above, system.to_owned());
    for component in below.components() {
        let Component::Normal(name) = component else {
            return Err(ErrorKind::InvalidInput.into());
        };
        path.push(name);
        if make {
            match mkdirat(&directory, name, Mode::from_raw_mode(PRIVATE)) {
                Err(error) if error != rustix::io::Errno::EXIST => return Err(error.into()),
                _ => {}
            }
        }
        let opened = open_in(&directory, Path::new(name));
        directory = opened.map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        let found = check(&directory, &path, refused)?;
        if is_shared && found.dev() != shared.dev() {
            let text = format!("another file system is mounted on {}", path.display());
            return Err(io::Error::new(ErrorKind::PermissionDenied, text));
        }
    }
    directory.set_permissions(fs::Permissions::from_mode(PRIVATE))
}

fn check(directory: &File, path: &Path, refused: u32) -> io::Result<Metadata> {
    let found = directory.metadata()?;
    if found.uid() != user_id() {
        return Err(foreign(path, found.uid()));
    }
    if found.mode() & refused != 0 {
        return Err(writable(path));
    }
    Ok(found)
}

fn writable(path: &Path) -> io::Error {
    let text = format!("others can write {}", path.display());
    io::Error::new(ErrorKind::PermissionDenied, text)
}

/// Fails with the owner of a symbolic link, if that is what is there.
pub(crate) fn refuse_link(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => {
            let owner = found.uid();
            let text = format!(
                "{} is a symbolic link of user {owner}; look at it, and remove it",
                path.display()
            );
            Err(io::Error::new(ErrorKind::NotADirectory, text))
        }
        _ => Ok(()),
    }
}

fn open_in(above: impl AsFd, name: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(above, name, flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// Somebody who is not us.
    const NOBODY: u32 = 65_534;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).expect("there").mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    }

    /// Gives a directory away; only root can.
    fn give_away(path: &Path) -> bool {
        let given = chown(path, Some(NOBODY), None).is_ok();
        if !given {
            penstock_skips::skipped("only root can give directories away");
        }
        given
    }

    #[test]
    fn a_private_directory_is_private_and_no_link() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("a/b");
        fs::create_dir_all(&path).expect("a directory");
        set_mode(&path, 0o755);
        make_private_directory(&path).expect("there");
        assert_eq!(mode_of(&path), 0o700);
        let link = scratch.path().join("link");
        symlink(&path, &link).expect("a link");
        let error = make_private_directory(&link).expect_err("a link");
        let told = format!("{} is a symbolic link of user", link.display());
        assert!(error.to_string().contains(&told), "{error}");
    }

    #[test]
    fn a_directory_of_another_user_is_not_made_ours() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("a");
        fs::create_dir(&path).expect("made");
        set_mode(&path, 0o755);
        if !give_away(&path) {
            return;
        }
        let error = make_private_directory(&path).expect_err("somebody else's");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert_eq!(mode_of(&path), 0o755);
        let left = fs::read_dir(&path).expect("readable").count();
        assert_eq!(left, 0, "nothing is left behind");
    }

    #[test]
    fn others_cannot_exchange_what_lies_in_a_named_directory() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("a/b");
        make_named_directory(&path).expect("made");
        assert_eq!(mode_of(&path), 0o700);
        for (before, after) in [
            (0o777, 0o755),
            (0o2775, 0o2755),
            (0o755, 0o755),
            (0o1777, 0o1777),
        ] {
            set_mode(&path, before);
            make_named_directory(&path).expect("ours");
            assert_eq!(mode_of(&path), after, "{before:o}");
        }
        if give_away(&path) {
            let error = make_named_directory(&path).expect_err("somebody else's");
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        }
    }

    #[test]
    fn an_own_directory_is_made_with_all_that_is_above_it() {
        let system = tempfile::tempdir().expect("a temporary directory");
        let below = Path::new("a/b");
        let find = || find_own_directory(system.path(), below).expect("readable");
        assert_eq!(find(), None);
        let made = make_own_directory(system.path(), below).expect("made");
        assert_eq!(made, system.path().join(below));
        assert_eq!(find(), Some(made.clone()));
        assert_eq!(mode_of(&made), 0o700);
        assert_eq!(mode_of(&system.path().join("a")), 0o700);
        set_mode(&made, 0o755);
        make_own_directory(system.path(), below).expect("ours");
        assert_eq!(mode_of(&made), 0o700);
    }

    #[test]
    fn no_component_of_an_own_directory_is_somebody_elses() {
        for given in ["a", "a/b"] {
            let system = tempfile::tempdir().expect("a temporary directory");
            let below = Path::new("a/b");
            make_own_directory(system.path(), below).expect("made");
            if !give_away(&system.path().join(given)) {
                return;
            }
            let refused = make_own_directory(system.path(), below).expect_err(given);
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
            find_own_directory(system.path(), below).expect_err(given);
        }
    }

    #[test]
    fn no_component_of_an_own_directory_is_a_link_or_open_to_others() {
        let system = tempfile::tempdir().expect("a temporary directory");
        let below = Path::new("a/b");
        let made = make_own_directory(system.path(), below).expect("made");
        set_mode(&system.path().join("a"), 0o702);
        make_own_directory(system.path(), below).expect_err("others can write it");
        set_mode(&system.path().join("a"), 0o700);
        fs::remove_dir(&made).expect("empty");
        let elsewhere = tempfile::tempdir().expect("a temporary directory");
        symlink(elsewhere.path(), &made).expect("a link");
        make_own_directory(system.path(), below).expect_err("a link");
    }

    #[test]
    fn below_a_shared_directory_only_where_none_can_exchange_what_is_ours() {
        let system = tempfile::tempdir().expect("a temporary directory");
        set_mode(system.path(), 0o777);
        make_own_directory(system.path(), Path::new("a")).expect_err("anybody can exchange it");
        set_mode(system.path(), 0o1777);
        make_own_directory(system.path(), Path::new("a")).expect("made");
        set_mode(&system.path().join("a"), 0o720);
        make_own_directory(system.path(), Path::new("a")).expect_err("a group can exchange it");
        make_own_directory(system.path(), Path::new("../a")).expect_err("not below");
    }
}
