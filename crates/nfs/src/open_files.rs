//! Open files, of which clients know nothing.
//!
//! NFS reads and writes files that nobody opened. A volume wants a handle for it, and some save what was written when
//! that is closed. So a file stays open from its first READ or WRITE until nobody has used it for a while, at most
//! [`OPEN_FILES_MAX`] of them. One that cannot be closed, since what was written to it cannot be saved, stays open and
//! is tried again: until then each COMMIT of it fails, and nothing is lost in silence. A volume that writes from front to back
//! cannot try again what it sent: such a file is given up after a while, or when it is cut to nothing, so that it can be
//! written anew.

mod file;
mod order;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, ops::Range, sync::Arc};

use penstock_base::{FsError, FsResult, Mutex};
use penstock_vfs::{Access, Attributes, Identity, Inode, OpenOptions, Volume};
use tracing::warn;

use crate::limits::{LOST_AFTER, OPEN_FILES_MAX};
use file::{Open, OpenFile};

pub(crate) use file::InUse;

/// Files that are closed at once to make room.
const CLOSED_AT_ONCE: usize = 16;

/// All open files of a volume.
pub(crate) struct OpenFiles {
    volume: Arc<dyn Volume>,
    /// The volume writes files from front to back.
    keeps_order: bool,
    files: Mutex<HashMap<Inode, Arc<OpenFile>>>,
}

impl OpenFiles {
    pub(crate) fn new(volume: Arc<dyn Volume>) -> Self {
        Self {
            keeps_order: !volume.features().random_writes,
            volume,
            files: Mutex::default(),
        }
    }

    /// A handle of a file. Permission was checked by whoever asks: others use it, too.
    pub(crate) async fn open(&self, file: &Attributes, access: Access) -> FsResult<InUse> {
        let open_file = self.entry(file).await?;
        if let Some(handle) = self.up_to_date(&open_file, access, file) {
            return Ok(handle);
        }
        let _turn = open_file.turn().await;
        if let Some(handle) = self.up_to_date(&open_file, access, file) {
            return Ok(handle);
        }
        if let Some(outdated) = open_file.take(access) {
            self.volume.release(outdated.id).await;
        }
        let root = Identity::root();
        let opened = self.volume.open(&root, file.inode, OpenOptions::to(access));
        let open = Open::new(opened.await?.handle, file.brief());
        if access == Access::Write {
            // Who only read it may have known another one.
            open_file.cut_to(file.size);
            open_file.begin_anew();
        }
        Ok(open_file.put(access, open))
    }

    /// The handle that is open, unless it is one to read what the file held before somebody else changed it. A volume
    /// whose files are written anywhere shows readers what writers do.
    fn up_to_date(
        &self,
        open_file: &Arc<OpenFile>,
        access: Access,
        file: &Attributes,
    ) -> Option<InUse> {
        let now = file.brief();
        let is_fixed = self.keeps_order && access == Access::Read;
        let is_same = |open: &Open| {
            !is_fixed || (open.seen.size, open.seen.modified) == (now.size, now.modified)
        };
        open_file.use_now(access, is_same)
    }

    async fn entry(&self, file: &Attributes) -> FsResult<Arc<OpenFile>> {
        loop {
            let idle = {
                let mut files = self.files.lock();
                if let Some(open_file) = files.get(&file.inode) {
                    return Ok(Arc::clone(open_file));
                }
                if files.len() < OPEN_FILES_MAX {
                    let open_file = Arc::new(OpenFile::new(file, self.keeps_order));
                    files.insert(file.inode, Arc::clone(&open_file));
                    return Ok(open_file);
                }
                longest_idle(&files)
            };
            let mut closed = false;
            for open_file in idle {
                closed |= self.close(&open_file, |_| true).await;
            }
            if !closed {
                return Err(FsError::LimitReached("files that are open at once"));
            }
        }
    }

    fn known(&self, inode: Inode) -> Option<Arc<OpenFile>> {
        self.files.lock().get(&inode).map(Arc::clone)
    }

    /// The handle that a file is written through, if it is.
    pub(crate) fn writer(&self, inode: Inode) -> Option<InUse> {
        self.known(inode)?.use_now(Access::Write, |_| true)
    }

    /// Makes durable what was written to a range of a file, if anything was that is not.
    pub(crate) async fn sync(&self, inode: Inode, range: Range<u64>) -> FsResult<()> {
        let Some(file) = self.known(inode) else {
            return Ok(());
        };
        let Some(written) = file.unsynced() else {
            return Ok(());
        };
        let mut writer = file.use_now(Access::Write, |_| true);
        if writer.is_none() {
            // Whoever closes it saves it first, or leaves it open.
            let _turn = file.turn().await;
            if file.unsynced().is_none() {
                return Ok(());
            }
            writer = file.use_now(Access::Write, |_| true);
        }
        let writer = writer.ok_or_else(|| FsError::Io("it was closed unsaved".to_owned()))?;
        let is_all = range == (0..u64::MAX);
        let synced = self.volume.sync(writer.id, range, false).await;
        file.note_save(synced.is_ok());
        file.told(synced)?;
        if is_all {
            file.synced(written);
        }
        Ok(())
    }

