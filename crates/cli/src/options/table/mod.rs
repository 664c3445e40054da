//! The table of options, one file per group.

mod cache;
mod credentials;
mod files;
mod freshness;
mod metadata;
mod mount;
mod observation;
mod serve;
mod staging;
mod store;
mod stream;
mod transfers;

pub(crate) use cache::*;
pub(crate) use credentials::*;
pub(crate) use files::*;
pub(crate) use freshness::*;
pub(crate) use metadata::*;
pub(crate) use mount::*;
pub(crate) use observation::*;
pub(crate) use serve::*;
pub(crate) use staging::*;
pub(crate) use store::*;
pub(crate) use stream::*;
pub(crate) use transfers::*;

use super::{OptionSpec, Scope};

/// Every option, in the order of help.
pub(crate) static ALL: [&OptionSpec; 118] = [
    &ENDPOINT,
    &READ_ENDPOINT,
    &REGION,
    &SIGNATURE,
    &ADDRESSING,
    &CA_FILE,
    &CLIENT_CERT,
    &CLIENT_KEY,
    &PROXY,
    &REQUESTER_PAYS,
    &LIST_OBJECTS_V2,
    &USE_SSE,
    &STORAGE_CLASS,
    &DEFAULT_ACL,
    &UPLOAD_TRAFFIC_LIMIT,
    &DOWNLOAD_TRAFFIC_LIMIT,
    &CHECKSUM,
    &CONNECT_TIMEOUT,
    &REQUEST_TIMEOUT,
    &RETRY_TIMEOUT,
    &RETRY_ATTEMPTS,
    &MAX_REQUESTS,
    &ENCRYPTION_KEY_FILE,
    &ENCRYPTION_KEY_COMMAND,
    &PROFILE,
    &PASSWORD_FILE,
    &CREDENTIAL_ORDER,
    &CREDENTIAL_PROCESS,
    &RAM_ROLE,
    &ROLE,
    &ANONYMOUS,
    &ACCESS_KEY_ID,
    &ACCESS_KEY_SECRET,
    &SESSION_TOKEN,
    &MEMORY,
    &READ_PART_SIZE,
    &PREFETCH_LIMIT,
    &PREFETCH_PARTS,
    &PART_SIZE,
    &UPLOAD_CONCURRENCY,
    &CACHE_DIR,
    &CACHE_SIZE,
    &CACHE_FREE_SPACE,
    &CACHE_FREE_RATIO,
    &CACHE_DISCARD,
    &MODE,
    &STAGING_DIR,
    &STAGING_SIZE,
    &SAVE,
    &SAVE_AFTER,
    &UNSAVED_AGE,
    &MAX_DIRTY_DATA,
    &MULTIPART_THRESHOLD,
    &WRITEBACK_CACHE,
    &ATTR_TIMEOUT,
    &NEGATIVE_TIMEOUT,
    &CLOSE_TO_OPEN,
    &UID,
    &GID,
    &FILE_MODE,
    &DIR_MODE,
    &FSYNC,
    &APPENDABLE,
    &SYMLINKS,
    &RENAME_LIMIT,
    &POSIX_METADATA,
    &USE_XATTR,
    &MP_UMASK,
    &READDIR_OPTIMIZE,
    &READDIR_CHECK_SIZE,
    &SYMLINK_IN_META,
    &NOTSUP_COMPAT_DIR,
    &MULTIREQ_MAX,
    &MAX_STAT_CACHE_SIZE,
    &STAT_CACHE_INTERVAL_EXPIRE,
    &MIME,
    &READ_ONLY,
    &ALLOW_OTHER,
    &NONEMPTY,
    &NOEXEC,
    &SUID,
    &DEV,
    &ATIME_MODE,
    &COHERENCE,
    &READ_AHEAD,
    &MAX_BACKGROUND,
    &FUSE_THREADS,
    &FOREGROUND,
    &FILE_SYSTEM,
    &TRANSPORT,
    &DIRECT,
    &TIER,
    &CPUS,
    &UMASK,
    &REFRESH,
    &DISKS,
    &MANIFEST,
    &MANIFEST_COLUMNS,
    &INDEX_DIR,
    &LIST_CONCURRENCY,
    &LIST_REQUESTS_MAX,
    &BUCKET,
    &BUCKET_PATH,
    &LISTEN,
    &PORTMAP,
    &EXPORT_PATH,
    &CLIENTS,
    &SQUASH,
    &ANONYMOUS_UID,
    &ANONYMOUS_GID,
    &PRIVILEGED_PORT,
    &TARGET_TYPE,
    &GRACE_PERIOD,
    &STATE_DIR,
    &LOG_LEVEL,
    &LOG_FILE,
    &METRICS_ADDRESS,
    &CONFIG,
];

/// The options of a command that does `scope`.
pub(crate) fn of(scope: Scope) -> impl Iterator<Item = &'static OptionSpec> {
    ALL.into_iter().filter(move |spec| scope.includes(spec))
}

/// The option that is called `name`.
pub(crate) fn find(name: &str) -> Option<&'static OptionSpec> {
    ALL.into_iter().find(|spec| spec.answers_to(name))
}

/// The name most like `name` among those of `options`, for "did you mean".
pub(crate) fn nearest(
    name: &str,
    options: impl Iterator<Item = &'static OptionSpec>,
) -> Option<&'static str> {
    let wanted = name.replace('_', "-");
    let names = options.flat_map(|spec| {
        let aliases = spec.aliases.iter().map(|alias| (*alias, spec.name));
        aliases.chain([(spec.name, spec.name)])
    });
    let near = names.map(|(known, name)| (edit_distance(known, &wanted), name));
    let (distance, name) = near.min()?;
    (distance <= 1 + wanted.len() / 4).then_some(name)
}

/// The number of letters to add, drop or change to make `left` into `right`.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (above, letter) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (column, other) in right.iter().enumerate() {
            let change = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = change.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}
