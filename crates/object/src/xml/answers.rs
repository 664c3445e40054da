//! Short answers: errors, and what writes return.

use super::{
    XmlError, decode_url,
    scan::{Scanner, read},
};

/// What an `<Error>` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    /// The store's code, such as `NoSuchKey`.
    pub code: String,
    /// The store's explanation.
    pub message: String,
    /// The store's name for the request.
    pub request_id: String,
    /// The region in which the bucket lives, where that is the point.
    pub region: String,
    /// The endpoint at which the bucket is served, where that is the point.
    pub endpoint: String,
    /// The condition that did not hold.
    pub condition: String,
}

/// What a copy or a completed upload returns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteAnswer {
    /// The new content's tag, with quotes where the store puts them.
    pub etag: String,
    /// CRC-64/NVME of the whole object, in Base64.
    pub crc64nvme: String,
    /// CRC-32C, in Base64.
    pub crc32c: String,
    /// Whether the checksum covers the object (`FULL_OBJECT`) or its parts' checksums.
    pub checksum_type: String,
}

/// Reads an error; text that is none gives `None`.
pub fn parse_failure(xml: &[u8]) -> Option<Failure> {
    let failure = read(xml, |scanner, root| {
        let mut failure = Failure::default();
        refuse(root != "Error", root)?;
        while let Some(name) = scanner.child()? {
            read_into(&mut failure, name, scanner)?;
        }
        Ok(Some(failure))
    });
    failure.ok().flatten()
}

/// Fails if the answer is something else than was asked for.
fn refuse(is_wrong: bool, root: &str) -> Result<(), XmlError> {
    match is_wrong {
        true => Err(XmlError::Unexpected(root.to_owned())),
        false => Ok(()),
    }
}

/// Reads what the child `name` of an error, which was just entered, says of it.
fn read_into(failure: &mut Failure, name: &str, scanner: &mut Scanner<'_>) -> Result<(), XmlError> {
    let field = match name {
        "Code" => &mut failure.code,
        "Message" => &mut failure.message,
        "RequestId" => &mut failure.request_id,
        "Region" => &mut failure.region,
        "Endpoint" => &mut failure.endpoint,
        "Condition" => &mut failure.condition,
        _ => return scanner.skip(),
    };
    *field = scanner.text()?.into_owned();
    Ok(())
}

/// The id that `InitiateMultipartUpload` returns.
pub fn parse_upload_id(xml: &[u8]) -> Result<String, XmlError> {
    let id = read(xml, |scanner, _| {
        let mut id = String::new();
        while let Some(name) = scanner.child()? {
            match name {
                "UploadId" => id = scanner.text()?.into_owned(),
                _ => scanner.skip()?,
            }
        }
        Ok(id)
    })?;
    match id.is_empty() {
        true => Err(XmlError::Missing("UploadId")),
        false => Ok(id),
    }
}

/// Reads what `CompleteMultipartUpload`, `CopyObject` or `UploadPartCopy` return.
pub fn parse_write_answer(xml: &[u8]) -> Result<WriteAnswer, XmlError> {
    let answer = read(xml, |scanner, root| {
        refuse(root == "Error", root)?;
        let mut answer = WriteAnswer::default();
        while let Some(name) = scanner.child()? {
            let field = match name {
                "ETag" => &mut answer.etag,
                "ChecksumCRC64NVME" => &mut answer.crc64nvme,
                "ChecksumCRC32C" => &mut answer.crc32c,
                "ChecksumType" => &mut answer.checksum_type,
                _ => {
                    scanner.skip()?;
                    continue;
                }
            };
            *field = scanner.text()?.into_owned();
        }
        Ok(answer)
    })?;
    match answer.etag.is_empty() {
        true => Err(XmlError::Missing("ETag")),
        false => Ok(answer),
    }
}

