//! What goes into a store operation and what comes out.

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::SystemTime};

use bytes::Bytes;
use penstock_base::Mutex;

use crate::{Checksum, ETag, ErrorKind, Key, UploadId};

/// Bytes `start..end` of an object; `end` may lie beyond the object's end.
pub type ByteRange = Range<u64>;

/// Metadata that users attach to objects, without the dialect's header prefix; names in lower
/// case.
///
/// Names that begin with [`HEADER_MARK`], which no name of a user's can, stand for headers of the
/// object that a store forgets unless each rewrite repeats them. HEAD tells those that are there,
/// and who writes an object anew with the metadata that it had keeps them without knowing them.
pub type UserMetadata = BTreeMap<String, String>;

/// What the names of headers begin with among [`UserMetadata`].
pub const HEADER_MARK: char = ':';

/// The number of a part: 1 to the store's maximum.
pub type PartNumber = u32;

/// How an object came to be, where that decides what can be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ObjectKind {
    /// Written whole or in parts.
    #[default]
    Normal,
    /// Grows by appending (OSS).
    Appendable,
    /// Points to another object (OSS).
    Symlink,
}

/// What a store knows about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Bytes in the object.
    pub size: u64,
    /// The content's version.
    pub etag: ETag,
    /// When the object was written, to the store's resolution.
    pub modified: SystemTime,
    /// How it came to be.
    pub kind: ObjectKind,
    /// The storage class in the store's words; empty if it does not say.
    pub storage_class: String,
    /// The media type; empty if none.
    pub content_type: String,
    /// What the user attached.
    pub metadata: UserMetadata,
    /// A checksum over the whole object, where the store keeps one.
    pub checksum: Option<Checksum>,
}

/// Options of [`crate::Store::head`].
#[derive(Debug, Clone, Default)]
pub struct HeadOptions {}

/// Options of [`crate::Store::get`].
#[derive(Debug, Clone, Default)]
pub struct GetOptions {
    /// Only these bytes; `None` asks for the whole object.
    pub range: Option<ByteRange>,
    /// Only if the object still has this tag.
    pub if_match: Option<ETag>,
    /// Ask the store itself, whatever a cache on the way may know: with `if_match` a success then
    /// proves that the object has this tag now.
    pub fresh: bool,
    /// Nothing else is ever put under this key: what a cache on the way knows of it is right, whatever its tag is. With `fresh`
    /// the caller found that it is not, and the cache forgets it.
    pub unchanging: bool,
}

/// The answer to [`crate::Store::get`]. The bytes are in the sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    /// The object as it was at that moment; `size` is that of the whole object. User metadata
    /// is filled in as for HEAD.
    pub info: ObjectInfo,
    /// The bytes that were delivered, clipped to the object's end.
    pub range: ByteRange,
}

/// Bytes of an object that are in memory.
#[derive(Debug, Clone)]
pub struct AtHand {
    /// Those that were asked for. They keep what they are part of in memory.
    pub bytes: Bytes,
    /// Bytes in the whole object.
    pub size: u64,
    /// For who has checksums of them.
    pub compared: Compared,
}

/// Bytes in the shortest range that is noted as compared: shorter ones are compared again for less than looking them up.
const NOTED_MIN: u64 = 64 << 10;
/// Ranges that are noted.
const NOTED_MAX: usize = 16;

/// Which ranges of bytes in memory somebody compared with their checksums, so that nobody does so again. Clones are the
/// same.
#[derive(Debug, Clone, Default)]
pub struct Compared(Arc<Mutex<Vec<ByteRange>>>);

impl Compared {
    /// Whether exactly this range was compared, and was right.
    pub fn has(&self, range: &ByteRange) -> bool {
        self.0.lock().contains(range)
    }

    /// A range was compared, and was right.
    pub fn add(&self, range: &ByteRange) {
        let mut ranges = self.0.lock();
        let is_worth_it = range.end - range.start >= NOTED_MIN && ranges.len() < NOTED_MAX;
        if is_worth_it && !ranges.contains(range) {
            ranges.push(range.clone());
        }
    }
}

