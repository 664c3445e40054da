//! Where a link keeps its target: in its metadata, as `symlink_in_meta` asks for, or in its body.

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Bytes of an encoded target from which on it stands in the body, since headers are limited.
const HEADER_MAX: usize = 2048;

/// Where the target of a link is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkTarget {
    /// Here.
    Header(String),
    /// In the object's body.
    Body,
}

impl LinkTarget {
    /// Keeps `target` in metadata if it is short enough.
    pub(crate) fn new(target: &str) -> Self {
        let header = Self::Header(target.to_owned());
        if header.encode().len() < HEADER_MAX {
            header
        } else {
            Self::Body
        }
    }

    /// The header's value.
    pub(super) fn encode(&self) -> String {
        match self {
            Self::Body => "body:0:".to_owned(),
            Self::Header(target) => {
                let encoded = utf8_percent_encode(target, NON_ALPHANUMERIC).to_string();
                format!("header:{}:{encoded}", encoded.len())
            }
        }
    }

    /// Reads a header's value.
    pub(super) fn decode(text: &str) -> Option<Self> {
        let (place, rest) = text.split_once(':')?;
        let (_length, target) = rest.split_once(':')?;
        match place {
            "body" => Some(Self::Body),
            "header" => {
                let target = percent_decode_str(target).decode_utf8().ok()?;
                let usable = !target.is_empty() && !target.contains('\0');
                usable.then(|| Self::Header(target.into_owned()))
            }
            _ => None,
        }
    }
}
