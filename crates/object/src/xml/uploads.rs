//! A page of unfinished uploads (`ListMultipartUploads`).

use std::{mem::take, time::SystemTime};

use super::{
    XmlError, decode_url, parse_time,
    walk::{Step, walk},
};
use crate::{Key, Upload, UploadId, UploadPage};

/// Between the two parts of a continuation. Upload ids have no line breaks.
const SEPARATOR: char = '\n';

#[derive(Default)]
struct Reading {
    uploads: Vec<Pending>,
    upload: Option<Pending>,
    next_key: String,
    next_id: String,
    truncated: bool,
    url_encoded: bool,
}

#[derive(Default)]
struct Pending {
    key: String,
    id: String,
    initiated: Option<SystemTime>,
}

/// Reads a page. Uploads under names that are no keys are left out. Fails when it says that
/// there is more but not where.
pub fn parse_uploads(xml: &[u8]) -> Result<UploadPage, XmlError> {
    let mut reading = Reading::default();
    let mut root = true;
    walk(xml, |step| {
        match step {
            Step::Open("ListMultipartUploadsResult") if root => root = false,
            Step::Open(name) if root => return Err(XmlError::Unexpected(name.to_owned())),
            Step::Open("Upload") => reading.upload = Some(Pending::default()),
            Step::Open(_) => {}
            Step::Close(name, text) => reading.close(name, text),
        }
        Ok(())
    })?;
    reading.finish()
}

/// The markers that make up a continuation: key, then upload id.
pub(crate) fn continuation_markers(continuation: &str) -> (&str, &str) {
    let (id, key) = continuation
        .split_once(SEPARATOR)
        .unwrap_or(("", continuation));
    (key, id)
}

impl Reading {
    fn close(&mut self, name: &str, text: &mut String) {
        match (name, &mut self.upload) {
            ("Upload", upload) => self.uploads.extend(upload.take()),
            ("Key", Some(upload)) => upload.key = take(text),
            ("UploadId", Some(upload)) => upload.id = take(text),
            ("Initiated", Some(upload)) => upload.initiated = parse_time(text),
            ("NextKeyMarker", None) => self.next_key = take(text),
            ("NextUploadIdMarker", None) => self.next_id = take(text),
            ("IsTruncated", None) => self.truncated = text.trim() == "true",
            ("EncodingType", None) => self.url_encoded = text.trim() == "url",
            _ => {}
        }
    }

    fn finish(self) -> Result<UploadPage, XmlError> {
        if self.truncated && self.next_key.is_empty() {
            return Err(XmlError::Missing("NextKeyMarker"));
        }
        let decode = |text: &str| {
            if self.url_encoded {
                decode_url(text)
            } else {
                text.to_owned()
            }
        };
        let continuation = self
            .truncated
            .then(|| format!("{}{SEPARATOR}{}", self.next_id, decode(&self.next_key)));
        let uploads = self.uploads.iter().filter_map(|pending| {
            Some(Upload {
                key: Key::new(decode(&pending.key)).ok()?,
                id: UploadId::new(&pending.id),
                initiated: pending.initiated.unwrap_or(SystemTime::UNIX_EPOCH),
            })
        });
        Ok(UploadPage {
            uploads: uploads.collect(),
            continuation,
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
