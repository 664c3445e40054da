//! Listing directories.

use penstock_base::{FileName, FsResult};
use penstock_vfs::{Detail, DirectorySink, HandleId, Inode};

use super::FilesetVolume;
use crate::operations;

/// Entries of a directory that are read first: about what fills the smallest reply of a door.
const ENTRIES_MIN: usize = 32;
/// The same at once, as long as there is room for more.
const ENTRIES_MAX: usize = 512;

impl FilesetVolume {
    /// Lists what comes behind a name, of what `from` says, into `sink`.
    pub(super) async fn list_into(
        &self,
        (directory, mut after): (Inode, Option<FileName>),
        handle: Option<HandleId>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        let with_attributes = sink.detail() == Detail::Attributes;
        let mut entries = ENTRIES_MIN;
        loop {
            let listed = self
                .query(|reads| {
                    operations::list(reads, (directory, after.as_ref()), entries, with_attributes)
                })
                .await?;
            let is_last = listed.len() < entries;
            entries = ENTRIES_MAX.min(2 * entries);
            for listed in listed {
                let next = operations::position_of(&listed.name);
                let inode = listed.attributes.inode;
                if with_attributes && self.parts.held.take(inode).is_err() {
                    // It was removed since.
                    continue;
                }
                if with_attributes {
                    self.note_found(directory, inode);
                }
                let entry = self.entry(listed.attributes);
                if let Some(handle) = handle {
                    self.listings.remember(handle, next, &listed.name);
                }
                if sink.push(next, &listed.name, &entry).is_break() {
                    if with_attributes {
                        self.parts.held.give_back(inode, 1);
                    }
                    return Ok(());
                }
                after = Some(listed.name);
            }
            if is_last {
                return Ok(());
            }
        }
    }
}
