//! Multipart uploads: begin, send parts, complete, abort.

use std::sync::Arc;

use super::{
    Exchange,
    answer::{invalid_argument, quoted, unquoted},
    put,
    receive::{etag_of, opaque_tag, receive, receive_document},
};
use crate::{
    clock,
    digest::{self, Algorithm, Value},
    http::response::Response,
    lacks::Lack,
    refusal::{Code, Refusal, Trouble},
    store::{Condition, Content, Kind, Object, Part, Upload},
    xml::Element,
};

/// Parts of one upload.
const PARTS_MAX: u32 = 10_000;

pub(crate) fn create_upload(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let condition = if exchange.is_oss() {
        put::condition(exchange)?
    } else {
        Condition::Always
    };
    put::check_write(exchange, &condition)?;
    let id = exchange.service.data.unique();
    let mut upload = Upload::new(
        &exchange.address.key,
        id.clone(),
        put::attributes(exchange)?,
    );
    upload.checksum = announced_checksum(exchange)?;
    let announced = upload.checksum;
    exchange.bucket()?.add_upload(upload);
    let mut xml = exchange.document("InitiateMultipartUploadResult");
    xml.leaf("Bucket", &exchange.address.bucket);
    xml.leaf("Key", &exchange.address.key);
    xml.leaf("UploadId", &id);
    let mut response = Response::xml(200, xml.finish());
    if let Some((algorithm, whole)) = announced {
        response = response
            .header("x-amz-checksum-algorithm", algorithm.name())
            .header(
                "x-amz-checksum-type",
                if whole { "FULL_OBJECT" } else { "COMPOSITE" },
            );
    }
    Ok(response)
}

/// The algorithm that the parts will come with, and whether the object's value is to be over
/// all its bytes.
fn announced_checksum(exchange: &Exchange<'_>) -> Result<Option<(Algorithm, bool)>, Refusal> {
    let Some(word) = exchange.request.header("x-amz-checksum-algorithm") else {
        return Ok(None);
    };
    let unknown = || invalid_argument("x-amz-checksum-algorithm", word);
    let algorithm = Algorithm::named(word).ok_or_else(unknown)?;
    let whole = match exchange.request.header("x-amz-checksum-type") {
        Some(kind) => kind.eq_ignore_ascii_case("FULL_OBJECT"),
        None => algorithm == Algorithm::Crc64Nvme,
    };
    if whole && !algorithm.combines() {
        return Err(invalid_argument("x-amz-checksum-type", "FULL_OBJECT"));
    }
    Ok(Some((algorithm, whole)))
}

fn upload_of(exchange: &Exchange<'_>) -> Result<Arc<Upload>, Trouble> {
    let id = exchange.request.query.get("uploadId").unwrap_or("");
    let found = exchange.bucket()?.upload(&exchange.address.key, id);
    found.ok_or_else(|| {
        Refusal::from(Code::NoSuchUpload)
            .detail("UploadId", id)
            .into()
    })
}

/// The upload and the part that a request is about.
pub(crate) fn upload_and_number(exchange: &Exchange<'_>) -> Result<(Arc<Upload>, u32), Trouble> {
    let number: u32 = exchange.number("partNumber")?.unwrap_or(0);
    if !(1..=PARTS_MAX).contains(&number) {
        return Err(invalid_argument("partNumber", &number.to_string()).into());
    }
    Ok((upload_of(exchange)?, number))
}

pub(crate) fn upload_part(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let (upload, number) = upload_and_number(exchange)?;
    let received = receive(exchange)?;
    let etag = etag_of(exchange, &received);
    let part = Part {
        content: received.content.clone(),
        etag: etag.clone(),
        modified: clock::wall_time(),
        checksums: received.checksums(),
    };
    // An upload that was aborted meanwhile keeps nothing.
    upload_of(exchange)?.put(number, part);
    drop(upload);
    Ok(put::receipt(exchange, &received, &etag))
}

