//! One object: its bytes and what is known about them.

use std::time::SystemTime;

use bytes::Bytes;
use md5::{Digest, Md5};
use penstock_base::{ChecksumKind, Payload, Summing, clock};

use penstock_object::{
    Appended, ByteRange, Checksum, Description, ETag, ErrorKind, Key, ObjectError, ObjectInfo,
    ObjectKind, ObjectResult, Operation, PutOptions, Stored, UserMetadata,
};

#[derive(Clone)]
pub(super) struct Object {
    pub(super) body: Payload,
    /// Where it leads, if it is a symbolic link.
    pub(super) link: Option<Key>,
    kind: ObjectKind,
    etag: ETag,
    /// CRC-64/XZ of the content.
    sum: Checksum,
    modified: SystemTime,
    content_type: String,
    metadata: UserMetadata,
}

impl Object {
    /// An object written whole.
    pub(super) fn new(body: Payload, options: &PutOptions) -> Self {
        Self {
            etag: content_tag(&body),
            sum: sum(&body),
            body,
            link: None,
            kind: ObjectKind::Normal,
            modified: clock::wall_time(),
            content_type: options.content_type.clone().unwrap_or_default(),
            metadata: options.metadata.clone(),
        }
    }

    /// An object made of parts, whose tag the upload knows.
    pub(super) fn assembled(body: Payload, etag: ETag, options: &PutOptions) -> Self {
        Self {
            etag,
            ..Self::new(body, options)
        }
    }

    /// A symbolic link.
    pub(super) fn link(target: &Key, options: &PutOptions) -> Self {
        Self {
            link: Some(target.clone()),
            kind: ObjectKind::Symlink,
            ..Self::new(Payload::new(), options)
        }
    }

    /// The first piece of an object that grows.
    pub(super) fn appendable(
        key: &Key,
        position: u64,
        body: Payload,
        options: &PutOptions,
    ) -> ObjectResult<Self> {
        check_position(key, position, 0)?;
        let mut object = Self::new(body, options);
        object.kind = ObjectKind::Appendable;
        object.etag = growing_tag(object.sum);
        Ok(object)
    }

    /// Adds `body` at the end.
    pub(super) fn append(
        &mut self,
        key: &Key,
        position: u64,
        body: Payload,
    ) -> ObjectResult<Appended> {
        if self.kind != ObjectKind::Appendable {
            let message = "the object was not begun by an append; write it anew";
            let kind = ErrorKind::Unsupported;
            return Err(ObjectError::new(kind, Operation::Append, message).about(key));
        }
        check_position(key, position, self.size())?;
        let added = body.len() as u64;
        let sum = self.sum.followed_by(sum(&body), added);
        self.sum = sum.expect("both are of one kind");
        self.body.append(body);
        self.etag = growing_tag(self.sum);
        self.modified = clock::wall_time();
        Ok(self.appended())
    }

    /// The same content, as a copy of it is stored, described otherwise if `description` says so.
    pub(super) fn copied(&self, description: Option<Description>) -> Self {
        let kind = match self.kind {
            ObjectKind::Appendable => ObjectKind::Normal,
            kind => kind,
        };
        let mut copy = Self {
            // That of an object that was put together of parts tells these.
            etag: content_tag(&self.body),
            kind,
            modified: clock::wall_time(),
            ..self.clone()
        };
        if let Some(description) = description {
            copy.content_type = description.content_type.unwrap_or_default();
            copy.metadata = description.metadata;
        }
        copy
    }

    pub(super) fn size(&self) -> u64 {
        self.body.len() as u64
    }

    pub(super) fn etag(&self) -> &ETag {
        &self.etag
    }

    pub(super) fn kind(&self) -> ObjectKind {
        self.kind
    }

    pub(super) fn modified(&self) -> SystemTime {
        self.modified
    }

    pub(super) fn info(&self) -> ObjectInfo {
        ObjectInfo {
            size: self.size(),
            etag: self.etag.clone(),
            modified: self.modified,
            kind: self.kind,
            storage_class: String::new(),
            content_type: self.content_type.clone(),
            metadata: self.metadata.clone(),
            checksum: Some(self.sum),
        }
    }

    pub(super) fn stored(&self) -> Stored {
        Stored {
            etag: self.etag.clone(),
            checksum: Some(self.sum),
        }
    }

    pub(super) fn appended(&self) -> Appended {
        Appended {
            next_position: self.size(),
            etag: Some(self.etag.clone()),
            checksum: Some(self.sum),
        }
    }
}

fn check_position(key: &Key, position: u64, size: u64) -> ObjectResult<()> {
    if position != size {
        let message = format!("append at {position}, but the object has {size} bytes");
        let kind = ErrorKind::PositionMismatch;
        return Err(ObjectError::new(kind, Operation::Append, message).about(key));
    }
    Ok(())
}

/// A copy of `body` that does not keep the sender's pooled memory alive.
pub(super) fn own(body: &Payload) -> Payload {
    Payload::from(body.to_vec())
}

/// The pieces of `body` that make up `range`.
pub(super) fn slices(body: &Payload, range: &ByteRange) -> impl Iterator<Item = Bytes> {
    let mut start = 0;
    body.slices().iter().filter_map(move |slice| {
        let end = start + slice.len() as u64;
        let from = range.start.clamp(start, end);
        let to = range.end.clamp(from, end);
        let piece = slice.slice((from - start) as usize..(to - start) as usize);
        start = end;
        (!piece.is_empty()).then_some(piece)
    })
}

pub(super) fn joined(mut body: Payload, slice: Bytes) -> Payload {
    body.push(slice);
    body
}

/// Made from the bytes, whatever checksum they bring along.
pub(super) fn sum(body: &Payload) -> Checksum {
    let mut summing = Summing::new(ChecksumKind::Crc64Ecma);
    for slice in body.slices() {
        summing.add(slice);
    }
    summing.checksum()
}

pub(super) fn content_tag(body: &Payload) -> ETag {
    let mut digest = Md5::new();
    for slice in body.slices() {
        digest.update(slice);
    }
    ETag::new(&hex(&digest.finalize()))
}

/// Lower-case digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn growing_tag(sum: Checksum) -> ETag {
    ETag::new(&format!("{:016X}-append", sum.value()))
}
