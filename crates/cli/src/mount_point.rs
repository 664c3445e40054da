//! Whether a directory can be mounted on, asked before anything is started.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    failure::{Failure, Outcome},
    mount_table,
};

/// The absolute path of `path` if a bucket can be mounted there.
pub(crate) fn check(path: &Path, nonempty: bool) -> Outcome<PathBuf> {
    let shown = path.display();
    let metadata = fs::metadata(path).map_err(|error| inaccessible(path, &error))?;
    if !metadata.is_dir() {
        return Err(Failure::new(
            format!("mount point `{shown}` is not a directory"),
            "name a directory",
        ));
    }
    let absolute = fs::canonicalize(path).map_err(|error| inaccessible(path, &error))?;
    if let Some(entry) = mount_table::find(&absolute) {
        return Err(Failure::new(
            format!(
                "mount point `{shown}` is busy: `{}` ({}) is mounted there",
                entry.source, entry.kind
            ),
            "unmount it first or choose another directory",
        ));
    }
    if !nonempty && has_entries(&absolute).map_err(|error| inaccessible(path, &error))? {
        return Err(Failure::new(
            format!("mount point `{shown}` is not empty"),
            "choose an empty directory, or give --nonempty to hide what is in it",
        ));
    }
    Ok(absolute)
}

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

/// Refuses a log file in the mount, which would have to log its own writing.
pub(crate) fn check_outside(mountpoint: &Path, file: &Path) -> Outcome {
    if !file.starts_with(mountpoint) {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "the log file `{}` would lie inside the mount point",
            file.display()
        ),
        "put it elsewhere",
    ))
}

fn has_entries(directory: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(directory)?.next().is_some())
}

fn inaccessible(path: &Path, error: &io::Error) -> Failure {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(
            format!("mount point `{shown}` does not exist"),
            format!("create it with `mkdir -p {shown}`"),
        ),
        io::ErrorKind::NotConnected => Failure::new(
            format!("mount point `{shown}` holds a mount whose program has died"),
            format!("remove it with `penstock umount {shown}`"),
        ),
        _ => Failure::new(
            format!("mount point `{shown}` cannot be used: {error}"),
            "check its permissions",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_directory_is_fine() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        assert!(check(directory.path(), false).is_ok());
    }

    #[test]
    fn what_cannot_be_mounted_on_is_refused_with_a_remedy() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("file");
        fs::write(&file, "").expect("written");
        for (path, cause) in [
            (directory.path().join("none"), "does not exist; create it"),
            (file, "is not a directory; "),
            (directory.path().to_owned(), "is not empty; "),
            ("/proc".into(), "is busy: "),
        ] {
            let failure = check(&path, false).expect_err("refused").to_string();
            assert!(failure.contains(cause), "{failure}");
        }
        assert!(check(directory.path(), true).is_ok());
    }

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
