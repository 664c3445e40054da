//! What options mean for a stream volume.

use std::path::PathBuf;

use penstock_stream::{Permissions, Refresh, Tier};
use penstock_transfer::TransferSettings;

use crate::{
    doors::block,
    environment::Environment,
    failure::{Failure, Outcome},
    limits,
    options::{Values, table},
    places,
};

/// KiB that the kernel reads ahead: enough to keep a store at 10 ms busy with one reader.
const READ_AHEAD_KIB: u32 = 16 << 10;

/// KiB that the kernel reads ahead of those who read at random: a small file in one request.
const READ_AHEAD_DIRECT_KIB: u32 = 128;

/// When the path is listed anew.
pub(super) fn refresh(values: &Values) -> Refresh {
    match values.switch_or_duration(&table::REFRESH) {
        Some(age) => Refresh::OlderThan(age),
        None if values.flag(&table::REFRESH) => Refresh::Always,
        None => Refresh::Never,
    }
}

/// How the bytes of large objects are moved.
pub(super) fn transfer(values: &Values) -> TransferSettings {
    let limits = limits::tier(values).unwrap_or_else(|| Tier::default().limits());
    limits.transfer_settings()
}

/// Owner and modes of everything.
pub(super) fn permissions(values: &Values) -> Permissions {
    let id = |spec, own: u32| {
        let given = values.count(spec).and_then(|id| u32::try_from(id).ok());
        given.unwrap_or(own)
    };
    Permissions::with_umask(
        id(&table::UID, penstock_base::user_id()),
        id(&table::GID, penstock_base::group_id()),
        values.mode(&table::UMASK),
    )
}

/// KiB that the kernel should read ahead.
pub(super) fn read_ahead_kib(values: &Values) -> u32 {
    match values.flag(&table::DIRECT) {
        true => READ_AHEAD_DIRECT_KIB,
        false => READ_AHEAD_KIB,
    }
}

/// Whether the kernel is to read an image and disks by itself; else it asks this program for files.
pub(super) fn has_disks(values: &Values) -> bool {
    block::transport(values).is_some()
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
        assert_eq!(limits::processors(&values), Some(4));
        assert_eq!(limits::memory(&values), 6 * GIB);
        assert_eq!(
            limits::enforced(&values).map(|limits| limits.memory),
            Some(8 * GIB)
        );
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
