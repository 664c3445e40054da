//! What is kept in the metadata of objects, under the names that ossfs has for it.

use std::time::Duration;

use crate::options::{Default, Group, Kind, Level, OptionSpec};

const METADATA: OptionSpec = OptionSpec {
    group: Group::Metadata,
    ..OptionSpec::COMMON
};

const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) static POSIX_METADATA: OptionSpec = OptionSpec {
    name: "posix-metadata",
    default: Default::Is("off"),
    help: "Keep owner, mode, times, links and extended attributes in the metadata of objects",
    detail: "Staged mode keeps them unless this is switched off. In the form of ossfs and s3fs, which read it too; that of rclone is read. The kernel \
             then checks permissions. Owner and mode of what says nothing of its own are those of \
             the mount.",
    effect: "One HEAD for each listed entry, unless readdir-optimize is on, and one copy inside \
             the store for each chmod, chown or touch of a file that is not being written.",
    ..METADATA
};

pub(crate) static USE_XATTR: OptionSpec = OptionSpec {
    name: "use-xattr",
    default: Default::Is("on"),
    help: "Keep extended attributes too",
    detail: "All of a file together fit into 2 KiB on S3 and 8 KiB on OSS. Without posix-metadata \
             there are none.",
    ..METADATA
};

pub(crate) static MP_UMASK: OptionSpec = OptionSpec {
    name: "mp-umask",
    level: Level::Expert,
    kind: Kind::Mode,
    default: Default::Is("0000"),
    help: "Permissions of 0777 that the mount point does not show, with posix-metadata",
    detail: "Unless this is given the mount point shows dir-mode.",
    ..METADATA
};

pub(crate) static READDIR_OPTIMIZE: OptionSpec = OptionSpec {
    name: "readdir-optimize",
    help: "List directories without asking for the metadata of each object",
    detail: "Entries show the owner and mode of the mount, and times of the last write, until a \
             file is looked up by its name or changed.",
    effect: "Saves one HEAD for each listed entry.",
    ..METADATA
};

pub(crate) static READDIR_CHECK_SIZE: OptionSpec = OptionSpec {
    name: "readdir-check-size",
    level: Level::Expert,
    kind: Kind::Size {
        min: 0,
        max: 1 << 40,
    },
    default: Default::Is("0"),
    help: "With readdir-optimize: ask all the same for objects of at most this size",
    effect: "One HEAD for each such object that is listed.",
    ..METADATA
};

pub(crate) static SYMLINK_IN_META: OptionSpec = OptionSpec {
    name: "symlink-in-meta",
    level: Level::Expert,
    help: "Keep the targets of symbolic links in metadata instead of in the objects",
    detail: "Listings with readdir-optimize then show links as links. Both kinds are always read.",
    effect: "Saves one GET for each link that is followed.",
    ..METADATA
};

pub(crate) static NOTSUP_COMPAT_DIR: OptionSpec = OptionSpec {
    name: "notsup-compat-dir",
    level: Level::Expert,
    help: "Take no objects `dir` and `dir_$folder$` for directories",
    detail: "Older programs mark directories so. With posix-metadata they are directories \
             otherwise, and become `dir/` when they are changed.",
    effect: "Saves one HEAD when a name is looked up that does not exist.",
    ..METADATA
};

pub(crate) static MULTIREQ_MAX: OptionSpec = OptionSpec {
    name: "multireq-max",
    level: Level::Expert,
    kind: Kind::Count { min: 1, max: 1000 },
    default: Default::Is("128"),
    help: "Requests for the metadata of listed entries at once",
    detail: "Where answers come within 3 ms it is 16 at most: more would be slower.",
    effect: "More list faster, within max-requests.",
    ..METADATA
};

pub(crate) static MAX_STAT_CACHE_SIZE: OptionSpec = OptionSpec {
    name: "max-stat-cache-size",
    level: Level::Expert,
    kind: Kind::Count {
        min: 0,
        max: 1_000_000_000,
    },
    default: Default::Depends("as many as fit into an eighth of the memory"),
    help: "Names to remember though nobody uses them",
    effect: "Each saves requests when it is looked up again, and costs 256 bytes or more.",
    ..METADATA
};

pub(crate) static STAT_CACHE_INTERVAL_EXPIRE: OptionSpec = OptionSpec {
    name: "stat-cache-interval-expire",
    level: Level::Expert,
    kind: Kind::Duration {
        min: Duration::ZERO,
        max: DAY,
    },
    default: Default::Is("15m"),
    help: "How long sizes, times and listings are believed after they were last used",
    detail: "If this is given it takes the place of attr-timeout, which counts from the answer of \
             the store. What is used all the time is never asked for again.",
    ..METADATA
};

pub(crate) static MIME: OptionSpec = OptionSpec {
    name: "mime",
    level: Level::Expert,
    kind: Kind::Path,
    default: Default::Depends("/etc/mime.types with posix-metadata, else none"),
    help: "Table of media types by file name",
    detail: "In each line a media type and the extensions that it stands for. Files get it as their \
             content type when they are written, or application/octet-stream.",
    ..METADATA
};
