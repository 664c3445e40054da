//! Marks from which new files and snapshots get their numbers, and the epoch: that they are not behind what has some. One that
//! is would let what is new take the place of what is there.

use std::fmt;

use bytes::Bytes;
use penstock_vfs::Inode;

use super::Survey;
use crate::{
    engine::mark,
    schema::{EPOCH, Epoch, FILE_MAX, LAST_INODE, LAST_SNAPSHOT},
};

/// What the keys say of them.
#[derive(Debug, Default)]
pub(super) struct Marks {
    last_inode: u64,
    last_snapshot: u64,
    /// The inner `None` if it cannot be read.
    epoch: Option<Option<Epoch>>,
    /// The last number that a file has.
    greatest: u64,
}

/// One that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WrongMark {
    /// Of the last inode: what it says, and what it must.
    Inode(u64, u64),
    /// Of the last snapshot: the same.
    Snapshot(u64, u64),
    /// Of the latest snapshot: what it is.
    Epoch(Option<Epoch>),
}

impl WrongMark {
    /// Its key, and what it must say; `None` if it must not be there.
    pub(super) fn right(self) -> (&'static [u8], Option<Bytes>) {
        let number = |value: u64| Some(Bytes::copy_from_slice(&value.to_le_bytes()));
        match self {
            Self::Inode(_, right) => (LAST_INODE, number(right)),
            Self::Snapshot(_, right) => (LAST_SNAPSHOT, number(right)),
            Self::Epoch(right) => (EPOCH, right.map(Epoch::encode)),
        }
    }
}

impl fmt::Display for WrongMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inode(says, right) => write!(
                f,
                "the last number of a file: {says} is said, {right} was given out"
            ),
            Self::Snapshot(says, right) => write!(
                f,
                "the last number of a snapshot: {says} is said, {right} was given out"
            ),
            Self::Epoch(Some(right)) => {
                write!(f, "the latest snapshot: it is number {}", right.latest)
            }
            Self::Epoch(None) => f.write_str("the latest snapshot: there is none"),
        }
    }
}

impl Marks {
    pub(super) fn look(&mut self, key: &[u8], value: &Bytes) {
        match key {
            LAST_INODE => self.last_inode = mark(Some(value)),
            LAST_SNAPSHOT => self.last_snapshot = mark(Some(value)),
            _ => self.epoch = Some(Epoch::decode(value).ok()),
        }
    }

    /// Something has the number of this file.
    pub(super) fn has_number(&mut self, file: Inode) {
        if file.0 <= FILE_MAX {
            self.greatest = self.greatest.max(file.0);
        }
    }
}

impl Survey {
    /// Those that are wrong. The epoch goes by the mark of snapshots as it is once that is right.
    pub(super) fn wrong_marks(&self) -> Vec<WrongMark> {
        let (marks, snapshots) = (&self.marks, &self.snapshots);
        let known = marks.epoch.flatten().unwrap_or_default();
        let file = marks.greatest.max(snapshots.last_file());
        let died = self.objects.values().filter_map(|(known, _)| *known);
        let died = died.map(|known| known.born.max(known.died)).max();
        let snapshot = snapshots.greatest().max(died.unwrap_or(0));
        let snapshot = snapshot.max(known.latest).max(known.given);
        let mut wrong = Vec::new();
        if marks.last_inode < file {
            wrong.push(WrongMark::Inode(marks.last_inode, file));
        }
        if marks.last_snapshot < snapshot {
            wrong.push(WrongMark::Snapshot(marks.last_snapshot, snapshot));
        }
        let epoch = snapshots.latest().map(|(latest, last_file)| Epoch {
            latest,
            last_file,
            given: snapshot.max(marks.last_snapshot),
        });
        if marks.epoch != epoch.map(Some) {
            wrong.push(WrongMark::Epoch(epoch));
        }
        wrong
    }
}
