//! Signature Version 1 of OSS: no region needed, and the path is signed unencoded.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{Query, sorted};

/// Parameters that are part of the resource. All that begin with `x-oss-` are too.
const SUB_RESOURCES: [&str; 30] = [
    "acl",
    "append",
    "bucketInfo",
    "callback",
    "callback-var",
    "cloudboxes",
    "continuation-token",
    "delete",
    "location",
    "objectMeta",
    "partNumber",
    "position",
    "regionList",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "security-token",
    "sequential",
    "stat",
    "symlink",
    "tagging",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
];

/// What is signed of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OssV1Request<'a> {
    /// `GET`, `PUT` and so on.
    pub(crate) method: &'a str,
    /// The headers; names in lower case, in any order. Those that begin with `x-oss-`,
    /// `content-md5` and `content-type` are signed.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// The date line: the `Date` header, or the expiry of a signed URL in seconds.
    pub(crate) date: &'a str,
    /// From [`oss_v1_resource`].
    pub(crate) resource: &'a str,
}

/// `/bucket/key` with those parameters that select a part of it. `more` names further ones.
pub(crate) fn oss_v1_resource(bucket: &str, key: &str, query: &Query, more: &[&str]) -> String {
    let is_part = |name: &str| {
        name.starts_with("x-oss-") || SUB_RESOURCES.contains(&name) || more.contains(&name)
    };
    let mut parts: Vec<_> = query.iter().filter(|(name, _)| is_part(name)).collect();
    parts.sort_unstable();
    let mut resource = format!("/{bucket}/{key}");
    for (index, (name, value)) in parts.into_iter().enumerate() {
        resource.push(if index == 0 { '?' } else { '&' });
        resource.push_str(name);
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            resource.push('=');
            resource.push_str(value);
        }
    }
    resource
}

/// The signature in Base64.
pub(super) fn oss_v1_signature(request: &OssV1Request<'_>, secret: &str) -> String {
    use hmac::{KeyInit, Mac};
    let mut mac = hmac::Hmac::<sha1::Sha1>::new_from_slice(secret.as_bytes())
        .expect("HMAC takes keys of any length");
    mac.update(string_to_sign(request).as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

/// The value of the `Authorization` header.
pub(crate) fn oss_v1_authorization(
    request: &OssV1Request<'_>,
    key_id: &str,
    secret: &str,
) -> String {
    format!("OSS {key_id}:{}", oss_v1_signature(request, secret))
}

fn string_to_sign(request: &OssV1Request<'_>) -> String {
    let headers = sorted(request.headers);
    let value_of = |wanted| {
        headers
            .iter()
            .find_map(|(name, value)| (*name == wanted).then_some(*value))
            .unwrap_or_default()
    };
    let mut text = format!(
        "{}\n{}\n{}\n{}\n",
        request.method,
        value_of("content-md5"),
        value_of("content-type"),
        request.date
    );
    for (name, value) in headers
        .iter()
        .filter(|(name, _)| name.starts_with("x-oss-"))
    {
        text.push_str(&format!("{name}:{}\n", value.trim()));
    }
    text + request.resource
}
