//! The file system as doors know it.
//!
//! Each operation is one transaction of the engine ([`crate::operations`]), or goes to open files ([`crate::files`]).
//! What is left here is what only a door needs: references, handles, what a listing remembers, and that what becomes
//! of a change is told.

mod access_times;
mod attributes;
mod changes;
mod coherence;
mod compression;
mod dumping;
mod holding;
mod listing;
mod names;
mod opening;
mod parts;
mod quotas;
mod snapshots;
mod statistics;
mod trash;

use std::{
    ops::Range,
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{FsError, FsResult, Payload, clock};
use penstock_vfs::{
    AccessMask, Allocation, AttributeChanges, Attributes, CallId, Change, Dentry, DirectorySink,
    Entry, Features, FileKind, HandleId, Identity, Inode, ListFrom, Locks, Lookup, Made, New,
    NewKind, NodeId, OpenOptions, Opened, Position, RemoveKind, RenameMode, Renamed, Seek,
    Statistics, Unsaved, Volume, Watcher, WritePlace, Written, XattrMode, permission,
};

use self::holding::wanted;
pub(crate) use self::parts::Parts;
pub use self::{access_times::AccessTimes, coherence::Coherence, opening::Opening};
use crate::{
    calls, collector,
    engine::{Engine, Reads, Transaction, transact},
    listings::Listings,
    machines::{Machines, VolumeLocks},
    numbers::Numbers,
    operations::{
        self, Asked, Attribute, LINKS_MAX, Making, NewFile, Place, Removing, Renaming, Unnamed,
    },
    schedule::Scheduler,
    schema,
    snapshots::{check_changeable, check_place, look},
    uploads,
};

/// How long a door may believe what it is told: this bounds what a kernel keeps, and where others change the file system
/// how long it believes what it was told just before they did.
const TTL: Duration = Duration::from_secs(1);

/// A file system.
#[derive(Debug)]
pub struct FilesetVolume {
    parts: Arc<Parts>,
    numbers: Numbers,
    listings: Listings,
    locks: VolumeLocks,
    scheduler: Scheduler,
    access_times: AccessTimes,
    /// Another one each time: what was only accepted is lost with the process.
    epoch: u64,
    /// Of the file system: part of the numbers that outlive a mount.
    identity: u64,
}

impl FilesetVolume {
    /// Makes durable all that was written so far, and names. Who has waited long enough drops it: each save goes on.
    pub async fn make_durable(&self) -> FsResult<()> {
        self.parts.save_all().await?;
        Ok(self.parts.engine.sync().await?)
    }

    async fn query<T: Send>(
        &self,
        wanted: impl FnMut(&dyn Reads) -> FsResult<T> + Send,
    ) -> FsResult<T> {
        self.parts.check()?;
        look(&*self.parts.engine, wanted).await
    }

    async fn transact<T: Send + 'static>(
        &self,
        operation: impl FnMut(&mut dyn Transaction) -> FsResult<T> + Send + 'static,
    ) -> FsResult<T> {
        self.parts.check()?;
        transact(&*self.parts.engine, operation).await
    }

    fn entry(&self, mut attributes: Attributes) -> Entry {
        self.parts.files.show(&mut attributes);
        self.parts.held.show(&mut attributes);
        Entry {
            attributes,
            entry_ttl: self.ttl(),
            attributes_ttl: self.ttl(),
        }
    }

    fn asked(&self, by: &Identity) -> Asked {
        Asked {
            session: self.parts.machines.as_ref().map(Machines::session),
            ..asked(by)
        }
    }

    fn lost(&self, unnamed: Option<Unnamed>) {
        match unnamed {
            Some(Unnamed::Orphan(inode)) => self.parts.held.orphaned(inode),
            Some(Unnamed::Kept(inode)) => self.parts.held.trashed(inode),
            None => {}
        }
    }
}

fn asked(by: &Identity) -> Asked {
    Asked {
        by: by.clone(),
        now: clock::wall_time(),
        session: None,
    }
}

