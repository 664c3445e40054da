//! GetObject and HeadObject.

use std::{ops::Range, sync::Arc};

use super::{
    Exchange,
    answer::{self, http_date, invalid_argument, quoted},
    conditions::Conditions,
};
use crate::{
    dialect::Dialect,
    digest::Algorithm,
    http::{
        range::RangeSpec,
        request::Method,
        response::{Payload, Response},
    },
    lacks::Lack,
    refusal::{Code, Refusal, Trouble},
    store::{Kind, Object},
};

const DEFAULT_CONTENT_TYPE: &str = "binary/octet-stream";

/// Parameters that replace headers of the answer.
const OVERRIDES: [(&str, &str); 6] = [
    ("response-content-type", "content-type"),
    ("response-content-language", "content-language"),
    ("response-expires", "expires"),
    ("response-cache-control", "cache-control"),
    ("response-content-disposition", "content-disposition"),
    ("response-content-encoding", "content-encoding"),
];

pub(crate) fn get_object(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    if exchange.lacks(Lack::ChecksumMode) && wants_checksums(exchange) {
        return Err(Code::NotImplemented.into());
    }
    let named = exchange.object()?;
    let object = follow_link(exchange, &named)?;
    if let Some(response) = Conditions::of(exchange.request, "").answer(&object)? {
        return Ok(response);
    }
    let choice = choose(exchange, &object)?;
    let mut response = Response::new(choice.status);
    response = describe(exchange, response, &object, named.kind)?;
    response = attributes(exchange, response, &named);
    if choice.status == 206 {
        let Range { start, end } = choice.range;
        let text = format!(
            "bytes {start}-{}/{}",
            end.saturating_sub(1),
            object.length()
        );
        response = response.header("Content-Range", text);
    } else if wants_checksums(exchange) {
        response = checksums(response, &object)?;
    }
    response.payload = match exchange.request.method {
        Method::Head => Payload::Omitted(choice.range.end - choice.range.start),
        _ => Payload::Content {
            content: object.content.clone(),
            range: choice.range,
        },
    };
    Ok(response)
}

/// `?objectMeta`: only what never needs the object's attributes.
pub(crate) fn object_meta(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let named = exchange.object()?;
    let object = follow_link(exchange, &named)?;
    let mut response = Response::new(200)
        .header("ETag", quoted(&object.etag))
        .header("Last-Modified", http_date(object.modified));
    response = crc64(response, &object)?;
    response.payload = Payload::Omitted(object.length());
    if exchange.request.method == Method::Get {
        response.payload = Payload::Text(Vec::new());
    }
    Ok(response)
}

/// What a link points to; the object itself if it is none.
fn follow_link(exchange: &Exchange<'_>, object: &Arc<Object>) -> Result<Arc<Object>, Trouble> {
    let Some(target) = &object.target else {
        return Ok(Arc::clone(object));
    };
    let found = exchange
        .bucket()?
        .get(target)
        .ok_or(Code::SymlinkTargetNotExist)?;
    if found.kind == Kind::Symlink {
        return Err(Code::InvalidTargetType.into());
    }
    Ok(found)
}

/// The bytes to send and how to call that.
struct Choice {
    status: u16,
    range: Range<u64>,
}

fn choose(exchange: &Exchange<'_>, object: &Object) -> Result<Choice, Trouble> {
    let whole = Choice {
        status: 200,
        range: 0..object.length(),
    };
    if let Some(number) = exchange.number::<usize>("partNumber")? {
        let range = object.part_range(number);
        let range = range.ok_or_else(|| invalid_argument("partNumber", &number.to_string()))?;
        return Ok(Choice { status: 206, range });
    }
    let Some(spec) = exchange.request.header("range").and_then(RangeSpec::parse) else {
        return Ok(whole);
    };
    if ignores_range(exchange, &spec, object.length()) {
        return Ok(whole);
    }
    match spec.clip(object.length()) {
        Some(range) => Ok(Choice { status: 206, range }),
        None => Err(Refusal::from(Code::InvalidRange)
            .detail("ActualObjectSize", object.length().to_string())
            .header("Content-Range", format!("bytes */{}", object.length()))
            .into()),
    }
}

