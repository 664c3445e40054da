//! ListObjects, both versions.
//!
//! A continuation token is the name of the page's last entry, encoded so that no client takes
//! it for one.

use std::{borrow::Cow, time::SystemTime};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{
    Exchange,
    answer::{self, owner, quoted},
};
use crate::{
    clock,
    http::{encoding, response::Response},
    lacks::Lack,
    refusal::{Code, Refusal, Trouble},
    store::{Entry, Listed, Listing, ListingQuery},
    xml::{self, Xml},
};

/// Entries in one page.
const PAGE_MAX: usize = 1000;
/// Bytes that the usual entry takes in a document.
const ENTRY_SIZE: usize = 320;
/// Entries in a page of OSS if nobody says.
const OSS_PAGE_DEFAULT: usize = 100;

pub(crate) fn list_objects(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let marker = exchange
        .request
        .query
        .get("marker")
        .unwrap_or("")
        .to_owned();
    let page = Page::new(exchange, marker.clone())?;
    let listing = exchange.bucket()?.list(&page.query);
    let mut xml = page.begin(exchange);
    xml.leaf("Marker", &page.encoded(&marker));
    page.state(&mut xml, &listing);
    // S3 gives a marker with a delimiter only; OSS always does.
    if listing.truncated && (exchange.is_oss() || !page.query.delimiter.is_empty()) {
        xml.leaf("NextMarker", &page.encoded(listing.last_name()));
    }
    page.entries(&mut xml, &listing, true);
    Ok(Response::xml(200, xml.finish()))
}

pub(crate) fn list_objects_v2(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let query = &exchange.request.query;
    let start_after = query.get("start-after").unwrap_or("").to_owned();
    let token = query.get("continuation-token").map(str::to_owned);
    let after = match &token {
        Some(token) => decode_token(token)?,
        None => start_after.clone(),
    };
    let page = Page::new(exchange, after)?;
    let with_owner = query.get("fetch-owner") == Some("true");
    let listing = exchange.bucket()?.list(&page.query);
    let mut xml = page.begin(exchange);
    if !start_after.is_empty() {
        xml.leaf("StartAfter", &page.encoded(&start_after));
    }
    if let Some(token) = &token {
        xml.leaf("ContinuationToken", token);
    }
    page.state(&mut xml, &listing);
    xml.leaf("KeyCount", &listing.entries.len().to_string());
    if listing.truncated {
        xml.leaf(
            "NextContinuationToken",
            &URL_SAFE_NO_PAD.encode(listing.last_name()),
        );
    }
    page.entries(&mut xml, &listing, with_owner);
    Ok(Response::xml(200, xml.finish()))
}

fn decode_token(token: &str) -> Result<String, Refusal> {
    let wrong = || {
        Refusal::because(
            Code::InvalidArgument,
            "The continuation token provided is incorrect.",
        )
    };
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| wrong())?;
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// What was asked for, and how names are written.
struct Page {
    query: ListingQuery,
    url_encoded: bool,
    garbles: bool,
    oss: bool,
}

impl Page {
    fn new(exchange: &Exchange<'_>, after: String) -> Result<Self, Refusal> {
        let query = &exchange.request.query;
        let text = |name| query.get(name).unwrap_or("").to_owned();
        let default = if exchange.is_oss() {
            OSS_PAGE_DEFAULT
        } else {
            PAGE_MAX
        };
        let max_keys: usize = exchange.number("max-keys")?.unwrap_or(default);
        if exchange.is_oss() && !(1..=PAGE_MAX).contains(&max_keys) {
            return Err(answer::invalid_argument("max-keys", &max_keys.to_string()));
        }
        let garbles = exchange.lacks(Lack::EncodedNames);
        let url_encoded = match query.get("encoding-type") {
            None | Some("") => false,
            Some("url") => !garbles,
            Some(other) => return Err(answer::invalid_argument("encoding-type", other)),
        };
        let query = ListingQuery {
            prefix: text("prefix"),
            delimiter: text("delimiter"),
            after,
            max_keys: max_keys.min(PAGE_MAX),
        };
        Ok(Self {
            query,
            url_encoded,
            garbles,
            oss: exchange.is_oss(),
        })
    }

    /// A name as the client wants it.
    fn encoded<'a>(&self, name: &'a str) -> Cow<'a, str> {
        match (self.url_encoded, self.oss) {
            (false, _) if self.garbles => name.replace(|c: char| c < ' ', "\u{fffd}").into(),
            (false, _) => name.into(),
            (true, true) => encoding::encoded(name),
            // S3 leaves slashes as they are.
            (true, false) => encoding::encoded_path(name),
        }
    }

    fn begin(&self, exchange: &Exchange<'_>) -> Xml {
        let mut xml = exchange.document("ListBucketResult");
        xml.leaf("Name", &exchange.address.bucket);
        xml.leaf("Prefix", &self.encoded(&self.query.prefix));
        xml
    }

    fn state(&self, xml: &mut Xml, listing: &Listing) {
        xml.leaf("MaxKeys", &self.query.max_keys.to_string());
        if !self.query.delimiter.is_empty() {
            xml.leaf("Delimiter", &self.encoded(&self.query.delimiter));
        }
        if self.url_encoded {
            xml.leaf("EncodingType", "url");
        }
        xml.leaf(
            "IsTruncated",
            if listing.truncated { "true" } else { "false" },
        );
    }

    fn entries(&self, xml: &mut Xml, listing: &Listing, with_owner: bool) {
        // Neighbours often have the same time, and writing it is what costs most.
        let mut time = (
            SystemTime::UNIX_EPOCH,
            clock::iso8601(SystemTime::UNIX_EPOCH),
        );
        xml.reserve(listing.entries.len() * ENTRY_SIZE);
        for entry in &listing.entries {
            if let Entry::Object(name, object) = entry {
                if object.modified() != time.0 {
                    time = (object.modified(), clock::iso8601(object.modified()));
                }
                self.object(xml, (name, &time.1), object, with_owner);
            }
        }
        for entry in &listing.entries {
            if let Entry::Prefix(name) = entry {
                xml.begin("CommonPrefixes");
                xml.leaf("Prefix", &self.encoded(name));
                xml.end();
            }
        }
    }

    fn object(
        &self,
        xml: &mut Xml,
        (name, modified): (&str, &str),
        object: &Listed,
        with_owner: bool,
    ) {
        let name = self.encoded(name);
        let tag = object.etag();
        if xml::is_plain(&name) && xml::is_plain(tag) {
            // What nearly all look like, which is worth a short way.
            xml.begin("Contents");
            xml.raw(&["<Key>", &name, "</Key><LastModified>", modified]);
            xml.raw(&["</LastModified><ETag>&quot;", tag, "&quot;</ETag>"]);
        } else {
            xml.begin("Contents");
            xml.leaf("Key", &name);
            xml.leaf("LastModified", modified);
            xml.leaf("ETag", &quoted(tag));
        }
        if self.oss {
            xml.raw(&["<Type>", object.kind().name(), "</Type>"]);
        }
        xml.raw(&["<Size>", &object.length().to_string(), "</Size>"]);
        let class = match object.storage_class() {
            "" if self.oss => "Standard",
            "" => "STANDARD",
            given => given,
        };
        xml.leaf("StorageClass", class);
        if with_owner {
            owner(xml, "Owner");
        }
        xml.end();
    }
}
