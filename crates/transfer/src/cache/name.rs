//! What the files of a version are called.

use std::{fmt, path::Path};

use penstock_base::{Checksum, ChecksumKind, Summing};

/// Hexadecimal digits in each half of a name.
const DIGITS: usize = 16;

/// The name of one version of one object: a hash of the store and the key, and one of these and
/// the tag. All versions of a key lie next to each other in order.
///
/// The hashes are published ones that no release changes. They need not resist anybody: whoever
/// opens a file compares its header, so a collision is a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct VersionName {
    key: u64,
    version: u64,
}

impl VersionName {
    /// The name of the version `etag` of `key` in the store `identity`.
    pub(super) fn of(identity: &str, key: &str, etag: &str) -> Self {
        Self {
            key: hash(ChecksumKind::Crc64Nvme, &[identity, key]),
            version: hash(ChecksumKind::Crc64Ecma, &[identity, key, etag]),
        }
    }

    /// The least and the greatest name that a version of `key` can have.
    pub(super) fn all_of(identity: &str, key: &str) -> (Self, Self) {
        let key = hash(ChecksumKind::Crc64Nvme, &[identity, key]);
        let name = |version| Self { key, version };
        (name(0), name(u64::MAX))
    }

    /// Reads what `Display` writes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let plain = text.len() == 2 * DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (key, version) = plain.then(|| text.split_at(DIGITS))?;
        Some(Self {
            key: u64::from_str_radix(key, 16).ok()?,
            version: u64::from_str_radix(version, 16).ok()?,
        })
    }

    /// The name that a file with this path is about, if its ending is `ending`.
    pub(super) fn of_file(path: &Path, ending: &str) -> Option<Self> {
        let fits = path.extension().is_some_and(|found| found == ending);
        Self::parse(path.file_stem().filter(|_| fits)?.to_str()?)
    }

    /// Which of the 256 folders the files lie in.
    pub(super) fn folder(self) -> u8 {
        (self.version >> 56) as u8
    }
}

impl fmt::Display for VersionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.key, self.version)
    }
}

fn hash(kind: ChecksumKind, words: &[&str]) -> u64 {
    let mut summing = Summing::new(kind);
    for word in words {
        summing.add(word.as_bytes());
        // No word contains it, so no two lists of words look the same.
        summing.add(&[0xff]);
    }
    let (Checksum::Crc64Nvme(sum) | Checksum::Crc64Ecma(sum)) = summing.checksum() else {
        return 0;
    };
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_stores_keys_and_tags_apart_and_keep_keys_together() {
        let names = [
            ("s", "k", "1"),
            ("s", "k", "2"),
            ("s", "kk", "1"),
            ("ss", "k", "1"),
        ];
        let names = names.map(|(store, key, tag)| VersionName::of(store, key, tag));
        for (index, name) in names.iter().enumerate() {
            assert_eq!(VersionName::parse(&name.to_string()), Some(*name));
            assert!(!names[..index].contains(name));
            let (first, last) = VersionName::all_of("s", "k");
            assert_eq!((first..=last).contains(name), index < 2);
        }
    }

    #[test]
    fn foreign_files_have_no_name() {
        for path in [
            "a/lock",
            "a/0.data",
            "zz",
            "00112233445566778899aabbccddeeff.index",
        ] {
            assert_eq!(VersionName::of_file(Path::new(path), "data"), None);
        }
    }
}
