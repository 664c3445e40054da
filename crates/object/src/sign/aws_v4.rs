//! AWS Signature Version 4, as S3 uses it: paths are encoded once and never normalised.

use std::time::SystemTime;

use super::{SignedRequest, SigningKey, basic_time, hex, hmac_sha256, sha256_hex, sorted};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Of `YYYYMMDD`, the front of `YYYYMMDDThhmmssZ`.
const DATE_LENGTH: usize = 8;

/// What a signing key is good for, apart from the day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AwsScope<'a> {
    /// Such as `eu-west-1`.
    pub(crate) region: &'a str,
    /// Such as `s3`.
    pub(crate) service: &'a str,
}

impl AwsScope<'_> {
    /// The scope on the day `date` (`YYYYMMDD`).
    fn on(&self, date: &str) -> String {
        [date, "/", self.region, "/", self.service, "/aws4_request"].concat()
    }
}

/// Derives the key for the day `date` (`YYYYMMDD`).
pub(crate) fn aws_signing_key(secret: &str, date: &str, scope: AwsScope<'_>) -> SigningKey {
    let key = hmac_sha256(format!("AWS4{secret}").as_bytes(), date);
    let key = hmac_sha256(&key, scope.region);
    let key = hmac_sha256(&key, scope.service);
    hmac_sha256(&key, "aws4_request")
}

/// The value of the `Authorization` header. All of `request.headers` are signed; `host`,
/// `x-amz-date` and every other `x-amz-` header must be among them.
pub(crate) fn aws_authorization(
    request: &SignedRequest<'_>,
    key_id: &str,
    key: &SigningKey,
    scope: AwsScope<'_>,
    time: SystemTime,
) -> String {
    let headers = sorted(request.headers);
    let names = names(&headers);
    let time = basic_time(time);
    let scope = scope.on(&time[..DATE_LENGTH]);
    let canonical = sha256_hex(&canonical_request(request, &headers, &names));
    let text = [ALGORITHM, "\n", &time, "\n", &scope, "\n", &canonical].concat();
    let signature = hex(&hmac_sha256(key, &text));
    let credential = [ALGORITHM, " Credential=", key_id, "/", &scope];
    let signed = [", SignedHeaders=", &names, ", Signature=", &signature];
    [credential.concat(), signed.concat()].concat()
}

fn canonical_request(request: &SignedRequest<'_>, headers: &[(&str, &str)], names: &str) -> String {
    let SignedRequest {
        method,
        path,
        query,
        payload_hash,
        ..
    } = request;
    let mut canonical = String::with_capacity(512);
    for line in [method, path, query] {
        canonical.push_str(line);
        canonical.push('\n');
    }
    for (name, value) in headers {
        canonical.push_str(name);
        canonical.push(':');
        canonical.extend(value.split_ascii_whitespace().enumerate().flat_map(spaced));
        canonical.push('\n');
    }
    for part in ["\n", names, "\n", payload_hash] {
        canonical.push_str(part);
    }
    canonical
}

/// Runs of white space count as one space.
fn spaced((index, word): (usize, &str)) -> [&str; 2] {
    [if index == 0 { "" } else { " " }, word]
}

fn names(headers: &[(&str, &str)]) -> String {
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    names.join(";")
}
