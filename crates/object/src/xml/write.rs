//! Request bodies.

use std::fmt::Write as _;

use super::escaped;
use crate::{Checksum, Key, Part};

/// The body of `CompleteMultipartUpload`. `checksum` writes a part's checksum as the dialect
/// wants it, an element name and a value.
pub fn complete_upload_body(
    parts: &[Part],
    checksum: impl Fn(Checksum) -> Option<(&'static str, String)>,
) -> String {
    let mut body = String::with_capacity(64 + parts.len() * 96);
    body.push_str("<CompleteMultipartUpload>");
    for part in parts {
        let tag = escaped(part.etag.as_str());
        let _ = write!(
            body,
            "<Part><PartNumber>{}</PartNumber><ETag>\"{tag}\"</ETag>",
            part.number
        );
        if let Some((name, value)) = part.checksum.and_then(&checksum) {
            let _ = write!(body, "<{name}>{value}</{name}>");
        }
        body.push_str("</Part>");
    }
    body.push_str("</CompleteMultipartUpload>");
    body
}

/// The body of `DeleteObjects` that asks for failures only.
pub fn delete_many_body(keys: &[&Key]) -> String {
    let mut body = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?><Delete>");
    body.push_str("<Quiet>true</Quiet>");
    for key in keys {
        let _ = write!(
            body,
            "<Object><Key>{}</Key></Object>",
            escaped(key.as_str())
        );
    }
    body.push_str("</Delete>");
    body
}

/// Whether XML can carry the key and a parser gives it back unchanged: control characters
/// cannot be written at all, and a carriage return comes back as a line feed.
pub fn is_expressible(key: &Key) -> bool {
    !key.as_str()
        .chars()
        .any(|character| character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ETag;

    #[test]
    fn writes_parts_with_their_checksums() {
        let part = |number, checksum| Part {
            number,
            etag: ETag::new("a&b"),
            size: 1,
            checksum,
        };
        let parts = [part(1, None), part(2, Some(Checksum::Crc32c(1)))];
        let body = complete_upload_body(&parts, |_| Some(("ChecksumCRC32C", "AAAAAQ==".into())));
        assert_eq!(
            body,
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"a&amp;b\"</ETag></Part>\
             <Part><PartNumber>2</PartNumber><ETag>\"a&amp;b\"</ETag><ChecksumCRC32C>AAAAAQ==\
             </ChecksumCRC32C></Part></CompleteMultipartUpload>"
        );
    }

    #[test]
    fn escapes_keys() {
        let key = Key::new("a<b>&\"'").expect("valid");
        let body = delete_many_body(&[&key]);
        assert!(
            body.contains("<Key>a&lt;b&gt;&amp;&quot;&apos;</Key>"),
            "{body}"
        );
        assert!(!is_expressible(&Key::new("a\u{1}").expect("valid")));
    }
}
