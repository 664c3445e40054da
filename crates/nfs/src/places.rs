//! Cookies: where in a directory a listing goes on.
//!
//! The cookie of an entry is a number made of its name, the same from every server and after each restart. Names that
//! were listed or removed are remembered for a while, so that a listing goes on behind each of them though it is gone: a
//! program that removes what it lists makes its client ask from the midst of what it got. Any other cookie is found by
//! a walk over the directory.

use std::{
    collections::{HashMap, VecDeque},
    ops::ControlFlow,
};

use penstock_base::{Checksum, ChecksumKind, FileName, Mutex, Summing};
use penstock_vfs::{Detail, DirectorySink, Entry, Identity, Inode, ListFrom, Volume};

use crate::{limits::PLACES_MAX, protocol::nfs3::Status};

/// The cookie behind `.`.
pub(crate) const BEHIND_SELF: u64 = 1;
/// The cookie behind `..`.
pub(crate) const BEHIND_PARENT: u64 = 2;
/// Cookies of names are at least this, so that there is room for others.
const FIRST: u64 = 1 << 8;
/// Cookies are below this: some clients take them for signed numbers.
const LIMIT: u64 = 1 << 62;
/// Names that a walk looks at in one step.
const STEP: usize = 1024;

/// The cookie behind an entry.
pub(crate) fn cookie_of(name: &FileName) -> u64 {
    let mut sum = Summing::new(ChecksumKind::Crc64Nvme);
    sum.add(name.as_bytes());
    let Checksum::Crc64Nvme(sum) = sum.checksum() else {
        return FIRST;
    };
    FIRST + sum % (LIMIT - FIRST)
}

/// Names that were listed or removed.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    names: HashMap<(Inode, u64), FileName>,
    order: VecDeque<(Inode, u64)>,
}

impl Places {
    /// Remembers names of a directory.
    pub(crate) fn remember<'a>(
        &self,
        directory: Inode,
        names: impl IntoIterator<Item = &'a FileName>,
    ) {
        let mut remembered = self.0.lock();
        for name in names {
            let place = (directory, cookie_of(name));
            if remembered.names.insert(place, name.clone()).is_none() {
                remembered.order.push_back(place);
            }
        }
        while remembered.order.len() > PLACES_MAX {
            if let Some(oldest) = remembered.order.pop_front() {
                remembered.names.remove(&oldest);
            }
        }
    }

    /// The name that a cookie stands behind. Fails with `BAD_COOKIE` if nobody remembers it and it is not there.
    pub(crate) async fn find(
        &self,
        (volume, by): (&dyn Volume, &Identity),
        directory: Inode,
        cookie: u64,
    ) -> Result<FileName, Status> {
        let known = self.0.lock().names.get(&(directory, cookie)).cloned();
        match known {
            Some(name) => Ok(name),
            None => walk((volume, by), directory, cookie).await,
        }
    }
}

async fn walk(
    (volume, by): (&dyn Volume, &Identity),
    directory: Inode,
    cookie: u64,
) -> Result<FileName, Status> {
    let mut step = Step {
        wanted: cookie,
        last: None,
        found: false,
        seen: 0,
    };
    loop {
        let after = step.last.take();
        let from = after.as_ref().map_or(ListFrom::START, ListFrom::After);
        step.seen = 0;
        volume.list(by, directory, from, &mut step).await?;
        match step.last {
            Some(name) if step.found => return Ok(name),
            None => return Err(Status::BAD_COOKIE),
            Some(_) => {}
        }
    }
}

/// Some names on the way to the wanted one.
struct Step {
    wanted: u64,
    last: Option<FileName>,
    found: bool,
    seen: usize,
}

impl DirectorySink for Step {
    fn detail(&self) -> Detail {
        Detail::Names
    }

    fn push(&mut self, _next: u64, name: &FileName, _entry: &Entry) -> ControlFlow<()> {
        if self.found || self.seen == STEP {
            return ControlFlow::Break(());
        }
        self.seen += 1;
        self.found = cookie_of(name) == self.wanted;
        self.last = Some(name.clone());
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> FileName {
        FileName::new(text.as_bytes()).expect("a name")
    }

    #[test]
    fn cookies_are_told_apart_from_those_of_dots_and_are_no_negative_numbers() {
        for text in ["a", "b", "...", "x".repeat(255).as_str()] {
            let cookie = cookie_of(&name(text));
            assert!((FIRST..LIMIT).contains(&cookie));
        }
        assert_ne!(cookie_of(&name("a")), cookie_of(&name("b")));
        // They are in the hands of clients when another version of this program is started.
        assert_eq!(cookie_of(&name("file")), cookie_of(&name("file")));
    }

    #[test]
    fn the_oldest_places_are_forgotten() {
        let places = Places::default();
        for number in 0..=PLACES_MAX {
            places.remember(Inode(1), [&name(&number.to_string())]);
        }
        let remembered = places.0.lock();
        assert_eq!(remembered.names.len(), PLACES_MAX);
        let first = (Inode(1), cookie_of(&name("0")));
        assert!(!remembered.names.contains_key(&first));
    }
}
