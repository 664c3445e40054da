//! OSS Signature Version 1.

use std::{
    collections::BTreeMap,
    time::{Duration, UNIX_EPOCH},
};

use super::{Computed, Evidence, Scheme, Subject, Validity, mac};
use crate::refusal::{Code, Refusal};

/// Query parameters that are signed; those that begin with `x-oss-` are too.
const SUBRESOURCES: [&str; 84] = [
    "accessPoint",
    "accessPointPolicy",
    "acl",
    "append",
    "asyncFetch",
    "bucketArchiveDirectRead",
    "bucketInfo",
    "callback",
    "callback-var",
    "cloudboxes",
    "cname",
    "comp",
    "continuation-token",
    "cors",
    "delete",
    "encryption",
    "endTime",
    "group",
    "httpsConfig",
    "img",
    "inventory",
    "inventoryId",
    "lifecycle",
    "link",
    "live",
    "location",
    "logging",
    "metaQuery",
    "objectInfo",
    "objectMeta",
    "partNumber",
    "policy",
    "policyStatus",
    "position",
    "processConfiguration",
    "publicAccessBlock",
    "qos",
    "qosInfo",
    "qosRequester",
    "referer",
    "regionList",
    "replication",
    "replicationLocation",
    "replicationProgress",
    "requestPayment",
    "requesterQosInfo",
    "resourceGroup",
    "resourcePool",
    "resourcePoolBuckets",
    "resourcePoolInfo",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "rtc",
    "security-token",
    "select",
    "sequential",
    "startTime",
    "stat",
    "status",
    "style",
    "styleName",
    "symlink",
    "tagging",
    "tokens",
    "transferAcceleration",
    "udf",
    "udfApplication",
    "udfApplicationLog",
    "udfImage",
    "udfName",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "vod",
    "website",
    "worm",
    "wormId",
];

pub(super) fn from_header(subject: &Subject<'_>, text: &str) -> Result<Evidence, Refusal> {
    let malformed = || Refusal::because(Code::InvalidArgument, "Authorization header is invalid.");
    let (key_id, signature) = text
        .strip_prefix("OSS ")
        .and_then(|pair| pair.rsplit_once(':'))
        .ok_or_else(malformed)?;
    let date = subject
        .request
        .header("x-oss-date")
        .or(subject.request.header("date"));
    let no_date = || {
        Refusal::because(
            Code::AccessDenied,
            "A valid Date or x-oss-date header is required.",
        )
    };
    let date = date.ok_or_else(no_date)?;
    let time = httpdate::parse_http_date(date).map_err(|_| no_date())?;
    Ok(Evidence {
        key_id: key_id.trim().to_owned(),
        token: subject
            .request
            .header("x-oss-security-token")
            .map(str::to_owned),
        validity: Validity::At(time),
        region: None,
        signature: signature.trim().to_owned(),
        scheme: Scheme::OssV1 {
            date: date.to_owned(),
        },
    })
}

pub(super) fn from_query(subject: &Subject<'_>) -> Result<Evidence, Refusal> {
    let query = &subject.request.query;
    let missing = || {
        Refusal::because(
            Code::AccessDenied,
            "OSSAccessKeyId, Expires or Signature is missing.",
        )
    };
    let parameter = |name| query.get(name).ok_or_else(missing);
    let expires = parameter("Expires")?;
    let until: u64 = expires.parse().map_err(|_| missing())?;
    Ok(Evidence {
        key_id: parameter("OSSAccessKeyId")?.to_owned(),
        token: query.get("security-token").map(str::to_owned),
        validity: Validity::Between(None, UNIX_EPOCH + Duration::from_secs(until)),
        region: None,
        signature: parameter("Signature")?.to_owned(),
        scheme: Scheme::OssV1 {
            date: expires.to_owned(),
        },
    })
}

pub(super) fn compute(subject: &Subject<'_>, date: &str, secret: &str) -> Computed {
    let request = subject.request;
    let string_to_sign = format!(
        "{}\n{}\n{}\n{date}\n{}{}",
        request.method.name(),
        request.header("content-md5").unwrap_or(""),
        request.header("content-type").unwrap_or(""),
        canonical_headers(subject),
        canonical_resource(subject),
    );
    let signature = mac::sha1_base64(secret, &string_to_sign);
    Computed {
        canonical_request: String::new(),
        string_to_sign,
        signature,
    }
}

fn canonical_headers(subject: &Subject<'_>) -> String {
    let fields = subject
        .request
        .headers
        .iter()
        .filter(|(name, _)| name.starts_with("x-oss-"));
    let sorted: BTreeMap<_, _> = fields.collect();
    sorted
        .iter()
        .map(|(name, value)| format!("{name}:{value}\n"))
        .collect()
}

/// The object's name, not encoded, with the parameters that change what is done to it.
fn canonical_resource(subject: &Subject<'_>) -> String {
    let (bucket, key) = (&subject.address.bucket, &subject.address.key);
    let path = if bucket.is_empty() {
        "/".to_owned()
    } else {
        format!("/{bucket}/{key}")
    };
    let is_signed = |name: &str| SUBRESOURCES.contains(&name) || name.starts_with("x-oss-");
    let signed: BTreeMap<_, _> = subject
        .request
        .query
        .iter()
        .filter(|(name, _)| is_signed(name))
        .collect();
    let pairs: Vec<_> = signed
        .iter()
        .map(|(name, value)| match value {
            Some(value) if !value.is_empty() => format!("{name}={value}"),
            _ => (*name).to_owned(),
        })
        .collect();
    if pairs.is_empty() {
        path
    } else {
        format!("{path}?{}", pairs.join("&"))
    }
}