/// When a write may replace what is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum WriteCondition {
    /// Always.
    #[default]
    Always,
    /// Only if the key is free; else [`crate::ErrorKind::AlreadyExists`]. Every store takes it; one
    /// that is not known to check it atomically is asked for the object just before the write.
    IfAbsent,
    /// Only if the key still has this version; else [`crate::ErrorKind::PreconditionFailed`],
    /// also when it has none. Every store takes it; one that cannot check it atomically is asked
    /// for the version just before the write.
    IfMatch(ETag),
}

/// Options of [`crate::Store::put`], [`crate::Store::append`] and
/// [`crate::Store::create_upload`].
#[derive(Debug, Clone, Default)]
pub struct PutOptions {
    /// The media type; `None` lets the store choose.
    pub content_type: Option<String>,
    /// What to attach.
    pub metadata: UserMetadata,
    /// When the write may replace what is there. An upload checks it when it is completed.
    pub condition: WriteCondition,
}

/// The answer to a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The new content's version.
    pub etag: ETag,
    /// A checksum over the whole object as the store computed it, where it tells.
    pub checksum: Option<Checksum>,
}

/// The answer to [`crate::Store::append`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Where the next append must start: the object's length.
    pub next_position: u64,
    /// The new content's version, where the store tells.
    pub etag: Option<ETag>,
    /// A checksum over the whole object, where the store tells.
    pub checksum: Option<Checksum>,
}

/// Options of [`crate::Store::copy`].
#[derive(Debug, Clone, Default)]
pub struct CopyOptions {
    /// Only if the source still has this tag.
    pub if_match: Option<ETag>,
    /// When the target may be replaced.
    pub condition: WriteCondition,
    /// What describes the copy; `None` takes over what describes the source. With it an object may
    /// be copied onto itself.
    pub description: Option<Description>,
}

/// What describes an object beside its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// The media type; `None` lets the store choose.
    pub content_type: Option<String>,
    /// What to attach.
    pub metadata: UserMetadata,
}

/// Options of [`crate::Store::list`].
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// Only keys that start with this.
    pub prefix: String,
    /// Roll up what lies below the next `/` after the prefix into
    /// [`ListPage::common_prefixes`].
    pub delimited: bool,
    /// Only keys after this one, in byte order. Ignored with a `continuation`.
    pub start_after: Option<String>,
    /// Where the page before this one ended: its [`ListPage::continuation`].
    pub continuation: Option<String>,
    /// Entries in a page, objects and prefixes together; 1 to 1000, `None` for 1000.
    pub max_keys: Option<u32>,
}

/// One page of a listing, in byte order of keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListPage {
    /// The objects.
    pub objects: Vec<ListedObject>,
    /// What was rolled up, each ending with `/`.
    pub common_prefixes: Vec<String>,
    /// Where the next page begins; `None` on the last one.
    pub continuation: Option<String>,
    /// How much is left out because the store does not tell its names: no request could say them.
    pub hidden: usize,
}

/// An object as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// The key as text: a listing may hold names that [`Key`] refuses.
    pub key: String,
    /// Bytes in the object.
    pub size: u64,
    /// The content's version.
    pub etag: ETag,
    /// When the object was written.
    pub modified: SystemTime,
    /// How it came to be. S3 listings do not tell.
    pub kind: ObjectKind,
    /// The storage class in the store's words; empty if it does not say.
    pub storage_class: String,
}

/// A key that [`crate::Store::delete_many`] could not delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteFailure {
    /// The key.
    pub key: Key,
    /// What the caller can do about it.
    pub kind: ErrorKind,
    /// The store's error code; empty if it gave none.
    pub code: String,
    /// The store's explanation.
    pub message: String,
}

/// An unfinished multipart upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The object that it will become.
    pub key: Key,
    /// The store's name for it.
    pub id: UploadId,
    /// When it was begun.
    pub initiated: SystemTime,
}

/// One page of unfinished uploads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadPage {
    /// The uploads in byte order of keys.
    pub uploads: Vec<Upload>,
    /// Where the next page begins; `None` on the last one.
    pub continuation: Option<String>,
}

