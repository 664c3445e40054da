//! OSS Signature Version 4.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Computed, Evidence, Scheme, Subject, Validity, encoded_query, field, mac};
use crate::{
    clock, digest,
    http::encoding,
    refusal::{Code, Refusal},
};

/// What authorization headers of this scheme begin with.
pub(super) const ALGORITHM: &str = "OSS4-HMAC-SHA256";
const TERMINATOR: &str = "aliyun_v4_request";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// What goes into a signature besides the request.
pub(super) struct Parameters {
    /// `20231216T162057Z`.
    time: String,
    /// Date, region and product of the scope.
    date: String,
    region: String,
    product: String,
    additional_headers: BTreeSet<String>,
}

fn malformed(why: &'static str) -> Refusal {
    Refusal::because(Code::InvalidArgument, why)
}

/// The lower-case names in `a;b`.
fn names(text: &str) -> BTreeSet<String> {
    text.split(';')
        .filter(|name| !name.is_empty())
        .map(str::to_ascii_lowercase)
        .collect()
}

pub(super) fn from_header(subject: &Subject<'_>, text: &str) -> Result<Evidence, Refusal> {
    let text = text.strip_prefix(ALGORITHM).unwrap_or(text);
    let missing = || malformed("Credential or Signature is missing in the authorization header.");
    let credential = field(text, "Credential").ok_or_else(missing)?;
    let signature = field(text, "Signature").ok_or_else(missing)?;
    let time = subject
        .request
        .header("x-oss-date")
        .ok_or_else(|| malformed("The x-oss-date header is missing."))?;
    let moment =
        clock::parse_basic(time).ok_or_else(|| malformed("The x-oss-date is not a time."))?;
    let additional = names(field(text, "AdditionalHeaders").unwrap_or(""));
    let parameters = parameters(time, credential, additional)?;
    Ok(Evidence {
        key_id: key_id(credential),
        token: subject
            .request
            .header("x-oss-security-token")
            .map(str::to_owned),
        validity: Validity::At(moment),
        region: Some(parameters.region.clone()),
        signature: signature.to_owned(),
        scheme: Scheme::OssV4(parameters),
    })
}

pub(super) fn from_query(subject: &Subject<'_>) -> Result<Evidence, Refusal> {
    let query = &subject.request.query;
    let missing = || malformed("A query parameter of the signature is missing.");
    let parameter = |name| query.get(name).ok_or_else(missing);
    let time = parameter("x-oss-date")?;
    let start =
        clock::parse_basic(time).ok_or_else(|| malformed("The x-oss-date is not a time."))?;
    let expires: u64 = parameter("x-oss-expires")?
        .parse()
        .map_err(|_| malformed("x-oss-expires is not a number."))?;
    let credential = parameter("x-oss-credential")?;
    let additional = names(query.get("x-oss-additional-headers").unwrap_or(""));
    let parameters = parameters(time, credential, additional)?;
    Ok(Evidence {
        key_id: key_id(credential),
        token: query.get("x-oss-security-token").map(str::to_owned),
        validity: Validity::Between(Some(start), start + Duration::from_secs(expires)),
        region: Some(parameters.region.clone()),
        signature: parameter("x-oss-signature")?.to_owned(),
        scheme: Scheme::OssV4(parameters),
    })
}

fn key_id(credential: &str) -> String {
    credential.split('/').next().unwrap_or("").to_owned()
}

/// Takes the credential apart: `KEY/DATE/REGION/PRODUCT/aliyun_v4_request`.
fn parameters(
    time: &str,
    credential: &str,
    additional_headers: BTreeSet<String>,
) -> Result<Parameters, Refusal> {
    let pieces: Vec<_> = credential.split('/').collect();
    match pieces.as_slice() {
        [_, date, region, product, TERMINATOR] if time.starts_with(date) => Ok(Parameters {
            time: time.to_owned(),
            date: (*date).to_owned(),
            region: (*region).to_owned(),
            product: (*product).to_owned(),
            additional_headers,
        }),
        _ => Err(malformed(
            "The credential is not of the form KEY/DATE/REGION/oss/aliyun_v4_request.",
        )),
    }
}

pub(super) fn compute(subject: &Subject<'_>, parameters: &Parameters, secret: &str) -> Computed {
    let Parameters {
        time,
        date,
        region,
        product,
        additional_headers,
    } = parameters;
    let additional: Vec<_> = additional_headers.iter().map(String::as_str).collect();
    let canonical_request = format!(
        "{}\n{}\n{}\n{}\n{}\n{}",
        subject.request.method.name(),
        canonical_path(subject),
        canonical_query(subject),
        canonical_headers(subject, additional_headers),
        additional.join(";"),
        subject
            .request
            .header("x-oss-content-sha256")
            .unwrap_or(UNSIGNED),
    );
    let string_to_sign = format!(
        "{ALGORITHM}\n{time}\n{date}/{region}/{product}/{TERMINATOR}\n{}",
        mac::hash(&canonical_request)
    );
    let key = mac::chain(
        &format!("aliyun_v4{secret}"),
        &[date, region, product, TERMINATOR],
    );
    let signature = digest::hex(&mac::sha256(&key, &string_to_sign));
    Computed {
        canonical_request,
        string_to_sign,
        signature,
    }
}

/// With the bucket, whatever the style of the request.
fn canonical_path(subject: &Subject<'_>) -> String {
    let (bucket, key) = (&subject.address.bucket, &subject.address.key);
    if bucket.is_empty() {
        "/".to_owned()
    } else {
        encoding::encode_path(&format!("/{bucket}/{key}"))
    }
}

/// A parameter without a value is its bare name.
fn canonical_query(subject: &Subject<'_>) -> String {
    let pair = |(name, value): (String, String)| {
        if value.is_empty() {
            name
        } else {
            format!("{name}={value}")
        }
    };
    let pairs = encoded_query(subject, "x-oss-signature").into_iter();
    pairs.map(pair).collect::<Vec<_>>().join("&")
}

fn canonical_headers(subject: &Subject<'_>, additional: &BTreeSet<String>) -> String {
    let is_signed = |name: &str| {
        name.starts_with("x-oss-")
            || matches!(name, "content-type" | "content-md5")
            || additional.contains(name)
    };
    let signed: BTreeMap<_, _> = subject
        .request
        .headers
        .iter()
        .filter(|(name, _)| is_signed(name))
        .collect();
    signed
        .iter()
        .map(|(name, value)| format!("{name}:{}\n", value.trim()))
        .collect()
}
