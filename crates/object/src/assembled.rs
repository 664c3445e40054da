//! Whether an object is the one that certain parts make.
//!
//! A checksum of the whole object decides, where the store keeps one and the parts' can be joined.
//! Else the tag does, where it is made of those of the parts: their MD5 sums, summed up again, and
//! their number. S3 and those like it sum up the bytes, others the digits in lower or upper case.

use md5::{Digest, Md5};

use crate::{Checksum, ETag, ObjectInfo, Part, sign::hex};

/// Digits of an MD5 sum.
const DIGITS: usize = 32;

/// What an object's checksum and tag say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Likeness {
    /// The parts make this object.
    Same,
    /// They make another one.
    Other,
    /// Neither can be compared.
    Unknown,
}

/// Compares `info` with the object that `parts` make; `whole` is its checksum, if the writer knew it.
pub(crate) fn compare(info: &ObjectInfo, parts: &[Part], whole: Option<Checksum>) -> Likeness {
    if info.size != parts.iter().map(|part| part.size).sum::<u64>() {
        return Likeness::Other;
    }
    by_checksum(info, parts, whole)
        .or_else(|| by_tag(info.etag.as_str(), parts))
        .map_or(Likeness::Unknown, |same| match same {
            true => Likeness::Same,
            false => Likeness::Other,
        })
}

fn by_checksum(info: &ObjectInfo, parts: &[Part], whole: Option<Checksum>) -> Option<bool> {
    let theirs = info.checksum?;
    let comparable = |ours: &Checksum| ours.kind() == theirs.kind();
    let ours = whole.filter(comparable);
    let ours = ours.or_else(|| Part::joined_checksum(parts).filter(comparable))?;
    Some(ours == theirs)
}

fn by_tag(tag: &str, parts: &[Part]) -> Option<bool> {
    let (sum, count) = tag.split_once('-')?;
    let is_of_parts = bytes_of(sum).is_some() && count.parse::<usize>().is_ok();
    let known = tags_of_parts(parts);
    let same = |known: &ETag| known.as_str().eq_ignore_ascii_case(tag);
    (is_of_parts && !known.is_empty()).then(|| known.iter().any(same))
}

/// The tags that stores give to an object of these parts, in lower case. None where those of the parts
/// are no MD5 sums.
pub fn tags_of_parts(parts: &[Part]) -> Vec<ETag> {
    let sums = parts.iter().map(|part| bytes_of(part.etag.as_str()));
    let Some(sums) = sums.collect::<Option<Vec<_>>>() else {
        return Vec::new();
    };
    let sums = sums.concat();
    let digits = hex(&sums);
    let upper = digits.to_uppercase();
    let tag = |text: &[u8]| ETag::new(&format!("{}-{}", hex(&Md5::digest(text)), parts.len()));
    [&sums, digits.as_bytes(), upper.as_bytes()].map(tag).into()
}

/// The bytes of an MD5 sum, if `text` is one.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    if text.len() != DIGITS || !text.is_ascii() {
        return None;
    }
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).ok();
    (0..DIGITS).step_by(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use penstock_base::{ChecksumKind, Payload};

    use super::*;
    use crate::ObjectKind;

    const KIND: ChecksumKind = ChecksumKind::Crc64Nvme;

    fn sum(bytes: &[u8]) -> Checksum {
        Payload::from(bytes.to_vec()).checksum(KIND)
    }

    fn part(bytes: &[u8], summed: bool) -> Part {
        Part {
            number: 1,
            etag: ETag::new(&hex(&Md5::digest(bytes))),
            size: bytes.len() as u64,
            checksum: summed.then(|| sum(bytes)),
        }
    }

    fn object(size: u64, tag: &str, checksum: Option<Checksum>) -> ObjectInfo {
        ObjectInfo {
            size,
            etag: ETag::new(tag),
            modified: SystemTime::UNIX_EPOCH,
            kind: ObjectKind::Normal,
            storage_class: String::new(),
            content_type: String::new(),
            metadata: Default::default(),
            checksum,
        }
    }

    #[test]
    fn a_checksum_of_the_whole_decides() {
        let summed = [part(b"one", true), part(b"two", true)];
        let bare = [part(b"one", false), part(b"two", false)];
        let (whole, other) = (sum(b"onetwo"), sum(b"onetow"));
        let same = object(6, "x", Some(whole));
        assert_eq!(compare(&same, &summed, None), Likeness::Same);
        assert_eq!(compare(&same, &bare, Some(whole)), Likeness::Same);
        assert_eq!(compare(&same, &bare, None), Likeness::Unknown);
        let theirs = object(6, "x", Some(other));
        assert_eq!(compare(&theirs, &summed, None), Likeness::Other);
        let longer = object(7, "x", Some(whole));
        assert_eq!(compare(&longer, &summed, None), Likeness::Other);
        let of_another_kind = Payload::from(b"onetwo".to_vec()).checksum(ChecksumKind::Crc32c);
        let incomparable = object(6, "x", Some(of_another_kind));
        assert_eq!(compare(&incomparable, &summed, None), Likeness::Unknown);
    }

    #[test]
    fn else_the_tag_does_where_it_is_made_of_those_of_the_parts() {
        let parts = [part(b"one", false), part(b"two", false)];
        let tags: Vec<&str> = parts.iter().map(|part| part.etag.as_str()).collect();
        let text = tags.concat();
        let bytes = [Md5::digest(b"one"), Md5::digest(b"two")].concat();
        for summed in [bytes, text.clone().into(), text.to_uppercase().into()] {
            let tag = format!("{}-2", hex(&Md5::digest(summed)).to_uppercase());
            assert_eq!(
                compare(&object(6, &tag, None), &parts, None),
                Likeness::Same
            );
            let longer = tag.replace("-2", "-3");
            assert_eq!(
                compare(&object(6, &longer, None), &parts, None),
                Likeness::Other
            );
        }
        let theirs = format!("{}-2", hex(&Md5::digest(b"theirs")));
        assert_eq!(
            compare(&object(6, &theirs, None), &parts, None),
            Likeness::Other
        );
        for tag in ["", "a-2", &hex(&Md5::digest(b"onetwo"))] {
            assert_eq!(
                compare(&object(6, tag, None), &parts, None),
                Likeness::Unknown
            );
        }
    }
}