fn new_file(new: New<'_>) -> NewFile {
    let (kind, target) = match new.kind {
        NewKind::Regular => (FileKind::Regular, None),
        NewKind::Directory => (FileKind::Directory, None),
        NewKind::Symlink(target) => (FileKind::Symlink, Some(Bytes::copy_from_slice(target))),
        NewKind::Special(special) => (FileKind::Special(special), None),
    };
    NewFile {
        kind,
        target,
        permissions: new.permissions,
        umask: new.umask,
        exclusivity: new.exclusivity,
    }
}

#[async_trait]
impl Volume for FilesetVolume {
    fn features(&self) -> Features {
        Features {
            file_size_max: i64::MAX as u64,
            links_max: LINKS_MAX,
            xattrs: true,
            access_lists: true,
            random_writes: true,
            persistent_ids: true,
            saves_on_close: true,
            saves_names_behind: true,
            finds_holes: true,
            copies_ranges: true,
            remembers_calls: true,
            changes_elsewhere: self.parts.machines.is_some(),
            ..Features::READ_ONLY
        }
    }

    fn watch(&self, door: Weak<dyn Watcher>) {
        // With strict coherence it keeps nothing that others change.
        if let Some(machines) = self.parts.machines.as_ref().filter(|_| !self.is_strict()) {
            machines.watch(door);
        }
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn locks(&self) -> Option<&dyn Locks> {
        Some(&self.locks)
    }

    fn unsaved(&self) -> Unsaved {
        let unsaved = self.parts.files.unsaved();
        let (waiting, _) = self.parts.objects.on_disk_alone();
        Unsaved {
            bytes: unsaved.bytes + waiting,
            ..unsaved
        }
    }

    async fn lookup(&self, by: &Identity, dentry: Dentry<'_>) -> FsResult<Lookup> {
        loop {
            let Some(inode) = self.find(by, dentry).await? else {
                return Ok(self.absent(dentry));
            };
            if self.parts.held.take(inode).is_err() {
                // Its last name went since.
                continue;
            }
            self.note_found(dentry.parent, inode);
            match self.held(inode).await {
                Err(FsError::Stale) => {}
                Err(error) => return Err(error),
                Ok(entry) => {
                    let entry_ttl = self.believed_for(dentry);
                    return Ok(Lookup::Found(Entry { entry_ttl, ..entry }));
                }
            }
        }
    }

    async fn parent(&self, _by: &Identity, directory: Inode) -> FsResult<Entry> {
        self.see().await?;
        let node = self
            .query(|reads| operations::directory(reads, directory))
            .await?;
        let parent = Inode(node.parent);
        self.parts.held.take(parent)?;
        self.held(parent).await
    }

    async fn hold(&self, _by: &Identity, inode: Inode) -> FsResult<Entry> {
        self.see().await?;
        self.parts.held.take(inode)?;
        self.held(inode).await
    }

    fn node_id(&self, inode: Inode) -> Option<NodeId> {
        let number = [self.identity.to_be_bytes(), inode.0.to_be_bytes()];
        NodeId::new(number.as_flattened())
    }

    async fn resolve(&self, by: &Identity, id: &NodeId) -> FsResult<Entry> {
        let (identity, inode) = id.as_bytes().split_at_checked(8).ok_or(FsError::Stale)?;
        let inode = inode.try_into().map_err(|_| FsError::Stale)?;
        let inode = Inode(u64::from_be_bytes(inode));
        if identity != self.identity.to_be_bytes() {
            return Err(FsError::Stale);
        }
        // A door that opens nothing asks so for what is there by now.
        if !self.is_strict() && self.parts.files.find(inode).is_none() {
            self.parts.catch_up().await?;
        }
        self.hold(by, inode).await
    }

    fn forget(&self, inode: Inode, count: u64) {
        self.parts.forget(inode, count);
    }

    async fn attributes(&self, _by: &Identity, inode: Inode) -> FsResult<Entry> {
        self.see_file(inode).await?;
        let attributes = self
            .query(|reads| operations::attributes(reads, inode))
            .await?;
        Ok(self.entry(attributes))
    }

    async fn set_attributes(
        &self,
        by: &Identity,
        inode: Inode,
        changes: AttributeChanges,
    ) -> FsResult<Entry> {
        check_changeable(inode)?;
        self.see_file(inode).await?;
        self.change_attributes(by, inode, changes).await
    }

    async fn read_symlink(&self, _by: &Identity, inode: Inode) -> FsResult<Bytes> {
        self.see().await?;
        let found = self.query(|reads| {
            let target = reads.get(&schema::target(inode))?;
            Ok((operations::attributes(reads, inode)?, target))
        });
        let (link, target) = found.await?;
        let target = target.ok_or(FsError::InvalidArgument("only symbolic links have targets"))?;
        self.note_access(link).await;
        Ok(target)
    }

    async fn knows_call(&self, call: &CallId) -> FsResult<bool> {
        self.parts.catch_up().await?;
        let now = clock::wall_time();
        self.query(|reads| Ok(calls::find(reads, call, now)?.is_some()))
            .await
    }

    async fn make(
        &self,
        by: &Identity,
        dentry: Dentry<'_>,
        new: New<'_>,
        open: Option<OpenOptions>,
    ) -> FsResult<Made> {
        if self.is_of_snapshots(dentry) {
            return self.make_snapshot(by, dentry, &new).await;
        }
        check_place(dentry)?;
        let new = new_file(new);
        if open.is_some() && new.kind != FileKind::Regular {
            return Err(FsError::InvalidArgument("only files are opened"));
        }
        let is_durable = open.is_none() && new.kind == FileKind::Regular;
        let making = Making {
            asked: self.asked(by),
            place: Place::new(dentry),
            new,
            inode: self.numbers.next(&*self.parts.engine).await?,
        };
        let make = || self.make_name(&making);
        let made = self.parts.held.with_room(make).await?;
        self.parts.held.take(made.inode)?;
        let entry = self.held(made.inode).await?;
        let taken = self.parts.held.taken(made.inode);
        let opened = match open {
            Some(options) => {
                let options = OpenOptions {
                    truncate: options.truncate && made.existed,
                    ..options
                };
                if made.existed {
                    self.parts.catch_up().await?;
                    permission::check(&entry.attributes, by, wanted(options))?;
                }
                let opened = self.opened(by, made.inode, options).await?;
                if made.existed {
                    self.note_open(entry.attributes.clone(), options).await;
                }
                Some(opened)
            }
            None => None,
        };
        if is_durable {
            self.parts.engine.sync().await?;
        }
        let entry = match opened.is_some() && made.existed {
            true => self.attributes(by, made.inode).await?,
            false => entry,
        };
        taken.keep();
        Ok(Made {
            entry,
            opened,
            existed: made.existed,
            directory: made.directory,
        })
    }

    async fn link(&self, by: &Identity, inode: Inode, dentry: Dentry<'_>) -> FsResult<Made> {
        check_place(dentry)?;
        check_changeable(inode)?;
        let (asked, place) = (self.asked(by), Place::new(dentry));
        let directory = self.link_name(&asked, inode, place).await?;
        self.parts.held.take(inode)?;
        Ok(Made {
            directory,
            ..Made::new(self.held(inode).await?)
        })
    }

    async fn remove(
        &self,
        by: &Identity,
        dentry: Dentry<'_>,
        kind: RemoveKind,
    ) -> FsResult<Change> {
        if self.is_of_snapshots(dentry) {
            return self.drop_snapshot(by, dentry, kind).await;
        }
        check_changeable(dentry.parent)?;
        let removing = Removing {
            asked: self.asked(by),
            place: Place::new(dentry),
            kind,
        };
        self.remove_name(removing).await
    }

    async fn rename(
        &self,
        by: &Identity,
        source: Dentry<'_>,
        target: Dentry<'_>,
        mode: RenameMode,
    ) -> FsResult<Renamed> {
        check_place(target)?;
        check_changeable(source.parent)?;
        let renaming = Renaming {
            asked: self.asked(by),
            source: Place::new(source),
            target: Place::new(target),
            mode,
        };
        self.rename_name(renaming).await
    }

    async fn open(&self, by: &Identity, inode: Inode, options: OpenOptions) -> FsResult<Opened> {
        self.parts.catch_up().await?;
        let file = self
            .query(|reads| operations::attributes(reads, inode))
            .await?;
        match file.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsADirectory),
            _ => return Err(FsError::InvalidArgument("only files are opened")),
        }
        if wanted(options).contains(AccessMask::WRITE) {
            check_changeable(inode)?;
        }
        permission::check(&file, by, wanted(options))?;
        self.check_named(&file).await?;
        let opened = self.opened(by, inode, options).await?;
        self.note_open(file, options).await;
        Ok(opened)
    }

    async fn read(&self, _by: &Identity, at: Position, length: u32) -> FsResult<Payload> {
        self.parts.using(at.handle)?;
        self.see_bytes(at.handle).await?;
        let read = self.parts.files.read(at, length).await;
        match read {
            Err(error) => {
                let error = self.why_not_read(at.handle, error).await;
                if let FsError::Corrupt(_) = error {
                    self.parts.failures.damaged.increment();
                }
                Err(error)
            }
            read => read,
        }
    }

    async fn write(
        &self,
        by: &Identity,
        handle: HandleId,
        place: WritePlace,
        data: Bytes,
    ) -> FsResult<Written> {
        self.parts.using(handle)?;
        let changing = self.to_write(handle).await?;
        let written = self.parts.files.write(by, handle, (place, data)).await?;
        if changing.is_some() {
            self.is_alive().await?;
        }
        Ok(written)
    }

    async fn allocate(
        &self,
        by: &Identity,
        handle: HandleId,
        range: Range<u64>,
        allocation: Allocation,
    ) -> FsResult<()> {
        let handle = self.parts.handle(handle)?;
        if !handle.access.writes() {
            return Err(FsError::BadHandle);
        }
        let (files, by) = (Arc::clone(&self.parts.files), by.clone());
        let inode = handle.file.inode;
        let allocate = async move { files.allocate(&by, handle.file, range, allocation).await };
        self.change_bytes(inode, allocate).await
    }

    async fn seek(&self, from: Position, wanted: Seek) -> FsResult<u64> {
        self.parts.using(from.handle)?;
        self.see_bytes(from.handle).await?;
        self.parts.files.seek(from, wanted).await
    }

    async fn copy_range(
        &self,
        by: &Identity,
        source: Position,
        target: Position,
        length: u64,
    ) -> FsResult<u64> {
        self.parts.using(source.handle)?;
        self.parts.using(target.handle)?;
        self.see_bytes(source.handle).await?;
        let inode = self.parts.files.handle(target.handle)?.file.inode;
        let (files, by) = (Arc::clone(&self.parts.files), by.clone());
        let copy = async move { files.copy_range(&by, (source, target), length).await };
        self.change_bytes(inode, copy).await
    }

    async fn flush(&self, handle: HandleId) -> FsResult<()> {
        let (handle, files) = (self.parts.handle(handle)?, &self.parts.files);
        let saved = match handle.is_changing {
            // As on a local disk: a killed process loses nothing of it, a power cut may.
            true if self.parts.objects.is_spooled() => files.hand_over(&handle.file).await,
            true => files.settle(&handle.file).await,
            false => Ok(()),
        };
        saved.inspect_err(|_| files.told(&handle.file))
    }

    async fn sync(&self, handle: HandleId, _range: Range<u64>, _data_only: bool) -> FsResult<()> {
        let handle = self.parts.handle(handle)?;
        self.parts.files.sync(&handle.file).await
    }

    async fn sync_directory(&self, handle: HandleId) -> FsResult<()> {
        self.parts.check()?;
        self.listings.find(handle, 0)?;
        Ok(self.parts.engine.sync().await?)
    }

    async fn release(&self, handle: HandleId) {
        if let Some(file) = self.parts.files.close(handle) {
            self.parts.used(file.inode, handle);
            self.parts.files.give_up(&file).await;
            self.parts.forget(file.inode, 1);
            self.closed();
        }
    }

    async fn undo_open(&self, handle: HandleId) {
        if let Some(file) = self.parts.files.close(handle) {
            self.parts.forget(file.inode, 1);
            self.closed();
        }
    }

    async fn open_directory(&self, by: &Identity, inode: Inode) -> FsResult<HandleId> {
        self.see().await?;
        let attributes = self
            .query(|reads| operations::directory_attributes(reads, inode))
            .await?;
        permission::check(&attributes, by, AccessMask::READ)?;
        self.parts.held.take(inode)?;
        let handle = self.parts.files.next_handle();
        self.listings.open(handle, inode);
        self.note_access(attributes).await;
        Ok(handle)
    }

    async fn read_directory(
        &self,
        handle: HandleId,
        from: ListFrom<'_>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        self.see().await?;
        let (directory, after) = match from {
            ListFrom::After(name) => (self.listings.find(handle, 0)?.0, Some(name.clone())),
            ListFrom::Position(0) => (self.listings.find(handle, 0)?.0, None),
            ListFrom::Position(position) => {
                let (directory, remembered) = self.listings.find(handle, position)?;
                let look =
                    |reads: &dyn Reads| operations::find_position(reads, directory, position);
                let name = match remembered {
                    Some(name) => Some(name),
                    None => self.query(look).await?,
                };
                let gone = FsError::InvalidArgument("the directory changed since that position");
                (directory, Some(name.ok_or(gone)?))
            }
        };
        self.list_into((directory, after), Some(handle), sink).await
    }

    async fn release_directory(&self, handle: HandleId) {
        if let Some(inode) = self.listings.close(handle) {
            self.parts.forget(inode, 1);
        }
    }

    async fn xattr(&self, by: &Identity, inode: Inode, name: &[u8]) -> FsResult<Bytes> {
        self.see().await?;
        self.query(|reads| operations::xattr(reads, by, inode, name))
            .await
    }

    async fn xattrs(&self, _by: &Identity, inode: Inode) -> FsResult<Vec<Bytes>> {
        self.see().await?;
        self.query(|reads| operations::xattrs(reads, inode)).await
    }

    async fn set_xattr(
        &self,
        by: &Identity,
        inode: Inode,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<()> {
        check_changeable(inode)?;
        let asked = self.asked(by);
        let attribute = Attribute {
            name: Bytes::copy_from_slice(name),
            value: Bytes::copy_from_slice(value),
        };
        self.transact(move |transaction| {
            operations::set_xattr(transaction, &asked, inode, (&attribute, mode))
        })
        .await
    }

    async fn remove_xattr(&self, by: &Identity, inode: Inode, name: &[u8]) -> FsResult<()> {
        check_changeable(inode)?;
        let (asked, name) = (self.asked(by), name.to_vec());
        self.transact(move |transaction| {
            operations::remove_xattr(transaction, &asked, inode, &name)
        })
        .await
    }

    async fn statistics(&self, _by: &Identity, inode: Inode) -> FsResult<Statistics> {
        self.see().await?;
        self.statistics_at(inode).await
    }

    async fn shut_down(&self) -> Vec<(String, FsError)> {
        self.scheduler.end(&self.parts).await;
        self.parts.files.end_folding().await;
        let failed = self.parts.files.save_all().await;
        if let Some((_, leases)) = self.parts.leases() {
            leases.close();
        }
        let failed = failed.into_iter();
        let mut failed: Vec<_> = failed
            .map(|(file, error)| (format!("inode {}", file.inode.0), error))
            .collect();
        if let Err(error) = uploads::drain(&self.parts).await {
            let what = match self.parts.objects.is_spooled() {
                true => "bytes that are on this disk alone",
                false => "bytes that are in the log alone",
            };
            failed.push((what.to_owned(), error));
        }
        if let Err(error) = collector::work(&self.parts, true).await {
            tracing::info!(%error, "what removed files left is cleared away when the file system is opened again");
        }
        if let Some(machines) = &self.parts.machines {
            machines.end_following();
            if let Err(error) = machines.leave(self.parts.objects.writer()).await {
                tracing::debug!(%error, "others find out later that this session is over");
            }
        }
        if let Err(error) = self.parts.engine.close().await {
            failed.push(("the metadata".to_owned(), error.into()));
        }
        failed
    }
}
