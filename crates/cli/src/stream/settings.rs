//! What options mean for a stream volume.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use penstock_base::{BufferPool, MemoryBudget};
use penstock_block::{Record, StateDirectory, TransportKind};
use penstock_stream::{Permissions, Refresh, ResourceLimits, Tier};
use penstock_transfer::TransferSettings;

use crate::{
    assemble,
    control::Place,
    environment::Environment,
    failure::{Failure, Outcome},
    memory, mount_table,
    options::{Values, table},
    places, system,
};

/// KiB that the kernel reads ahead: enough to keep a store at 10 ms busy with one reader.
const READ_AHEAD_KIB: u32 = 16 << 10;

/// KiB that the kernel reads ahead of those who read at random: a small file in one request.
const READ_AHEAD_DIRECT_KIB: u32 = 128;

/// Requests under way at once, however many processors there are: each takes a connection.
const REQUESTS_MAX: usize = 4096;

fn tier(values: &Values) -> Option<ResourceLimits> {
    let tier: Tier = values.choice(&table::TIER).parse().ok()?;
    Some(tier.limits())
}

/// How many processors the volume may use, if there is a limit.
pub(crate) fn processors(values: &Values) -> Option<usize> {
    let given = values.count(&table::CPUS).map(|count| count as usize);
    given.or(tier(values).map(|limits| limits.worker_threads))
}

/// How many requests to the store may be under way at once, if processors are limited.
pub(crate) fn requests(values: &Values) -> Option<usize> {
    let requests = processors(values).map(ResourceLimits::requests_of)?;
    Some(requests.min(REQUESTS_MAX))
}

/// When the path is listed anew.
pub(super) fn refresh(values: &Values) -> Refresh {
    match values.switch_or_duration(&table::REFRESH) {
        Some(age) => Refresh::OlderThan(age),
        None if values.flag(&table::REFRESH) => Refresh::Always,
        None => Refresh::Never,
    }
}

/// The memory of the volume's buffers and caches.
pub(super) fn memory(values: &Values) -> u64 {
    let given = values.size(&table::MEMORY);
    let given = given.or(tier(values).map(|limits| limits.memory_budget));
    given.unwrap_or_else(memory::default_budget)
}

/// The processors and the memory that the kernel is asked to enforce, if there is a limit of
/// either.
pub(super) fn enforced(values: &Values) -> Option<ResourceLimits> {
    let tier = tier(values);
    let free_memory = values.origin(&table::MEMORY).is_some();
    if tier.is_none() && !free_memory && values.origin(&table::CPUS).is_none() {
        return None;
    }
    let limits = tier.unwrap_or(ResourceLimits::NONE);
    let processors = processors(values).and_then(|count| u32::try_from(count).ok());
    Some(ResourceLimits {
        processors: processors.unwrap_or(limits.processors),
        memory: match free_memory {
            true => ResourceLimits::memory_around(memory(values)),
            false => limits.memory,
        },
        ..limits
    })
}

/// How the bytes of large objects are moved.
pub(super) fn transfer(values: &Values) -> TransferSettings {
    let limits = tier(values).unwrap_or_else(|| Tier::default().limits());
    limits.transfer_settings()
}

/// Owner and modes of everything.
pub(super) fn permissions(values: &Values) -> Permissions {
    let id = |spec, own: u32| {
        let given = values.count(spec).and_then(|id| u32::try_from(id).ok());
        given.unwrap_or(own)
    };
    Permissions::with_umask(
        id(&table::UID, system::user_id()),
        id(&table::GID, system::group_id()),
        values.mode(&table::UMASK),
    )
}

/// The memory of the volume's buffers and caches.
pub(crate) fn pool(values: &Values) -> Arc<BufferPool> {
    BufferPool::new(MemoryBudget::new(memory(values)))
}

/// KiB that the kernel reads ahead.
pub(super) fn read_ahead_kib(values: &Values) -> u32 {
    if values.origin(&table::READ_AHEAD).is_some() {
        return assemble::read_ahead_kib(values);
    }
    match values.flag(&table::DIRECT) {
        true => READ_AHEAD_DIRECT_KIB,
        false => READ_AHEAD_KIB,
    }
}

/// How the kernel gets at the data; none for the FUSE door.
pub(super) fn transport(values: &Values) -> Option<TransportKind> {
    match values.choice(&table::TRANSPORT) {
        "fuse" => None,
        "nbd" => Some(TransportKind::Nbd),
        "ublk" => Some(TransportKind::Ublk),
        "loop" => Some(TransportKind::Loop),
        _ => (system::user_id() == 0).then_some(TransportKind::Loop),
    }
}

/// Where volumes with block devices are written down.
pub(crate) fn state_directory(environment: &Environment) -> StateDirectory {
    StateDirectory::new(Place::of_user(environment).directory().join("volumes"))
}

/// Where indexes are kept: what was named, else a directory that nobody else can have prepared.
pub(super) fn index_directory(values: &Values, environment: &Environment) -> Outcome<PathBuf> {
    if let Some(given) = values.path(&table::INDEX_DIR) {
        return Ok(given.to_owned());
    }
    places::indexes(environment).make().map_err(|error| {
        Failure::new(
            format!("the directory for indexes cannot be used: {error}"),
            "remove it, or name another with --index-dir",
        )
    })
}

