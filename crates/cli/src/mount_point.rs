//! What a mount point and the other places of a mount have to do with one another.

use std::{fs, path::Path};

use crate::failure::{Failure, Outcome};

/// Refuses to mount a local directory inside itself, where every read would ask for itself.
pub(crate) fn check_apart(mountpoint: &Path, directory: &Path) -> Outcome {
    let Ok(directory) = fs::canonicalize(directory) else {
        return Ok(());
    };
    if !mountpoint.starts_with(&directory) && !directory.starts_with(mountpoint) {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "mount point `{}` and the source directory `{}` contain one another",
            mountpoint.display(),
            directory.display()
        ),
        "choose a mount point outside of it",
    ))
}

/// Refuses a file of our own in the mount, such as a log, which would have to log its own writing.
pub(crate) fn check_outside(mountpoint: &Path, file: &Path, what: &str) -> Outcome {
    if !file.starts_with(mountpoint) {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "the {what} `{}` would lie inside the mount point",
            file.display()
        ),
        "put it elsewhere",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_not_mounted_inside_itself() {
        let source = tempfile::tempdir().expect("a temporary directory");
        let inside = source.path().join("mnt");
        fs::create_dir(&inside).expect("made");
        assert!(check_apart(&inside, source.path()).is_err());
        assert!(check_apart(source.path(), &inside).is_err());
        assert!(check_apart(Path::new("/elsewhere"), source.path()).is_ok());
    }
}
