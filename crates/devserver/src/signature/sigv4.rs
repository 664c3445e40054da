//! AWS Signature Version 4.
//!
//! Signatures of chunks inside a streamed body are not checked; that of the request is.

use std::time::Duration;

use super::{Computed, Evidence, Scheme, Subject, Validity, encoded_query, field, mac};
use crate::{
    clock, digest,
    http::encoding,
    refusal::{Code, Refusal},
};

/// What authorization headers of this scheme begin with.
pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// The longest that a presigned request may be used: seven days.
const EXPIRES_MAX: u64 = 7 * 24 * 3600;

/// What goes into a signature besides the request.
pub(super) struct Parameters {
    /// `20130524T000000Z`.
    time: String,
    /// Date and region of the scope.
    date: String,
    region: String,
    signed_headers: Vec<String>,
    payload_hash: String,
    presigned: bool,
}

fn malformed(why: &'static str) -> Refusal {
    Refusal::because(Code::AuthorizationHeaderMalformed, why)
}

pub(super) fn from_header(subject: &Subject<'_>, text: &str) -> Result<Evidence, Refusal> {
    let text = text.strip_prefix(ALGORITHM).unwrap_or(text);
    let missing = || malformed("Credential, SignedHeaders or Signature is missing.");
    let credential = field(text, "Credential").ok_or_else(missing)?;
    let signed_headers = field(text, "SignedHeaders").ok_or_else(missing)?;
    let signature = field(text, "Signature").ok_or_else(missing)?;
    let time = subject.request.header("x-amz-date");
    let time = time.ok_or_else(|| malformed("The x-amz-date header is missing."))?;
    let payload_hash = subject
        .request
        .header("x-amz-content-sha256")
        .ok_or_else(|| {
            Refusal::because(
                Code::InvalidRequest,
                "The x-amz-content-sha256 header is missing.",
            )
        })?;
    let parameters = Parameters {
        time: time.to_owned(),
        date: String::new(),
        region: String::new(),
        signed_headers: signed_headers.split(';').map(str::to_owned).collect(),
        payload_hash: payload_hash.to_owned(),
        presigned: false,
    };
    let moment =
        clock::parse_basic(time).ok_or_else(|| malformed("The x-amz-date is not a time."))?;
    let token = subject
        .request
        .header("x-amz-security-token")
        .map(str::to_owned);
    evidence(parameters, credential, signature, Validity::At(moment))
        .map(|found| Evidence { token, ..found })
}

pub(super) fn from_query(subject: &Subject<'_>) -> Result<Evidence, Refusal> {
    let query = &subject.request.query;
    let missing = || malformed("A query parameter of the signature is missing.");
    let parameter = |name| query.get(name).ok_or_else(missing);
    let time = parameter("X-Amz-Date")?;
    let start =
        clock::parse_basic(time).ok_or_else(|| malformed("The X-Amz-Date is not a time."))?;
    let expires: u64 = parameter("X-Amz-Expires")?
        .parse()
        .map_err(|_| malformed("X-Amz-Expires is not a number."))?;
    if expires > EXPIRES_MAX {
        return Err(malformed("X-Amz-Expires must be at most seven days."));
    }
    let parameters = Parameters {
        time: time.to_owned(),
        date: String::new(),
        region: String::new(),
        signed_headers: parameter("X-Amz-SignedHeaders")?
            .split(';')
            .map(str::to_owned)
            .collect(),
        payload_hash: subject
            .request
            .header("x-amz-content-sha256")
            .unwrap_or(UNSIGNED)
            .to_owned(),
        presigned: true,
    };
    let validity = Validity::Between(Some(start), start + Duration::from_secs(expires));
    let token = query.get("X-Amz-Security-Token").map(str::to_owned);
    evidence(
        parameters,
        parameter("X-Amz-Credential")?,
        parameter("X-Amz-Signature")?,
        validity,
    )
    .map(|found| Evidence { token, ..found })
}

