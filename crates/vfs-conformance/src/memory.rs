//! A POSIX file system in memory.

mod tree;

use std::{
    collections::HashMap,
    ops::Range,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{FsError, FsResult, Payload, clock};
use penstock_vfs::{
    AccessLists, AccessMask, AttributeChanges, Attributes, CallId, Change, Dentry, Detail,
    DirectorySink, Durability, Entry, Exclusivity, Features, FileKind, HandleId, Identity, Inode,
    ListFrom, ListKind, LockTable, Locks, Lookup, Made, New, NewKind, NodeId, OpenOptions, Opened,
    Position, RemoveKind, RenameMode, Renamed, Seek, Statistics, TimeChange, Volume, WritePlace,
    Written, XattrMode, permission,
};

use tree::{Content, Tree};

/// How long a door may believe what it is told.
const TTL: Duration = Duration::from_secs(1);
/// Names that a file may have.
const LINKS_MAX: u32 = 1000;
const BLOCK: u64 = 4096;
/// Blocks that there seem to be.
const BLOCKS: u64 = 1 << 20;

/// A POSIX file system in memory: owners and modes, which it checks itself, hard links, locks, extended attributes,
/// numbers that lead back, holes, access lists that can be set and are followed. For tests of doors, and to hold the suite against.
#[derive(Debug)]
pub struct MemoryVolume {
    tree: Mutex<Tree>,
    handles: Mutex<HashMap<HandleId, Inode>>,
    last_handle: AtomicU64,
    locks: LockTable,
}

impl Default for MemoryVolume {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryVolume {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            tree: Mutex::new(Tree::new(clock::wall_time())),
            handles: Mutex::default(),
            last_handle: AtomicU64::new(0),
            locks: LockTable::default(),
        }
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handles(&self) -> MutexGuard<'_, HashMap<HandleId, Inode>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, handle: HandleId) -> FsResult<Inode> {
        self.handles()
            .get(&handle)
            .copied()
            .ok_or(FsError::BadHandle)
    }

    /// Opens what `tree` has; it stays as long as it is open.
    fn opened(&self, tree: &mut Tree, inode: Inode) -> FsResult<Opened> {
        let handle = HandleId(self.last_handle.fetch_add(1, Ordering::Relaxed) + 1);
        tree.hold(inode)?;
        self.handles().insert(handle, inode);
        Ok(Opened::new(handle))
    }

    fn close(&self, handle: HandleId) {
        let closed = self.handles().remove(&handle);
        if let Some(inode) = closed {
            self.tree().forget(inode, 1);
        }
    }
}

fn entry(tree: &Tree, inode: Inode) -> FsResult<Entry> {
    Ok(Entry {
        attributes: tree.attributes(inode)?,
        entry_ttl: TTL,
        attributes_ttl: TTL,
    })
}

fn is_root(identity: &Identity) -> bool {
    identity.uid == 0
}

/// Gives a file an access list, and the mode that goes with it.
fn set_access_list(
    file: &mut Attributes,
    by: &Identity,
    (value, mode): (&[u8], XattrMode),
) -> FsResult<()> {
    let mut lists = AccessLists {
        access: file.access_list.take(),
        default: None,
    };
    let set = lists.set((file, by), (ListKind::Access, value, mode));
    file.access_list = lists.access;
    file.permissions = set?;
    Ok(())
}

#[async_trait]
impl Volume for MemoryVolume {
    fn features(&self) -> Features {
        Features {
            links_max: LINKS_MAX,
            xattrs: true,
            random_writes: true,
            persistent_ids: true,
            finds_holes: true,
            copies_ranges: true,
            remembers_calls: true,
            ..Features::READ_ONLY
        }
    }

    fn locks(&self) -> Option<&dyn Locks> {
        Some(&self.locks)
    }

