//! What is said of every object that is written, whoever writes it: how the store encrypts it,
//! its storage class and who may read it, and how fast it is sent.

use super::Dialect;
use crate::{
    Operation,
    http::RequestHeaders,
    settings::{Encryption, WriteSettings},
};

/// How OSS spells a limit of bits per second; S3 has none.
const TRAFFIC_LIMIT: &str = "x-oss-traffic-limit";

/// Adds what the settings say to a request that does `operation`.
pub(super) fn attach<D: Dialect>(
    operation: Operation,
    settings: &WriteSettings,
    headers: &mut RequestHeaders,
) {
    if makes_object(operation) {
        encrypt::<D>(&settings.encryption, headers);
        if let Some(class) = &settings.storage_class {
            headers.push(D::NAMES.storage_class, class.clone());
        }
        if let Some(acl) = &settings.acl {
            headers.push(D::NAMES.acl, acl.clone());
        }
    }
    if let Some(bits) = traffic_limit(operation, settings).filter(|_| D::LIMITS_TRAFFIC) {
        headers.push(TRAFFIC_LIMIT, bits.to_string());
    }
}

fn encrypt<D: Dialect>(encryption: &Encryption, headers: &mut RequestHeaders) {
    match encryption {
        Encryption::ByStore => {}
        Encryption::Aes256 => headers.push(D::NAMES.encryption, "AES256"),
        Encryption::Kms { key } => {
            headers.push(D::NAMES.encryption, D::NAMES.encryption_kms);
            if let Some(key) = key {
                headers.push(D::NAMES.encryption_key, key.clone());
            }
        }
    }
}

/// Parts are made as the upload was declared.
fn makes_object(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Put | Operation::Append | Operation::Copy | Operation::CreateUpload
    )
}

fn traffic_limit(operation: Operation, settings: &WriteSettings) -> Option<u64> {
    match operation {
        Operation::Put | Operation::Append | Operation::UploadPart => settings.upload_limit,
        Operation::Get => settings.download_limit,
        _ => None,
    }
}
