//! Signatures of requests: AWS Signature Version 4 and the two native ones of OSS.
//!
//! Everything here is a pure function of its arguments, time included, so that published
//! examples are tests. Who calls is responsible for sending exactly what was signed: the same
//! path and query encoding ([`encode_path`], [`Query::encoded`]) is used for both.

mod aws_v4;
mod encode;
mod keys;
mod oss_v1;
mod oss_v4;
mod time;

#[cfg(test)]
mod tests;

pub(crate) use aws_v4::{AwsScope, aws_authorization, aws_signing_key};
pub(crate) use encode::{Query, encode_path, encode_value};
pub(crate) use keys::SigningKeys;
pub(crate) use oss_v1::{OssV1Request, oss_v1_authorization, oss_v1_resource};
pub(crate) use oss_v4::{OssScope, OssV4Request, oss_v4_authorization, oss_v4_signing_key};
pub(crate) use time::{basic_date, basic_time, http_date};

/// The payload hash of a body that is protected by TLS, or by its own checksum, instead.
pub(crate) const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";

/// A derived key for one day, region and service.
pub(crate) type SigningKey = [u8; 32];

/// What both V4 dialects sign of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignedRequest<'a> {
    /// `GET`, `PUT` and so on.
    pub(crate) method: &'a str,
    /// The path, percent-encoded as it is sent. For OSS it begins with the bucket even where the
    /// host name has it.
    pub(crate) path: &'a str,
    /// The query in the dialect's canonical form: encoded and sorted.
    pub(crate) query: &'a str,
    /// The headers to sign; names in lower case, in any order.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// The hexadecimal SHA-256 of the body, or [`UNSIGNED_PAYLOAD`].
    pub(crate) payload_hash: &'a str,
}

/// The headers in order of their names.
fn sorted<'a>(headers: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut sorted = headers.to_vec();
    sorted.sort_unstable();
    sorted
}

/// Lower-case digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

fn hmac_sha256(key: &[u8], message: &str) -> SigningKey {
    use hmac::{KeyInit, Mac};
    let mut mac =
        hmac::Hmac::<sha2::Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message.as_bytes());
    mac.finalize().into_bytes().into()
}

fn sha256_hex(text: &str) -> String {
    use sha2::Digest;
    hex(&sha2::Sha256::digest(text))
}
