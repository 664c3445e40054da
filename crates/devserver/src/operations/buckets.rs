//! Operations on buckets themselves.

use super::{
    Exchange,
    answer::{self, owner},
};
use crate::{
    clock,
    dialect::Dialect,
    http::response::Response,
    refusal::{Code, Refusal, Trouble},
    xml::Xml,
};

/// Where buckets live when nobody says.
const DEFAULT_REGION: &str = "us-east-1";

pub(crate) fn list_buckets(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let prefix = exchange.request.query.get("prefix").unwrap_or("");
    let mut xml = exchange.document("ListAllMyBucketsResult");
    owner(&mut xml, "Owner");
    xml.begin("Buckets");
    for bucket in exchange.service.data.buckets() {
        if !bucket.name.starts_with(prefix) {
            continue;
        }
        xml.begin("Bucket");
        xml.leaf("Name", &bucket.name);
        xml.leaf("CreationDate", &clock::iso8601(bucket.created));
        if exchange.is_oss() {
            bucket_place(exchange, &mut xml);
        }
        xml.end();
    }
    Ok(Response::xml(200, xml.finish()))
}

/// What OSS says about where a bucket is.
fn bucket_place(exchange: &Exchange<'_>, xml: &mut Xml) {
    xml.leaf("Location", &location_name(exchange));
    xml.leaf("Region", region(exchange));
    xml.leaf("ExtranetEndpoint", &exchange.request.host);
    xml.leaf("IntranetEndpoint", &exchange.request.host);
    xml.leaf("StorageClass", "Standard");
}

fn region<'a>(exchange: &'a Exchange<'_>) -> &'a str {
    exchange
        .service
        .settings
        .region
        .as_deref()
        .unwrap_or(DEFAULT_REGION)
}

/// OSS calls the region `cn-hangzhou` the location `oss-cn-hangzhou`.
fn location_name(exchange: &Exchange<'_>) -> String {
    format!("oss-{}", region(exchange))
}

pub(crate) fn create_bucket(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let name = exchange.address.bucket.clone();
    if exchange.bucket().is_err() && !is_bucket_name(&name) {
        return Err(Refusal::from(Code::InvalidBucketName)
            .detail("BucketName", name)
            .into());
    }
    let created = exchange.service.data.create_bucket(&name);
    if !created && exchange.dialect == Dialect::S3 {
        return Err(Refusal::from(Code::BucketAlreadyExists)
            .detail("BucketName", name)
            .into());
    }
    Ok(Response::new(200).header("Location", format!("/{name}")))
}

fn is_bucket_name(name: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let edges_are_fine = !name.starts_with(['-', '.']) && !name.ends_with(['-', '.']);
    (3..=63).contains(&name.len()) && name.bytes().all(allowed) && edges_are_fine
}

pub(crate) fn delete_bucket(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    if !exchange.bucket()?.is_empty() {
        return Err(Code::BucketNotEmpty.into());
    }
    exchange
        .service
        .data
        .remove_bucket(&exchange.address.bucket);
    Ok(Response::new(204))
}

pub(crate) fn head_bucket(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    exchange.bucket()?;
    let region = region(exchange).to_owned();
    Ok(Response::new(200).header(exchange.dialect.header("bucket-region"), region))
}

pub(crate) fn location(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    exchange.bucket()?;
    let text = match region(exchange) {
        _ if exchange.is_oss() => location_name(exchange),
        DEFAULT_REGION => String::new(),
        other => other.to_owned(),
    };
    // The root element has the text itself, which the writer of documents does not do.
    let empty = answer::document(exchange.dialect, "LocationConstraint").finish();
    let document = empty.replace(
        "</LocationConstraint>",
        &format!("{text}</LocationConstraint>"),
    );
    Ok(Response::xml(200, document))
}

pub(crate) fn info(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let bucket = exchange.bucket()?;
    let mut xml = exchange.document("BucketInfo");
    xml.begin("Bucket");
    xml.leaf("Name", &bucket.name);
    xml.leaf("CreationDate", &clock::iso8601(bucket.created));
    bucket_place(exchange, &mut xml);
    owner(&mut xml, "Owner");
    xml.begin("AccessControlList");
    xml.leaf("Grant", "private");
    xml.end();
    xml.leaf("DataRedundancyType", "LRS");
    Ok(Response::xml(200, xml.finish()))
}

pub(crate) fn stat(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let bucket = exchange.bucket()?;
    let (objects, bytes) = bucket.totals();
    let mut xml = exchange.document("BucketStat");
    xml.leaf("Storage", &bytes.to_string());
    xml.leaf("ObjectCount", &objects.to_string());
    xml.leaf("MultipartUploadCount", &bucket.uploads().len().to_string());
    Ok(Response::xml(200, xml.finish()))
}

/// Of a bucket or an object: only the owner may, which is whoever asks.
pub(crate) fn acl(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    if exchange.address.key.is_empty() {
        exchange.bucket()?;
    } else {
        exchange.object()?;
    }
    let mut xml = exchange.document("AccessControlPolicy");
    owner(&mut xml, "Owner");
    xml.begin("AccessControlList");
    if exchange.is_oss() {
        xml.leaf("Grant", "private");
    } else {
        xml.begin("Grant");
        owner(&mut xml, "Grantee");
        xml.leaf("Permission", "FULL_CONTROL");
        xml.end();
    }
    Ok(Response::xml(200, xml.finish()))
}

/// Versions are never kept.
pub(crate) fn versioning(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    exchange.bucket()?;
    Ok(Response::xml(
        200,
        exchange.document("VersioningConfiguration").finish(),
    ))
}
