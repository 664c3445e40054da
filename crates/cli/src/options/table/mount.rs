//! How the kernel mounts it.

use penstock_base::GIB;

use crate::options::{Default, Group, Kind, Level, OptionSpec, Scope};

const MOUNT: OptionSpec = OptionSpec {
    group: Group::Mount,
    of_kernel: true,
    ..OptionSpec::COMMON
};

pub(crate) static READ_ONLY: OptionSpec = OptionSpec {
    name: "read-only",
    scope: Scope::Volume,
    of_kernel: false,
    aliases: &["ro"],
    help: "Refuse every change",
    ..MOUNT
};

pub(crate) static ALLOW_OTHER: OptionSpec = OptionSpec {
    name: "allow-other",
    scope: Scope::Volume,
    help: "Let users other than the one who mounts use the mount",
    detail: "Permissions are still checked. When a user other than root mounts, /etc/fuse.conf \
             must hold `user_allow_other`.",
    ..MOUNT
};

pub(crate) static NONEMPTY: OptionSpec = OptionSpec {
    name: "nonempty",
    scope: Scope::Volume,
    help: "Mount over a directory that has entries",
    detail: "They are hidden until the mount is gone.",
    ..MOUNT
};

pub(crate) static NOEXEC: OptionSpec = OptionSpec {
    name: "noexec",
    level: Level::Expert,
    scope: Scope::Volume,
    help: "Refuse to execute files",
    ..MOUNT
};

pub(crate) static SUID: OptionSpec = OptionSpec {
    name: "suid",
    level: Level::Expert,
    scope: Scope::Mount,
    help: "Let set-user-id and set-group-id bits of programs take effect",
    detail: "Only root may: who can write the store, or the file system on another machine, can become \
             anybody here. After `-o` it is `suid=on`: mount(8) keeps the bare word to itself.",
    ..MOUNT
};

pub(crate) static DEV: OptionSpec = OptionSpec {
    name: "dev",
    level: Level::Expert,
    scope: Scope::Mount,
    help: "Let device files lead to the devices of this machine",
    detail: "Only root may, as with suid, and as `dev=on` after `-o`. Trees that are entered with chroot need it.",
    ..MOUNT
};

pub(crate) static ATIME_MODE: OptionSpec = OptionSpec {
    name: "atime-mode",
    level: Level::Expert,
    scope: Scope::Mount,
    of_kernel: false,
    kind: Kind::Choice(&["noatime", "relatime", "strictatime"]),
    default: Default::Is("noatime"),
    help: "When reading a file of a fileset sets the time of its last access",
    detail: "`noatime` never; `relatime` when that time is not behind the last change of the file, or a day old; \
             `strictatime` each time. Opening a file to read, opening a directory and following a symbolic link is \
             what counts; `O_NOATIME` and a read-only mount set nothing. After `-o` the three words mean the same. \
             Buckets have no such time and take `noatime` alone.",
    effect: "Each time that is set is a change of metadata: with strictatime each open is one.",
    ..MOUNT
};

pub(crate) static COHERENCE: OptionSpec = OptionSpec {
    name: "coherence",
    level: Level::Expert,
    scope: Scope::Mount,
    of_kernel: false,
    kind: Kind::Choice(&["close-to-open", "strict"]),
    default: Default::Is("close-to-open"),
    help: "How soon a fileset shows what other machines change",
    detail: "With `close-to-open` an open of a file sees what was closed before on any machine, as on NFS. With `strict` each \
             read, stat and listing sees what ended before it on any machine, saved or not, and appends of several machines do not \
             overwrite each other; that holds between the machines that mount it so. Where the metadata is on one machine there \
             are no others. What is read through mmap is as of the first look at each page. NFS clients keep attributes \
             themselves: mount with `noac` there.",
    effect: "With strict the kernel keeps nothing, and each look costs a trip to the database; a file that one machine has \
             for itself is written as fast as without.",
    ..MOUNT
};

pub(crate) static READ_AHEAD: OptionSpec = OptionSpec {
    name: "read-ahead",
    level: Level::Expert,
    scope: Scope::Volume,
    kind: Kind::Size { min: 0, max: GIB },
    default: Default::Is("4MiB"),
    help: "How far the kernel reads ahead",
    detail: "Set through /sys where the user who mounts may; otherwise the kernel keeps 128KiB.",
    effect: "Below 1MiB a single buffered stream is slower. A stream volume takes 16MiB unless this \
             is given.",
    ..MOUNT
};

pub(crate) static MAX_BACKGROUND: OptionSpec = OptionSpec {
    name: "max-background",
    level: Level::Expert,
    scope: Scope::Volume,
    kind: Kind::Count {
        min: 1,
        max: u16::MAX as u64,
    },
    default: Default::Is("512"),
    help: "Requests that the kernel may have under way for read-ahead and asynchronous I/O",
    detail: "A staged mount takes no more than it holds places for on the disk with its staging directory: \
             a sixteenth of what is free there, 256 at most; the log says so. Where the file system \
             allocates nothing beforehand it is not bounded.",
    effect: "The kernel's own default of 12 makes parallel reads several times slower.",
    ..MOUNT
};

pub(crate) static FUSE_THREADS: OptionSpec = OptionSpec {
    name: "fuse-threads",
    level: Level::Expert,
    scope: Scope::Volume,
    kind: Kind::Count { min: 1, max: 256 },
    default: Default::Depends("two per processor, within bounds"),
    help: "Threads that take requests from the kernel",
    detail: "Requests that wait for the store do not hold a thread, so this need not grow with \
             the number of programs.",
    ..MOUNT
};

pub(crate) static FOREGROUND: OptionSpec = OptionSpec {
    name: "foreground",
    scope: Scope::Volume,
    short: Some('f'),
    help: "Stay in the foreground and log to standard error",
    detail: "Otherwise the command returns when the mount is usable, and the mount goes on in the \
             background.",
    ..MOUNT
};
