//! A page of a listing, in either version. The first one says where the next page begins by a key, and
//! sometimes leaves that to the reader: after the last key or prefix of the page.

use std::{mem::take, time::UNIX_EPOCH};

use super::{
    XmlError, decode_url, parse_time,
    walk::{Step, walk},
};
use crate::{ETag, ListPage, ListedObject, ObjectKind};

/// The root element of a listing.
pub(super) const LISTING_ROOT: &str = "ListBucketResult";

/// What stands in a name for what XML cannot hold, where a store does not encode names.
pub(super) const SPOILT: char = char::REPLACEMENT_CHARACTER;

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

/// Reads a page, and apart from it what may not be meant by its name.
pub(crate) fn read_list(xml: &[u8]) -> Result<(ListPage, Doubtful), XmlError> {
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

    fn finish(mut self) -> Result<(ListPage, Doubtful), XmlError> {
        let mut doubtful = Doubtful::default();
        if self.url_encoded {
            for object in &mut self.page.objects {
                object.key = decode_url(&object.key);
            }
            for prefix in &mut self.page.common_prefixes {
                *prefix = decode_url(prefix);
            }
            self.marker = self.marker.map(|marker| decode_url(&marker));
        } else {
            let page = &mut self.page;
            let objects = page
                .objects
                .extract_if(.., |object| object.key.contains(SPOILT));
            doubtful.objects = objects.collect();
            let prefixes = page
                .common_prefixes
                .extract_if(.., |name| name.contains(SPOILT));
            doubtful.prefixes = prefixes.collect();
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
        Ok((self.page, doubtful))
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
            let flat = crate::xml::parse_flat(xml.as_bytes()).expect("valid");
            assert_eq!(flat, crate::FlatPage::from(list), "{encoding}");
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
                quick_xml::escape::escape(&key)
            );
            let page = parse_list(xml.as_bytes()).expect("valid");
            prop_assert_eq!(&page.objects[0].key, &key);
        }
    }
}
