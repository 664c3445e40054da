//! What a mount point and the other places of a mount have to do with one another.

use std::{
    fs,
    path::{Path, PathBuf},
};

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

/// Links of one path that are followed, as many as Linux follows.
const LINKS_MAX: usize = 40;

/// Where a path leads, without links and `..`; of what is not there yet, where it would be.
pub(crate) fn real(path: &Path) -> PathBuf {
    let nearest = path.ancestors().find_map(|part| {
        let real = fs::canonicalize(part).ok()?;
        Some(real.join(path.strip_prefix(part).unwrap_or(Path::new(""))))
    });
    nearest.unwrap_or_else(|| path.to_owned())
}

/// Each place that the way along an absolute path comes by, as it is without links: those that links lead to, too.
pub(crate) fn steps(path: &Path) -> Vec<PathBuf> {
    let mut left: Vec<_> = path.iter().rev().map(ToOwned::to_owned).collect();
    let (mut at, mut steps, mut links) = (PathBuf::from("/"), Vec::new(), 0);
    while let Some(name) = left.pop() {
        if name == "." {
            continue;
        }
        if name == ".." {
            at.pop();
            continue;
        }
        let place = at.join(name);
        match fs::read_link(&place) {
            Ok(leads_to) if links < LINKS_MAX => {
                links += 1;
                left.extend(leads_to.iter().rev().map(ToOwned::to_owned));
            }
            _ => at.clone_from(&place),
        }
        steps.push(place);
    }
    steps
}

/// A directory in which a mount keeps something of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    Cache,
    Staging,
}

impl Own {
    /// What it is for, and the option that names it.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Cache => ("cache", "--cache-dir"),
            Self::Staging => ("staging", "--staging-dir"),
        }
    }
}

/// Refuses a directory of our own among the objects of a local directory, where its files would be
/// objects: those of a cache would be cached, and those of a staging directory staged.
pub(crate) fn check_own_apart(what: Own, own: &Path, directory: &Path) -> Outcome {
    let (own, Ok(directory)) = (real(own), fs::canonicalize(directory)) else {
        return Ok(());
    };
    if !own.starts_with(&directory) {
        return Ok(());
    }
    let (name, option) = what.words();
    Err(Failure::usage(
        format!(
            "the {name} directory `{}` lies inside the bucket's directory `{}`: its files would \
             appear as objects",
            own.display(),
            directory.display()
        ),
        format!("put it elsewhere with {option}"),
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
    fn what_a_mount_keeps_is_not_put_among_the_objects() {
        let bucket = tempfile::tempdir().expect("a temporary directory");
        let inside = bucket.path().join("not/there/yet");
        for (what, option) in [(Own::Cache, "--cache-dir"), (Own::Staging, "--staging-dir")] {
            let refused = check_own_apart(what, &inside, bucket.path());
            assert!(refused.is_err_and(|failure| failure.to_string().contains(option)));
            assert!(check_own_apart(what, bucket.path(), bucket.path()).is_err());
            assert!(check_own_apart(what, Path::new("/elsewhere"), bucket.path()).is_ok());
            let beside = bucket.path().with_extension("own");
            assert!(check_own_apart(what, &beside, bucket.path()).is_ok());
        }
    }

    #[test]
    fn the_way_along_a_path_has_the_places_that_links_lead_by() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let top = fs::canonicalize(top.path()).expect("it is there");
        fs::create_dir_all(top.join("there/below")).expect("made");
        let link = |leads_to: &Path, name: &str| {
            std::os::unix::fs::symlink(leads_to, top.join(name)).expect("linked");
        };
        link(&top.join("there"), "absolute");
        link(Path::new("./absolute/../absolute/below"), "relative");
        link(Path::new("ring"), "ring");
        let by = steps(&top.join("relative/file"));
        for place in [
            "relative",
            "absolute",
            "there",
            "there/below",
            "there/below/file",
        ] {
            assert!(by.contains(&top.join(place)), "{place} in {by:?}");
        }
        assert!(steps(&top.join("ring")).len() < 100);
        let missing = top.join("missing/file");
        assert_eq!(steps(&missing).last(), Some(&missing));
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
