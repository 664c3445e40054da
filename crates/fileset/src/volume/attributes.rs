//! Changing attributes: the size, which is the business of open files, and all else.

use std::sync::Arc;

use penstock_base::{FsError, FsResult};
use penstock_vfs::{AttributeChanges, Entry, Identity, Inode, Volume, permission};

use super::FilesetVolume;
use crate::{
    files::{NewSize, Overruled},
    operations::{self, Condition},
};

impl FilesetVolume {
    /// Changes attributes of a file of the live tree.
    pub(super) async fn change_attributes(
        &self,
        by: &Identity,
        inode: Inode,
        mut changes: AttributeChanges,
    ) -> FsResult<Entry> {
        let asked = self.asked(by);
        if let Some(size) = changes.size {
            let new = NewSize {
                size,
                drops_set_id: by.uid != 0,
                condition: Some(self.condition(by, inode, &changes)),
            };
            let files = Arc::clone(&self.parts.files);
            self.change_bytes(inode, async move { files.resize(inode, new).await })
                .await?;
            changes.only_if_changed_at = None;
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
        self.parts
            .files
            .overrule((inode, overruled), change)
            .await?;
        self.attributes(by, inode).await
    }

    /// Whether `by` may make these changes of what is there.
    fn condition(&self, by: &Identity, inode: Inode, changes: &AttributeChanges) -> Condition {
        let (by, changes) = (by.clone(), *changes);
        // What is pending shows in the times of a file before the metadata knows it.
        let written_at = self.parts.files.written_at(inode);
        Condition::new(move |file| {
            let changed = file.changed.max(written_at.unwrap_or(file.changed));
            let is_late = |time| time != changed;
            if changes.only_if_changed_at.is_some_and(is_late) {
                return Err(FsError::NotSynchronized);
            }
            permission::check_changes(file, &by, &changes)
        })
    }
}