    async fn lookup(&self, by: &Identity, dentry: Dentry<'_>) -> FsResult<Lookup> {
        let mut tree = self.tree();
        let directory = tree.attributes(dentry.parent)?;
        let found = tree.find(dentry)?;
        permission::check(&directory, by, AccessMask::EXECUTE)?;
        let Some(inode) = found else {
            return Ok(Lookup::Absent(TTL));
        };
        tree.hold(inode)?;
        Ok(Lookup::Found(entry(&tree, inode)?))
    }

    async fn parent(&self, _by: &Identity, directory: Inode) -> FsResult<Entry> {
        let mut tree = self.tree();
        let parent = tree.parent(directory)?;
        tree.hold(parent)?;
        entry(&tree, parent)
    }

    async fn hold(&self, _by: &Identity, inode: Inode) -> FsResult<Entry> {
        let mut tree = self.tree();
        tree.hold(inode)?;
        entry(&tree, inode)
    }

    fn node_id(&self, inode: Inode) -> Option<NodeId> {
        NodeId::new(&inode.0.to_be_bytes())
    }

    async fn resolve(&self, by: &Identity, id: &NodeId) -> FsResult<Entry> {
        let bytes = id.as_bytes().try_into().map_err(|_| FsError::Stale)?;
        self.hold(by, Inode(u64::from_be_bytes(bytes))).await
    }

    fn forget(&self, inode: Inode, count: u64) {
        self.tree().forget(inode, count);
    }

    async fn attributes(&self, _by: &Identity, inode: Inode) -> FsResult<Entry> {
        entry(&self.tree(), inode)
    }

    async fn set_attributes(
        &self,
        by: &Identity,
        inode: Inode,
        changes: AttributeChanges,
    ) -> FsResult<Entry> {
        let mut tree = self.tree();
        let before = tree.attributes(inode)?;
        if changes
            .only_if_changed_at
            .is_some_and(|time| time != before.changed)
        {
            return Err(FsError::NotSynchronized);
        }
        permission::check_changes(&before, by, &changes)?;
        let now = clock::wall_time();
        tree.forget_verifier(inode)?;
        if let Some(size) = changes.size {
            tree.resize(inode, size, now)?;
        }
        let time = |change| match change {
            TimeChange::Now => now,
            TimeChange::To(time) => time,
        };
        let after = tree.attributes_mut(inode)?;
        after.permissions = permission::permissions_after(&before, by, &changes);
        let list = after.access_list.take();
        after.access_list = list.map(|list| list.with_classes(after.permissions));
        after.uid = changes.uid.unwrap_or(after.uid);
        after.gid = changes.gid.unwrap_or(after.gid);
        after.accessed = changes.accessed.map_or(after.accessed, time);
        after.modified = changes.modified.map_or(after.modified, time);
        after.changed = now;
        entry(&tree, inode)
    }

    async fn read_symlink(&self, _by: &Identity, inode: Inode) -> FsResult<Bytes> {
        match self.tree().content(inode)? {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(FsError::InvalidArgument("only symbolic links have targets")),
        }
    }

    async fn knows_call(&self, call: &CallId) -> FsResult<bool> {
        Ok(self.tree().calls.contains_key(call))
    }