pub(crate) fn abort_upload(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let upload = upload_of(exchange)?;
    exchange.bucket()?.remove_upload(&upload.key, &upload.id);
    Ok(Response::new(204))
}

pub(crate) fn complete_upload(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let condition = put::condition(exchange)?;
    put::check_write(exchange, &condition)?;
    let upload = upload_of(exchange)?;
    let parts = chosen_parts(exchange, &upload)?;
    check_sizes(exchange, &parts)?;
    let object = assemble(exchange, &upload, &parts)?;
    let stored = put::store(exchange, object, &condition)?;
    exchange.bucket()?.remove_upload(&upload.key, &upload.id);
    answer(exchange, &stored)
}

fn answer(exchange: &Exchange<'_>, stored: &Object) -> Result<Response, Trouble> {
    let address = &exchange.address;
    let mut xml = exchange.document("CompleteMultipartUploadResult");
    xml.leaf(
        "Location",
        &format!(
            "http://{}/{}/{}",
            exchange.request.host, address.bucket, address.key
        ),
    );
    xml.leaf("Bucket", &address.bucket);
    xml.leaf("Key", &address.key);
    let etag = match exchange.lacks(Lack::TagOfUpload) {
        true => format!("{}-told", stored.etag),
        false => stored.etag.clone(),
    };
    xml.leaf("ETag", &quoted(&etag));
    if let Some((algorithm, value)) = &stored.composite {
        xml.leaf(&format!("Checksum{}", algorithm.name()), value);
        xml.leaf("ChecksumType", "COMPOSITE");
    }
    let sent = stored
        .checksums
        .iter()
        .filter(|value| Algorithm::S3.contains(&value.algorithm));
    for value in sent {
        xml.leaf(
            &format!("Checksum{}", value.algorithm.name()),
            &value.base64(),
        );
        xml.leaf("ChecksumType", "FULL_OBJECT");
    }
    let response = Response::xml(200, xml.finish()).header("ETag", quoted(&etag));
    if !exchange.is_oss() {
        return Ok(response);
    }
    let crc = stored.checksum(Algorithm::Crc64Ecma);
    Ok(response.header("x-oss-hash-crc64ecma", crc.number().to_string()))
}

/// The parts that the document names, in its order.
fn chosen_parts(exchange: &mut Exchange<'_>, upload: &Upload) -> Result<Vec<Part>, Trouble> {
    let takes_all = exchange.is_oss()
        && exchange
            .dialect_header("complete-all")
            .is_some_and(|value| value.eq_ignore_ascii_case("yes"));
    if takes_all {
        let (parts, _) = upload.parts_after(0, PARTS_MAX as usize);
        return Ok(parts.into_iter().map(|(_, part)| part).collect());
    }
    let text = receive_document(exchange)?;
    let document = Element::parse(&text).filter(|root| root.name == "CompleteMultipartUpload");
    let document = document.ok_or(Code::MalformedXml)?;
    let mut parts = Vec::new();
    let mut last = 0;
    for element in document.children_named("Part") {
        let number = element
            .text_of("PartNumber")
            .and_then(|text| text.trim().parse().ok());
        let number: u32 = number.ok_or(Code::MalformedXml)?;
        if number <= last {
            return Err(Code::InvalidPartOrder.into());
        }
        last = number;
        parts.push(named_part(upload, number, element)?);
    }
    if parts.is_empty() {
        return Err(Code::MalformedXml.into());
    }
    Ok(parts)
}

/// The part of that number, if its tag and checksums are what the document says.
fn named_part(upload: &Upload, number: u32, element: &Element) -> Result<Part, Refusal> {
    let etag = unquoted(element.text_of("ETag").unwrap_or(""));
    let invalid = || Refusal::from(Code::InvalidPart).detail("PartNumber", number.to_string());
    let part = upload
        .part(number)
        .filter(|part| part.etag.eq_ignore_ascii_case(etag));
    let part = part.ok_or_else(invalid)?;
    for algorithm in Algorithm::S3 {
        if let Some(text) = element.text_of(&format!("Checksum{}", algorithm.name())) {
            let said = Value::from_base64(algorithm, text).ok_or_else(invalid)?;
            if !part.checksums.contains(&said) {
                return Err(invalid());
            }
        }
    }
    Ok(part)
}