/// OSS sends the whole object where a range does not lie inside it, unless it is asked to
/// behave like everybody else.
fn ignores_range(exchange: &Exchange<'_>, spec: &RangeSpec, length: u64) -> bool {
    let standard = exchange.dialect_header("range-behavior") == Some("standard");
    exchange.is_oss() && !standard && !spec.fits(length)
}

/// The headers that every look at an object answers with.
fn describe(
    exchange: &Exchange<'_>,
    response: Response,
    object: &Object,
    kind: Kind,
) -> Result<Response, Trouble> {
    let mut response = response
        .header("ETag", quoted(&object.etag))
        .header("Last-Modified", http_date(object.modified))
        .header("Accept-Ranges", "bytes");
    if exchange.is_oss() {
        let class = &object.attributes.storage_class;
        response = response.header("x-oss-object-type", kind.name()).header(
            "x-oss-storage-class",
            if class.is_empty() { "Standard" } else { class },
        );
        if kind == Kind::Appendable {
            response = response.header("x-oss-next-append-position", object.length().to_string());
        }
        return crc64(response, object);
    }
    if !object.attributes.storage_class.is_empty() {
        response = response.header(
            "x-amz-storage-class",
            object.attributes.storage_class.clone(),
        );
    }
    if exchange.request.query.has("partNumber") && !object.parts.is_empty() {
        response = response.header("x-amz-mp-parts-count", object.parts.len().to_string());
    }
    Ok(response)
}

fn crc64(response: Response, object: &Object) -> Result<Response, Trouble> {
    let value = object.checksum(Algorithm::Crc64Ecma);
    Ok(response.header("x-oss-hash-crc64ecma", value.number().to_string()))
}

/// What the writer attached, unless the query replaces it.
fn attributes(exchange: &Exchange<'_>, mut response: Response, object: &Object) -> Response {
    let attributes = &object.attributes;
    let content_type = match attributes.content_type.as_str() {
        "" => DEFAULT_CONTENT_TYPE,
        given => given,
    };
    let kept = attributes
        .fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let mut fields: Vec<_> = kept.chain([("content-type", content_type)]).collect();
    for (parameter, field) in OVERRIDES {
        if let Some(value) = exchange.request.query.get(parameter) {
            fields.retain(|(name, _)| *name != field);
            fields.push((field, value));
        }
    }
    for (name, value) in fields {
        response = response.header(name.to_owned(), value);
    }
    let prefix = exchange.dialect.header("meta-");
    for (name, value) in &attributes.metadata {
        response = response.header(format!("{prefix}{name}"), value.clone());
    }
    response
}

fn wants_checksums(exchange: &Exchange<'_>) -> bool {
    exchange.dialect == Dialect::S3
        && exchange
            .request
            .header("x-amz-checksum-mode")
            .is_some_and(|mode| mode.eq_ignore_ascii_case("enabled"))
}

/// Checksums over the whole object; where the writer sent none, the one that S3 computes.
fn checksums(mut response: Response, object: &Object) -> Result<Response, Trouble> {
    if let Some((algorithm, value)) = &object.composite {
        return Ok(response
            .header(algorithm.header(), value.clone())
            .header("x-amz-checksum-type", "COMPOSITE"));
    }
    let sent = object
        .checksums
        .iter()
        .filter(|value| Algorithm::S3.contains(&value.algorithm));
    let mut values: Vec<_> = sent.cloned().collect();
    if values.is_empty() {
        values.push(object.checksum(Algorithm::Crc64Nvme));
    }
    for value in values {
        response = response.header(value.algorithm.header(), value.base64());
    }
    Ok(response.header("x-amz-checksum-type", "FULL_OBJECT"))
}

/// The error for a key that is not there, for handlers that look a key up themselves.
pub(crate) fn source_object(
    exchange: &Exchange<'_>,
    bucket: &str,
    key: &str,
) -> Result<Arc<Object>, Trouble> {
    let found = exchange.service.data.bucket(bucket);
    let found = found
        .ok_or_else(|| answer::no_such_bucket(bucket))?
        .get(key);
    let object = found.ok_or_else(|| answer::no_such_key(key))?;
    follow_link(exchange, &object)
}
