//! What is not removed without being asked for by name.

use std::{fmt, io, os::unix::ffi::OsStrExt, path::Path};

use rustix::io::Errno;

use super::Settings;
use crate::{
    local::{Place, is_same_file},
    report::reason,
};

/// Why something was not touched, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refused(String);

impl Refused {
    pub(super) fn failed(path: &Path, error: &io::Error) -> Self {
        Self(format!(
            "cannot remove '{}': {}",
            path.display(),
            reason(error)
        ))
    }

    /// Everything in what `path` names.
    pub(super) fn whole(path: impl fmt::Display) -> Self {
        Self(format!(
            "it is dangerous to remove everything in '{path}'; use --no-preserve-root to override this"
        ))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Refuses names whose removal would take away what the user stands in.
pub(super) fn check_name(path: &Path) -> Result<(), Refused> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/');
    let trimmed = &bytes[..end.map_or(0, |end| end + 1)];
    let last = trimmed.rsplit(|byte| *byte == b'/').next();
    if matches!(last, Some(b"." | b"..")) {
        return Err(Refused(format!(
            "refusing to remove '.' or '..' directory: skipping '{}'",
            path.display()
        )));
    }
    Ok(())
}

/// Refuses a directory that may not be removed as `settings` have it.
pub(super) fn check_directory(
    path: &Path,
    place: &Place,
    settings: &Settings,
) -> Result<(), Refused> {
    let failed = |error: Errno| Refused::failed(path, &error.into());
    if !settings.recursive && !settings.directories {
        return Err(failed(Errno::ISDIR));
    }
    if !settings.root && is_root(place).map_err(failed)? {
        return Err(Refused(
            "it is dangerous to remove everything below '/'; use --no-preserve-root to override this"
                .to_owned(),
        ));
    }
    if !settings.mounts
        && place
            .directory
            .is_mount_point(&place.name)
            .map_err(failed)?
    {
        return Err(mounted(path));
    }
    Ok(())
}

/// What is said of a directory that another file system is mounted on.
pub(super) fn mounted(path: &Path) -> Refused {
    Refused(format!(
        "'{}' is a mount point: unmount it, or use --cross-mounts to remove what is mounted there too",
        path.display()
    ))
}

fn is_root(place: &Place) -> rustix::io::Result<bool> {
    let root = rustix::fs::stat("/")?;
    let stat = place.directory.stat(&place.name)?;
    Ok(is_same_file(&root, &stat))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_user_stands_is_refused_however_it_is_written() {
        for path in [".", "..", "./", "a/..", "a/../", "../..//", "/."] {
            assert!(check_name(Path::new(path)).is_err(), "{path}");
        }
        for path in ["a", "a/", ".a", "a/..b", "...", "/"] {
            assert!(check_name(Path::new(path)).is_ok(), "{path}");
        }
    }
}