fn check_sizes(exchange: &Exchange<'_>, parts: &[Part]) -> Result<(), Refusal> {
    let minimum = exchange.dialect.part_size_min();
    let all_but_last = parts.split_last().map_or(&[][..], |(_, rest)| rest);
    match all_but_last
        .iter()
        .find(|part| part.content.length() < minimum)
    {
        None => Ok(()),
        Some(part) => Err(Refusal::from(Code::EntityTooSmall)
            .detail("ProposedSize", part.content.length().to_string())
            .detail("MinSizeAllowed", minimum.to_string())),
    }
}

fn assemble(exchange: &Exchange<'_>, upload: &Upload, parts: &[Part]) -> Result<Object, Trouble> {
    let content = Content::joined(parts.iter().map(|part| &part.content));
    let mut object = Object::new(content, joined_tag(exchange, parts));
    object.kind = Kind::Multipart;
    object.attributes = upload.attributes.clone();
    object.parts = parts.iter().map(|part| part.content.length()).collect();
    object
        .checksums
        .extend(combined(Algorithm::Crc64Ecma, parts));
    match upload.checksum {
        Some((algorithm, true)) => object.checksums.extend(combined(algorithm, parts)),
        Some((algorithm, false)) => object.composite = composite(algorithm, parts),
        None => {}
    }
    check_claims(exchange, &object)?;
    Ok(object)
}

/// Headers of the request may say what the whole object's checksum must be.
fn check_claims(exchange: &Exchange<'_>, object: &Object) -> Result<(), Trouble> {
    if exchange.is_oss() {
        return Ok(());
    }
    for algorithm in Algorithm::S3
        .into_iter()
        .filter(|algorithm| algorithm.combines())
    {
        let Some(text) = exchange.request.header(&algorithm.header()) else {
            continue;
        };
        // A composite value, such as `AAAAAA==-3`, is not over the bytes of the object.
        let Some(claim) = Value::from_base64(algorithm, text) else {
            continue;
        };
        if object.checksum(algorithm) != claim {
            return Err(Refusal::because(
                Code::BadDigest,
                "The checksum of the whole object did not match.",
            )
            .into());
        }
    }
    Ok(())
}

/// The checksum of the whole from those of the parts, if all have one.
fn combined(algorithm: Algorithm, parts: &[Part]) -> Option<Value> {
    let mut whole = digest::of_bytes(algorithm, b"");
    for part in parts {
        let value = part.checksum(algorithm)?;
        whole = whole.followed_by(value, part.content.length())?;
    }
    Some(whole)
}

/// The checksum of the parts' checksums.
fn composite(algorithm: Algorithm, parts: &[Part]) -> Option<(Algorithm, String)> {
    let mut bytes = Vec::new();
    for part in parts {
        let value = part.checksum(algorithm)?;
        bytes.extend_from_slice(&value.bytes);
    }
    let value = digest::of_bytes(algorithm, &bytes).base64();
    Some((algorithm, format!("{value}-{}", parts.len())))
}

/// The MD5 of the parts' MD5s as S3 makes it, where all parts have one.
fn joined_tag(exchange: &Exchange<'_>, parts: &[Part]) -> String {
    let hashes = parts.iter().map(|part| digest::from_hex(&part.etag));
    match hashes.collect::<Option<Vec<_>>>() {
        Some(hashes) => {
            format!(
                "{}-{}",
                digest::of_bytes(Algorithm::Md5, &hashes.concat()).hex(),
                parts.len()
            )
        }
        None => opaque_tag(exchange, parts.len()),
    }
}
