//! The staging directory of a mount, from options.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use penstock_base::{BufferPool, ChecksumKind, Payload};
use penstock_bucket::{Staging, StagingError, StagingSettings};

use crate::{
    disk_cache,
    failure::{Failure, Outcome},
    mount_point,
    options::{Values, table},
    system,
};

/// Where staging directories lie that nobody named: on a disk, and kept when the machine restarts.
const DEFAULT_PLACE: &str = "/var/tmp";

/// Takes the staging directory that the options ask for, if they do.
pub(crate) fn open(
    source: &str,
    mountpoint: &Path,
    values: &Values,
    pool: &Arc<BufferPool>,
) -> Outcome<Option<Arc<Staging>>> {
    let is_staged = values.choice(&table::MODE) == "staged";
    if !is_staged && values.flag(&table::WRITEBACK_CACHE) {
        return Err(Failure::usage(
            "writeback-cache needs files that can be written in any order",
            "add --mode=staged, or leave writeback-cache out",
        ));
    }
    // Who changes nothing stages nothing.
    if !is_staged || values.flag(&table::READ_ONLY) {
        return Ok(None);
    }
    let volume = disk_cache::identity(source, values)?;
    let given = values.path(&table::STAGING_DIR).map(Path::to_owned);
    let directory = given.unwrap_or_else(|| default_directory(&volume, mountpoint));
    mount_point::check_outside(mountpoint, &directory, "staging directory")?;
    let defaults = StagingSettings::new(directory, volume);
    let settings = StagingSettings {
        size: values.size(&table::STAGING_SIZE).unwrap_or(defaults.size),
        max_dirty: values
            .size(&table::MAX_DIRTY_DATA)
            .unwrap_or(defaults.max_dirty),
        put_max: values
            .size(&table::MULTIPART_THRESHOLD)
            .unwrap_or(defaults.put_max),
        ..defaults
    };
    let staging = Staging::open(settings, pool.budget()).map_err(|error| failure(&error))?;
    Ok(Some(staging))
}

/// One directory for each source and mount point, the same at each mount.
fn default_directory(volume: &str, mountpoint: &Path) -> PathBuf {
    let text = format!("{volume}\n{}", mountpoint.display());
    let sum = Payload::from(text.into_bytes()).checksum(ChecksumKind::Crc64Nvme);
    let owner = format!("penstock-staging-{}", system::user_id());
    let place = Path::new(DEFAULT_PLACE).join(owner);
    place.join(format!("{:016x}", sum.value()))
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
        let of = |volume, mountpoint| default_directory(volume, Path::new(mountpoint));
        assert_eq!(of("s3://a", "/mnt"), of("s3://a", "/mnt"));
        assert_ne!(of("s3://a", "/mnt"), of("s3://b", "/mnt"));
        assert_ne!(of("s3://a", "/mnt"), of("s3://a", "/mnt2"));
    }
}
