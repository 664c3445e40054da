//! What is kept on the disk of what was read.

use penstock_base::{GIB, MIB};

use crate::options::{Default, Group, Kind, Level, OptionSpec};

const CACHE: OptionSpec = OptionSpec {
    group: Group::Cache,
    ..OptionSpec::COMMON
};

/// The largest size that makes sense to give.
const SIZE_MAX: u64 = (1 << 20) * GIB;

pub(crate) static CACHE_DIR: OptionSpec = OptionSpec {
    name: "cache-dir",
    kind: Kind::Path,
    default: Default::Depends("none: nothing is kept on a disk"),
    help: "Directory that keeps what was read",
    detail: "It outlives the mount. Versions are told apart by their ETag, of which the objects of a fileset need none, and each block is \
             compared with its checksum when it is read. What lies there can be read by the user \
             who mounts, and by nobody else. One mount at a time can use a directory.",
    effect: "Reading again costs no request. A version that was cached can be read without the \
             store, so an open that believes old attributes (attr-timeout) reads old content even \
             of small files; close-to-open asks each time.",
    ..CACHE
};

pub(crate) static CACHE_SIZE: OptionSpec = OptionSpec {
    name: "cache-size",
    kind: Kind::Size {
        min: MIB,
        max: SIZE_MAX,
    },
    default: Default::Depends(
        "half of what the file system has free, the cache's own bytes counted as free",
    ),
    help: "Bytes that the cache may occupy",
    detail: "Counted as the file system allocates them, with the cache's own tables. Whole versions \
             make room for others, those that were read longest ago first.",
    effect: "Larger keeps more; a version that does not fit is kept in part.",
    ..CACHE
};

pub(crate) static CACHE_FREE_SPACE: OptionSpec = OptionSpec {
    name: "cache-free-space",
    kind: Kind::Size {
        min: 0,
        max: SIZE_MAX,
    },
    default: Default::Is("0"),
    help: "Bytes that the cache leaves free on its file system",
    detail: "When others fill the disk the cache shrinks until this much is free or it is empty.",
    effect: "Larger protects other users of the disk. With cache-free-ratio the stricter of both \
             holds.",
    ..CACHE
};

pub(crate) static CACHE_DISCARD: OptionSpec = OptionSpec {
    name: "cache-discard",
    aliases: &["del-cache"],
    help: "Empty the cache when the mount begins and when it ends",
    detail: "What a mount that was killed left there is removed by the next one.",
    effect: "Nothing stays on the disk; every mount begins cold.",
    ..CACHE
};

pub(crate) static CACHE_FREE_RATIO: OptionSpec = OptionSpec {
    name: "cache-free-ratio",
    level: Level::Expert,
    kind: Kind::Count { min: 0, max: 100 },
    default: Default::Is("5"),
    help: "Per cent of its file system that the cache leaves free",
    effect: "As for cache-free-space.",
    ..CACHE
};
