//! The XML that S3 and OSS speak: reading answers, writing request bodies.
//!
//! Readers are tolerant: namespaces, unknown elements, order and white space do not matter, so
//! that one reader serves both dialects and their imitations. They never panic and hold no more
//! than the input's size, whatever the input; answers are limited in size before they get here.

mod answers;
mod list;
mod scan;
mod time;
mod uploads;
mod write;

pub use answers::{
    Failure, WriteAnswer, parse_delete_failures, parse_failure, parse_upload_id, parse_write_answer,
};
pub(crate) use list::{Doubtful, kind_of, read_flat, read_list};
#[cfg(any(test, feature = "testing"))]
pub use list::{parse_flat, parse_list};
pub use time::parse_time;
pub(crate) use uploads::continuation_markers;
pub use uploads::parse_uploads;
pub use write::{complete_upload_body, delete_many_body, is_expressible};

use std::borrow::Cow;

use thiserror::Error;

/// Why an answer could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum XmlError {
    /// It is not well-formed.
    #[error("the answer is not XML: {0}")]
    Malformed(String),
    /// It is nested deeper than any answer should be.
    #[error("the answer is nested too deeply")]
    TooDeep,
    /// It is something else than was asked for.
    #[error("the answer is `{0}` where another one was expected")]
    Unexpected(String),
    /// An element without which the answer is of no use is missing or makes no sense.
    #[error("the answer has no usable `{0}`")]
    Missing(&'static str),
}

/// Takes percent-encoding off text that a server may have encoded in one of several ways: `+` is
/// a space, what is no escape stays as it is, and what is no UTF-8 is replaced.
fn decode_url(text: Cow<'_, str>) -> Cow<'_, str> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return text;
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_encoding::percent_decode_str(&spaced).decode_utf8_lossy();
    Cow::Owned(decoded.into_owned())
}

/// `text` as it stands between tags.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
