//! ListParts and ListMultipartUploads.

use super::{
    Exchange,
    answer::{owner, quoted},
};
use crate::{
    clock,
    digest::Algorithm,
    http::{encoding, response::Response},
    lacks::Lack,
    refusal::{Code, Refusal, Trouble},
    store::{Part, Upload},
    xml::Xml,
};

/// Lines in one page.
const PAGE_MAX: usize = 1000;

pub(crate) fn list_parts(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let id = exchange.request.query.get("uploadId").unwrap_or("");
    let upload = exchange.bucket()?.upload(&exchange.address.key, id);
    let upload = upload.ok_or_else(|| Refusal::from(Code::NoSuchUpload).detail("UploadId", id))?;
    let marker: u32 = exchange.number("part-number-marker")?.unwrap_or(0);
    let limit: usize = exchange
        .number("max-parts")?
        .unwrap_or(PAGE_MAX)
        .min(PAGE_MAX);
    let (parts, truncated) = upload.parts_after(marker, limit);
    let mut xml = exchange.document("ListPartsResult");
    xml.leaf("Bucket", &exchange.address.bucket);
    xml.leaf("Key", &exchange.address.key);
    xml.leaf("UploadId", id);
    owner(&mut xml, "Initiator");
    owner(&mut xml, "Owner");
    xml.leaf("StorageClass", "STANDARD");
    xml.leaf("PartNumberMarker", &marker.to_string());
    let next = parts.last().map_or(marker, |(last, _)| *last);
    xml.leaf("NextPartNumberMarker", &next.to_string());
    xml.leaf("MaxParts", &limit.to_string());
    xml.leaf("IsTruncated", if truncated { "true" } else { "false" });
    for (number, part) in &parts {
        part_line(&mut xml, *number, part);
    }
    Ok(Response::xml(200, xml.finish()))
}

fn part_line(xml: &mut Xml, number: u32, part: &Part) {
    xml.begin("Part");
    xml.leaf("PartNumber", &number.to_string());
    xml.leaf("LastModified", &clock::iso8601(part.modified));
    xml.leaf("ETag", &quoted(&part.etag));
    xml.leaf("Size", &part.content.length().to_string());
    for value in &part.checksums {
        match value.algorithm {
            Algorithm::Crc64Ecma => xml.leaf("HashCrc64ecma", &value.number().to_string()),
            Algorithm::Md5 => {}
            other => xml.leaf(&format!("Checksum{}", other.name()), &value.base64()),
        }
    }
    xml.end();
}

pub(crate) fn list_uploads(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let query = &exchange.request.query;
    let text = |name| query.get(name).unwrap_or("");
    let (prefix, delimiter) = (text("prefix"), text("delimiter"));
    let after = (text("key-marker"), text("upload-id-marker"));
    let limit: usize = exchange
        .number("max-uploads")?
        .unwrap_or(PAGE_MAX)
        .min(PAGE_MAX);
    if exchange.lacks(Lack::MaxUploads) && query.has("max-uploads") {
        return Err(Code::NotImplemented.into());
    }
    if !delimiter.is_empty() {
        let why = "Uploads are listed without a delimiter.";
        return Err(Refusal::because(Code::NotImplemented, why).into());
    }
    let mut uploads = exchange.bucket()?.uploads();
    uploads.retain(|upload| upload.key.starts_with(prefix) && comes_after(upload, after));
    if exchange.lacks(Lack::EmptyUploads) && uploads.is_empty() {
        return Err(Code::NoSuchUpload.into());
    }
    let truncated = uploads.len() > limit;
    uploads.truncate(limit);
    let encoded = query.get("encoding-type") == Some("url");
    let name = |key: &str| {
        if encoded {
            encoding::encode(key)
        } else {
            key.to_owned()
        }
    };
    let mut xml = exchange.document("ListMultipartUploadsResult");
    xml.leaf("Bucket", &exchange.address.bucket);
    xml.leaf("KeyMarker", &name(after.0));
    xml.leaf("UploadIdMarker", after.1);
    xml.leaf("Prefix", &name(prefix));
    let next = uploads.last().filter(|_| truncated);
    xml.leaf(
        "NextKeyMarker",
        &next.map_or_else(String::new, |last| name(&last.key)),
    );
    xml.leaf("NextUploadIdMarker", next.map_or("", |last| &last.id));
    xml.leaf("MaxUploads", &limit.to_string());
    if encoded {
        xml.leaf("EncodingType", "url");
    }
    xml.leaf("IsTruncated", if truncated { "true" } else { "false" });
    for upload in &uploads {
        upload_line(&mut xml, upload, &name(&upload.key));
    }
    Ok(Response::xml(200, xml.finish()))
}

fn upload_line(xml: &mut Xml, upload: &Upload, name: &str) {
    xml.begin("Upload");
    xml.leaf("Key", name);
    xml.leaf("UploadId", &upload.id);
    owner(xml, "Initiator");
    owner(xml, "Owner");
    xml.leaf("StorageClass", "STANDARD");
    xml.leaf("Initiated", &clock::iso8601(upload.initiated));
    xml.end();
}

/// Without an id, a key marker leaves out all uploads of that key.
fn comes_after(upload: &Upload, (key, id): (&str, &str)) -> bool {
    match upload.key.as_str().cmp(key) {
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => !id.is_empty() && upload.id.as_str() > id,
        std::cmp::Ordering::Less => false,
    }
}
