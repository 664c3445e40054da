//! What is kept in the metadata of objects.

use std::{fs, path::Path, time::Duration};

use penstock_bucket::{ContentTypes, MetadataSettings};

use crate::{
    failure::{Failure, Outcome},
    options::{Values, table},
};

/// The table of media types that most systems have.
const MIME_TYPES: &str = "/etc/mime.types";
/// The media type of a file whose name tells none.
const UNKNOWN_TYPE: &str = "application/octet-stream";
/// Permission bits from which `mp-umask` takes away.
const ALL: u16 = 0o777;

/// Whether owner, mode and the like are kept: as somebody said, or where files are staged.
pub(super) fn keeps(values: &Values) -> bool {
    match values.origin(&table::POSIX_METADATA) {
        Some(_) => values.flag(&table::POSIX_METADATA),
        None => super::is_staged(values),
    }
}

/// What is kept, and how it is asked for.
pub(super) fn settings(values: &Values) -> MetadataSettings {
    let defaults = MetadataSettings::default();
    let count = |spec| values.count(spec).map(|count| count as usize);
    // An owner that somebody chose is that of everything; the default is not.
    let chosen = |spec| {
        let given = values.origin(spec).and_then(|_| values.count(spec));
        given.and_then(|id| u32::try_from(id).ok())
    };
    let mask = values.origin(&table::MP_UMASK);
    // Its default is for what keeps no permissions.
    let umask = values.origin(&table::UMASK);
    MetadataSettings {
        keep: keeps(values),
        uid: chosen(&table::UID),
        gid: chosen(&table::GID),
        umask: umask.map_or(0, |_| values.mode(&table::UMASK)),
        root_mode: mask.map(|_| ALL & !values.mode(&table::MP_UMASK)),
        xattrs: values.flag(&table::USE_XATTR),
        symlink_in_meta: values.flag(&table::SYMLINK_IN_META),
        readdir_optimize: values.flag(&table::READDIR_OPTIMIZE),
        readdir_check_size: values.size(&table::READDIR_CHECK_SIZE).unwrap_or_default(),
        old_directories: !values.flag(&table::NOTSUP_COMPAT_DIR),
        requests_max: count(&table::MULTIREQ_MAX).unwrap_or(defaults.requests_max),
        stat_cache_size: count(&table::MAX_STAT_CACHE_SIZE).unwrap_or(defaults.stat_cache_size),
        stat_cache_interval: stat_cache_interval(values).is_some(),
    }
}

/// How long things are believed after their last use, if that is what counts.
pub(super) fn stat_cache_interval(values: &Values) -> Option<Duration> {
    let spec = &table::STAT_CACHE_INTERVAL_EXPIRE;
    values.origin(spec).map(|_| values.duration(spec))
}

/// Which media types files get. A table that was asked for must be there.
pub(super) fn content_types(values: &Values) -> Outcome<ContentTypes> {
    if let Some(path) = values.path(&table::MIME) {
        let table = fs::read_to_string(path).map_err(|error| {
            let cause = format!("mime: cannot read {}: {error}", path.display());
            Failure::usage(cause, "name a table of media types such as /etc/mime.types")
        })?;
        return Ok(ContentTypes::parse(&table, Some(UNKNOWN_TYPE)));
    }
    if !keeps(values) {
        return Ok(ContentTypes::default());
    }
    let table = fs::read_to_string(Path::new(MIME_TYPES)).unwrap_or_default();
    Ok(ContentTypes::parse(&table, Some(UNKNOWN_TYPE)))
}
