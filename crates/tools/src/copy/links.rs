//! Several names of one file.
//!
//! The first name that is met is copied, others become links to it. Who meets another name while the first is
//! copied leaves it to who copies. The table forgets a file when all of its names were met, or once another file has
//! its number: one may be removed with names that are never met, and its number goes to a new one.

use std::collections::HashMap;

use penstock_base::Mutex;
use rustix::fs::Stat;

use super::{
    branch::{Branch, Item, Spot},
    file::is_same_version,
};
use crate::local::{FileId, Origin};

/// Files with several names that are being copied.
#[derive(Debug, Default)]
pub(super) struct Links(Mutex<HashMap<FileId, Link>>);

#[derive(Debug)]
struct Link {
    /// What was met first. Another file with its number has another size or time, or was made at another time.
    first: Stat,
    origin: Origin,
    /// Names that were not met yet.
    left: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// These wait for the copy.
    Copying(Vec<(Branch, Item)>),
    There(Spot),
    /// It could not be copied, or something else stays where the copy would be: the next name is tried.
    Missing,
}

/// What is to be done with a name.
pub(super) enum Turn {
    /// Copy it, and say so afterwards.
    Copy,
    /// Make it a link to this.
    Link(Spot),
    /// Nothing: somebody else will.
    Wait,
}

impl Links {
    /// Meets a name of the file that `stat` describes.
    pub(super) fn meet(
        &self,
        (stat, origin): (&Stat, Origin),
        branch: &Branch,
        item: &Item,
    ) -> Turn {
        let mut table = self.0.lock();
        let key = FileId::from(stat);
        let known = table.get_mut(&key);
        // One that is being copied is open, which keeps its number.
        let same = known.filter(|link| {
            let is_same = link.origin == origin && is_same_version(&link.first, stat);
            is_same || matches!(link.state, State::Copying(_))
        });
        let Some(link) = same else {
            let link = Link {
                first: *stat,
                origin,
                left: stat.st_nlink - 1,
                state: State::Copying(Vec::new()),
            };
            table.insert(key, link);
            return Turn::Copy;
        };
        link.left = link.left.saturating_sub(1);
        let turn = match &mut link.state {
            State::Copying(waiting) => {
                waiting.push((branch.enter(), item.clone()));
                return Turn::Wait;
            }
            State::There(spot) => Turn::Link(spot.clone()),
            State::Missing => {
                link.state = State::Copying(Vec::new());
                return Turn::Copy;
            }
        };
        if link.left == 0 {
            table.remove(&key);
        }
        turn
    }

    /// The copy is at `spot`; without one there is none. Returns who waited for it.
    pub(super) fn copied(&self, stat: &Stat, spot: Option<Spot>) -> Vec<(Branch, Item)> {
        let mut table = self.0.lock();
        let key = FileId::from(stat);
        let Some(link) = table.get_mut(&key) else {
            return Vec::new();
        };
        let state = spot.map_or(State::Missing, State::There);
        let before = std::mem::replace(&mut link.state, state);
        let is_over = link.left == 0;
        let State::Copying(waiting) = before else {
            return Vec::new();
        };
        // Who waited comes back and asks for the spot.
        link.left += waiting.len() as u64;
        if is_over && waiting.is_empty() {
            table.remove(&key);
        }
        waiting
    }
}
