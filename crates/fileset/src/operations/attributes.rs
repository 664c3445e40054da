//! Changing owner, mode and times. The size is changed in [`super::extents`].

use std::time::SystemTime;

use penstock_base::{FsError, FsResult};
use penstock_vfs::{AttributeChanges, Inode, TimeChange, permission};

use super::{Asked, FileChange, node, put_node, shown};
use crate::{
    engine::{Transaction, mark},
    quotas, schema, trash,
};

/// Says that a file was read now, which is no change of it.
pub(crate) fn set_accessed(
    transaction: &mut dyn Transaction,
    inode: Inode,
    now: SystemTime,
) -> FsResult<()> {
    let mut file = node(transaction, inode)?;
    file.accessed = now;
    put_node(transaction, inode, &file);
    Ok(())
}

/// Takes set-id bits away, as a write by somebody else than root does.
pub(crate) fn drop_set_id(
    transaction: &mut dyn Transaction,
    inode: Inode,
    now: SystemTime,
) -> FsResult<()> {
    let mut file = node(transaction, inode)?;
    let change = FileChange {
        changed: Some(now),
        drops_set_id: true,
        ..FileChange::default()
    };
    change.apply(&mut file);
    put_node(transaction, inode, &file);
    Ok(())
}

/// Makes changes of attributes, all but that of the size, or none.
pub(crate) fn set_attributes(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    inode: Inode,
    changes: &AttributeChanges,
) -> FsResult<()> {
    let held = node(transaction, inode)?;
    let mut file = held.clone();
    if let Some(time) = changes.only_if_changed_at
        && time != shown(transaction, inode, &file)?.changed
    {
        return Err(FsError::NotSynchronized);
    }
    let before = file.attributes(inode);
    permission::check_changes(&before, &asked.by, changes)?;
    trash::check_changeable(inode)?;
    let time = |change| match change {
        TimeChange::Now => asked.now,
        TimeChange::To(time) => time,
    };
    file.permissions = permission::permissions_after(&before, &asked.by, changes);
    file.lists.follow(file.permissions);
    file.uid = changes.uid.unwrap_or(file.uid);
    file.gid = changes.gid.unwrap_or(file.gid);
    file.accessed = changes.accessed.map_or(file.accessed, time);
    if let Some(modified) = changes.modified {
        file.modified = time(modified);
        file.seen = mark(transaction.get(&schema::times(inode))?.as_ref());
    }
    file.changed = asked.now;
    // Who made it has the answer. Numbers are not so many that another client never comes with the same.
    file.verifier = 0;
    if (file.uid, file.gid) != (held.uid, held.gid) {
        quotas::hand_over(transaction, asked, inode, (&held, &file))?;
    }
    put_node(transaction, inode, &file);
    Ok(())
}
