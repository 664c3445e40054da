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

/// Refuses a cache among the objects of a local directory, where its files would be objects, which
/// would be cached.
pub(crate) fn check_cache_apart(cache: &Path, directory: &Path) -> Outcome {
    // The cache need not be there yet.
    let nearest = cache.ancestors().find_map(|part| {
        let real = fs::canonicalize(part).ok()?;
        Some(real.join(cache.strip_prefix(part).unwrap_or(Path::new(""))))
    });
    let (Some(cache), Ok(directory)) = (nearest, fs::canonicalize(directory)) else {
        return Ok(());
    };
    if !cache.starts_with(&directory) {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "the cache directory `{}` lies inside the bucket's directory `{}`: its files would \
             appear as objects",
            cache.display(),
            directory.display()
        ),
        "put it elsewhere with --cache-dir",
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
    fn a_cache_is_not_put_among_the_objects() {
        let bucket = tempfile::tempdir().expect("a temporary directory");
        let inside = bucket.path().join("not/there/yet");
        let refused = check_cache_apart(&inside, bucket.path());
        assert!(refused.is_err_and(|failure| failure.to_string().contains("--cache-dir")));
        assert!(check_cache_apart(bucket.path(), bucket.path()).is_err());
        assert!(check_cache_apart(Path::new("/elsewhere"), bucket.path()).is_ok());
        let beside = bucket.path().with_extension("cache");
        assert!(check_cache_apart(&beside, bucket.path()).is_ok());
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