/// The volume with block devices that is mounted on `mountpoint` and whose program lives. One that is
/// out of sight and still read is none.
pub(crate) fn volume_at(mountpoint: &Path, environment: &Environment) -> Option<Record> {
    let entry = mount_table::find(mountpoint)?;
    let mut volumes = penstock_block::volumes(&state_directory(environment)).into_iter();
    volumes.find(|volume| {
        volume.mounted && volume.mount_point == mountpoint && volume.file_system == entry.kind
    })
}

/// What is to be listed: what was given, or what `bucket` and `path` name.
pub(crate) fn source(given: Option<&str>, values: &Values) -> Outcome<String> {
    let bucket = values.text(&table::BUCKET);
    match (given, bucket) {
        (Some(source), None) if values.text(&table::BUCKET_PATH).is_none() => Ok(source.to_owned()),
        (None, Some(bucket)) => Ok(bucket_source(bucket, values)),
        (None, None) => Err(Failure::usage(
            "no SOURCE is given",
            "name one, such as s3://bucket/path, before the mount point",
        )),
        (Some(_), _) => Err(Failure::usage(
            "both SOURCE and `bucket` or `path` are given",
            "give one of them",
        )),
    }
}

fn bucket_source(bucket: &str, values: &Values) -> String {
    let path = values.text(&table::BUCKET_PATH).unwrap_or_default();
    match path.trim_matches('/') {
        "" => format!("oss://{bucket}"),
        path => format!("oss://{bucket}/{path}"),
    }
}

#[cfg(test)]
mod tests {
    use penstock_base::GIB;

    use super::*;
    use crate::options::{Scope, mount_words};

    fn values(words: &str) -> Values {
        Values::resolve(mount_words::given(words, Scope::Stream).expect("known")).expect("valid")
    }

    #[test]
    fn the_attributes_of_strmvol_volumes_are_understood() {
        let words = "bucket=imagenet,path=/data,url=oss-cn-hangzhou-internal.aliyuncs.com,umask=000,\
                     directMode=true,resourceLimit=4c8g";
        let values = values(words);
        assert_eq!(source(None, &values).expect("named"), "oss://imagenet/data");
        let endpoint = values.text(&table::ENDPOINT);
        assert_eq!(endpoint, Some("oss-cn-hangzhou-internal.aliyuncs.com"));
        assert_eq!(values.mode(&table::UMASK), 0);
        assert!(values.flag(&table::DIRECT));
        assert_eq!(processors(&values), Some(4));
        assert_eq!(memory(&values), 6 * GIB);
        assert_eq!(enforced(&values).map(|limits| limits.memory), Some(8 * GIB));
        assert_eq!(read_ahead_kib(&values), READ_AHEAD_DIRECT_KIB);
    }

    #[test]
    fn a_source_is_named_once() {
        let (none, bucket) = (values(""), values("bucket=b,path=/"));
        assert_eq!(source(Some("s3://a/b"), &none).expect("given"), "s3://a/b");
        assert_eq!(source(None, &bucket).expect("given"), "oss://b");
        assert!(source(None, &none).is_err());
        assert!(source(Some("s3://a"), &bucket).is_err());
        assert!(source(Some("s3://a"), &values("path=/x")).is_err());
    }

    #[test]
    fn free_settings_win_over_a_tier() {
        let values = values("tier=2c4g,cpus=1,memory=1GiB");
        assert_eq!((processors(&values), memory(&values)), (Some(1), GIB));
        let limits = enforced(&values).expect("limited");
        assert_eq!((limits.processors, limits.memory), (1, GIB + GIB / 3));
        let none = Values::resolve(Vec::new()).expect("valid");
        assert_eq!((processors(&none), enforced(&none)), (None, None));
    }

    #[test]
    fn each_free_setting_is_enforced() {
        let small = enforced(&values("memory=256MiB")).expect("limited");
        assert_eq!(small.memory, (256 << 20) * 4 / 3);
        assert_eq!(small.processors, ResourceLimits::NONE.processors);
        let one = enforced(&values("cpus=1")).expect("limited");
        assert_eq!(
            (one.processors, one.memory),
            (1, ResourceLimits::NONE.memory)
        );
    }

    #[test]
    fn requests_in_flight_follow_the_processors() {
        assert_eq!(requests(&values("tier=8c16g")), Some(512));
        assert_eq!(requests(&values("tier=8c16g,cpus=1")), Some(64));
        assert_eq!(requests(&values("cpus=1000")), Some(REQUESTS_MAX));
        assert_eq!(requests(&values("memory=1GiB")), None);
    }

    #[test]
    fn an_index_is_renewed_always_never_or_when_it_is_old() {
        let hour = std::time::Duration::from_secs(3600);
        for (words, expected) in [
            ("direct", Refresh::Never),
            ("refresh=off", Refresh::Never),
            ("refresh", Refresh::Always),
            ("refresh=on", Refresh::Always),
            ("refresh=1h", Refresh::OlderThan(hour)),
            ("refresh=3600", Refresh::OlderThan(hour)),
        ] {
            assert_eq!(refresh(&values(words)), expected, "{words}");
        }
    }
}
