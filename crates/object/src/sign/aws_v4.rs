//! AWS Signature Version 4, as S3 uses it: paths are encoded once and never normalised.

use std::time::SystemTime;

use super::{
    SignedRequest, SigningKey, basic_date, basic_time, hex, hmac_sha256, sha256_hex, sorted,
};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// What a signing key is good for, apart from the day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AwsScope<'a> {
    /// Such as `eu-west-1`.
    pub(crate) region: &'a str,
    /// Such as `s3`.
    pub(crate) service: &'a str,
}

impl AwsScope<'_> {
    fn on(&self, time: SystemTime) -> String {
        let Self { region, service } = self;
        format!("{}/{region}/{service}/aws4_request", basic_date(time))
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
    let signature = sign(request, &headers, key, scope, time);
    format!(
        "{ALGORITHM} Credential={key_id}/{}, SignedHeaders={names}, Signature={signature}",
        scope.on(time)
    )
}

fn sign(
    request: &SignedRequest<'_>,
    headers: &[(&str, &str)],
    key: &SigningKey,
    scope: AwsScope<'_>,
    time: SystemTime,
) -> String {
    let canonical = canonical_request(request, headers);
    let text = format!(
        "{ALGORITHM}\n{}\n{}\n{}",
        basic_time(time),
        scope.on(time),
        sha256_hex(&canonical)
    );
    hex(&hmac_sha256(key, &text))
}

fn canonical_request(request: &SignedRequest<'_>, headers: &[(&str, &str)]) -> String {
    let SignedRequest {
        method,
        path,
        query,
        payload_hash,
        ..
    } = request;
    let mut fields = String::with_capacity(256);
    for (name, value) in headers {
        fields.push_str(name);
        fields.push(':');
        fields.extend(value.split_ascii_whitespace().enumerate().flat_map(spaced));
        fields.push('\n');
    }
    let names = names(headers);
    format!("{method}\n{path}\n{query}\n{fields}\n{names}\n{payload_hash}")
}

/// Runs of white space count as one space.
fn spaced((index, word): (usize, &str)) -> [&str; 2] {
    [if index == 0 { "" } else { " " }, word]
}

fn names(headers: &[(&str, &str)]) -> String {
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    names.join(";")
}