/// A part that the store has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its place in the object.
    pub number: PartNumber,
    /// The store's tag for it.
    pub etag: ETag,
    /// Bytes in it.
    pub size: u64,
    /// Its checksum, where one was sent or computed.
    pub checksum: Option<Checksum>,
}

impl Part {
    /// The checksum of the object that `parts` make, when each of them has one, all of one kind.
    pub(crate) fn joined_checksum(parts: &[Self]) -> Option<Checksum> {
        let (first, rest) = parts.split_first()?;
        rest.iter().try_fold(first.checksum?, |sum, part| {
            sum.followed_by(part.checksum?, part.size)
        })
    }
}

/// What [`crate::Store::copy_part`] copies.
#[derive(Debug, Clone)]
pub struct PartCopy {
    /// The object to copy from.
    pub source: Key,
    /// Its bytes.
    pub range: ByteRange,
    /// Only if it still has this tag.
    pub if_match: Option<ETag>,
}

/// Options of [`crate::Store::complete_upload`].
#[derive(Debug, Clone, Default)]
pub struct CompleteOptions {
    /// When the target may be replaced.
    pub condition: WriteCondition,
    /// The checksum of the whole object as the writer computed it, where it could.
    pub checksum: Option<Checksum>,
    /// The object that parts were copied from, and the version that they must be of; where it is not
    /// that one [`crate::ErrorKind::PreconditionFailed`]. It is looked at where the store is not
    /// known to compare it at each copy.
    pub copied: Option<(Key, ETag)>,
    /// Whether an object of the right size that has what was sent may be taken for the one that was
    /// made, when an answer was lost and neither checksum nor tag tell: whoever builds on nothing else
    /// that he knows of the object loses nothing by it.
    pub sent_tells: bool,
}

/// Whether a store can do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Nobody needed it yet.
    Unknown,
    /// It cannot.
    Absent,
    /// It can.
    Present,
}

/// Something that stores of one kind can do, though some cannot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ability {
    /// What.
    pub name: &'static str,
    /// Whether the store at hand does, as far as was found out.
    pub known: Known,
    /// What it means where it does not.
    pub without: &'static str,
}

/// What a store can do and how big things may be in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The URL scheme: `s3`, `oss`, `file`, `memory`.
    pub scheme: &'static str,
    /// Bytes in the largest object.
    pub object_size_max: u64,
    /// Bytes in the largest single PUT.
    pub put_size_max: u64,
    /// Bytes in the smallest part that is not the last.
    pub part_size_min: u64,
    /// Bytes in the largest part, sent or copied.
    pub part_size_max: u64,
    /// Parts in an upload.
    pub parts_max: u32,
    /// Bytes in the largest single copy.
    pub copy_size_max: u64,
    /// Whether [`crate::Store::append`] works.
    pub append: bool,
    /// Whether [`crate::Store::put_symlink`] works.
    pub symlinks: bool,
    /// Bytes of user metadata of an object, names and values together, headers apart.
    pub metadata_size_max: usize,
    /// Whether [`WriteCondition::IfAbsent`] is known to be checked atomically by the store.
    pub write_if_absent: bool,
}

#[cfg(test)]
mod tests {
    use penstock_base::{ChecksumKind, Payload};

    use super::*;

    fn part(bytes: &[u8], kind: ChecksumKind) -> Part {
        Part {
            number: 1,
            etag: ETag::new(""),
            size: bytes.len() as u64,
            checksum: Some(Payload::from(bytes.to_vec()).checksum(kind)),
        }
    }

    #[test]
    fn the_checksums_of_parts_join_to_that_of_the_object() {
        let kind = ChecksumKind::Crc64Nvme;
        let parts = [b"one".as_slice(), b"", b"three"].map(|bytes| part(bytes, kind));
        let whole = Payload::from(b"onethree".to_vec()).checksum(kind);
        assert_eq!(Part::joined_checksum(&parts), Some(whole));
        let [first, mut second, _] = parts;
        second.checksum = None;
        assert_eq!(Part::joined_checksum(&[first.clone(), second]), None);
        let other = part(b"x", ChecksumKind::Crc32c);
        assert_eq!(Part::joined_checksum(&[first, other]), None);
        assert_eq!(Part::joined_checksum(&[]), None);
    }
}
