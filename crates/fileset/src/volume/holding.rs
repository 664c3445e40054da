//! References and handles: taking one, and what is in the way of that.

use std::sync::Arc;

use penstock_base::{FsError, FsResult};
use penstock_vfs::{
    AccessMask, Attributes, Entry, Identity, Inode, OpenOptions, Opened, permission,
};

use super::FilesetVolume;
use crate::{
    files::NewSize,
    operations::{self, Condition},
    schema::is_in_snapshot,
};

impl FilesetVolume {
    /// What a reference that the caller has just taken leads to. Without the file the reference goes.
    pub(super) async fn held(&self, inode: Inode) -> FsResult<Entry> {
        let taken = self.parts.held.taken(inode);
        if let Some((machines, _)) = self.parts.leases() {
            machines.see_writes(inode).await?;
        }
        let attributes = self
            .query(|reads| operations::attributes(reads, inode))
            .await?;
        self.check_held(&attributes).await?;
        taken.keep();
        Ok(self.entry(attributes))
    }

    /// Fails with `Stale` if a file to which a reference was taken can be collected by another machine.
    async fn check_held(&self, file: &Attributes) -> FsResult<()> {
        match &self.parts.machines {
            Some(_) if is_removed(file) && self.is_in_trash(file.inode).await? => {
                self.parts.held.found_by_number(file.inode);
                Ok(())
            }
            Some(machines) if is_removed(file) => {
                machines.check_held(&self.parts, file.inode).await
            }
            _ => Ok(()),
        }
    }

    /// Fails with `Stale` if a file was removed on another machine: whoever opens it has an old name for it.
    pub(super) async fn check_named(&self, file: &Attributes) -> FsResult<()> {
        match &self.parts.machines {
            Some(_) if is_removed(file) && self.is_in_trash(file.inode).await? => {
                match self.parts.held.knows_trashed(file.inode) {
                    true => Ok(()),
                    false => Err(FsError::Stale),
                }
            }
            Some(machines) if is_removed(file) => machines.check_named(file.inode).await,
            _ => Ok(()),
        }
    }

    pub(super) async fn opened(
        &self,
        by: &Identity,
        inode: Inode,
        options: OpenOptions,
    ) -> FsResult<Opened> {
        if options.truncate {
            let opener = by.clone();
            let check = move |file: &Attributes| permission::check(file, &opener, wanted(options));
            let new = NewSize {
                size: 0,
                drops_set_id: by.uid != 0,
                condition: Some(Condition::new(check)),
            };
            let files = Arc::clone(&self.parts.files);
            self.change_bytes(inode, async move { files.resize(inode, new).await })
                .await?;
        }
        self.parts.held.take(inode)?;
        let taken = self.parts.held.taken(inode);
        let handle = self.parts.files.open(inode, options).await?;
        taken.keep();
        let opened = self.parts.files.handle(handle)?;
        if options.truncate {
            // What is durable of that its close says.
            opened.file.moved();
        }
        let machines = self.parts.machines.as_ref();
        Ok(Opened {
            is_unchanged: machines.is_none_or(|machines| machines.contents.opened(inode, handle)),
            closes_silently: !opened.is_changing,
            reads_through: self.is_strict(),
            ..Opened::new(handle)
        })
    }
}

/// Whether a file of the live tree has no name left, or only one in the trash.
fn is_removed(file: &Attributes) -> bool {
    file.links == 0 && !is_in_snapshot(file.inode)
}

