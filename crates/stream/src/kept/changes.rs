//! How much two snapshots of a path differ.

use std::cmp::Ordering;

use crate::{ObjectSource, SnapshotError, Timestamp, TreeBuilder};

/// Objects, by what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// In the new snapshot only.
    pub added: u64,
    /// In the old snapshot only.
    pub removed: u64,
    /// In both, with another version, size or time.
    pub changed: u64,
    /// In both, the same.
    pub unchanged: u64,
}

impl Changes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.added + self.removed + self.changed == 0
    }
}

/// Counts the differences of two snapshots by walking both once.
///
/// Only objects whose bytes files can show are counted: markers of directories, symbolic links and
/// keys that no file can have are not in the map of a kept image, so a listing would seem to have
/// added them.
pub fn compare(
    old: &mut dyn ObjectSource,
    new: &mut dyn ObjectSource,
) -> Result<Changes, SnapshotError> {
    let mut old = Cursor::new(old)?;
    let mut new = Cursor::new(new)?;
    let mut changes = Changes::default();
    loop {
        match old.order(&new) {
            None => return Ok(changes),
            Some(Ordering::Less) => {
                changes.removed += 1;
                old.advance()?;
            }
            Some(Ordering::Greater) => {
                changes.added += 1;
                new.advance()?;
            }
            Some(Ordering::Equal) => {
                if old.object == new.object {
                    changes.unchanged += 1;
                } else {
                    changes.changed += 1;
                }
                old.advance()?;
                new.advance()?;
            }
        }
    }
}

/// An object, with memory of its own.
#[derive(Debug, PartialEq, Eq, Default)]
struct Owned {
    key: Vec<u8>,
    etag: String,
    size: u64,
    modified: Timestamp,
}

/// A source with the object that it stands at.
struct Cursor<'a> {
    source: &'a mut dyn ObjectSource,
    object: Owned,
    ended: bool,
}

impl<'a> Cursor<'a> {
    fn new(source: &'a mut dyn ObjectSource) -> Result<Self, SnapshotError> {
        let mut cursor = Self {
            source,
            object: Owned::default(),
            ended: false,
        };
        cursor.advance()?;
        Ok(cursor)
    }

    fn advance(&mut self) -> Result<(), SnapshotError> {
        let object = loop {
            match self.source.next_object()? {
                Some(object)
                    if object.target.is_empty() && TreeBuilder::needs_place(object.key) =>
                {
                    break object;
                }
                Some(_) => {}
                None => {
                    self.ended = true;
                    return Ok(());
                }
            }
        };
        self.object.key.clear();
        self.object.key.extend_from_slice(object.key);
        self.object.etag.clear();
        self.object.etag.push_str(object.etag);
        self.object.size = object.size;
        self.object.modified = object.modified;
        Ok(())
    }

    /// Which of two comes first; none when both are at their ends.
    fn order(&self, other: &Self) -> Option<Ordering> {
        match (self.ended, other.ended) {
            (true, true) => None,
            (true, false) => Some(Ordering::Greater),
            (false, true) => Some(Ordering::Less),
            (false, false) => Some(self.object.key.cmp(&other.object.key)),
        }
    }
}
