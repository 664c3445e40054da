//! Finding files below the bucket's directory and never outside it.
//!
//! The kernel resolves paths with `RESOLVE_BENEATH` of openat2(2): `..` and symbolic links are
//! followed only while they stay below the directory. Where that call is missing, names are
//! opened one by one and links are not followed at all.

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2},
    io::Errno,
};

use super::{
    LocalSettings,
    name::{Location, OBJECT_NAME},
    problem::{Attempt, Problem},
    version::Version,
};
use crate::ErrorKind;

/// Bytes in a path that is resolved at once, below `PATH_MAX` of limits.h.
const PATH_PIECE_MAX: usize = 3072;

/// Times that a lookup is repeated when a rename elsewhere disturbed it (openat2(2), `EAGAIN`).
const DISTURBED_MAX: u32 = 100;

/// The bucket's directory.
pub(super) struct Tree {
    root: OwnedFd,
    /// Whether the kernel resolves whole paths, with openat2, and so follows links.
    beneath: bool,
    /// Entries of a directory that a listing keeps at once.
    pub(super) window: usize,
    /// Files that are being appended to, as they were before.
    growing: RwLock<HashMap<(u64, u64), Version>>,
    /// Whether the log says already that something is hidden.
    told: AtomicBool,
}

impl Tree {
    pub(super) fn open(directory: &Path, settings: &LocalSettings) -> Attempt<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, directory, flags, Mode::empty()).map_err(|errno| {
            let shown = directory.display();
            match errno {
                Errno::NOENT => Problem::new(
                    ErrorKind::NoSuchBucket,
                    format!("no directory `{shown}`: make it with `mkdir -p` or mend the path"),
                ),
                Errno::NOTDIR => Problem::new(
                    ErrorKind::NoSuchBucket,
                    format!("`{shown}` is not a directory: name one that is to be the bucket"),
                ),
                other => other.into(),
            }
        })?;
        let mut tree = Self {
            root,
            beneath: settings.follow_links,
            window: settings.window,
            growing: RwLock::default(),
            told: AtomicBool::new(false),
        };
        // Sandboxes that do not know the call answer EPERM.
        let probe = tree.open_beneath(tree.root.as_fd(), ".", OFlags::PATH);
        tree.beneath &= !matches!(probe, Err(Errno::NOSYS | Errno::PERM));
        Ok(tree)
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Tells the log, once, that something in the bucket's directory is not shown and why.
    pub(super) fn tell_hidden(&self, path: &str, reason: &str) {
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                path,
                "not shown, as perhaps others that are not reported: {reason}"
            );
        }
    }

    /// Opens the file or directory at `names`.
    pub(super) fn resolve(&self, names: &[String], flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut base: Option<OwnedFd> = None;
        let mut rest = names;
        loop {
            let from = base.as_ref().unwrap_or(&self.root).as_fd();
            let count = fitting(rest);
            let path = match rest {
                [] => ".".to_owned(),
                _ => rest[..count].join("/"),
            };
            if count == rest.len() {
                return self.open_beneath(from, &path, flags);
            }
            let next = self.open_beneath(from, &path, OFlags::PATH | OFlags::DIRECTORY)?;
            base = Some(next);
            rest = &rest[count..];
        }
    }

    /// Opens a directory for listing it and for changes in it.
    pub(super) fn directory(&self, names: &[String]) -> Result<OwnedFd, Errno> {
        self.resolve(names, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens the object at `location`, be it a file or within a directory of its name. What is
    /// neither, or lies behind a link that leads out, is not found.
    pub(super) fn object(
        &self,
        location: &Location,
        access: OFlags,
    ) -> Attempt<(OwnedFd, Version)> {
        let (file, version) = self
            .look_up(location, access)
            .map_err(|errno| match errno {
                Errno::XDEV | Errno::LOOP => Errno::NOENT.into(),
                other => Problem::from(other),
            })?;
        if version.is_file() {
            Ok((file, version))
        } else {
            Err(Errno::NOENT.into())
        }
    }

    fn look_up(&self, location: &Location, access: OFlags) -> Result<(OwnedFd, Version), Errno> {
        // Without NONBLOCK a FIFO would hold the thread until somebody writes to it.
        let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY;
        let directory = match self.resolve(location.names(), flags) {
            Ok(file) => {
                let version = self.observe(|| fstat(&file))?;
                if !version.is_directory() {
                    return Ok((file, version));
                }
                file
            }
            Err(Errno::ISDIR) => self.directory(location.names())?,
            Err(errno) => return Err(errno),
        };
        let file = self.open_beneath(directory.as_fd(), OBJECT_NAME, flags)?;
        let version = self.observe(|| fstat(&file))?;
        Ok((file, version))
    }

    fn open_beneath(
        &self,
        base: BorrowedFd<'_>,
        path: &str,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        if !self.beneath {
            return open_step_by_step(base, path, flags);
        }
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut opened = openat2(base, path, flags, Mode::empty(), within);
        for _ in 0..DISTURBED_MAX {
            if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
            opened = openat2(base, path, flags, Mode::empty(), within);
        }
        opened
    }

    /// The version that `stat` sees, or that before an append that is under way: readers never
    /// see half of one.
    pub(super) fn observe(
        &self,
        stat: impl FnOnce() -> Result<Stat, Errno>,
    ) -> Result<Version, Errno> {
        let growing = self.growing();
        let version = Version::of(&stat()?);
        Ok(growing.get(&version.identity).copied().unwrap_or(version))
    }

    /// Shows `before` to everybody until the guard is dropped.
    pub(super) fn hold_back(&self, before: Version) -> HeldBack<'_> {
        self.growing_mut().insert(before.identity, before);
        HeldBack {
            tree: self,
            identity: before.identity,
        }
    }

    fn growing(&self) -> RwLockReadGuard<'_, HashMap<(u64, u64), Version>> {
        self.growing.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn growing_mut(&self) -> RwLockWriteGuard<'_, HashMap<(u64, u64), Version>> {
        self.growing.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Tree::hold_back`].
pub(super) struct HeldBack<'a> {
    tree: &'a Tree,
    identity: (u64, u64),
}

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        self.tree.growing_mut().remove(&self.identity);
    }
}

/// How many of `names` fit into one path, one at least.
fn fitting(names: &[String]) -> usize {
    let mut length = 0;
    let fits = names.iter().take_while(|name| {
        length += name.len() + 1;
        length <= PATH_PIECE_MAX
    });
    fits.count().max(1).min(names.len())
}

fn open_step_by_step(base: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut directory: Option<OwnedFd> = None;
    let mut names = path.split('/').peekable();
    while let Some(name) = names.next() {
        let from = directory.as_ref().map_or(base, AsFd::as_fd);
        let step = match names.peek() {
            Some(_) => OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            None => flags,
        };
        let opened = openat(from, name, step | OFlags::NOFOLLOW, Mode::empty())?;
        if names.peek().is_none() {
            return Ok(opened);
        }
        directory = Some(opened);
    }
    Err(Errno::NOENT)
}
