//! Changes of names: each is made once in the call that asks for it ([`crate::calls`]).

use penstock_base::FsResult;
use penstock_vfs::{Change, Inode, Renamed};

use super::{FilesetVolume, Parts};
use crate::{
    calls::Once,
    engine::Transaction,
    operations::{self, Asked, MadeNode, Making, Place, Removing, Renaming, Unnamed},
};

/// What is remembered of calls that made no file.
const NO_FILE: Option<Inode> = Some(Inode(0));

impl FilesetVolume {
    pub(super) async fn make_name(&self, making: &Making) -> FsResult<MadeNode> {
        let changing = making.clone();
        let how = (&making.asked, Some(making.place.clone()));
        let made = self.change_names(how, move |transaction| {
            let made = operations::make(transaction, &changing)?;
            let new = (!made.existed).then_some(made.inode);
            Ok((made, new))
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
        let (by, how) = (asked.clone(), (asked, Some(place.clone())));
        let linked = self.change_names(how, move |transaction| {
            let change = operations::link(transaction, &by, inode, &place)?;
            Ok((change, Some(inode)))
        });
        Ok(match linked.await? {
            Once::Now(change) => change,
            Once::Before(_) => Change::UNTOLD,
        })
    }

    pub(super) async fn remove_name(&self, removing: Removing) -> FsResult<Change> {
        let asked = removing.asked.clone();
        self.take_name(&asked, move |transaction| {
            let removed = operations::remove(transaction, &removing)?;
            Ok((removed.directory, removed.unnamed))
        })
        .await
    }

    pub(super) async fn rename_name(&self, renaming: Renaming) -> FsResult<Renamed> {
        let asked = renaming.asked.clone();
        self.take_name(&asked, move |transaction| {
            let moved = operations::rename(transaction, &renaming)?;
            Ok((moved.renamed, moved.unnamed))
        })
        .await
    }

    /// Takes a name away, from a file that may have had no other one. Of what was done before nothing is told.
    async fn take_name<T: Default + Send + 'static>(
        &self,
        asked: &Asked,
        mut operation: impl FnMut(&mut dyn Transaction) -> FsResult<(T, Option<Unnamed>)>
        + Send
        + 'static,
    ) -> FsResult<T> {
        let taken = self.change_names((asked, None), move |transaction| {
            Ok((operation(transaction)?, NO_FILE))
        });
        let Once::Now((told, unnamed)) = taken.await? else {
            return Ok(T::default());
        };
        self.lost(unnamed);
        Ok(told)
    }

    async fn change_names<T: Send + 'static>(
        &self,
        how: (&Asked, Option<Place>),
        operation: impl FnMut(&mut dyn Transaction) -> FsResult<(T, Option<Inode>)> + Send + 'static,
    ) -> FsResult<Once<T>> {
        self.parts.check()?;
        let Parts { calls, engine, .. } = &*self.parts;
        calls.once(&**engine, how, operation).await
    }
}
