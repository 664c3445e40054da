//! PutObject, and what every write takes from its headers.

use super::{
    Exchange,
    answer::{quoted, unquoted},
    receive::{Received, etag_of, receive},
};
use crate::{
    address::Address,
    dialect::Dialect,
    digest::Algorithm,
    http::response::Response,
    lacks::Lack,
    refusal::{Code, Refusal, Trouble},
    store::{Attributes, Condition, Object},
};

/// Fields that are kept and sent back as they are.
const KEPT_FIELDS: [&str; 4] = [
    "cache-control",
    "content-disposition",
    "content-language",
    "expires",
];
/// Bytes of user metadata, names and values together.
const METADATA_MAX: usize = 8 << 10;

/// What the headers attach to an object.
pub(crate) fn attributes(exchange: &Exchange<'_>) -> Result<Attributes, Refusal> {
    let request = exchange.request;
    let prefix = exchange.dialect.header("meta-");
    let mut attributes = Attributes {
        content_type: request.header("content-type").unwrap_or("").to_owned(),
        storage_class: exchange
            .dialect_header("storage-class")
            .unwrap_or("")
            .to_owned(),
        ..Attributes::default()
    };
    for (name, value) in request.headers.iter() {
        if KEPT_FIELDS.contains(&name) {
            attributes.fields.push((name.to_owned(), value.to_owned()));
        } else if let Some(name) = name.strip_prefix(&prefix) {
            attributes
                .metadata
                .push((name.to_owned(), value.to_owned()));
        }
    }
    if let Some(coding) = request.header("content-encoding").and_then(kept_coding) {
        attributes
            .fields
            .push(("content-encoding".to_owned(), coding));
    }
    let size: usize = attributes
        .metadata
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if size > METADATA_MAX {
        return Err(Refusal::because(
            Code::InvalidArgument,
            "The metadata is too large.",
        ));
    }
    Ok(attributes)
}

/// A content coding without the one that is only for the way.
fn kept_coding(value: &str) -> Option<String> {
    let words = value.split(',').map(str::trim);
    let kept: Vec<_> = words
        .filter(|word| !word.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

/// When the write may replace what is there.
pub(crate) fn condition(exchange: &Exchange<'_>) -> Result<Condition, Refusal> {
    let forbids = |value: &str| value.eq_ignore_ascii_case("true");
    if exchange.dialect == Dialect::Oss {
        let forbidden = exchange
            .dialect_header("forbid-overwrite")
            .is_some_and(forbids);
        return Ok(if forbidden {
            Condition::Absent
        } else {
            Condition::Always
        });
    }
    if exchange.lacks(Lack::WriteConditions) {
        return Ok(Condition::Always);
    }
    match (
        exchange.request.header("if-none-match"),
        exchange.request.header("if-match"),
    ) {
        (Some("*"), _) => Ok(Condition::Absent),
        (Some(_), _) => Err(Refusal::because(
            Code::NotImplemented,
            "If-None-Match can only be *.",
        )),
        (None, Some(tag)) => Ok(Condition::Tag(unquoted(tag).to_owned())),
        (None, None) => Ok(Condition::Always),
    }
}

/// The error for a write whose condition did not hold.
pub(crate) fn condition_failed(exchange: &Exchange<'_>, condition: &Condition) -> Trouble {
    match (exchange.dialect, condition) {
        (Dialect::Oss, _) => Code::FileAlreadyExists.into(),
        (Dialect::S3, Condition::Tag(_))
            if exchange
                .bucket()
                .is_ok_and(|bucket| bucket.get(&exchange.address.key).is_none()) =>
        {
            super::answer::no_such_key(&exchange.address.key).into()
        }
        (Dialect::S3, _) => Refusal::from(Code::PreconditionFailed)
            .detail(
                "Condition",
                if *condition == Condition::Absent {
                    "If-None-Match"
                } else {
                    "If-Match"
                },
            )
            .into(),
    }
}

/// Checks that a write is allowed before its body is received, so that a client that waits
/// for `100 Continue` need not send it.
pub(crate) fn check_write(exchange: &Exchange<'_>, condition: &Condition) -> Result<(), Trouble> {
    Address::check_key(&exchange.address.key, exchange.dialect)?;
    let bucket = exchange.bucket()?;
    bucket
        .check(&exchange.address.key, condition)
        .map_err(|_| condition_failed(exchange, condition))
}

/// Stores the object under the request's key, if the condition still holds.
pub(crate) fn store(
    exchange: &Exchange<'_>,
    object: Object,
    condition: &Condition,
) -> Result<std::sync::Arc<Object>, Trouble> {
    let stored = exchange
        .bucket()?
        .put_if(&exchange.address.key, object, condition);
    stored.map_err(|_| condition_failed(exchange, condition))
}

/// The headers that tell what was received.
pub(crate) fn receipt(exchange: &Exchange<'_>, received: &Received, etag: &str) -> Response {
    let mut response = Response::new(200).header("ETag", quoted(etag));
    if exchange.is_oss() {
        let crc = received
            .values
            .iter()
            .find(|value| value.algorithm == Algorithm::Crc64Ecma);
        if let Some(value) = crc {
            response = response.header("x-oss-hash-crc64ecma", value.number().to_string());
        }
        return response;
    }
    for value in &received.claimed {
        response = response.header(value.algorithm.header(), value.base64());
    }
    response
}

pub(crate) fn put_object(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let condition = condition(exchange)?;
    check_write(exchange, &condition)?;
    let attributes = attributes(exchange)?;
    let received = receive(exchange)?;
    let etag = etag_of(exchange, &received);
    let mut object = Object::new(received.content.clone(), etag.clone());
    object.attributes = attributes;
    object.checksums.clone_from(&received.values);
    object
        .checksums
        .retain(|value| value.algorithm != Algorithm::Md5);
    store(exchange, object, &condition)?;
    let mut response = receipt(exchange, &received, &etag);
    if !received.claimed.is_empty() {
        response = response.header("x-amz-checksum-type", "FULL_OBJECT");
    }
    Ok(response)
}