    async fn make(
        &self,
        by: &Identity,
        dentry: Dentry<'_>,
        new: New<'_>,
        open: Option<OpenOptions>,
    ) -> FsResult<Made> {
        let (kind, content) = match new.kind {
            NewKind::Regular => (FileKind::Regular, Content::File(Vec::new())),
            NewKind::Directory => (FileKind::Directory, Content::directory(dentry.parent)),
            NewKind::Symlink(target) => {
                let target = Bytes::copy_from_slice(target);
                (FileKind::Symlink, Content::Symlink(target))
            }
            NewKind::Special(special) => (FileKind::Special(special), Content::Nothing),
        };
        if open.is_some() && kind != FileKind::Regular {
            return Err(FsError::InvalidArgument("only files are opened"));
        }
        let mut tree = self.tree();
        if let Some(inode) = tree.made_before(by) {
            tree.hold(inode)?;
            return Ok(Made::new(entry(&tree, inode)?));
        }
        let found = tree.find(dentry)?;
        let before = tree.attributes(dentry.parent)?;
        let inode = match found {
            Some(inode) => {
                let is_file = tree.attributes(inode)?.kind == FileKind::Regular;
                let may_be_there = match new.exclusivity {
                    Exclusivity::TakeExisting => kind == FileKind::Regular && is_file,
                    Exclusivity::New => false,
                    Exclusivity::Verified(number) => tree.verifier(inode)? == Some(number),
                };
                if !may_be_there {
                    return Err(FsError::AlreadyExists);
                }
                inode
            }
            None => {
                let entered = AccessMask::WRITE.union(AccessMask::EXECUTE);
                permission::check(&before, by, entered)?;
                let file = (kind, new.permissions);
                let (gid, permissions) = permission::of_new_file(&before, by, file);
                let inode = tree.add(dentry, (kind, content), clock::wall_time())?;
                let attributes = tree.attributes_mut(inode)?;
                (attributes.uid, attributes.gid) = (by.uid, gid);
                attributes.permissions = permissions;
                if let Exclusivity::Verified(number) = new.exclusivity {
                    tree.verify(inode, number)?;
                }
                inode
            }
        };
        if open.is_some_and(|options| options.truncate) {
            tree.resize(inode, 0, clock::wall_time())?;
        }
        let opened = open.map(|_| self.opened(&mut tree, inode)).transpose()?;
        if found.is_none() {
            tree.remember(by, inode);
        }
        tree.hold(inode)?;
        Ok(Made {
            entry: entry(&tree, inode)?,
            opened,
            existed: found.is_some(),
            directory: Change {
                before: Some(before.brief()),
                after: Some(tree.attributes(dentry.parent)?),
            },
        })
    }

    async fn link(&self, by: &Identity, inode: Inode, dentry: Dentry<'_>) -> FsResult<Made> {
        let mut tree = self.tree();
        if tree.made_before(by).is_some() {
            tree.hold(inode)?;
            return Ok(Made::new(entry(&tree, inode)?));
        }
        let (file, before) = (tree.attributes(inode)?, tree.attributes(dentry.parent)?);
        if file.kind == FileKind::Directory {
            return Err(FsError::NotPermitted("a directory has one name"));
        }
        if tree.find(dentry)?.is_some() {
            return Err(FsError::AlreadyExists);
        }
        let entered = AccessMask::WRITE.union(AccessMask::EXECUTE);
        permission::check(&before, by, entered)?;
        if file.links >= LINKS_MAX {
            return Err(FsError::TooManyLinks);
        }
        tree.link(dentry, inode, clock::wall_time())?;
        tree.remember(by, inode);
        tree.hold(inode)?;
        Ok(Made::new(entry(&tree, inode)?))
    }

    async fn remove(
        &self,
        by: &Identity,
        dentry: Dentry<'_>,
        kind: RemoveKind,
    ) -> FsResult<Change> {
        let mut tree = self.tree();
        if tree.made_before(by).is_some() {
            return Ok(Change::UNTOLD);
        }
        let inode = tree.find(dentry)?.ok_or(FsError::NotFound)?;
        let (file, before) = (tree.attributes(inode)?, tree.attributes(dentry.parent)?);
        match (kind, file.kind == FileKind::Directory) {
            (RemoveKind::File, true) => return Err(FsError::IsADirectory),
            (RemoveKind::Directory, false) => return Err(FsError::NotADirectory),
            (RemoveKind::Directory, true) => tree.check_empty(inode)?,
            (RemoveKind::File, false) => {}
        }
        permission::check_removal(&before, &file, by)?;
        tree.unlink(dentry, clock::wall_time())?;
        tree.remember(by, inode);
        Ok(Change {
            before: Some(before.brief()),
            after: Some(tree.attributes(dentry.parent)?),
        })
    }

