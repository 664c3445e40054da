//! The version that somebody asks for.

use penstock_object::{ETag, Key, ObjectInfo};

use super::{header::Header, name::VersionName};

/// One version of one object of one store.
#[derive(Debug)]
pub(super) struct Version<'a> {
    pub(super) name: VersionName,
    identity: &'a str,
    pub(super) key: &'a Key,
    /// None for an object that has one version and no other.
    pub(super) etag: Option<&'a ETag>,
}

impl<'a> Version<'a> {
    pub(super) fn new(identity: &'a str, key: &'a Key, etag: Option<&'a ETag>) -> Self {
        let tag = etag.map_or("", ETag::as_str);
        Self {
            name: VersionName::of(identity, key.as_str(), tag),
            identity,
            key,
            etag,
        }
    }

    /// Whether `info` describes it.
    pub(super) fn is(&self, info: &ObjectInfo) -> bool {
        self.etag.is_none_or(|etag| info.etag == *etag)
    }

    /// Whether the files with this header are of it.
    pub(super) fn is_in(&self, header: &Header) -> bool {
        header.identity == self.identity && header.key == self.key.as_str() && self.is(&header.info)
    }

    /// The header of its files.
    pub(super) fn header(&self, info: &ObjectInfo) -> Header {
        Header {
            identity: self.identity.to_owned(),
            key: self.key.as_str().to_owned(),
            info: info.clone(),
        }
    }
}
