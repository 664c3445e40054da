//! What is said of every object that is written.

use penstock_object::{Encryption, ListVersion, WriteSettings};

use crate::{
    failure::{Failure, Outcome},
    options::{OptionSpec, Values, table},
};

/// Bits per second in the lowest limit that OSS keeps to.
const LIMIT_MIN: u64 = 819_200;

/// What is said of every object that is written.
pub(super) fn settings(values: &Values) -> Outcome<WriteSettings> {
    let text = |spec| values.text(spec).map(str::to_owned);
    let sse = values.text(&table::USE_SSE);
    Ok(WriteSettings {
        encryption: sse.map_or(Ok(Encryption::ByStore), encryption)?,
        storage_class: text(&table::STORAGE_CLASS),
        acl: text(&table::DEFAULT_ACL).filter(|acl| acl != "default"),
        upload_limit: limit(values, &table::UPLOAD_TRAFFIC_LIMIT)?,
        download_limit: limit(values, &table::DOWNLOAD_TRAFFIC_LIMIT)?,
    })
}

/// How listings are asked for.
pub(super) fn listing(values: &Values) -> ListVersion {
    match values.flag(&table::LIST_OBJECTS_V2) {
        true => ListVersion::V2,
        false => ListVersion::V1,
    }
}

fn encryption(text: &str) -> Outcome<Encryption> {
    if let Some((_, key)) = text
        .split_once(':')
        .filter(|(word, key)| matches!(*word, "kmsid" | "k") && !key.is_empty())
    {
        let key = Some(key.to_owned());
        return Ok(Encryption::Kms { key });
    }
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "aes256" => Ok(Encryption::Aes256),
        "kms" => Ok(Encryption::Kms { key: None }),
        "off" | "0" => Ok(Encryption::ByStore),
        _ => Err(Failure::usage(
            format!("use-sse: `{text}` is no way to encrypt"),
            "it must be aes256, kms or kmsid:ID",
        )),
    }
}

fn limit(values: &Values, spec: &'static OptionSpec) -> Outcome<Option<u64>> {
    match values.count(spec).filter(|bits| *bits > 0) {
        Some(bits) if bits < LIMIT_MIN => Err(Failure::usage(
            format!("{}: {bits} bits per second are too few", spec.name),
            "it must be 0, or from 819200 to 838860800",
        )),
        limit => Ok(limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encryption_is_read_as_ossfs_writes_it() {
        let kms = |key: Option<&str>| Encryption::Kms {
            key: key.map(str::to_owned),
        };
        for (text, expected) in [
            ("1", Some(Encryption::Aes256)),
            ("AES256", Some(Encryption::Aes256)),
            ("kms", Some(kms(None))),
            ("kmsid:a:b", Some(kms(Some("a:b")))),
            ("k:a", Some(kms(Some("a")))),
            ("kmsid:", None),
            ("rot13", None),
        ] {
            assert_eq!(encryption(text).ok(), expected, "{text}");
        }
    }
}
