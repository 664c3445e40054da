//! Signature Version 4 of OSS: like that of AWS, but every signature covers the bucket in the
//! path, and what else is signed is named as additional headers.

use std::time::SystemTime;

use super::{
    SignedRequest, SigningKey, basic_date, basic_time, hex, hmac_sha256, sha256_hex, sorted,
};

const ALGORITHM: &str = "OSS4-HMAC-SHA256";

/// What a signing key is good for, apart from the day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OssScope<'a> {
    /// Such as `cn-hangzhou`, without `oss-`.
    pub(crate) region: &'a str,
    /// `oss`, or `oss-cloudbox` whose region is the box's name.
    pub(crate) product: &'a str,
}

impl OssScope<'_> {
    /// The credential scope on the day of `time`.
    pub(crate) fn on(&self, time: SystemTime) -> String {
        let Self { region, product } = self;
        format!("{}/{region}/{product}/aliyun_v4_request", basic_date(time))
    }
}

/// A request with the names of the headers that are signed although nothing demands it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OssV4Request<'a> {
    /// The request. Of its headers, `x-oss-` ones, `content-type`, `content-md5` and the
    /// additional ones are signed.
    pub(crate) request: SignedRequest<'a>,
    /// Names in lower case and in order.
    pub(crate) additional: &'a [&'a str],
}

/// Derives the key for the day `date` (`YYYYMMDD`).
pub(crate) fn oss_v4_signing_key(secret: &str, date: &str, scope: OssScope<'_>) -> SigningKey {
    let key = hmac_sha256(format!("aliyun_v4{secret}").as_bytes(), date);
    let key = hmac_sha256(&key, scope.region);
    let key = hmac_sha256(&key, scope.product);
    hmac_sha256(&key, "aliyun_v4_request")
}

/// The value of the `Authorization` header.
pub(crate) fn oss_v4_authorization(
    request: &OssV4Request<'_>,
    key_id: &str,
    key: &SigningKey,
    scope: OssScope<'_>,
    time: SystemTime,
) -> String {
    let signature = oss_v4_signature(request, key, scope, time);
    let additional = match request.additional {
        [] => String::new(),
        names => format!("AdditionalHeaders={}, ", names.join(";")),
    };
    format!(
        "{ALGORITHM} Credential={key_id}/{}, {additional}Signature={signature}",
        scope.on(time)
    )
}

/// The signature alone.
pub(super) fn oss_v4_signature(
    request: &OssV4Request<'_>,
    key: &SigningKey,
    scope: OssScope<'_>,
    time: SystemTime,
) -> String {
    let text = format!(
        "{ALGORITHM}\n{}\n{}\n{}",
        basic_time(time),
        scope.on(time),
        sha256_hex(&canonical_request(request))
    );
    hex(&hmac_sha256(key, &text))
}

pub(super) fn canonical_request(signed: &OssV4Request<'_>) -> String {
    let OssV4Request {
        request,
        additional,
    } = signed;
    let mut fields = String::with_capacity(256);
    for (name, value) in sorted(request.headers) {
        if is_signed(name) || additional.contains(&name) {
            fields.push_str(&format!("{name}:{}\n", value.trim()));
        }
    }
    format!(
        "{}\n{}\n{}\n{fields}\n{}\n{}",
        request.method,
        request.path,
        request.query,
        additional.join(";"),
        request.payload_hash
    )
}

fn is_signed(name: &str) -> bool {
    name.starts_with("x-oss-") || matches!(name, "content-type" | "content-md5")
}
