//! The staging directory of a bucket, from options.
//!
//! Without an option it is one that nobody else can have prepared: what lies in it is saved with the
//! credentials of the mount. Older versions staged below `/var/tmp` for root, too. What they left
//! there is saved from there, as long as nobody else can have had a hand in it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use penstock_base::{BufferPool, ChecksumKind, Payload};
use penstock_bucket::{AT_ONCE_DEFAULT, Fsync, SaveBehind, Staging, StagingError, StagingSettings};
use tracing::warn;

use crate::{
    failure::{Failure, Outcome},
    limits,
    mount_point::{self, Own},
    options::{Values, table},
    places::{self, OwnPlace},
    predecessors::Predecessors,
    stores,
    volumes::VolumeSpec,
};

/// Files of the staging directory that are open for one that is unsaved.
const OPEN_FOR_UNSAVED: usize = 2;
/// Closed files that may be unsaved, at least and at most.
const UNSAVED_FILES: (usize, usize) = (16, 16_384);

/// Takes the staging directory that the options ask for, if they do.
pub(crate) async fn open(
    spec: &VolumeSpec,
    pool: &Arc<BufferPool>,
    before: &Predecessors<'_>,
) -> Outcome<Option<Arc<Staging>>> {
    let Some(settings) = settings(&spec.source, &spec.mountpoint, &spec.values)? else {
        return Ok(None);
    };
    let take = || Staging::open(settings.clone(), pool.budget());
    let user = |error: &StagingError| match error {
        StagingError::InUse { pid, .. } => Some(*pid),
        StagingError::Io { .. } => None,
    };
    before.once_free(take, user, failure).await.map(Some)
}

fn settings(source: &str, mountpoint: &Path, values: &Values) -> Outcome<Option<StagingSettings>> {
    let is_staged = super::is_staged(values);
    if !is_staged {
        check_nothing_staged(values)?;
    }
    // Who changes nothing stages nothing.
    if !is_staged || values.flag(&table::READ_ONLY) {
        return Ok(None);
    }
    let volume = stores::identity(source, values)?;
    let directory = match values.path(&table::STAGING_DIR) {
        Some(given) => given.to_owned(),
        None => default_directory(&name_of(&volume, mountpoint))?,
    };
    mount_point::check_outside(mountpoint, &directory, "staging directory")?;
    if let Some(bucket) = stores::local_directory(source) {
        mount_point::check_own_apart(Own::Staging, &directory, &bucket)?;
    }
    let defaults = StagingSettings::new(directory, volume);
    Ok(Some(StagingSettings {
        size: values.size(&table::STAGING_SIZE).unwrap_or(defaults.size),
        max_dirty: values
            .size(&table::MAX_DIRTY_DATA)
            .unwrap_or(defaults.max_dirty),
        put_max: values
            .size(&table::MULTIPART_THRESHOLD)
            .unwrap_or(defaults.put_max),
        at_once: disk_calls(values),
        ..defaults
    }))
}

/// How files are saved behind the close, if the options ask for that.
pub(super) fn save_behind(values: &Values) -> Option<SaveBehind> {
    let is_behind = super::is_staged(values) && values.choice(&table::SAVE) == "behind";
    is_behind.then(|| SaveBehind {
        after: values.duration(&table::SAVE_AFTER),
        age_max: values.duration(&table::UNSAVED_AGE),
        files_max: unsaved_files_max(),
    })
}

/// What fsync waits for.
pub(super) fn fsync(values: &Values) -> Outcome<Fsync> {
    match values.choice(&table::FSYNC) {
        "off" => Ok(Fsync::Nothing),
        "journal" if save_behind(values).is_none() => Err(Failure::usage(
            "fsync=journal needs files that are saved behind the close",
            "add --mode=staged --save=behind, or leave fsync=journal out",
        )),
        "journal" => Ok(Fsync::Journal),
        _ => Ok(Fsync::Store),
    }
}

/// Closed files that may be unsaved: half of what the process may open is for these.
fn unsaved_files_max() -> usize {
    let limit = limits::raised_descriptor_limit();
    let limit = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    (limit / 2 / OPEN_FOR_UNSAVED).clamp(UNSAVED_FILES.0, UNSAVED_FILES.1)
}

/// Refuses options that a mount which stages nothing would pass over: who gives them wants another one.
fn check_nothing_staged(values: &Values) -> Outcome {
    if values.flag(&table::WRITEBACK_CACHE) {
        return Err(Failure::usage(
            "writeback-cache needs files that can be written in any order",
            "add --mode=staged, or leave writeback-cache out",
        ));
    }
    for option in [
        &table::STAGING_DIR,
        &table::STAGING_SIZE,
        &table::SAVE,
        &table::SAVE_AFTER,
        &table::UNSAVED_AGE,
    ] {
        if values.origin(option).is_some() {
            let name = option.name;
            return Err(Failure::usage(
                format!("{name} is given, and a streaming mount stages nothing"),
                format!("add --mode=staged, or leave {name} out"),
            ));
        }
    }
    Ok(())
}

/// Disk calls that threads which receive requests may make at once: one of them is always left.
fn disk_calls(values: &Values) -> usize {
    let threads = values.count(&table::FUSE_THREADS);
    threads.map_or(AT_ONCE_DEFAULT, |threads| {
        AT_ONCE_DEFAULT.min(threads.saturating_sub(1) as usize)
    })
}

/// One name for each source and mount point, the same at each mount.
fn name_of(volume: &str, mountpoint: &Path) -> String {
    let text = format!("{volume}\n{}", mountpoint.display());
    let sum = Payload::from(text.into_bytes()).checksum(ChecksumKind::Crc64Nvme);
    format!("{:016x}", sum.value())
}

/// The directory of this name, made where it is missing.
fn default_directory(name: &str) -> Outcome<PathBuf> {
    let (place, older) = (places::staging(name), places::older_staging(name));
    if older != place
        && let Some(left) = left_by_older_version(&older)
    {
        return Ok(left);
    }
    place.make().map_err(|error| {
        Failure::new(
            format!("the staging directory cannot be used: {error}"),
            "look at who prepared it, or give another one with --staging-dir",
        )
    })
}

/// Where an older version left something unsaved, if it did.
fn left_by_older_version(place: &OwnPlace) -> Option<PathBuf> {
    match place.find() {
        Ok(found) => found.filter(|directory| places::has_entries(&directory.join("files"))),
        Err(error) => {
            warn!(
                "what an older version may have staged in {} is not saved: {error}; look at it, and \
                 give it with --staging-dir once if it is yours",
                place.path().display()
            );
            None
        }
    }
}

fn failure(error: &StagingError) -> Failure {
    let text = error.to_string();
    match error {
        StagingError::InUse { .. } => {
            let (cause, remedy) = text.split_once(": ").unwrap_or((&text, ""));
            Failure::new(cause, remedy)
        }
        StagingError::Io { .. } => Failure::new(
            text,
            "give a directory that belongs to this user with --staging-dir",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mount_has_a_directory_of_its_own() {
        let of = |volume, mountpoint| name_of(volume, Path::new(mountpoint));
        assert_eq!(of("s3://a", "/mnt"), of("s3://a", "/mnt"));
        assert_ne!(of("s3://a", "/mnt"), of("s3://b", "/mnt"));
        assert_ne!(of("s3://a", "/mnt"), of("s3://a", "/mnt2"));
    }
}
