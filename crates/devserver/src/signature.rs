//! Checking signatures: AWS Signature Version 4, OSS Signature Version 1 and 4, each in the
//! header and in the query.
//!
//! A scheme module reads what a request claims into [`Evidence`] and computes what the
//! signature must be. What follows is the same for all: is the key known, does the token
//! belong to it, is the time right, is the region ours, is the signature the same.

mod mac;
mod oss_v1;
mod oss_v4;
mod sigv4;

use std::time::{Duration, SystemTime};

use crate::{
    address::Address,
    clock,
    dialect::Dialect,
    http::{encoding, request::Request},
    operations::Exchange,
    refusal::{Code, Refusal, Trouble},
    settings::Settings,
};

/// How far the clocks may differ.
const SKEW_MAX: Duration = Duration::from_secs(15 * 60);

/// What a signature is made over.
struct Subject<'a> {
    request: &'a Request,
    address: &'a Address,
}

/// When a request may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Validity {
    /// Around this time.
    At(SystemTime),
    /// From the first, if there is one, until the second.
    Between(Option<SystemTime>, SystemTime),
}

/// What a request says about its signer.
struct Evidence {
    key_id: String,
    token: Option<String>,
    validity: Validity,
    /// Where the scheme names one.
    region: Option<String>,
    signature: String,
    scheme: Scheme,
}

/// The schemes, with what each needs to compute a signature.
enum Scheme {
    SigV4(sigv4::Parameters),
    OssV1 { date: String },
    OssV4(oss_v4::Parameters),
}

/// What the signature must be, and what it was made from.
struct Computed {
    /// Empty where the scheme has none.
    canonical_request: String,
    string_to_sign: String,
    signature: String,
}

/// Checks the signature of a request, if the server is to.
pub(crate) fn verify(exchange: &Exchange<'_>) -> Result<(), Trouble> {
    let settings = &exchange.service.settings;
    if !settings.verify_signatures {
        return Ok(());
    }
    let subject = Subject {
        request: exchange.request,
        address: &exchange.address,
    };
    let evidence = evidence(&subject)?;
    check(&subject, &evidence, settings, clock::wall_time())?;
    Ok(())
}

fn evidence(subject: &Subject<'_>) -> Result<Evidence, Refusal> {
    let query = &subject.request.query;
    match subject.request.header("authorization") {
        Some(text) if text.starts_with(sigv4::ALGORITHM) => sigv4::from_header(subject, text),
        Some(text) if text.starts_with(oss_v4::ALGORITHM) => oss_v4::from_header(subject, text),
        Some(text) if text.starts_with("OSS ") => oss_v1::from_header(subject, text),
        Some(_) => Err(Refusal::because(
            Code::InvalidRequest,
            "The authorization mechanism is not supported. Use AWS4-HMAC-SHA256, OSS4-HMAC-SHA256 or OSS.",
        )),
        None if query.has("X-Amz-Signature") => sigv4::from_query(subject),
        None if query.has("x-oss-signature") => oss_v4::from_query(subject),
        None if query.has("OSSAccessKeyId") => oss_v1::from_query(subject),
        None => Err(Code::AccessDenied.into()),
    }
}

fn check(
    subject: &Subject<'_>,
    evidence: &Evidence,
    settings: &Settings,
    now: SystemTime,
) -> Result<(), Refusal> {
    let key = settings
        .credentials
        .iter()
        .find(|key| key.key_id == evidence.key_id);
    let key = key.ok_or_else(|| {
        Refusal::from(Code::InvalidAccessKeyId).detail("AWSAccessKeyId", evidence.key_id.clone())
    })?;
    if key.token != evidence.token {
        return Err(evidence.wrong_token());
    }
    evidence.validity.check(now)?;
    if let Some((ours, theirs)) = settings.region.as_ref().zip(evidence.region.as_ref())
        && ours != theirs
    {
        return Err(evidence.wrong_region(ours, theirs));
    }
    let computed = match &evidence.scheme {
        Scheme::SigV4(parameters) => sigv4::compute(subject, parameters, &key.secret)?,
        Scheme::OssV1 { date } => oss_v1::compute(subject, date, &key.secret),
        Scheme::OssV4(parameters) => oss_v4::compute(subject, parameters, &key.secret),
    };
    if computed.signature == evidence.signature {
        return Ok(());
    }
    Err(Refusal::from(Code::SignatureDoesNotMatch)
        .detail("SignatureProvided", evidence.signature.clone())
        .detail("StringToSign", computed.string_to_sign)
        .detail("CanonicalRequest", computed.canonical_request))
}

impl Evidence {
    fn dialect(&self) -> Dialect {
        match self.scheme {
            Scheme::SigV4(_) => Dialect::S3,
            Scheme::OssV1 { .. } | Scheme::OssV4(_) => Dialect::Oss,
        }
    }

    fn wrong_token(&self) -> Refusal {
        let refusal = Refusal::from(Code::InvalidToken);
        match self.dialect() {
            Dialect::S3 => refusal,
            Dialect::Oss => Refusal {
                name: Some("InvalidSecurityToken".to_owned()),
                status: 403,
                ..refusal
            },
        }
    }

    fn wrong_region(&self, ours: &str, theirs: &str) -> Refusal {
        match self.dialect() {
            Dialect::S3 => Refusal::because(
                Code::AuthorizationHeaderMalformed,
                format!("The region '{theirs}' is wrong; expecting '{ours}'"),
            )
            .detail("Region", ours),
            Dialect::Oss => Refusal::because(
                Code::InvalidArgument,
                "Invalid signing region in Authorization header.",
            )
            .detail("Region", ours),
        }
    }
}

impl Validity {
    fn check(self, now: SystemTime) -> Result<(), Refusal> {
        match self {
            Self::At(time) if clock::distance(time, now) > SKEW_MAX => {
                Err(Refusal::from(Code::RequestTimeTooSkewed)
                    .detail("RequestTime", clock::iso8601(time))
                    .detail("ServerTime", clock::iso8601(now))
                    .detail(
                        "MaxAllowedSkewMilliseconds",
                        SKEW_MAX.as_millis().to_string(),
                    ))
            }
            Self::Between(_, until) if now > until => {
                Err(Refusal::because(Code::AccessDenied, "Request has expired.")
                    .detail("Expires", clock::iso8601(until))
                    .detail("ServerTime", clock::iso8601(now)))
            }
            Self::Between(Some(from), _) if from > now + SKEW_MAX => Err(Refusal::because(
                Code::AccessDenied,
                "Request is not valid yet.",
            )),
            _ => Ok(()),
        }
    }
}

/// A value of `name=value` among pieces of an authorization header.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let pieces = text.split([',', ' ']).map(str::trim);
    pieces
        .filter_map(|piece| piece.split_once('='))
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value)
}

/// The parameters of the query but that of the signature itself, encoded and then sorted, as both
/// schemes of version 4 sign them.
fn encoded_query(subject: &Subject<'_>, signature: &str) -> Vec<(String, String)> {
    let query = subject.request.query.iter();
    let mut pairs: Vec<_> = query
        .filter(|(name, _)| *name != signature)
        .map(|(name, value)| {
            (
                encoding::encode(name),
                encoding::encode(value.unwrap_or("")),
            )
        })
        .collect();
    pairs.sort();
    pairs
}

#[cfg(test)]
mod tests;
