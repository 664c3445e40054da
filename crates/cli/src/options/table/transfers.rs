//! How bytes move and how much memory that may take.

use penstock_base::{GIB, MIB};

use crate::options::{Default, Group, Kind, Level, OptionSpec, Scope};

const TRANSFERS: OptionSpec = OptionSpec {
    group: Group::Transfers,
    ..OptionSpec::COMMON
};

/// Bytes below which no useful number of buffers fits.
const MEMORY_MIN: u64 = 64 * MIB;

/// Parts ahead of one reader that no memory holds.
const PREFETCH_PARTS_MAX: u64 = 1 << 20;

pub(crate) static MEMORY: OptionSpec = OptionSpec {
    name: "memory",
    scope: Scope::Volume,
    kind: Kind::Size {
        min: MEMORY_MIN,
        max: 1024 * GIB,
    },
    default: Default::Depends("a quarter of the memory, at least 128MiB and at most 512MiB"),
    help: "Memory for all buffers and caches together",
    detail: "A limit, not a target. When it is short, read-ahead shrinks and writers wait. The \
             default looks at the control group's limit as well as at the machine.",
    effect: "One stream at full speed needs about 128MiB; more helps with many streams at once. \
             The process itself needs about 40MiB beside it.",
    ..TRANSFERS
};

pub(crate) static READ_PART_SIZE: OptionSpec = OptionSpec {
    name: "read-part-size",
    level: Level::Expert,
    kind: Kind::Size {
        min: MIB,
        max: 64 * MIB,
    },
    default: Default::Is("8MiB"),
    help: "Size of the largest request that reads ahead",
    detail: "A stream begins with 1MiB and doubles as it is read. How many requests are under way \
             follows from the bandwidth and the latency that are seen, within the memory.",
    effect: "Larger means fewer requests to pay for and more memory for each stream.",
    ..TRANSFERS
};

pub(crate) static PREFETCH_LIMIT: OptionSpec = OptionSpec {
    name: "prefetch-limit",
    level: Level::Expert,
    kind: Kind::Size {
        min: 16 * MIB,
        max: 1024 * GIB,
    },
    default: Default::Depends("six tenths of `memory`"),
    help: "Memory for all that is read ahead",
    detail: "Of all files together; more than the default is not taken. When it is reached reads fetch \
             just what they ask for, until what was fetched before is read.",
    effect: "Smaller leaves more of `memory` to writers and caches.",
    ..TRANSFERS
};

pub(crate) static PREFETCH_PARTS: OptionSpec = OptionSpec {
    name: "prefetch-parts",
    level: Level::Expert,
    kind: Kind::Count {
        min: 0,
        max: PREFETCH_PARTS_MAX,
    },
    default: Default::Depends("as many as bandwidth and latency call for"),
    help: "Parts of read-part-size that are read ahead in one open file",
    detail: "With 0 nothing is read ahead: each read of the kernel's is a request of its own.",
    effect: "Fewer means less memory for each file, and a slower stream where the store is far.",
    ..TRANSFERS
};

pub(crate) static PART_SIZE: OptionSpec = OptionSpec {
    name: "part-size",
    level: Level::Expert,
    kind: Kind::Size {
        min: MIB,
        max: 5 * GIB,
    },
    default: Default::Is("8MiB"),
    help: "Size of the first parts of an upload",
    detail: "Parts grow as a file does, so that every file up to the store's limit fits whatever \
             this says. A file of at most this size is sent in one request. S3 takes no parts \
             below 5MiB.",
    effect: "Larger means fewer requests to pay for and more memory per file being written.",
    ..TRANSFERS
};

pub(crate) static UPLOAD_CONCURRENCY: OptionSpec = OptionSpec {
    name: "upload-concurrency",
    level: Level::Expert,
    kind: Kind::Count { min: 1, max: 256 },
    default: Default::Is("16"),
    help: "Parts of one file sent at once",
    effect: "More hides more latency and takes part-size bytes of memory each.",
    ..TRANSFERS
};
