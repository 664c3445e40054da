//! Objects described by headers, in both directions.

use std::time::SystemTime;

use super::{Dialect, Names};
use crate::{
    ByteRange, ETag, ObjectInfo, UserMetadata,
    http::{RequestHeaders, Response, ResponseHeaders, is_printable},
    xml::kind_of,
};

/// Headers that a rewrite repeats, as they stand among the metadata.
const KEPT: [&str; 5] = [
    ":cache-control",
    ":content-disposition",
    ":content-encoding",
    ":content-language",
    ":expires",
];

/// The storage class among the metadata; each dialect spells its header otherwise.
const CLASS: &str = ":storage-class";

/// The classes of objects that cannot be read before they are restored. What is written anew was just read,
/// or is new, and goes to the bucket's own class.
const ARCHIVES: [&str; 5] = [
    "glacier",
    "deep_archive",
    "archive",
    "coldarchive",
    "deepcoldarchive",
];

/// The class that needs no saying.
const STANDARD: &str = "standard";

/// The coding of what is only on its way, which some stores keep.
const ON_THE_WAY: &str = "aws-chunked";

/// Adds the media type and the metadata of an object. Without a header for its storage class that
/// is the one of everything that is written.
pub(super) fn describe(
    (metadata_prefix, storage_class): (&str, Option<&'static str>),
    (media_type, metadata): (Option<&str>, &UserMetadata),
    headers: &mut RequestHeaders,
) -> Result<(), String> {
    if let Some(media_type) = media_type {
        if !is_printable(media_type) {
            return Err("the content type is not printable ASCII".to_owned());
        }
        headers.push("content-type", media_type.to_owned());
    }
    for (name, value) in metadata {
        if let Some(kept) = KEPT.iter().find(|kept| *kept == name) {
            headers.push(&kept[1..], value.clone());
            continue;
        }
        if name == CLASS {
            if let Some(header) = storage_class {
                headers.push(header, value.clone());
            }
            continue;
        }
        if !is_field_name(name) || !is_printable(value) {
            return Err(format!(
                "metadata `{name}` cannot be sent: names are letters, digits and dashes, values \
                 printable ASCII"
            ));
        }
        headers.push(format!("{metadata_prefix}{name}"), value.clone());
    }
    Ok(())
}

fn is_field_name(name: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    !name.is_empty() && name.bytes().all(allowed)
}

/// The object of which `size` bytes are stored, as `headers` describe it.
pub(super) fn read_info<D: Dialect>(
    dialect: &D,
    headers: &ResponseHeaders,
    size: u64,
) -> ObjectInfo {
    let text = |name| headers.get(name).unwrap_or_default();
    ObjectInfo {
        size,
        etag: ETag::new(text("etag").trim_start_matches("W/")),
        modified: httpdate::parse_http_date(text("last-modified"))
            .unwrap_or(SystemTime::UNIX_EPOCH),
        kind: kind_of(text("x-oss-object-type")),
        storage_class: text(D::NAMES.storage_class).to_owned(),
        content_type: text("content-type").to_owned(),
        metadata: read_metadata(&D::NAMES, headers),
        checksum: dialect.checksum_in(headers),
    }
}

fn read_metadata(names: &Names, headers: &ResponseHeaders) -> UserMetadata {
    let prefix = names.metadata;
    let of_user = headers.iter().filter_map(|(name, value)| {
        let (start, rest) = name.split_at_checked(prefix.len())?;
        start
            .eq_ignore_ascii_case(prefix)
            .then(|| (rest.to_ascii_lowercase(), value.to_owned()))
    });
    let kept = KEPT.into_iter().filter_map(|name| {
        let value = without_way(headers.get(&name[1..])?);
        let sendable = !value.is_empty() && is_printable(&value);
        sendable.then(|| (name.to_owned(), value))
    });
    let class = headers.get(names.storage_class).filter(|class| {
        let class = class.to_ascii_lowercase();
        class != STANDARD && !ARCHIVES.contains(&&*class) && is_printable(&class)
    });
    let class = class.map(|class| (CLASS.to_owned(), class.to_owned()));
    of_user.chain(kept).chain(class).collect()
}

fn without_way(value: &str) -> String {
    if !value.contains(ON_THE_WAY) {
        return value.to_owned();
    }
    let codings = value.split(',').map(str::trim);
    let kept: Vec<_> = codings.filter(|coding| *coding != ON_THE_WAY).collect();
    kept.join(", ")
}

/// Which of the bytes that were asked for a successful GET delivers, and how many the object has.
pub(super) fn delivered(
    response: &Response,
    wanted: Option<&ByteRange>,
) -> Result<(ByteRange, u64), String> {
    let headers = &response.headers;
    if response.status == 206 {
        let text = headers.get("content-range").unwrap_or_default();
        let (range, size) =
            parse_content_range(text).ok_or(format!("`{text}` is no content range"))?;
        let start = wanted.map_or(0, |wanted| wanted.start);
        if range.start != start {
            return Err(format!("bytes from {start} were asked for, `{text}` came"));
        }
        let end = wanted.map_or(size, |wanted| wanted.end.min(size));
        if range.end < end {
            return Err(format!("bytes up to {end} were asked for, `{text}` came"));
        }
        return Ok((start..end, size));
    }
    let size = headers
        .number("content-length")
        .ok_or("the store does not tell the object's size")?;
    match wanted {
        Some(range) if range.start > 0 => {
            Err("the store ignores ranges and sends the whole object".to_owned())
        }
        Some(range) => Ok((0..size.min(range.end), size)),
        None => Ok((0..size, size)),
    }
}

/// Reads `bytes 0-9/100`.
fn parse_content_range(text: &str) -> Option<(ByteRange, u64)> {
    let (range, size) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let size = size.parse().ok()?;
    (first <= last && last < size).then_some((first..last + 1, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_content_ranges() {
        assert_eq!(parse_content_range("bytes 0-9/100"), Some((0..10, 100)));
        for text in [
            "bytes */100",
            "bytes 9-0/100",
            "bytes 0-100/100",
            "0-9/100",
            "",
        ] {
            assert_eq!(parse_content_range(text), None, "{text}");
        }
    }

    fn told(fields: &[(&str, &str)]) -> UserMetadata {
        let text: String = fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let head = format!("HTTP/1.1 200 OK\r\n{text}\r\n").into_bytes();
        let mut parsed = [httparse::EMPTY_HEADER; 16];
        let mut response = httparse::Response::new(&mut parsed);
        response.parse(&head).expect("a head");
        let headers = ResponseHeaders::new(&head, response.headers);
        read_metadata(&<crate::s3::S3 as Dialect>::NAMES, &headers)
    }

    #[test]
    fn headers_of_an_object_stand_among_its_metadata() {
        let metadata = told(&[
            ("Cache-Control", "max-age=60"),
            ("Content-Encoding", "aws-chunked, gzip"),
            ("X-Amz-Storage-Class", "STANDARD_IA"),
            ("x-amz-meta-Colour", "blue"),
        ]);
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let expected = [
            (":cache-control", "max-age=60"),
            (":content-encoding", "gzip"),
            (":storage-class", "STANDARD_IA"),
            ("colour", "blue"),
        ];
        assert_eq!(metadata, expected.map(pair).into());
        let mut headers = RequestHeaders::default();
        let names = ("x-amz-meta-", Some("x-amz-storage-class"));
        describe(names, (None, &metadata), &mut headers).expect("it can be sent");
        let sent: Vec<_> = headers.iter().collect();
        let expected = [
            ("cache-control", "max-age=60"),
            ("content-encoding", "gzip"),
            ("x-amz-storage-class", "STANDARD_IA"),
            ("x-amz-meta-colour", "blue"),
        ];
        assert_eq!(sent, expected);
    }

    #[test]
    fn what_need_not_or_cannot_be_repeated_is_left_out() {
        let metadata = told(&[
            ("Content-Encoding", "aws-chunked"),
            ("Content-Disposition", "attachment; filename=\"\u{fc}\""),
            ("x-amz-storage-class", "STANDARD"),
        ]);
        assert!(metadata.is_empty(), "{metadata:?}");
        for class in ["GLACIER", "DEEP_ARCHIVE"] {
            assert!(told(&[("x-amz-storage-class", class)]).is_empty());
        }
        assert!(!told(&[("x-amz-storage-class", "GLACIER_IR")]).is_empty());
    }

    #[test]
    fn refuses_metadata_that_would_break_the_head() {
        for (name, value) in [("a", "b\r\nx: y"), ("a: b", "c"), ("", "c"), ("a", "ü")] {
            let metadata = [(name.to_owned(), value.to_owned())].into();
            let mut headers = RequestHeaders::default();
            let names = ("x-amz-meta-", None);
            let outcome = describe(names, (None, &metadata), &mut headers);
            assert!(outcome.is_err(), "{name}: {value}");
        }
    }
}
