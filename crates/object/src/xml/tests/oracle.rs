//! A page of a listing, read by a library, to hold our reader against.

use std::{borrow::Cow, mem::take, time::UNIX_EPOCH};

use super::walk::{Step, walk};
use crate::{
    ETag, ListPage, ListedObject, ObjectKind,
    xml::{XmlError, decode_url, kind_of, parse_time},
};

const LISTING_ROOT: &str = "ListBucketResult";

const SPOILT: char = char::REPLACEMENT_CHARACTER;

/// Reads a page. Names that may be spoilt are left out and counted.
pub(super) fn read(xml: &[u8]) -> Result<ListPage, XmlError> {
    let mut reading = Reading::default();
    walk(xml, |step| reading.take(step))?;
    reading.finish()
}

#[derive(Default)]
struct Reading {
    page: ListPage,
    object: Option<ListedObject>,
    in_prefixes: bool,
    depth: usize,
    truncated: bool,
    /// The key that the next page comes after, in the first version.
    marker: Option<String>,
    has_marker: bool,
    url_encoded: bool,
}

impl Reading {
    fn take(&mut self, step: Step<'_>) -> Result<(), XmlError> {
        match step {
            Step::Open(name) => {
                self.depth += 1;
                self.open(name)
            }
            Step::Close(name, text) => {
                self.depth -= 1;
                self.close(name, text)
            }
        }
    }

    fn open(&mut self, name: &str) -> Result<(), XmlError> {
        match (self.depth, name) {
            (1, LISTING_ROOT) => {}
            (1, other) => return Err(XmlError::Unexpected(other.to_owned())),
            (2, "Contents") => self.object = Some(empty_object()),
            (2, "CommonPrefixes") => self.in_prefixes = true,
            _ => {}
        }
        Ok(())
    }

    /// `depth` is that of the parent here.
    fn close(&mut self, name: &str, text: &mut String) -> Result<(), XmlError> {
        match (self.depth, name) {
            (1, "Contents") => self.page.objects.extend(self.object.take()),
            (1, "CommonPrefixes") => self.in_prefixes = false,
            (1, "IsTruncated") => self.truncated = text.trim() == "true",
            (1, "EncodingType") => self.url_encoded = text.trim() == "url",
            (1, "NextContinuationToken") if !text.is_empty() => {
                self.page.continuation = Some(take(text));
            }
            (1, "Marker") => self.has_marker = true,
            (1, "NextMarker") if !text.is_empty() => self.marker = Some(take(text)),
            (2, "Prefix") if self.in_prefixes => self.page.common_prefixes.push(take(text)),
            (2, _) => {
                if let Some(object) = &mut self.object {
                    set_field(object, name, text)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self) -> Result<ListPage, XmlError> {
        let decode = |text: &str| decode_url(Cow::Borrowed(text)).into_owned();
        if self.url_encoded {
            for object in &mut self.page.objects {
                object.key = decode(&object.key);
            }
            for prefix in &mut self.page.common_prefixes {
                *prefix = decode(prefix);
            }
            self.marker = self.marker.map(|marker| decode(&marker));
        } else {
            let page = &mut self.page;
            let count = page.objects.len() + page.common_prefixes.len();
            page.objects.retain(|object| !object.key.contains(SPOILT));
            page.common_prefixes.retain(|name| !name.contains(SPOILT));
            page.hidden = count - page.objects.len() - page.common_prefixes.len();
        }
        if !self.truncated {
            self.page.continuation = None;
        } else if self.page.continuation.is_none() {
            let marker = self.marker.take();
            let last = self.has_marker.then(|| self.last()).flatten();
            self.page.continuation = marker.or(last);
        }
        if self.truncated && self.page.continuation.is_none() {
            return Err(XmlError::Missing("NextContinuationToken"));
        }
        Ok(self.page)
    }

    /// The last key or prefix of the page.
    fn last(&self) -> Option<String> {
        let key = self.page.objects.last().map(|object| &object.key);
        key.max(self.page.common_prefixes.last()).cloned()
    }
}

fn empty_object() -> ListedObject {
    ListedObject {
        key: String::new(),
        size: 0,
        etag: ETag::new(""),
        modified: UNIX_EPOCH,
        kind: ObjectKind::Normal,
        storage_class: String::new(),
    }
}

fn set_field(object: &mut ListedObject, name: &str, text: &mut String) -> Result<(), XmlError> {
    match name {
        "Key" => object.key = take(text),
        "Size" => object.size = text.trim().parse().map_err(|_| XmlError::Missing("Size"))?,
        "ETag" => object.etag = ETag::new(text.trim()),
        "LastModified" => {
            object.modified = parse_time(text).ok_or(XmlError::Missing("LastModified"))?;
        }
        "StorageClass" => object.storage_class = take(text),
        "Type" => object.kind = kind_of(text.trim()),
        _ => {}
    }
    Ok(())
}
