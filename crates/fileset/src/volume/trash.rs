//! The trash of a file system that is open.

use std::time::{Duration, SystemTime};

use penstock_base::FsResult;
use penstock_vfs::{Identity, Inode};

use super::FilesetVolume;
use crate::{
    engine::Engine,
    operations,
    schema::is_of_trash,
    trash::{self, Emptied, Item, State},
};

impl FilesetVolume {
    /// Has removed files stay for so many days: see [`trash::set`].
    pub async fn set_trash(&self, days: u32) -> FsResult<()> {
        trash::set(&*self.parts.engine, days).await?;
        self.scheduler.look();
        Ok(())
    }

    /// What the trash is set to, and what is in it.
    pub async fn trash(&self) -> FsResult<State> {
        trash::state(&*self.parts.engine).await
    }

    /// The next files in the trash: see [`trash::list`].
    pub async fn list_trash(&self, after: Option<&str>) -> FsResult<Vec<Item>> {
        trash::list(&*self.parts.engine, after).await
    }

    /// Brings a file back: see [`trash::restore`].
    pub async fn restore(&self, entry: String, target: Option<String>) -> FsResult<String> {
        let asked = self.asked(&Identity::root());
        let restored = self.transact(move |transaction| {
            trash::restore_now(transaction, &asked, (&entry, target.as_deref()))
        });
        let path = restored.await?;
        self.parts.engine.sync().await?;
        Ok(path)
    }

    /// Removes some of what came into the trash in hours that ended before so long, or of all: see [`trash::purge_some`].
    pub async fn purge_some(&self, older: Option<Duration>) -> FsResult<Emptied> {
        self.parts.check()?;
        trash::empty_some(&self.parts, older.map(trash::until)).await
    }

    /// Removes what is older by `now` than files stay, as it is done by itself.
    pub async fn expire_trash(&self, now: SystemTime) -> FsResult<()> {
        self.parts.check()?;
        trash::expire(&self.parts, now).await
    }

    /// A file to which a reference was taken was found in a directory.
    pub(super) fn note_found(&self, directory: Inode, inode: Inode) {
        if is_of_trash(directory) {
            self.parts.held.found_in_trash(inode);
        }
    }

    pub(super) async fn is_in_trash(&self, inode: Inode) -> FsResult<bool> {
        let node = self.query(|reads| operations::node(reads, inode)).await?;
        Ok(node.is_in_trash())
    }
}
