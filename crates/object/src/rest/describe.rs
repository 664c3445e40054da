//! Objects described by headers, in both directions.

use std::time::SystemTime;

use super::Dialect;
use crate::{
    ByteRange, ETag, ObjectInfo, UserMetadata,
    http::{RequestHeaders, Response, ResponseHeaders, is_printable},
    xml::kind_of,
};

/// Adds the media type and the metadata of an object.
pub(super) fn describe(
    metadata_prefix: &str,
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
        metadata: read_metadata(D::NAMES.metadata, headers),
        checksum: dialect.checksum_in(headers),
    }
}

fn read_metadata(prefix: &str, headers: &ResponseHeaders) -> UserMetadata {
    headers
        .iter()
        .filter_map(|(name, value)| {
            let (start, rest) = name.split_at_checked(prefix.len())?;
            start
                .eq_ignore_ascii_case(prefix)
                .then(|| (rest.to_ascii_lowercase(), value.to_owned()))
        })
        .collect()
}

/// Which bytes a successful GET delivers, and how many the object has.
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
        return Ok((range, size));
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

    #[test]
    fn refuses_metadata_that_would_break_the_head() {
        for (name, value) in [("a", "b\r\nx: y"), ("a: b", "c"), ("", "c"), ("a", "ü")] {
            let metadata = [(name.to_owned(), value.to_owned())].into();
            let mut headers = RequestHeaders::default();
            let outcome = describe("x-amz-meta-", (None, &metadata), &mut headers);
            assert!(outcome.is_err(), "{name}: {value}");
        }
    }
}
