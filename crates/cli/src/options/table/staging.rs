//! How files are written, and where what is written waits.

use std::time::Duration;

use penstock_base::{GIB, MIB};

use crate::options::{Default, Group, Kind, Level, OptionSpec};

const STAGING: OptionSpec = OptionSpec {
    group: Group::Staging,
    ..OptionSpec::COMMON
};

const HOUR: Duration = Duration::from_secs(3600);

/// The largest size that makes sense to give.
const SIZE_MAX: u64 = (1 << 20) * GIB;

pub(crate) static MODE: OptionSpec = OptionSpec {
    name: "mode",
    kind: Kind::Choice(&["streaming", "staged"]),
    default: Default::Is("streaming"),
    help: "How files are written",
    detail: "`streaming` writes each file from front to end and touches no disk. `staged` writes \
             anywhere, truncates to any size and maps files for writing: what is written lies in \
             the staging directory until it is closed or synced, and can be read from every handle.",
    effect: "Staged, only what changed of a large file is sent when it is saved; but every byte \
             goes over a disk.",
    ..STAGING
};

pub(crate) static STAGING_DIR: OptionSpec = OptionSpec {
    name: "staging-dir",
    kind: Kind::Path,
    default: Default::Depends(
        "one for each source and mount point below /var/lib/penstock/staging for root and \
         /var/tmp/penstock-staging-UID for others",
    ),
    help: "Directory for what is written and not saved yet",
    detail: "For mode=staged. One mount at a time can use a directory. After a crash the next \
             mount with the same source and directory saves what is left there, never over a \
             version that somebody else wrote since; what it cannot save is in the log.",
    ..STAGING
};

pub(crate) static STAGING_SIZE: OptionSpec = OptionSpec {
    name: "staging-size",
    kind: Kind::Size {
        min: 4 * MIB,
        max: SIZE_MAX,
    },
    default: Default::Depends("all of the file system but a twentieth, at most 64MiB"),
    help: "Bytes that the staging directory may occupy",
    detail: "When it is full, files are saved while they are still being written. A write fails \
             for want of space only when that fails; a close never does. Beside it the mount holds \
             room for writes that wait for memory: a sixteenth of the free disk, at most 256MiB.",
    effect: "Smaller means that large files are saved several times before they are closed.",
    ..STAGING
};

pub(crate) static SAVE: OptionSpec = OptionSpec {
    name: "save",
    kind: Kind::Choice(&["close", "behind"]),
    default: Default::Is("close"),
    help: "When a staged file is saved",
    detail: "For mode=staged. `close` saves it before close returns. `behind` answers close, \
             mkdir, symlink and removals when the staging directory has them, and the store gets them a \
             little later, many at once; fsync, of a directory too, and unmounting wait for the store as before. What is not saved yet is lost \
             with the disk of the staging directory; after a crash the next mount saves it.",
    effect: "Behind, programs that write many small files do not wait for a distant store, and a file \
             that is renamed or removed soon after it was written costs one request or none.",
    ..STAGING
};

pub(crate) static SAVE_AFTER: OptionSpec = OptionSpec {
    name: "save-after",
    level: Level::Expert,
    kind: Kind::Duration {
        min: Duration::ZERO,
        max: HOUR,
    },
    default: Default::Is("5s"),
    help: "How long a closed file is left alone before it is saved",
    detail: "For save=behind. What happens to the file meanwhile goes with the save. Files are saved \
             sooner when many wait or the staging directory is half full.",
    effect: "Longer saves requests for files that are renamed, changed or removed; shorter shows them \
             sooner to others.",
    ..STAGING
};

pub(crate) static UNSAVED_AGE: OptionSpec = OptionSpec {
    name: "unsaved-age",
    level: Level::Expert,
    kind: Kind::Duration {
        min: Duration::from_secs(1),
        max: HOUR,
    },
    default: Default::Is("60s"),
    help: "How long a closed file may wait to be saved, whatever happens to it",
    detail: "For save=behind. It is saved then although a program has it open again.",
    ..STAGING
};

pub(crate) static MAX_DIRTY_DATA: OptionSpec = OptionSpec {
    name: "max-dirty-data",
    kind: Kind::Size {
        min: 5 * MIB,
        max: SIZE_MAX,
    },
    default: Default::Is("5GiB"),
    help: "Unsaved bytes of one file from which on it is saved while it is being written",
    effect: "Smaller spreads the work and shows others the file before it is closed.",
    ..STAGING
};

pub(crate) static WRITEBACK_CACHE: OptionSpec = OptionSpec {
    name: "writeback-cache",
    of_kernel: true,
    help: "Let the kernel gather small writes before they reach the mount",
    detail: "For mode=staged. Until a file is closed or synced the kernel may keep what was written \
             for half a minute: if this program is killed meanwhile that is lost, and the close \
             reports it. A full staging directory is reported by fsync or close, not by the write. Who has a \
             file open while another client replaces it gets ESTALE, and cached files are not read \
             by the kernel itself.",
    effect: "Programs that write little at a time write several times faster.",
    ..STAGING
};

pub(crate) static MULTIPART_THRESHOLD: OptionSpec = OptionSpec {
    name: "multipart-threshold",
    level: Level::Expert,
    kind: Kind::Size {
        min: MIB,
        max: 5 * GIB,
    },
    default: Default::Is("25MiB"),
    help: "Bytes up to which a file is saved in one request",
    detail: "For mode=staged. A larger file, or one of which little changed, is sent in parts. What \
             is sent in one request is gathered in memory, so an eighth of `memory`, and at \
             most 32MiB, is the limit whatever this says.",
    effect: "Larger means fewer requests, smaller means that parts go at the same time.",
    ..STAGING
};
