//! Changes of names: each is made once in the call that asks for it ([`crate::calls`]).

use penstock_base::FsResult;
use penstock_vfs::{Change, Inode, Renamed};

use super::{FilesetVolume, Parts};
use crate::{
    calls::Once,
    engine::Transaction,
    operations::{self, Asked, MadeNode, Making, Place, Removing, Renaming},
};

/// What is remembered of calls that made no file.
const NO_FILE: Inode = Inode(0);

impl FilesetVolume {
    pub(super) async fn make_name(&self, making: &Making) -> FsResult<MadeNode> {
        let changing = making.clone();
        let made = self.change_names(&making.asked, move |transaction| {
            let made = operations::make(transaction, &changing)?;
            let inode = made.inode;
            Ok((made, inode))
        });
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
        let by = asked.clone();
        let linked = self.change_names(asked, move |transaction| {
            let change = operations::link(transaction, &by, inode, &place)?;
            Ok((change, inode))
        });
        Ok(match linked.await? {
            Once::Now(change) => change,
            Once::Before(_) => Change::UNTOLD,
        })
    }

    pub(super) async fn remove_name(&self, removing: Removing) -> FsResult<Change> {
        let asked = removing.asked.clone();
        let removed = self.change_names(&asked, move |transaction| {
            Ok((operations::remove(transaction, &removing)?, NO_FILE))
        });
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
        let moved = self.change_names(&asked, move |transaction| {
            Ok((operations::rename(transaction, &renaming)?, NO_FILE))
        });
        match moved.await? {
            Once::Now(moved) => {
                self.lost(moved.unnamed);
                Ok(moved.renamed)
            }
            Once::Before(_) => Ok(Renamed::default()),
        }
    }

    /// What an operation says beside what becomes of it is the file that is remembered of a call.
    async fn change_names<T: Send + 'static>(
        &self,
        asked: &Asked,
        operation: impl FnMut(&mut dyn Transaction) -> FsResult<(T, Inode)> + Send + 'static,
    ) -> FsResult<Once<T>> {
        self.parts.check()?;
        let Parts { calls, engine, .. } = &*self.parts;
        calls.once(&**engine, asked, operation).await
    }
}
