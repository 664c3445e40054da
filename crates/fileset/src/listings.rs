//! Open directories, and where their listings stand.
//!
//! A listing goes on behind a name. A position, which some doors have instead, is made of the name; a handle remembers
//! the last ones that it gave out, and others are looked for.

use std::collections::{HashMap, VecDeque};

use penstock_base::{FileName, FsError, FsResult, Mutex};
use penstock_vfs::{HandleId, Inode};

/// Positions that a handle remembers: those of the largest reply to one READDIR and more.
const REMEMBERED_MAX: usize = 8192;

#[derive(Debug)]
struct Listing {
    directory: Inode,
    recent: VecDeque<(u64, FileName)>,
}

/// Open directories.
#[derive(Debug, Default)]
pub(crate) struct Listings(Mutex<HashMap<HandleId, Listing>>);

impl Listings {
    pub(crate) fn open(&self, handle: HandleId, directory: Inode) {
        let listing = Listing {
            directory,
            recent: VecDeque::new(),
        };
        self.0.lock().insert(handle, listing);
    }

    /// The directory of a handle, and the name at a position, if it is remembered.
    pub(crate) fn find(
        &self,
        handle: HandleId,
        position: u64,
    ) -> FsResult<(Inode, Option<FileName>)> {
        let listings = self.0.lock();
        let listing = listings.get(&handle).ok_or(FsError::BadHandle)?;
        let recent = listing.recent.iter().rev();
        let found = recent.clone().find(|(there, _)| *there == position);
        Ok((listing.directory, found.map(|(_, name)| name.clone())))
    }

    /// Remembers the position behind a name.
    pub(crate) fn remember(&self, handle: HandleId, position: u64, name: &FileName) {
        if let Some(listing) = self.0.lock().get_mut(&handle) {
            if listing.recent.len() == REMEMBERED_MAX {
                listing.recent.pop_front();
            }
            listing.recent.push_back((position, name.clone()));
        }
    }

    pub(crate) fn close(&self, handle: HandleId) -> Option<Inode> {
        let listing = self.0.lock().remove(&handle)?;
        Some(listing.directory)
    }
}
