//! A page of a listing, in either version. The first one says where the next page begins by a key, and
//! sometimes leaves that to the reader: after the last key or prefix of the page.
//!
//! Listings of millions of keys are all alike: `Contents` with plain children. Those that nearly every object has
//! are compared with constants, which costs a load or two each; whatever is spelled otherwise goes the long
//! way, through the same scanner, to the same place.

use std::{
    borrow::Cow,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{XmlError, decode_url, parse_time, scan::Scanner};
use crate::{ETag, FlatObject, FlatPage, ListPage, ListedObject, ObjectKind};

/// The root element of a listing.
const LISTING_ROOT: &str = "ListBucketResult";

/// What stands in a name for what XML cannot hold, where a store does not encode names.
const SPOILT: char = char::REPLACEMENT_CHARACTER;

/// Bytes of XML around one object at least; gives room for all without growing twice.
const OBJECT_SIZE_MIN: usize = 200;

/// What a page lists under names that may be spoilt: no request could say what they were, in whose
/// order they come. A name may also have the sign for that itself.
#[derive(Debug, Default)]
pub(crate) struct Doubtful {
    pub(crate) objects: Vec<ListedObject>,
    pub(crate) prefixes: Vec<String>,
}

/// Reads a page. Names that may be spoilt are left out and counted. Fails when it says that there is
/// more but not where.
#[cfg(any(test, feature = "testing"))]
pub fn parse_list(xml: &[u8]) -> Result<ListPage, XmlError> {
    let (mut page, doubtful) = read_list(xml)?;
    page.hidden = doubtful.objects.len() + doubtful.prefixes.len();
    Ok(page)
}

/// Reads the objects of a page. Fails like [`parse_list`].
#[cfg(any(test, feature = "testing"))]
pub fn parse_flat(xml: &[u8]) -> Result<FlatPage, XmlError> {
    match read_flat(xml)? {
        Some(page) => Ok(page),
        None => parse_list(xml).map(FlatPage::from),
    }
}

/// Reads a page, and apart from it what may not be meant by its name.
pub(crate) fn read_list(xml: &[u8]) -> Result<(ListPage, Doubtful), XmlError> {
    let listing = read::<Vec<ListedObject>>(xml)?;
    let page = ListPage {
        objects: listing.objects,
        common_prefixes: listing.prefixes,
        continuation: listing.continuation,
        hidden: 0,
    };
    Ok((page, listing.doubtful))
}

/// Reads the objects of a page; `None` where some may not be meant by their names.
pub(crate) fn read_flat(xml: &[u8]) -> Result<Option<FlatPage>, XmlError> {
    let listing = read::<FlatPage>(xml)?;
    let mut page = listing.objects;
    page.continuation = listing.continuation;
    Ok(listing.doubtful.objects.is_empty().then_some(page))
}

fn read<O: Objects>(xml: &[u8]) -> Result<Listing<O>, XmlError> {
    let document = String::from_utf8_lossy(xml);
    let mut reading = Reading::new(&document, false);
    reading.page()?;
    if reading.is_encoded_after_all {
        reading = Reading::new(&document, true);
        reading.page()?;
    }
    reading.finish()
}

/// What objects are collected in.
trait Objects: Default {
    /// Nothing yet, with room for what a document of so many bytes may list.
    fn with_room(bytes: usize) -> Self;
    fn add(&mut self, object: Object<'_>);
    fn last_key(&self) -> Option<&str>;
}

/// An object as it is listed.
#[derive(Default)]
struct Object<'a> {
    key: Cow<'a, str>,
    size: u64,
    etag: Cow<'a, str>,
    modified: Option<SystemTime>,
    kind: ObjectKind,
    storage_class: Cow<'a, str>,
}

impl Objects for Vec<ListedObject> {
    fn with_room(bytes: usize) -> Self {
        Self::with_capacity(bytes / OBJECT_SIZE_MIN)
    }

    fn add(&mut self, object: Object<'_>) {
        self.push(ListedObject {
            key: object.key.into_owned(),
            size: object.size,
            etag: ETag::new(&object.etag),
            modified: object.modified.unwrap_or(UNIX_EPOCH),
            kind: object.kind,
            storage_class: object.storage_class.into_owned(),
        });
    }

    fn last_key(&self) -> Option<&str> {
        self.last().map(|object| object.key.as_str())
    }
}

impl Objects for FlatPage {
    fn with_room(bytes: usize) -> Self {
        Self::with_capacity(bytes / OBJECT_SIZE_MIN + 1, bytes / 2)
    }

    fn add(&mut self, object: Object<'_>) {
        self.push(&FlatObject {
            key: &object.key,
            size: object.size,
            etag: object.etag.trim_matches('"'),
            modified: object.modified.unwrap_or(UNIX_EPOCH).into(),
            is_link: object.kind == ObjectKind::Symlink,
        });
    }

    fn last_key(&self) -> Option<&str> {
        self.len().checked_sub(1).map(|last| self.key(last))
    }
}

/// What was read of a page.
#[derive(Default)]
struct Listing<O> {
    objects: O,
    prefixes: Vec<String>,
    doubtful: Doubtful,
    continuation: Option<String>,
}

struct Reading<'a, O> {
    scanner: Scanner<'a>,
    listing: Listing<O>,
    truncated: bool,
    /// The key that the next page comes after, in the first version.
    marker: Option<String>,
    has_marker: bool,
    url_encoded: bool,
    has_names: bool,
    /// Whether the page says only behind names that they are encoded.
    is_encoded_after_all: bool,
    /// The last time that was read; neighbours often have the same.
    time: (Cow<'a, str>, SystemTime),
}

impl<'a, O: Objects> Reading<'a, O> {
    fn new(document: &'a str, url_encoded: bool) -> Self {
        Self {
            scanner: Scanner::new(document),
            listing: Listing {
                objects: O::with_room(document.len()),
                ..Listing::default()
            },
            truncated: false,
            marker: None,
            has_marker: false,
            url_encoded,
            has_names: false,
            is_encoded_after_all: false,
            time: (Cow::Borrowed(""), UNIX_EPOCH),
        }
    }

    fn page(&mut self) -> Result<(), XmlError> {
        match self.scanner.root()? {
            Some(LISTING_ROOT) => {}
            Some(other) => return Err(XmlError::Unexpected(other.to_owned())),
            None => return Ok(()),
        }
        while let Some(name) = self.scanner.child()? {
            match name {
                "Contents" => self.object()?,
                "CommonPrefixes" => self.prefixes()?,
                _ => self.property(name)?,
            }
        }
        self.scanner.end()
    }

    fn property(&mut self, name: &str) -> Result<(), XmlError> {
        let non_empty =
            |text: Cow<'_, str>| Some(text.into_owned()).filter(|text| !text.is_empty());
        match name {
            "IsTruncated" => self.truncated = self.scanner.text()?.trim() == "true",
            "EncodingType" => {
                let is_url = self.scanner.text()?.trim() == "url";
                self.is_encoded_after_all |= is_url && !self.url_encoded && self.has_names;
                self.url_encoded |= is_url;
            }
            "NextContinuationToken" => {
                let token = non_empty(self.scanner.text()?);
                self.listing.continuation = token.or(self.listing.continuation.take());
            }
            "NextMarker" => {
                let marker = self.name_text()?;
                self.marker = non_empty(marker).or(self.marker.take());
            }
            "Marker" => {
                self.has_marker = true;
                self.scanner.skip()?;
            }
            _ => self.scanner.skip()?,
        }
        Ok(())
    }

    /// The text of an element that is a name.
    fn name_text(&mut self) -> Result<Cow<'a, str>, XmlError> {
        let text = self.scanner.text()?;
        Ok(self.name(text))
    }

    fn name(&mut self, text: Cow<'a, str>) -> Cow<'a, str> {
        self.has_names = true;
        match self.url_encoded {
            true => decode_url(text),
            false => text,
        }
    }

    fn is_doubtful(&self, name: &str) -> bool {
        !self.url_encoded && name.contains(SPOILT)
    }

    fn prefixes(&mut self) -> Result<(), XmlError> {
        while let Some(name) = self.scanner.child()? {
            if name != "Prefix" {
                self.scanner.skip()?;
                continue;
            }
            let prefix = self.name_text()?.into_owned();
            match self.is_doubtful(&prefix) {
                true => self.listing.doubtful.prefixes.push(prefix),
                false => self.listing.prefixes.push(prefix),
            }
        }
        Ok(())
    }

    fn object(&mut self) -> Result<(), XmlError> {
        let mut object = Object::default();
        loop {
            let scanner = &mut self.scanner;
            scanner.blank();
            if let Some(text) = scanner.usual(b"<Key>", b"</Key>") {
                object.key = self.name(text.into());
            } else if let Some(text) = scanner.usual(b"<LastModified>", b"</LastModified>") {
                object.modified = Some(self.time(text.into())?);
            } else if let Some(text) = scanner.usual(b"<ETag>&quot;", b"&quot;</ETag>") {
                object.etag = text.into();
            } else if let Some(text) = scanner.usual(b"<ETag>", b"</ETag>") {
                object.etag = bare_tag(text).into();
            } else if let Some(text) = scanner.usual(b"<ETag>&#34;", b"&#34;</ETag>") {
                object.etag = text.into();
            } else if let Some(text) = scanner.usual(b"<Size>", b"</Size>") {
                object.size = size_of(text)?;
            } else if let Some(text) = scanner.usual(b"<StorageClass>", b"</StorageClass>") {
                object.storage_class = text.into();
            } else if let Some(text) = scanner.usual(b"<Type>", b"</Type>") {
                object.kind = kind_of(text.trim());
            } else if !self.field(&mut object)? {
                break;
            }
        }
        match self.is_doubtful(&object.key) {
            true => self.listing.doubtful.objects.add(object),
            false => self.listing.objects.add(object),
        }
        Ok(())
    }

    /// Reads the next field of the object that the scanner is in, however it is spelled. False behind the last.
    fn field(&mut self, object: &mut Object<'a>) -> Result<bool, XmlError> {
        let Some(name) = self.scanner.child()? else {
            return Ok(false);
        };
        match name {
            "Key" => object.key = self.name_text()?,
            "Size" => object.size = size_of(&self.scanner.text()?)?,
            "ETag" => object.etag = bare_tag(&self.scanner.text()?).to_owned().into(),
            "LastModified" => {
                let text = self.scanner.text()?;
                object.modified = Some(self.time(text)?);
            }
            "StorageClass" => object.storage_class = self.scanner.text()?,
            "Type" => object.kind = kind_of(self.scanner.text()?.trim()),
            _ => self.scanner.skip()?,
        }
        Ok(true)
    }

    fn time(&mut self, text: Cow<'a, str>) -> Result<SystemTime, XmlError> {
        if text != self.time.0 || text.is_empty() {
            let time = parse_time(&text).ok_or(XmlError::Missing("LastModified"))?;
            self.time = (text, time);
        }
        Ok(self.time.1)
    }

    fn finish(mut self) -> Result<Listing<O>, XmlError> {
        if !self.truncated {
            self.listing.continuation = None;
        } else if self.listing.continuation.is_none() {
            let last = self.has_marker.then(|| self.last()).flatten();
            self.listing.continuation = self.marker.take().or(last);
            if self.listing.continuation.is_none() {
                return Err(XmlError::Missing("NextContinuationToken"));
            }
        }
        Ok(self.listing)
    }

    /// The last key or prefix of the page.
    fn last(&self) -> Option<String> {
        let prefix = self.listing.prefixes.last().map(String::as_str);
        let last = self.listing.objects.last_key().max(prefix);
        last.map(str::to_owned)
    }
}

fn size_of(text: &str) -> Result<u64, XmlError> {
    text.trim_ascii()
        .parse()
        .map_err(|_| XmlError::Missing("Size"))
}

/// A tag without the quotes around it.
fn bare_tag(text: &str) -> &str {
    text.trim().trim_matches('"')
}

/// What OSS calls its kinds of objects.
pub(crate) fn kind_of(name: &str) -> ObjectKind {
    match name {
        "Appendable" => ObjectKind::Appendable,
        "Symlink" => ObjectKind::Symlink,
        _ => ObjectKind::Normal,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Name>b</Name><Prefix>p/</Prefix><KeyCount>3</KeyCount><MaxKeys>3</MaxKeys>
  <IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b==</NextContinuationToken>
  <Contents><Key>p/ a%2Bb&lt;&#x41; </Key><LastModified>2020-05-18T05:45:54.000Z</LastModified>
    <ETag>&quot;abc-2&quot;</ETag><Size>12</Size><StorageClass>STANDARD</StorageClass>
    <Owner><ID>x</ID><Key>not this one</Key></Owner></Contents>
  <Contents><Key>p/link</Key><Type>Symlink</Type><Size>0</Size><Unknown/></Contents>
  <CommonPrefixes><Prefix>p/q%2F/</Prefix></CommonPrefixes>ENCODING
</ListBucketResult>"#;

    #[test]
    fn names_that_were_spoilt_are_left_out() {
        let page = |encoding: &str| {
            format!(
                "<ListBucketResult><IsTruncated>false</IsTruncated>{encoding}\
                 <Contents><Key>a\u{fffd}b</Key><Size>1</Size>\
                 <LastModified>2020-05-18T05:45:54.000Z</LastModified><ETag>\"a\"</ETag></Contents>\
                 <Contents><Key>a b</Key><Size>1</Size>\
                 <LastModified>2020-05-18T05:45:54.000Z</LastModified><ETag>\"a\"</ETag></Contents>\
                 </ListBucketResult>"
            )
        };
        for (encoding, count) in [("", 1), ("<EncodingType>url</EncodingType>", 2)] {
            let xml = page(encoding);
            let list = parse_list(xml.as_bytes()).expect("valid");
            assert_eq!(list.objects.len(), count, "{encoding}");
            assert_eq!(list.objects.len() + list.hidden, 2, "{encoding}");
            let flat = parse_flat(xml.as_bytes()).expect("valid");
            assert_eq!(flat, FlatPage::from(list), "{encoding}");
        }
    }

    #[test]
    fn reads_a_page_as_it_stands() {
        let page = parse_list(PAGE.replace("ENCODING", "").as_bytes()).expect("valid");
        assert_eq!(page.continuation.as_deref(), Some("a&b=="));
        assert_eq!(page.common_prefixes, ["p/q%2F/"]);
        let [first, link] = &page.objects[..] else {
            panic!("two objects: {page:?}")
        };
        assert_eq!(first.key, "p/ a%2Bb<A ");
        assert_eq!((first.size, first.etag.as_str()), (12, "abc-2"));
        assert_eq!(link.kind, ObjectKind::Symlink);
    }

    #[test]
    fn decodes_names_when_the_server_encoded_them() {
        let encoding = "<EncodingType>url</EncodingType>";
        let page = parse_list(PAGE.replace("ENCODING", encoding).as_bytes()).expect("valid");
        assert_eq!(page.objects[0].key, "p/ a+b<A ");
        assert_eq!(page.common_prefixes, ["p/q//"]);
    }

    #[test]
    fn the_first_version_goes_on_after_a_key() {
        let page = |next: &str| {
            let text = format!(
                "<ListBucketResult><Marker/><IsTruncated>true</IsTruncated>{next}\
                 <EncodingType>url</EncodingType><Contents><Key>a%2Bb</Key></Contents>\
                 <CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes></ListBucketResult>"
            );
            parse_list(text.as_bytes()).expect("valid").continuation
        };
        assert_eq!(page("").as_deref(), Some("a/"));
        assert_eq!(page("<NextMarker>c%2B</NextMarker>").as_deref(), Some("c+"));
    }

    #[test]
    fn the_last_page_has_no_continuation() {
        let text = PAGE.replace("ENCODING", "").replace("true", "false");
        assert_eq!(
            parse_list(text.as_bytes()).expect("valid").continuation,
            None
        );
    }

    #[test]
    fn refuses_a_page_that_would_lose_the_rest() {
        let text = "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>";
        assert_eq!(
            parse_list(text.as_bytes()),
            Err(XmlError::Missing("NextContinuationToken"))
        );
        assert!(matches!(
            parse_list(b"<Error/>"),
            Err(XmlError::Unexpected(name)) if name == "Error"
        ));
        assert!(parse_list(b"<ListBucketResult><Contents>").is_err());
    }

    proptest! {
        #[test]
        fn never_panics(start in 0usize..900, end in 0usize..900, noise: Vec<u8>) {
            let mut xml = PAGE.as_bytes().to_vec();
            let (start, end) = (start.min(xml.len()), end.min(xml.len()));
            if start < end {
                xml.splice(start..end, noise);
            }
            let _ = parse_list(&xml);
        }

        #[test]
        fn keys_survive(key in "[ -~à-ü]{1,40}") {
            let xml = format!(
                "<ListBucketResult><Contents><Key>{}</Key></Contents></ListBucketResult>",
                crate::xml::escaped(&key)
            );
            let page = parse_list(xml.as_bytes()).expect("valid");
            prop_assert_eq!(&page.objects[0].key, &key);
        }
    }
}
