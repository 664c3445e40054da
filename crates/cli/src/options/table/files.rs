//! What files look like and what writing them means.

use crate::options::{Default, Group, Kind, Level, OptionSpec, Scope};

const FILES: OptionSpec = OptionSpec {
    group: Group::Files,
    ..OptionSpec::COMMON
};

const OWNER: Kind = Kind::Count {
    min: 0,
    max: u32::MAX as u64 - 1,
};

pub(crate) static UID: OptionSpec = OptionSpec {
    name: "uid",
    scope: Scope::Volume,
    kind: OWNER,
    default: Default::Depends("the user who mounts"),
    help: "Owner of every file",
    ..FILES
};

pub(crate) static GID: OptionSpec = OptionSpec {
    name: "gid",
    scope: Scope::Volume,
    kind: OWNER,
    default: Default::Depends("the group of the user who mounts"),
    help: "Group of every file",
    ..FILES
};

pub(crate) static FILE_MODE: OptionSpec = OptionSpec {
    name: "file-mode",
    kind: Kind::Mode,
    default: Default::Is("0644"),
    help: "Permissions of every file",
    detail: "Without posix-metadata a bucket keeps no permissions, so chmod has no effect; \
             with it this stands for what an object does not say.",
    ..FILES
};

pub(crate) static DIR_MODE: OptionSpec = OptionSpec {
    name: "dir-mode",
    kind: Kind::Mode,
    default: Default::Is("0755"),
    help: "Permissions of every directory",
    ..FILES
};

pub(crate) static FSYNC: OptionSpec = OptionSpec {
    name: "fsync",
    kind: Kind::FlagOrChoice(&["store", "journal", "off"]),
    default: Default::Is("store"),
    help: "What fsync waits for",
    detail: "`store`, also `on`: until the file is durable in the store, and visible to a new open, wherever. \
             `journal`, with save=behind: until it survives a crash of this machine, on the disk of the staging \
             directory; `penstock sync` and unmounting wait for the store as before. `off`: for nothing; only close \
             makes a file durable. O_SYNC means the same as fsync.",
    effect: "In the store, each fsync in the middle of a file ends an upload; writing on then copies inside the \
             store. In the journal it costs what it costs on the local disk, and is lost with that disk.",
    ..FILES
};

pub(crate) static APPENDABLE: OptionSpec = OptionSpec {
    name: "appendable",
    help: "Write new files as appendable objects (OSS)",
    detail: "Every flush is visible at once and appending costs one request. Such objects cannot \
             be copied by the store and are limited to 5 GiB.",
    effect: "Cheap log files; one stream of requests instead of parallel parts.",
    ..FILES
};

pub(crate) static SYMLINKS: OptionSpec = OptionSpec {
    name: "symlinks",
    aliases: &["enable-symlink"],
    default: Default::Is("on"),
    help: "Make and follow the store's own symbolic links (OSS)",
    effect: "One request for each link that is followed.",
    ..FILES
};

pub(crate) static RENAME_LIMIT: OptionSpec = OptionSpec {
    name: "rename-limit",
    level: Level::Expert,
    aliases: &["rename-dir-limit"],
    kind: Kind::Count {
        min: 0,
        max: 100_000_000,
    },
    default: Default::Is("1000000"),
    help: "Most files that renaming a directory may move",
    detail: "A store cannot rename: every file is copied and deleted, and others see the files \
             move one by one. Beyond the limit the rename is refused and nothing is moved. 0 \
             refuses to rename directories.",
    effect: "One copy and a thousandth of a delete request per file.",
    ..FILES
};