    async fn rename(
        &self,
        by: &Identity,
        source: Dentry<'_>,
        target: Dentry<'_>,
        mode: RenameMode,
    ) -> FsResult<Renamed> {
        let mut tree = self.tree();
        if tree.made_before(by).is_some() {
            return Ok(Renamed::default());
        }
        let moved = tree.find(source)?.ok_or(FsError::NotFound)?;
        let there = tree.find(target)?;
        let directory = tree.attributes(source.parent)?;
        permission::check_removal(&directory, &tree.attributes(moved)?, by)?;
        match (mode, there) {
            (RenameMode::Exchange, _) => {
                return Err(FsError::Unsupported("names are not exchanged here"));
            }
            (RenameMode::NoReplace, Some(_)) => return Err(FsError::AlreadyExists),
            (_, Some(there)) if there == moved => return Ok(Renamed::default()),
            _ => {}
        }
        tree.check_move(moved, target.parent)?;
        let now = clock::wall_time();
        if let Some(there) = there {
            tree.check_replaced(moved, there)?;
            tree.unlink(target, now)?;
        }
        tree.link(target, moved, now)?;
        tree.unlink(source, now)?;
        tree.moved(moved, target.parent);
        tree.remember(by, moved);
        Ok(Renamed::default())
    }

    async fn open(&self, by: &Identity, inode: Inode, options: OpenOptions) -> FsResult<Opened> {
        let mut tree = self.tree();
        let file = tree.attributes(inode)?;
        match file.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsADirectory),
            _ => return Err(FsError::InvalidArgument("only files are opened")),
        }
        let reads = if options.access.reads() {
            AccessMask::READ
        } else {
            AccessMask::EXISTS
        };
        let writes = if options.access.writes() {
            AccessMask::WRITE
        } else {
            AccessMask::EXISTS
        };
        permission::check(&file, by, reads.union(writes))?;
        if options.truncate {
            tree.resize(inode, 0, clock::wall_time())?;
        }
        self.opened(&mut tree, inode)
    }

    async fn read(&self, _by: &Identity, at: Position, length: u32) -> FsResult<Payload> {
        let inode = self.handle(at.handle)?;
        let mut tree = self.tree();
        let bytes = tree.bytes(inode)?;
        let start = bytes
            .len()
            .min(usize::try_from(at.offset).unwrap_or(usize::MAX));
        let end = bytes.len().min(start.saturating_add(length as usize));
        Ok(Bytes::copy_from_slice(&bytes[start..end]).into())
    }

    async fn write(
        &self,
        by: &Identity,
        handle: HandleId,
        place: WritePlace,
        data: Bytes,
    ) -> FsResult<Written> {
        let inode = self.handle(handle)?;
        let mut tree = self.tree();
        let before = tree.attributes(inode)?.brief();
        let offset = match place {
            WritePlace::At(offset) => offset,
            WritePlace::End(_) | WritePlace::EndInPieces(_) => before.size,
        };
        tree.write(inode, offset, &data, clock::wall_time())?;
        if !is_root(by) {
            let file = tree.attributes_mut(inode)?;
            file.permissions = permission::without_set_id(file.permissions);
        }
        Ok(Written {
            durability: Durability::Durable,
            moved_to: (offset != place.offset()).then_some(offset),
            file: Change {
                before: Some(before),
                after: Some(tree.attributes(inode)?),
            },
        })
    }

    async fn seek(&self, from: Position, wanted: Seek) -> FsResult<u64> {
        let inode = self.handle(from.handle)?;
        let size = self.tree().attributes(inode)?.size;
        // What was never written is kept as zeros: a hole is only what is behind the end.
        match wanted {
            _ if from.offset >= size => Err(FsError::NoSuchPlace),
            Seek::Data => Ok(from.offset),
            Seek::Hole => Ok(size),
        }
    }

    async fn copy_range(
        &self,
        by: &Identity,
        source: Position,
        target: Position,
        length: u64,
    ) -> FsResult<u64> {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let bytes = self.read(by, source, length).await?.to_vec();
        let place = WritePlace::At(target.offset);
        let copied = bytes.len() as u64;
        let is_one = self.handle(source.handle)? == self.handle(target.handle)?;
        if is_one && source.offset.abs_diff(target.offset) < copied {
            return Err(FsError::InvalidArgument("the ranges overlap"));
        }
        self.write(by, target.handle, place, bytes.into()).await?;
        Ok(copied)
    }

    async fn flush(&self, handle: HandleId) -> FsResult<()> {
        self.handle(handle).map(drop)
    }

    async fn sync(&self, handle: HandleId, _range: Range<u64>, _data_only: bool) -> FsResult<()> {
        self.handle(handle).map(drop)
    }

    async fn release(&self, handle: HandleId) {
        self.close(handle);
    }

    async fn open_directory(&self, by: &Identity, inode: Inode) -> FsResult<HandleId> {
        let mut tree = self.tree();
        tree.check_directory(inode)?;
        permission::check(&tree.attributes(inode)?, by, AccessMask::READ)?;
        Ok(self.opened(&mut tree, inode)?.handle)
    }

    async fn read_directory(
        &self,
        handle: HandleId,
        from: ListFrom<'_>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        let inode = self.handle(handle)?;
        let mut tree = self.tree();
        let names: Vec<_> = tree.names(inode)?.collect();
        let first = match from {
            ListFrom::Position(position) => usize::try_from(position).unwrap_or(usize::MAX),
            ListFrom::After(name) => names.partition_point(|(listed, _)| listed <= name),
        };
        for (index, (name, inode)) in names.iter().enumerate().skip(first) {
            if sink
                .push(index as u64 + 1, name, &entry(&tree, *inode)?)
                .is_break()
            {
                break;
            }
            if sink.detail() == Detail::Attributes {
                tree.hold(*inode)?;
            }
        }
        Ok(())
    }

    async fn release_directory(&self, handle: HandleId) {
        self.close(handle);
    }

    async fn xattr(&self, _by: &Identity, inode: Inode, name: &[u8]) -> FsResult<Bytes> {
        let mut tree = self.tree();
        let value = tree.xattrs(inode)?.get(name).cloned();
        value.ok_or(FsError::NoAttribute)
    }

    async fn xattrs(&self, _by: &Identity, inode: Inode) -> FsResult<Vec<Bytes>> {
        let mut tree = self.tree();
        let names = tree.xattrs(inode)?.keys();
        Ok(names.map(|name| Bytes::copy_from_slice(name)).collect())
    }

    async fn set_xattr(
        &self,
        by: &Identity,
        inode: Inode,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<()> {
        let mut tree = self.tree();
        if name == ListKind::Access.name() {
            return set_access_list(tree.attributes_mut(inode)?, by, (value, mode));
        }
        let xattrs = tree.xattrs(inode)?;
        match (mode, xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(FsError::AlreadyExists),
            (XattrMode::Replace, false) => return Err(FsError::NoAttribute),
            _ => {}
        }
        xattrs.insert(name.to_vec(), Bytes::copy_from_slice(value));
        Ok(())
    }

    async fn remove_xattr(&self, _by: &Identity, inode: Inode, name: &[u8]) -> FsResult<()> {
        let mut tree = self.tree();
        let removed = tree.xattrs(inode)?.remove(name);
        removed.map(drop).ok_or(FsError::NoAttribute)
    }

    async fn statistics(&self, _by: &Identity, _inode: Inode) -> FsResult<Statistics> {
        Ok(Statistics {
            block_size: BLOCK as u32,
            blocks: BLOCKS,
            blocks_free: BLOCKS / 2,
            blocks_available: BLOCKS / 2,
            files: BLOCKS,
            files_free: BLOCKS / 2,
            name_length_max: self.features().name_bytes_max,
        })
    }
}
