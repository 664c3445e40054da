//! Stream volumes: what is listed, how it is laid out, and how the kernel reads it.

use std::time::Duration;

use crate::options::{Default, Group, Kind, OptionSpec, Scope};

const STREAM: OptionSpec = OptionSpec {
    group: Group::Stream,
    scope: Scope::Stream,
    ..OptionSpec::COMMON
};

/// The greatest age of an index that can be asked for.
const REFRESH_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Data disks of a volume: the most that a mount's options have room for, many times over.
const DISKS_MAX: u64 = 16;

pub(crate) static FILE_SYSTEM: OptionSpec = OptionSpec {
    name: "fs",
    kind: Kind::Choice(&["erofs", "ext4"]),
    default: Default::Is("erofs"),
    help: "File system of the image",
    detail: "EROFS is in every kernel from 5.16 on; ext4 is for those that lack it.",
    effect: "An ext4 image takes about twice the time to build, and more room.",
    ..STREAM
};

pub(crate) static TRANSPORT: OptionSpec = OptionSpec {
    name: "transport",
    kind: Kind::Choice(&["auto", "loop", "nbd", "ublk", "fuse"]),
    default: Default::Is("auto"),
    help: "How the kernel reads the data",
    detail: "`loop` is a loop device over a private FUSE mount, for root. `nbd` is a network block \
             device and `ublk` one that this program serves through io_uring, for root and kernels \
             with that driver. `fuse` shows the same names and data without a block device and \
             needs no root. `auto` is `loop` for root and `fuse` for others. A kernel that lacks what is asked for is told about.",
    effect: "Block devices make names several times faster; data moves as fast through `fuse`.",
    ..STREAM
};

pub(crate) static DIRECT: OptionSpec = OptionSpec {
    name: "direct",
    aliases: &["directMode"],
    help: "No read-ahead and no cache of data in the program, for small files read at random",
    detail: "Each read that the kernel makes becomes one request of just these bytes.",
    effect: "One request for each small file and no memory; sequential readers are slower.",
    ..STREAM
};

pub(crate) static TIER: OptionSpec = OptionSpec {
    name: "tier",
    aliases: &["resourceLimit"],
    kind: Kind::Choice(&["none", "2c4g", "4c8g", "8c16g", "16c32g"]),
    default: Default::Is("none"),
    help: "Most processors and memory that the volume may use",
    detail: "`4c8g` is four processors and 8GiB. 64 requests may be in flight for each processor, \
             unless --max-requests says otherwise. Does not hold while the index is built. --cpus \
             and --memory set the two apart and win over it.",
    ..STREAM
};

pub(crate) static CPUS: OptionSpec = OptionSpec {
    name: "cpus",
    kind: Kind::Count { min: 1, max: 1024 },
    default: Default::Depends("what --tier says, else all"),
    help: "Most processors that the volume may use",
    detail: "A control group sees to it where one can be made; elsewhere the threads are kept to so \
             many of the processors.",
    ..STREAM
};

pub(crate) static UMASK: OptionSpec = OptionSpec {
    name: "umask",
    scope: Scope::Volume,
    kind: Kind::Mode,
    default: Default::Is("022"),
    help: "Permission bits that files and directories do not have",
    detail: "000 makes 777 of everything, 022 makes 755: a bucket does not know which files are \
             programs. Of a bucket with posix-metadata nothing is hidden unless this is given.",
    ..STREAM
};

pub(crate) static REFRESH: OptionSpec = OptionSpec {
    name: "refresh",
    kind: Kind::FlagOrDuration {
        min: Duration::from_secs(1),
        max: REFRESH_MAX,
    },
    help: "List the path anew even if there is an index of it, or if that is older than this",
    detail: "Says how much changed since the last one. `--refresh=1h` takes an index that was \
             listed within the last hour as it is. Without it a mount shows what the newest index \
             shows, however old that is; what changed in the bucket since cannot be read.",
    effect: "One LIST request for each thousand objects, and the time to build.",
    ..STREAM
};

pub(crate) static DISKS: OptionSpec = OptionSpec {
    name: "disks",
    kind: Kind::Count {
        min: 1,
        max: DISKS_MAX,
    },
    default: Default::Is("2"),
    help: "Block devices over which the data is spread",
    detail: "Each has at most 128 reads under way. An ext4 volume has one.",
    effect: "More than 128 readers at once need more than one.",
    ..STREAM
};

pub(crate) static MANIFEST: OptionSpec = OptionSpec {
    name: "manifest",
    kind: Kind::FileOrUrl,
    default: Default::Depends("the path is listed"),
    help: "File or object with the keys of the objects, in place of a listing",
    detail: "One key a line, or CSV with a column `key` and, if there are, `size`, `mtime` and \
             `etag`, under the names that inventories use. An object is written s3://BUCKET/KEY or \
             oss://BUCKET/KEY. Keys are those of the bucket; what is not below SOURCE is left out. \
             A changed manifest makes another index.",
    effect: "No LIST requests; one HEAD request for each object without a size. Objects without a \
             tag are not held to a version.",
    ..STREAM
};

pub(crate) static MANIFEST_COLUMNS: OptionSpec = OptionSpec {
    name: "manifest-columns",
    kind: Kind::Text("NAME,..."),
    default: Default::Depends("the first line names them"),
    help: "Columns of a manifest whose first line does not name them",
    detail: "In order, such as `bucket,encoded_key,size,mtime,etag`. Keys of `encoded_key` are \
             percent-encoded, as in inventories of S3.",
    ..STREAM
};

pub(crate) static INDEX_DIR: OptionSpec = OptionSpec {
    name: "index-dir",
    kind: Kind::Path,
    default: Default::Depends(
        "/var/cache/penstock/stream for root, ~/.cache/penstock/stream for others",
    ),
    help: "Directory in which indexes are kept for the next mount",
    detail: "It needs about 200 bytes for each object. The ones not used for longest are removed \
             when there are more than 32 or 16GiB.",
    ..STREAM
};

pub(crate) static LIST_CONCURRENCY: OptionSpec = OptionSpec {
    name: "list-concurrency",
    kind: Kind::Count { min: 1, max: 64 },
    default: Default::Is("64"),
    help: "LIST requests under way at once",
    effect: "More lists a large path in less time; the store may ask for fewer.",
    ..STREAM
};

pub(crate) static LIST_REQUESTS_MAX: OptionSpec = OptionSpec {
    name: "list-requests-max",
    kind: Kind::Count {
        min: 1,
        max: 1_000_000_000,
    },
    default: Default::Depends("2000000"),
    help: "Most requests that a listing may take, for pages and for each symbolic link",
    detail: "The mount fails when it needs more, and what was listed is kept for the next try.",
    ..STREAM
};

pub(crate) static BUCKET: OptionSpec = OptionSpec {
    name: "bucket",
    kind: Kind::Text("NAME"),
    default: Default::Depends("SOURCE names it"),
    help: "OSS bucket, in place of SOURCE",
    detail: "With `path` and `url` as strmvol has them: -o bucket=NAME,path=/DIR,url=ENDPOINT.",
    ..STREAM
};

pub(crate) static BUCKET_PATH: OptionSpec = OptionSpec {
    name: "path",
    kind: Kind::Text("DIRECTORY"),
    default: Default::Depends("the whole bucket"),
    help: "Directory in the bucket that --bucket names",
    ..STREAM
};
