//! A page of unfinished uploads (`ListMultipartUploads`).

use std::{borrow::Cow, time::SystemTime};

use super::{
    XmlError, decode_url, parse_time,
    scan::{Scanner, read},
};
use crate::{Key, Upload, UploadId, UploadPage};

/// Between the two parts of a continuation. Upload ids have no line breaks.
const SEPARATOR: char = '\n';

#[derive(Default)]
struct Reading<'a> {
    uploads: Vec<Pending<'a>>,
    next_key: Cow<'a, str>,
    next_id: Cow<'a, str>,
    truncated: bool,
    url_encoded: bool,
}

#[derive(Default)]
struct Pending<'a> {
    key: Cow<'a, str>,
    id: Cow<'a, str>,
    initiated: Option<SystemTime>,
}

/// Reads a page. Uploads under names that are no keys are left out. Fails when it says that
/// there is more but not where.
pub fn parse_uploads(xml: &[u8]) -> Result<UploadPage, XmlError> {
    read(xml, |scanner, root| {
        if root != "ListMultipartUploadsResult" {
            return Err(XmlError::Unexpected(root.to_owned()));
        }
        let mut reading = Reading::default();
        while let Some(name) = scanner.child()? {
            match name {
                "Upload" => reading.uploads.push(Pending::read(scanner)?),
                "NextKeyMarker" => reading.next_key = scanner.text()?,
                "NextUploadIdMarker" => reading.next_id = scanner.text()?,
                "IsTruncated" => reading.truncated = scanner.text()?.trim() == "true",
                "EncodingType" => reading.url_encoded = scanner.text()?.trim() == "url",
                _ => scanner.skip()?,
            }
        }
        reading.finish()
    })
}

/// The markers that make up a continuation: key, then upload id.
pub(crate) fn continuation_markers(continuation: &str) -> (&str, &str) {
    let (id, key) = continuation
        .split_once(SEPARATOR)
        .unwrap_or(("", continuation));
    (key, id)
}

impl<'a> Pending<'a> {
    /// The upload in the element that was just entered.
    fn read(scanner: &mut Scanner<'a>) -> Result<Self, XmlError> {
        let mut upload = Self::default();
        while let Some(name) = scanner.child()? {
            match name {
                "Key" => upload.key = scanner.text()?,
                "UploadId" => upload.id = scanner.text()?,
                "Initiated" => upload.initiated = parse_time(&scanner.text()?),
                _ => scanner.skip()?,
            }
        }
        Ok(upload)
    }
}

impl Reading<'_> {
    fn finish(self) -> Result<UploadPage, XmlError> {
        if self.truncated && self.next_key.is_empty() {
            return Err(XmlError::Missing("NextKeyMarker"));
        }
        let decode = |text| match self.url_encoded {
            true => decode_url(text),
            false => text,
        };
        let uploads = self.uploads.into_iter().filter_map(|pending| {
            Some(Upload {
                key: Key::new(decode(pending.key)).ok()?,
                id: UploadId::new(&pending.id),
                initiated: pending.initiated.unwrap_or(SystemTime::UNIX_EPOCH),
            })
        });
        Ok(UploadPage {
            uploads: uploads.collect(),
            continuation: self
                .truncated
                .then(|| format!("{}{SEPARATOR}{}", self.next_id, decode(self.next_key))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_uploads_and_where_to_go_on() {
        let xml = "<ListMultipartUploadsResult><Bucket>b</Bucket><EncodingType>url</EncodingType>\
            <NextKeyMarker>a%2Fb</NextKeyMarker><NextUploadIdMarker>U2</NextUploadIdMarker>\
            <IsTruncated>true</IsTruncated><Upload><Key>a%2Fb</Key><UploadId>U1</UploadId>\
            <Initiated>2020-05-18T05:45:54.000Z</Initiated></Upload></ListMultipartUploadsResult>";
        let page = parse_uploads(xml.as_bytes()).expect("valid");
        assert_eq!(page.uploads[0].key.as_str(), "a/b");
        assert_eq!(page.uploads[0].id.as_str(), "U1");
        let continuation = page.continuation.expect("there is more");
        assert_eq!(continuation_markers(&continuation), ("a/b", "U2"));
    }

    #[test]
    fn refuses_a_page_that_would_lose_the_rest() {
        let xml = b"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>\
            </ListMultipartUploadsResult>";
        assert_eq!(parse_uploads(xml), Err(XmlError::Missing("NextKeyMarker")));
    }
}
