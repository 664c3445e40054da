//! Pieces that many answers share.

use std::time::SystemTime;

use base64::{Engine, engine::general_purpose::STANDARD};

use super::Exchange;
use crate::{
    clock,
    dialect::Dialect,
    http::response::{Payload, Response},
    refusal::{Code, Refusal},
    store::Object,
    xml::Xml,
};

/// The name space of S3's documents. OSS's carry none that clients look at.
const S3_NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// Begins a document of the dialect.
pub(crate) fn document(dialect: Dialect, root: &'static str) -> Xml {
    match dialect {
        Dialect::S3 => Xml::in_namespace(root, S3_NAMESPACE),
        Dialect::Oss => Xml::new(root),
    }
}

/// A tag as headers and documents carry it.
pub(crate) fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}

/// A tag without its quotes.
pub(crate) fn unquoted(etag: &str) -> &str {
    etag.trim().trim_matches('"')
}

pub(crate) fn http_date(time: SystemTime) -> String {
    httpdate::fmt_http_date(time)
}

/// The owner element of listings.
pub(crate) fn owner(xml: &mut Xml, element: &'static str) {
    xml.begin(element);
    xml.leaf("ID", "0000000000000000");
    xml.leaf("DisplayName", "penstock");
    xml.end();
}

pub(crate) fn modified(object: &Object) -> String {
    clock::iso8601(object.modified)
}

pub(crate) fn no_such_bucket(name: &str) -> Refusal {
    Refusal::from(Code::NoSuchBucket).detail("BucketName", name)
}

pub(crate) fn no_such_key(key: &str) -> Refusal {
    Refusal::from(Code::NoSuchKey).detail("Key", key)
}

/// An argument that makes no sense, with its name and value.
pub(crate) fn invalid_argument(name: &str, value: &str) -> Refusal {
    Refusal::because(
        Code::InvalidArgument,
        format!("The value of {name} is not valid."),
    )
    .detail("ArgumentName", name)
    .detail("ArgumentValue", value)
}

impl Exchange<'_> {
    pub(crate) fn document(&self, root: &'static str) -> Xml {
        document(self.dialect, root)
    }

    /// A parameter that is a number.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Refusal> {
        match self.request.query.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| invalid_argument(name, text)),
        }
    }
}

/// The answer that tells the client of an error.
pub(crate) fn refuse(
    refusal: &Refusal,
    dialect: Dialect,
    resource: &str,
    request_id: &str,
    is_head: bool,
) -> Response {
    let mut xml = Xml::new("Error");
    xml.leaf("Code", refusal.word());
    xml.leaf("Message", &refusal.message);
    xml.leaf("Resource", resource);
    for (element, text) in &refusal.details {
        xml.leaf(element, text);
    }
    xml.leaf("RequestId", request_id);
    xml.leaf("HostId", "penstock-devserver");
    let document = xml.finish();
    let encoded = STANDARD.encode(&document);
    let mut response = Response::xml(refusal.status, document);
    for (name, value) in &refusal.headers {
        response = response.header(*name, value.clone());
    }
    if is_head {
        // A HEAD's answer has no body. OSS puts the document into a header; S3 leaves its
        // clients with the status.
        response.payload = Payload::Omitted(0);
        if dialect == Dialect::Oss {
            response = response.header("x-oss-err", encoded);
        }
    }
    response
}