/// What somebody needs to be allowed to open a file so.
pub(super) fn wanted(options: OpenOptions) -> AccessMask {
    let part = |is_wanted, mask| if is_wanted { mask } else { AccessMask::EXISTS };
    let reads = part(options.access.reads(), AccessMask::READ);
    let writes = options.access.writes() || options.truncate;
    reads.union(part(writes, AccessMask::WRITE))
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, task::Poll, time::Duration};

    use async_trait::async_trait;
    use futures_util::poll;
    use penstock_base::{BufferPool, FileName, MemoryBudget, clock};
    use penstock_object_testing::MemoryStore;
    use penstock_transfer::Transfer;
    use penstock_vfs::{Dentry, Exclusivity, HandleId, New, NewKind, Volume, WritePlace};

    use super::*;
    use crate::{
        engine::{Engine, EngineResult, MemoryEngine, Operation, Query},
        schema::Format,
    };

    /// An engine that has each look wait once.
    #[derive(Debug, Default)]
    struct Waiting(MemoryEngine);

    #[async_trait]
    impl Engine for Waiting {
        async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
            tokio::task::yield_now().await;
            self.0.run_query(query).await
        }

        async fn run(&self, operation: Operation) -> EngineResult<()> {
            self.0.run(operation).await
        }

        async fn sync(&self) -> EngineResult<()> {
            self.0.sync().await
        }

        async fn close(&self) -> EngineResult<()> {
            self.0.close().await
        }
    }

    /// A new file, opened.
    async fn made(engine: impl Engine) -> (Arc<FilesetVolume>, Inode, HandleId) {
        let (engine, by) = (Arc::new(engine), Identity::root());
        let formatted = FilesetVolume::format(&*engine, &by, Format::new(1)).await;
        formatted.expect("it is new");
        let pool = BufferPool::new(MemoryBudget::new(64 << 20));
        let transfer = Transfer::new(Arc::new(MemoryStore::new()), pool);
        let volume = FilesetVolume::open(engine, transfer).await;
        let volume = volume.expect("it is there");
        let name = FileName::new(b"file").expect("it is a name");
        let new = New {
            kind: NewKind::Regular,
            permissions: 0o644,
            umask: 0,
            exclusivity: Exclusivity::New,
        };
        let place = Dentry::new(Inode::ROOT, &name);
        let made = volume.make(&by, place, new, Some(OpenOptions::WRITE)).await;
        let made = made.expect("it is new");
        let handle = made.opened.expect("it is opened").handle;
        (volume, made.entry.attributes.inode, handle)
    }

    /// A process that is killed in a close does not wait for the save, and its handle goes before that ends.
    #[tokio::test]
    async fn a_file_that_is_closed_while_it_is_saved_is_forgotten() {
        let (volume, inode, handle) = made(MemoryEngine::default()).await;
        let bytes = bytes::Bytes::from_static(b"bytes");
        let by = Identity::root();
        let written = volume.write(&by, handle, WritePlace::At(0), bytes).await;
        written.expect("there is memory");
        {
            let flushed = volume.flush(handle);
            tokio::pin!(flushed);
            assert!(poll!(&mut flushed).is_pending(), "it saves");
        }
        volume.release(handle).await;
        volume.forget(inode, 1);
        while volume.unsaved().files > 0 {
            clock::sleep(Duration::from_millis(1)).await;
        }
        let forgotten = clock::deadline(Duration::from_secs(20), async {
            while !volume.parts.files.all().is_empty() {
                clock::sleep(Duration::from_millis(1)).await;
            }
        });
        assert_eq!(forgotten.await, Ok(()));
    }

    #[tokio::test]
    async fn a_file_whose_open_was_given_up_is_forgotten() {
        let (volume, inode, handle) = made(Waiting::default()).await;
        volume.release(handle).await;
        volume.forget(inode, 1);
        let by = Identity::root();
        let mut polls = 0;
        loop {
            polls += 1;
            {
                let opened = volume.open(&by, inode, OpenOptions::READ);
                tokio::pin!(opened);
                let mut outcome = poll!(&mut opened);
                for _ in 1..polls {
                    if outcome.is_pending() {
                        tokio::task::yield_now().await;
                        outcome = poll!(&mut opened);
                    }
                }
                if let Poll::Ready(opened) = outcome {
                    volume.release(opened.expect("it is there").handle).await;
                    break;
                }
            }
            assert_eq!(volume.parts.files.all(), [], "after {polls} polls");
            assert!(!volume.parts.held.has(inode), "after {polls} polls");
        }
        assert!(polls > 2, "it waits for the engine");
        assert!(!volume.parts.held.has(inode));
        assert_eq!(volume.parts.files.all(), []);
    }
}
