//! An object: what it holds and what is known about it.

use std::{sync::OnceLock, time::SystemTime};

use super::content::Content;
use crate::{
    clock,
    digest::{Algorithm, Value},
};

/// How an object came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Kind {
    #[default]
    Normal,
    Multipart,
    Appendable,
    Symlink,
}

impl Kind {
    /// The word in OSS headers and listings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Multipart => "Multipart",
            Self::Appendable => "Appendable",
            Self::Symlink => "Symlink",
        }
    }
}

/// What a writer attaches to an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// The media type; a default is answered where it is empty.
    pub(crate) content_type: String,
    /// `Cache-Control` and its kin: field names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    /// User metadata, without the dialect's prefix.
    pub(crate) metadata: Vec<(String, String)>,
    /// Empty for the standard class.
    pub(crate) storage_class: String,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) content: Content,
    /// The content's version, without quotes.
    pub(crate) etag: String,
    pub(crate) modified: SystemTime,
    pub(crate) kind: Kind,
    pub(crate) attributes: Attributes,
    /// Checksums that the writer sent, over the whole object.
    pub(crate) checksums: Vec<Value>,
    /// A checksum of part checksums, as a writer of parts may choose: its header and value.
    pub(crate) composite: Option<(Algorithm, String)>,
    /// Lengths of the parts that it was written in.
    pub(crate) parts: Vec<u64>,
    /// What a link points to.
    pub(crate) target: Option<String>,
    crc64_ecma: OnceLock<Value>,
    crc64_nvme: OnceLock<Value>,
}

impl Object {
    pub(crate) fn new(content: Content, etag: String) -> Self {
        Self {
            content,
            etag,
            modified: clock::wall_time(),
            kind: Kind::Normal,
            attributes: Attributes::default(),
            checksums: Vec::new(),
            composite: None,
            parts: Vec::new(),
            target: None,
            crc64_ecma: OnceLock::new(),
            crc64_nvme: OnceLock::new(),
        }
    }

    pub(crate) fn length(&self) -> u64 {
        self.content.length()
    }

    /// A checksum over the whole object: as it was sent, or computed when first asked for.
    pub(crate) fn checksum(&self, algorithm: Algorithm) -> Value {
        if let Some(value) = self
            .checksums
            .iter()
            .find(|value| value.algorithm == algorithm)
        {
            return value.clone();
        }
        let compute = || Value::of_content(algorithm, &self.content);
        match algorithm {
            Algorithm::Crc64Ecma => self.crc64_ecma.get_or_init(compute).clone(),
            Algorithm::Crc64Nvme => self.crc64_nvme.get_or_init(compute).clone(),
            _ => compute(),
        }
    }

    /// The bytes of part `number`, counted from 1; an object written whole is its own part 1.
    pub(crate) fn part_range(&self, number: usize) -> Option<std::ops::Range<u64>> {
        if self.parts.is_empty() && number == 1 {
            return Some(0..self.length());
        }
        let index = number.checked_sub(1)?;
        let length = self.parts.get(index)?;
        let start = self.parts[..index].iter().sum::<u64>();
        Some(start..start + length)
    }
}
