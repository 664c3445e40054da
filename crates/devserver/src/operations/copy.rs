//! CopyObject and UploadPartCopy: new lists of segments that are there already.

use std::sync::Arc;

use super::{
    Exchange,
    answer::{self, invalid_argument, quoted},
    conditions::{Conditions, Verdict},
    get::source_object,
    multipart, put,
    receive::opaque_tag,
};
use crate::{
    clock,
    http::{encoding, range::RangeSpec, response::Response},
    lacks::Lack,
    refusal::{Code, Refusal, Trouble},
    store::{Kind, Object, Part},
};

/// Bytes in the largest copy of one request.
const COPY_MAX: u64 = 5 << 30;

/// The object that the request names as its source, if its conditions hold.
fn source(exchange: &Exchange<'_>) -> Result<Arc<Object>, Trouble> {
    let text = exchange.dialect_header("copy-source").unwrap_or("");
    let text = text.split('?').next().unwrap_or("");
    let path = encoding::decode_query(text).ok_or(Code::InvalidArgument)?;
    let path = path.strip_prefix('/').unwrap_or(&path);
    let (bucket, key) = path
        .split_once('/')
        .filter(|(bucket, key)| !bucket.is_empty() && !key.is_empty())
        .ok_or_else(|| invalid_argument("copy-source", text))?;
    let object = source_object(exchange, bucket, key)?;
    if exchange.lacks(Lack::CopyConditions) {
        return Ok(object);
    }
    let prefix = exchange.dialect.header("copy-source-");
    match Conditions::of(exchange.request, &prefix).judge(&object) {
        Verdict::Go => Ok(object),
        Verdict::Failed(condition) => Err(Refusal::from(Code::PreconditionFailed)
            .detail("Condition", condition)
            .into()),
        Verdict::NotModified if exchange.is_oss() => Err(Refusal {
            status: 304,
            ..Refusal::from(Code::PreconditionFailed)
        }
        .into()),
        Verdict::NotModified => Err(Code::PreconditionFailed.into()),
    }
}

pub(crate) fn copy_object(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let condition = put::condition(exchange)?;
    put::check_write(exchange, &condition)?;
    let source = source(exchange)?;
    if exchange.lacks(Lack::CopyOfMarker) && exchange.address.key.ends_with('/') {
        return Err(Code::InvalidRequest.into());
    }
    if source.length() > COPY_MAX {
        return Err(Refusal::because(
            Code::InvalidRequest,
            "The source is larger than one copy allows; copy it in parts.",
        )
        .into());
    }
    if source.kind == Kind::Appendable && exchange.is_oss() {
        return Err(Refusal::because(
            Code::InvalidRequest,
            "An appendable object cannot be copied.",
        )
        .into());
    }
    let object = copied(exchange, &source)?;
    let stored = put::store(exchange, object, &condition)?;
    let mut xml = exchange.document("CopyObjectResult");
    if exchange.lacks(Lack::AnswerToCopy) {
        return Ok(Response::xml(200, xml.finish()));
    }
    xml.leaf("LastModified", &answer::modified(&stored));
    xml.leaf("ETag", &quoted(&stored.etag));
    Ok(Response::xml(200, xml.finish()).header("ETag", quoted(&stored.etag)))
}

/// The same content with attributes as the directive wants them.
fn copied(exchange: &Exchange<'_>, source: &Object) -> Result<Object, Trouble> {
    let directive = exchange
        .dialect_header("metadata-directive")
        .unwrap_or("COPY");
    let etag = match source.kind {
        // Its tag tells its parts, and a copy has one.
        Kind::Multipart => opaque_tag(exchange, 1),
        _ => source.etag.clone(),
    };
    let mut object = Object::new(source.content.clone(), etag);
    object.checksums.clone_from(&source.checksums);
    object.attributes = match directive.to_ascii_uppercase().as_str() {
        "COPY" => source.attributes.clone(),
        "REPLACE" => put::attributes(exchange)?,
        _ => return Err(invalid_argument("metadata-directive", directive).into()),
    };
    // It is never copied.
    let class = exchange.dialect_header("storage-class").unwrap_or("");
    class.clone_into(&mut object.attributes.storage_class);
    Ok(object)
}

pub(crate) fn upload_part_copy(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let (upload, number) = multipart::upload_and_number(exchange)?;
    let source = source(exchange)?;
    let range = match exchange.dialect_header("copy-source-range") {
        None => 0..source.length(),
        Some(text) => {
            let spec = RangeSpec::parse(text)
                .ok_or_else(|| invalid_argument("copy-source-range", text))?;
            let inside = spec
                .clip(source.length())
                .filter(|_| spec.fits(source.length()));
            inside.ok_or(Code::InvalidRange)?
        }
    };
    let etag = opaque_tag(exchange, 1);
    let part = Part {
        content: source.content.slice(&range),
        etag: etag.clone(),
        modified: clock::wall_time(),
        checksums: Vec::new(),
    };
    let modified = clock::iso8601(part.modified);
    upload.put(number, part);
    let mut xml = exchange.document("CopyPartResult");
    xml.leaf("LastModified", &modified);
    xml.leaf("ETag", &quoted(&etag));
    Ok(Response::xml(200, xml.finish()).header("ETag", quoted(&etag)))
}