/// Takes the credential apart: `KEY/DATE/REGION/s3/aws4_request`, where keys may hold slashes.
fn evidence(
    mut parameters: Parameters,
    credential: &str,
    signature: &str,
    validity: Validity,
) -> Result<Evidence, Refusal> {
    let wrong = || malformed("The Credential is not of the form KEY/DATE/REGION/s3/aws4_request.");
    let mut pieces = credential.rsplitn(5, '/');
    let mut piece = || pieces.next().ok_or_else(wrong);
    let (terminator, service, region, date, key_id) =
        (piece()?, piece()?, piece()?, piece()?, piece()?);
    if terminator != "aws4_request" || service != "s3" || !parameters.time.starts_with(date) {
        return Err(wrong());
    }
    date.clone_into(&mut parameters.date);
    region.clone_into(&mut parameters.region);
    Ok(Evidence {
        key_id: key_id.to_owned(),
        token: None,
        validity,
        region: Some(region.to_owned()),
        signature: signature.to_owned(),
        scheme: Scheme::SigV4(parameters),
    })
}

pub(super) fn compute(
    subject: &Subject<'_>,
    parameters: &Parameters,
    secret: &str,
) -> Result<Computed, Refusal> {
    check_signed_headers(subject, parameters)?;
    let canonical_request = format!(
        "{}\n{}\n{}\n{}\n{}\n{}",
        subject.request.method.name(),
        canonical_path(&subject.request.path),
        canonical_query(subject),
        canonical_headers(subject, &parameters.signed_headers),
        parameters.signed_headers.join(";"),
        parameters.payload_hash,
    );
    let Parameters {
        time, date, region, ..
    } = parameters;
    let string_to_sign = format!(
        "{ALGORITHM}\n{time}\n{date}/{region}/s3/aws4_request\n{}",
        mac::hash(&canonical_request)
    );
    let key = mac::chain(
        &format!("AWS4{secret}"),
        &[date, region, "s3", "aws4_request"],
    );
    let signature = digest::hex(&mac::sha256(&key, &string_to_sign));
    Ok(Computed {
        canonical_request,
        string_to_sign,
        signature,
    })
}

/// The host and every header of the service must be signed.
fn check_signed_headers(subject: &Subject<'_>, parameters: &Parameters) -> Result<(), Refusal> {
    let is_signed = |name: &str| {
        parameters
            .signed_headers
            .iter()
            .any(|signed| signed == name)
    };
    if !is_signed("host") {
        return Err(malformed("The host header must be signed."));
    }
    let present = subject.request.headers.iter().map(|(name, _)| name);
    let unsigned: Vec<_> = present
        .filter(|name| name.starts_with("x-amz-") && !is_signed(name))
        .collect();
    if unsigned.is_empty() || parameters.presigned {
        return Ok(());
    }
    Err(Refusal::because(
        Code::AccessDenied,
        "There were headers present in the request which were not signed.",
    )
    .detail("HeadersNotSigned", unsigned.join(", ")))
}

/// The path decoded and encoded again, so that every client's way of encoding comes out alike.
fn canonical_path(path: &str) -> String {
    encoding::decode_path(path).map_or_else(|| path.to_owned(), |path| encoding::encode_path(&path))
}

fn canonical_query(subject: &Subject<'_>) -> String {
    let pairs = encoded_query(subject, "X-Amz-Signature").into_iter();
    let pairs: Vec<_> = pairs
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join("&")
}

/// `name:value` lines; values trimmed, runs of spaces made one, repeated fields joined.
fn canonical_headers(subject: &Subject<'_>, names: &[String]) -> String {
    let line = |name: &String| {
        let fields = subject
            .request
            .headers
            .iter()
            .filter(|(field, _)| field == name);
        let values =
            fields.map(|(_, value)| value.split_whitespace().collect::<Vec<_>>().join(" "));
        format!("{name}:{}\n", values.collect::<Vec<_>>().join(","))
    };
    names.iter().map(line).collect()
}