/// Keys that `DeleteObjects` could not delete, each with code and message.
pub fn parse_delete_failures(xml: &[u8]) -> Result<Vec<(String, Failure)>, XmlError> {
    read(xml, |scanner, root| {
        refuse(root == "Error", root)?;
        let (mut failures, mut url_encoded) = (Vec::new(), false);
        while let Some(name) = scanner.child()? {
            match name {
                "Error" => failures.push(delete_failure(scanner)?),
                "EncodingType" => url_encoded = scanner.text()?.trim() == "url",
                _ => scanner.skip()?,
            }
        }
        for (key, _) in failures.iter_mut().filter(|_| url_encoded) {
            *key = decode_url(key.as_str().into()).into_owned();
        }
        Ok(failures)
    })
}

/// The key and the failure in the element that was just entered.
fn delete_failure(scanner: &mut Scanner<'_>) -> Result<(String, Failure), XmlError> {
    let (mut key, mut failure) = (String::new(), Failure::default());
    while let Some(name) = scanner.child()? {
        match name {
            "Key" => key = scanner.text()?.into_owned(),
            _ => read_into(&mut failure, name, scanner)?,
        }
    }
    Ok((key, failure))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_an_error_and_nothing_else() {
        let xml = b"<Error xmlns='x'><Code>NoSuchKey</Code><Message>a &amp; b</Message>\
            <RequestId>R</RequestId><Detail><Code>inner</Code></Detail></Error>";
        let failure = parse_failure(xml).expect("an error");
        assert_eq!(
            (failure.code.as_str(), failure.message.as_str()),
            ("NoSuchKey", "a & b")
        );
        assert_eq!(parse_failure(b"<html><body>502</body></html>"), None);
        assert_eq!(parse_failure(b"not xml"), None);
    }

    #[test]
    fn an_error_is_no_write_answer() {
        let xml = b"<CompleteMultipartUploadResult><ETag>\"a-1\"</ETag>\
            <ChecksumCRC64NVME>AAA=</ChecksumCRC64NVME></CompleteMultipartUploadResult>";
        let answer = parse_write_answer(xml).expect("valid");
        assert_eq!(
            (answer.etag.as_str(), answer.crc64nvme.as_str()),
            ("\"a-1\"", "AAA=")
        );
        assert!(parse_write_answer(b"<Error><Code>InternalError</Code></Error>").is_err());
        assert!(parse_write_answer(b"<CopyObjectResult/>").is_err());
    }

    #[test]
    fn an_answer_with_an_error_behind_it_is_neither() {
        for xml in [
            "<R><ETag>\"a\"</ETag></R><Error><Code>SlowDown</Code></Error>",
            "<R/><Error/>",
            "<Error><Code>SlowDown</Code></Error><R><ETag>\"a\"</ETag></R>",
        ] {
            assert_eq!(parse_failure(xml.as_bytes()), None, "{xml}");
            assert!(parse_write_answer(xml.as_bytes()).is_err(), "{xml}");
        }
        let trailing = b"<R><ETag>\"a\"</ETag></R>\n<!-- end -->\n";
        assert!(parse_write_answer(trailing).is_ok());
    }

    #[test]
    fn lists_what_was_not_deleted() {
        let xml = b"<DeleteResult><Deleted><Key>a</Key></Deleted>\
            <Error><Key>b</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>";
        let failures = parse_delete_failures(xml).expect("valid");
        assert_eq!(failures.len(), 1);
        assert_eq!(
            (failures[0].0.as_str(), failures[0].1.code.as_str()),
            ("b", "AccessDenied")
        );
        assert_eq!(parse_delete_failures(b"").expect("quiet"), []);
    }

    proptest! {
        #[test]
        fn nothing_panics(noise in "[<>/&;A-Za-z#x0-9 ]{0,80}") {
            let xml = format!("<Error>{noise}</Error>");
            for text in [noise.as_bytes(), xml.as_bytes()] {
                let _ = parse_failure(text);
                let _ = parse_write_answer(text);
                let _ = parse_delete_failures(text);
                let _ = parse_upload_id(text);
                let _ = super::super::parse_uploads(text);
            }
        }
    }
}
