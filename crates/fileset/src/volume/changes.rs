//! Changes of names: each is made once in the call that asks for it ([`crate::calls`]).

use penstock_base::FsResult;
use penstock_vfs::{Change, Inode, Renamed};

use super::{FilesetVolume, Parts};
use crate::{
    calls::{Once, OnceOnly},
    engine::{Reads, Transaction},
    operations::{self, Asked, MadeNode, Making, Place, Removing, Renaming},
};

/// What is remembered of calls that made no file.
const NO_FILE: Option<Inode> = Some(Inode(0));

impl FilesetVolume {
    pub(super) async fn make_name(&self, making: &Making) -> FsResult<MadeNode> {
        let (changing, place) = (making.clone(), making.place.clone());
        let make = OnceOnly {
            change: move |transaction: &mut dyn Transaction| {
                let made = operations::make(transaction, &changing)?;
                let new = (!made.existed).then_some(made.inode);
                Ok((made, new))
            },
            still: move |reads: &dyn Reads, inode| leads_to(reads, &place, inode),
        };
        let made = self.change_names(&making.asked, make);
        Ok(match made.await? {
            Once::Now(made) => made,
            Once::Before(inode) => MadeNode {
                inode,
                existed: false,
                directory: Change::UNTOLD,
            },
        })
    }

    pub(super) async fn link_name(
        &self,
        asked: &Asked,
        inode: Inode,
        place: Place,
    ) -> FsResult<Change> {
        let (by, named) = (asked.clone(), place.clone());
        let link = OnceOnly {
            change: move |transaction: &mut dyn Transaction| {
                let change = operations::link(transaction, &by, inode, &place)?;
                Ok((change, Some(inode)))
            },
            still: move |reads: &dyn Reads, inode| leads_to(reads, &named, inode),
        };
        let linked = self.change_names(asked, link);
        Ok(match linked.await? {
            Once::Now(change) => change,
            Once::Before(_) => Change::UNTOLD,
        })
    }

    pub(super) async fn remove_name(&self, removing: Removing) -> FsResult<Change> {
        let asked = removing.asked.clone();
        let remove = OnceOnly {
            change: move |transaction: &mut dyn Transaction| {
                let removed = operations::remove(transaction, &removing)?;
                Ok((removed, NO_FILE))
            },
            still: is_done,
        };
        let removed = self.change_names(&asked, remove);
        match removed.await? {
            Once::Now(removed) => {
                self.lost(removed.unnamed);
                Ok(removed.directory)
            }
            Once::Before(_) => Ok(Change::UNTOLD),
        }
    }

    pub(super) async fn rename_name(&self, renaming: Renaming) -> FsResult<Renamed> {
        let asked = renaming.asked.clone();
        let rename = OnceOnly {
            change: move |transaction: &mut dyn Transaction| {
                let moved = operations::rename(transaction, &renaming)?;
                Ok((moved, NO_FILE))
            },
            still: is_done,
        };
        let moved = self.change_names(&asked, rename);
        match moved.await? {
            Once::Now(moved) => {
                self.lost(moved.unnamed);
                Ok(moved.renamed)
            }
            Once::Before(_) => Ok(Renamed::default()),
        }
    }

    async fn change_names<T: Send + 'static>(
        &self,
        asked: &Asked,
        once: OnceOnly<
            impl FnMut(&mut dyn Transaction) -> FsResult<(T, Option<Inode>)> + Send + 'static,
            impl Fn(&dyn Reads, Inode) -> FsResult<bool> + Send + 'static,
        >,
    ) -> FsResult<Once<T>> {
        self.parts.check()?;
        let Parts { calls, engine, .. } = &*self.parts;
        calls.once(&**engine, asked, once).await
    }
}

fn leads_to(reads: &dyn Reads, place: &Place, inode: Inode) -> FsResult<bool> {
    let found = operations::find(reads, place.dentry())?;
    Ok(found.is_some_and(|entry| entry.inode == inode))
}

/// A name that was taken away stays so, whatever has it now.
fn is_done(_: &dyn Reads, _: Inode) -> FsResult<bool> {
    Ok(true)
}