    /// Closes the reader of a file whose content became another one.
    pub(crate) async fn close_reader(&self, reader: InUse) {
        let file = Arc::clone(&reader.file);
        let _turn = file.turn().await;
        if file.take_if(Access::Read, reader.id).is_some() {
            self.volume.release(reader.id).await;
        }
    }

    /// Closes what nobody has used for a while.
    pub(crate) async fn sweep(&self) {
        let idle: Vec<_> = {
            let files = self.files.lock();
            let idle = files.values().filter(|file| file.is_idle());
            idle.map(Arc::clone).collect()
        };
        for open_file in idle {
            self.close(&open_file, |is_idle| is_idle).await;
        }
    }

    /// Closes all files, whoever uses them. Returns those of which something could not be saved.
    pub(crate) async fn close_all(&self) -> Vec<(Inode, FsError)> {
        let all: Vec<_> = self.files.lock().values().map(Arc::clone).collect();
        let mut failed = Vec::new();
        for open_file in all {
            let inode = open_file.inode;
            let _turn = open_file.turn().await;
            if let Some(writer) = open_file.take(Access::Write) {
                let saved = self.save(&open_file, &writer).await;
                failed.extend(saved.err().map(|error| (inode, error)));
                self.volume.release(writer.id).await;
            }
            if let Some(reader) = open_file.take(Access::Read) {
                self.volume.release(reader.id).await;
            }
            // A COMMIT of what could not be saved goes on failing.
            if open_file.unsynced().is_none() {
                self.files.lock().remove(&inode);
            }
        }
        failed
    }

    /// Closes those handles of a file that nobody uses and that `wanted`, which is told whether nobody has for a while,
    /// says. Says whether the file is closed.
    async fn close(&self, open_file: &Arc<OpenFile>, wanted: impl Fn(bool) -> bool) -> bool {
        let _turn = open_file.turn().await;
        for access in [Access::Read, Access::Write] {
            if let Some(open) = open_file.take_unused(access, &wanted) {
                self.close_handle(open_file, access, open).await;
            }
        }
        let mut files = self.files.lock();
        // Nobody but the table and whoever calls this has it, so nobody is about to open it.
        let is_over = Arc::strong_count(open_file) <= 2 && open_file.is_over();
        if is_over {
            files.remove(&open_file.inode);
        }
        is_over
    }

    /// Makes durable what was written: a COMMIT that comes when the file is closed finds nothing to do.
    async fn save(&self, file: &OpenFile, open: &Open) -> FsResult<()> {
        if let Some(written) = file.unsynced() {
            self.volume.sync(open.id, 0..u64::MAX, false).await?;
            file.synced(written);
        }
        self.volume.flush(open.id).await?;
        file.note_save(true);
        Ok(())
    }

    async fn close_handle(&self, open_file: &Arc<OpenFile>, access: Access, open: Open) {
        if access == Access::Write
            && let Err(error) = self.save(open_file, &open).await
        {
            let inode = open_file.inode.0;
            let failing = open_file.note_save(false);
            let is_lost = failing.is_some_and(|since| since.elapsed() >= LOST_AFTER);
            if !self.keeps_order || !is_lost {
                warn!(inode, %error, "a file could not be saved, and will be tried again");
                drop(open_file.put(access, open));
                return;
            }
            warn!(inode, %error, "a file could not be saved, and is given up");
            open_file.lose();
        }
        self.volume.release(open.id).await;
    }

    /// Gives up what could not be saved of a file that is cut to nothing, where the volume would take nothing else before.
    pub(crate) async fn give_up_failed(&self, inode: Inode) {
        let failing = self.known(inode).filter(|file| file.is_failing());
        if let Some(file) = failing.filter(|_| self.keeps_order) {
            let _turn = file.turn().await;
            if let Some(open) = file.take_unused(Access::Write, |_| true) {
                file.lose();
                self.volume.release(open.id).await;
            }
        }
    }
}

/// Files that nobody has used for the longest time.
fn longest_idle(files: &HashMap<Inode, Arc<OpenFile>>) -> Vec<Arc<OpenFile>> {
    let unused = files.values().filter(|file| Arc::strong_count(file) == 1);
    let mut idle: Vec<_> = unused.map(|file| (file.last_use(), file)).collect();
    idle.sort_by_key(|(used, _)| *used);
    let longest = idle.into_iter().take(CLOSED_AT_ONCE);
    longest.map(|(_, file)| Arc::clone(file)).collect()
}
