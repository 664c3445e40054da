//! The bytes of files, as immutable objects in the bucket.
//!
//! ```text
//! BUCKET/PREFIX/fileset.json                       what lies here: see [`crate::Label`]
//! BUCKET/PREFIX/data/NN/WRITER-NUMBER              an object: runs of bytes, one behind the other
//! ```
//!
//! An object is written once, by one PUT, and never changed. Only then the metadata refers to it, by object, offset,
//! length and checksums, so that one object can hold the runs of many files. A run may be compressed, by itself. `WRITER` is a random number of who had
//! the file system open and `NUMBER` counts its objects: two that write to one bucket, be it by mistake, never
//! overwrite each other's. `NN` spreads the keys.

mod compressor;
mod grains;
mod inlined;
mod objects;
mod pack;
mod packer;
mod spool;
mod unchanging;
mod unsent;

use std::sync::Arc;

pub(crate) use grains::open;
pub(crate) use inlined::Content;
pub use inlined::Inlined;
pub(crate) use objects::{Objects, Placed, Uncommitted, UnderWay, key, saved_extent};
pub(crate) use pack::Piece;
pub(crate) use packer::Packer;
pub use spool::Spool;
pub use unchanging::unchanging;
pub(crate) use unsent::{Due, UNKNOWN_LENGTH, Unsent};

/// Where small runs are until the bucket has them.
#[derive(Debug, Clone)]
pub enum Ahead {
    /// On the disk of this machine.
    Spool(Arc<Spool>),
    /// With the metadata.
    Inlined(Arc<Inlined>),
}

impl Ahead {
    pub(crate) fn unsent(&self) -> &Unsent {
        match self {
            Self::Spool(spool) => spool.unsent(),
            Self::Inlined(inlined) => inlined.unsent(),
        }
    }

    /// Bytes and objects that are not in the bucket yet.
    pub fn waiting(&self) -> (u64, u64) {
        self.unsent().waiting()
    }
}

/// Which object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// Who wrote it.
    pub writer: u64,
    /// Which of that writer's.
    pub number: u64,
}

impl ObjectId {
    /// Its key.
    pub(crate) fn key(self) -> String {
        format!("{DATA}{:02x}/{}", self.number & 0xff, self.name())
    }

    /// What its key ends with, and what it is called in a spool.
    fn name(self) -> String {
        let Self { writer, number } = self;
        format!("{writer:016x}-{number:016x}")
    }

    /// The object with this key, if it is one's.
    pub(crate) fn of_key(key: &str) -> Option<Self> {
        let id = Self::of_name(key.strip_prefix(DATA)?.get(3..)?)?;
        (id.key() == key).then_some(id)
    }

    /// The object of this name, if it is one's.
    fn of_name(name: &str) -> Option<Self> {
        let (writer, number) = name.split_once('-')?;
        let hexadecimal = |digits| u64::from_str_radix(digits, 16).ok();
        let id = Self {
            writer: hexadecimal(writer)?,
            number: hexadecimal(number)?,
        };
        (id.name() == name).then_some(id)
    }
}

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.key())
    }
}

/// What keys of objects begin with.
pub(crate) const DATA: &str = "data/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_leads_back_to_its_object() {
        let id = ObjectId {
            writer: 0xabc,
            number: 0x1ff,
        };
        assert_eq!(id.key(), "data/ff/0000000000000abc-00000000000001ff");
        assert_eq!(ObjectId::of_key(&id.key()), Some(id));
        for other in [
            "data/",
            "data/00/x-y",
            "fileset.json",
            "data/00/0000000000000abc-00000000000001ff",
        ] {
            assert_eq!(ObjectId::of_key(other), None, "{other}");
        }
    }
}
