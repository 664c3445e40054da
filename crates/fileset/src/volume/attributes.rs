//! Changing attributes: the size, which is the business of open files, and all else.

use penstock_base::{FsError, FsResult};
use penstock_vfs::{AttributeChanges, Entry, Identity, Inode, Volume, permission};

use super::{FilesetVolume, asked};
use crate::{files::Overruled, operations};

impl FilesetVolume {
    /// Changes attributes of a file of the live tree.
    pub(super) async fn change_attributes(
        &self,
        by: &Identity,
        inode: Inode,
        mut changes: AttributeChanges,
    ) -> FsResult<Entry> {
        let asked = asked(by);
        if let Some(size) = changes.size {
            let before = self
                .query(|reads| operations::attributes(reads, inode))
                .await?;
            let is_late = |time| time != self.entry(before.clone()).attributes.changed;
            if changes.only_if_changed_at.take().is_some_and(is_late) {
                return Err(FsError::NotSynchronized);
            }
            permission::check_changes(&before, by, &changes)?;
            self.parts.files.resize(inode, size, by.uid != 0).await?;
        }
        let others = AttributeChanges {
            size: None,
            ..changes
        };
        let is_only_size = changes.size.is_some()
            && AttributeChanges {
                handle: None,
                ..others
            } == AttributeChanges::default();
        if is_only_size {
            return self.attributes(by, inode).await;
        }
        let overruled = Overruled {
            modified: others.modified.is_some(),
            set_id: others
                .permissions
                .is_some_and(|bits| permission::without_set_id(bits) != bits),
        };
        let change = self.transact(move |transaction| {
            operations::set_attributes(transaction, &asked, inode, &others)
        });
        let attributes = self.parts.files.overrule((inode, overruled), change);
        Ok(self.entry(attributes.await?))
    }
}
