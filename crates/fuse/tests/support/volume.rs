//! A small file system in memory.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{FileName, FsError, FsResult, Payload, clock};
use penstock_vfs::{
    AttributeChanges, Change, Dentry, Detail, DirectorySink, Entry, Exclusivity, Features,
    FileKind, HandleId, Identity, Inode, ListFrom, LockTable, Locks, Lookup, Made, New, NewKind,
    OpenOptions, Opened, Position, RemoveKind, RenameMode, Renamed, Statistics, TimeChange, Volume,
    WritePlace, Written,
};

use super::{
    hooks::{Hooks, Stop},
    node::{Content, Tree},
};

/// How long entries are valid. Short enough that a test sees changes made behind the kernel.
pub const TTL: Duration = Duration::from_millis(200);

pub struct MemoryVolume {
    tree: Mutex<Tree>,
    pub hooks: Hooks,
    /// Whether handles are opened with `direct`.
    pub direct: bool,
    pub writes: Mutex<Vec<WriteSeen>>,
    locks: Option<Box<dyn Locks>>,
}

/// Where the data of a write lay.
#[derive(Debug, Clone, Copy)]
pub struct WriteSeen {
    pub length: usize,
    pub address: usize,
}

/// What stops writes of a file, and not its reads.
pub fn writes_of(name: &str) -> String {
    format!("writes of {name}")
}

impl MemoryVolume {
    pub fn new() -> Arc<Self> {
        Self::with_direct(false)
    }

    pub fn with_direct(direct: bool) -> Arc<Self> {
        Arc::new(Self::of(direct, None))
    }

    /// With locks of its own.
    pub fn with_locks() -> Arc<Self> {
        Self::with_locks_of(LockTable::default())
    }

    /// With these locks.
    pub fn with_locks_of(locks: impl Locks + 'static) -> Arc<Self> {
        Arc::new(Self::of(false, Some(Box::new(locks))))
    }

    fn of(direct: bool, locks: Option<Box<dyn Locks>>) -> Self {
        Self {
            tree: Mutex::new(Tree::new()),
            hooks: Hooks::default(),
            direct,
            writes: Mutex::default(),
            locks,
        }
    }

    /// With a file `gated` of 100 bytes, whose reads and writes wait at the gate.
    pub fn gated(direct: bool) -> Arc<Self> {
        let volume = Self::with_direct(direct);
        volume.add_file("gated", vec![7; 100]);
        volume.hooks.stop("gated", Stop::Gate);
        volume
    }

    /// Adds a file to the root behind the kernel's back.
    pub fn add_file(&self, name: &str, content: Vec<u8>) -> Inode {
        let mut tree = self.tree();
        let inode = tree.add(name, Content::File(content), 0o644);
        tree.children(Inode::ROOT)
            .unwrap()
            .insert(name.into(), inode);
        inode
    }

    /// The kernel may believe for an hour what it is told.
    pub fn is_believed(&self) {
        self.tree().ttl = Duration::from_secs(3600);
    }

    /// Gives a file of the root another name behind the kernel's back.
    pub fn rename_behind(&self, name: &str, new_name: &str) {
        let mut tree = self.tree();
        let root = tree.children(Inode::ROOT).unwrap();
        let inode = root.remove(name).unwrap();
        root.insert(new_name.into(), inode);
    }

    /// Replaces content behind the kernel's back.
    pub fn replace(&self, inode: Inode, content: Vec<u8>) {
        *self.tree().file(inode).unwrap() = content;
    }

    pub fn violations(&self) -> Vec<String> {
        self.tree().violations.clone()
    }

    pub fn open_handles(&self) -> usize {
        self.tree().handles.len()
    }

    pub fn references(&self) -> u64 {
        self.tree().nodes.values().map(|node| node.references).sum()
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap()
    }

    fn opened(&self, handle: HandleId) -> Opened {
        Opened {
            passes_once: self.direct,
            closes_silently: false,
            ..Opened::new(handle)
        }
    }

    fn make_node(
        &self,
        parent: Inode,
        name: &FileName,
        content: Content,
        bits: u16,
    ) -> FsResult<Inode> {
        let mut tree = self.tree();
        if tree.child(parent, name)?.is_some() {
            return Err(FsError::AlreadyExists);
        }
        let name = text(name).ok_or(FsError::NameNotUtf8)?;
        let inode = tree.add(name, content, bits);
        tree.children(parent)?.insert(name.into(), inode);
        Ok(inode)
    }
}

#[async_trait]
impl Volume for MemoryVolume {
    fn features(&self) -> Features {
        Features {
            random_writes: true,
            saves_on_close: true,
            changes_elsewhere: self.locks.is_some(),
            ..Features::READ_ONLY
        }
    }

    fn locks(&self) -> Option<&dyn Locks> {
        self.locks.as_deref()
    }

    async fn parent(&self, _: &Identity, directory: Inode) -> FsResult<Entry> {
        let mut tree = self.tree();
        let parent = tree.parent(directory)?;
        tree.refer(parent)
    }

    async fn hold(&self, _: &Identity, inode: Inode) -> FsResult<Entry> {
        self.tree().refer(inode)
    }

    async fn lookup(&self, _: &Identity, dentry: Dentry<'_>) -> FsResult<Lookup> {
        let Dentry { parent, name } = dentry;
        self.hooks.delay().await;
        self.hooks
            .at_lookup(text(name).ok_or(FsError::NotFound)?)
            .await?;
        let mut tree = self.tree();
        match tree.child(parent, name)? {
            Some(inode) => Ok(Lookup::Found(tree.refer(inode)?)),
            None => Ok(Lookup::Absent(tree.ttl)),
        }
    }

    fn forget(&self, inode: Inode, count: u64) {
        self.tree().forget(inode, count);
    }

    async fn attributes(&self, _: &Identity, inode: Inode) -> FsResult<Entry> {
        self.hooks.delay().await;
        self.tree().entry(inode)
    }

    async fn set_attributes(
        &self,
        _: &Identity,
        inode: Inode,
        changes: AttributeChanges,
    ) -> FsResult<Entry> {
        self.hooks.delay().await;
        let mut tree = self.tree();
        if let Some(size) = changes.size {
            tree.file(inode)?.resize(size as usize, 0);
        }
        let attributes = &mut tree.node(inode)?.attributes;
        attributes.permissions = changes.permissions.unwrap_or(attributes.permissions);
        attributes.uid = changes.uid.unwrap_or(attributes.uid);
        attributes.gid = changes.gid.unwrap_or(attributes.gid);
        attributes.modified = match changes.modified {
            Some(TimeChange::To(time)) => time,
            Some(TimeChange::Now) => clock::wall_time(),
            None => attributes.modified,
        };
        tree.entry(inode)
    }

    async fn read_symlink(&self, _: &Identity, inode: Inode) -> FsResult<Bytes> {
        match &self.tree().node(inode)?.content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(FsError::InvalidArgument("not a link")),
        }
    }

    async fn make(
        &self,
        _: &Identity,
        Dentry { parent, name }: Dentry<'_>,
        new: New<'_>,
        open: Option<OpenOptions>,
    ) -> FsResult<Made> {
        let content = match new.kind {
            NewKind::Regular => {
                self.hooks.delay().await;
                Content::File(Vec::new())
            }
            NewKind::Directory => Content::Directory(Default::default()),
            NewKind::Symlink(target) => Content::Symlink(Bytes::copy_from_slice(target)),
            NewKind::Special(_) => return Err(FsError::NotPermitted("no pipes here")),
        };
        let there = self.tree().child(parent, name)?;
        let inode = match there {
            Some(inode) if new.exclusivity == Exclusivity::TakeExisting => inode,
            _ => self.make_node(parent, name, content, new.permissions)?,
        };
        let mut tree = self.tree();
        let opened = open.map(|options| {
            let handle = tree.open(inode, options.append);
            self.opened(handle)
        });
        Ok(Made {
            opened,
            existed: there.is_some(),
            ..Made::new(tree.refer(inode)?)
        })
    }

    async fn remove(
        &self,
        _: &Identity,
        Dentry { parent, name }: Dentry<'_>,
        kind: RemoveKind,
    ) -> FsResult<Change> {
        self.hooks.delay().await;
        let mut tree = self.tree();
        let inode = tree.child(parent, name)?.ok_or(FsError::NotFound)?;
        let is_directory = tree.node(inode)?.attributes.kind == FileKind::Directory;
        match (kind, is_directory) {
            (RemoveKind::File, true) => return Err(FsError::IsADirectory),
            (RemoveKind::Directory, false) => return Err(FsError::NotADirectory),
            (RemoveKind::Directory, true) if !tree.children(inode)?.is_empty() => {
                return Err(FsError::DirectoryNotEmpty);
            }
            _ => {}
        }
        tree.children(parent)?
            .remove(text(name).ok_or(FsError::NotFound)?);
        Ok(Change::UNTOLD)
    }

    async fn rename(
        &self,
        _: &Identity,
        source: Dentry<'_>,
        target: Dentry<'_>,
        mode: RenameMode,
    ) -> FsResult<Renamed> {
        let (source, target) = ((source.parent, source.name), (target.parent, target.name));
        let mut tree = self.tree();
        let moved = tree.child(source.0, source.1)?.ok_or(FsError::NotFound)?;
        let there = tree.child(target.0, target.1)?;
        if mode == RenameMode::NoReplace && there.is_some() {
            return Err(FsError::AlreadyExists);
        }
        tree.children(source.0)?
            .remove(text(source.1).ok_or(FsError::NotFound)?);
        if mode == RenameMode::Exchange {
            let there = there.ok_or(FsError::NotFound)?;
            tree.children(source.0)?
                .insert(text(source.1).ok_or(FsError::NotFound)?.into(), there);
        }
        tree.children(target.0)?
            .insert(text(target.1).ok_or(FsError::NameNotUtf8)?.into(), moved);
        Ok(Renamed::default())
    }

    async fn open(&self, _: &Identity, inode: Inode, options: OpenOptions) -> FsResult<Opened> {
        self.hooks.delay().await;
        let mut tree = self.tree();
        if options.truncate {
            tree.file(inode)?.clear();
        }
        let handle = tree.open(inode, options.append);
        Ok(self.opened(handle))
    }

    async fn read(&self, _: &Identity, at: Position, length: u32) -> FsResult<Payload> {
        let Position { handle, offset } = at;
        self.hooks.delay().await;
        let inode = self.tree().handle(handle)?.inode;
        let name = self.tree().node(inode)?.name.clone();
        self.hooks.at_gate(&name).await;
        let mut tree = self.tree();
        let content = tree.file(inode)?;
        let start = content.len().min(offset as usize);
        let end = content.len().min(start + length as usize);
        // Three slices, as a read over the borders of cached parts has.
        let wanted = &content[start..end];
        let mut payload = Payload::new();
        for slice in wanted.chunks((wanted.len() / 2).max(1)) {
            payload.push(Bytes::copy_from_slice(slice));
        }
        Ok(payload)
    }

    async fn write(
        &self,
        _: &Identity,
        handle: HandleId,
        place: WritePlace,
        data: Bytes,
    ) -> FsResult<Written> {
        self.hooks.delay().await;
        let inode = self.tree().handle(handle)?.inode;
        let name = self.tree().node(inode)?.name.clone();
        self.hooks.at_gate(&name).await;
        self.hooks.at_gate(&writes_of(&name)).await;
        self.writes.lock().unwrap().push(WriteSeen {
            length: data.len(),
            address: data.as_ptr() as usize,
        });
        let mut tree = self.tree();
        let open = tree.handle(handle)?;
        let content = tree.file(open.inode)?;
        let start = match place {
            WritePlace::At(offset) => offset as usize,
            WritePlace::End(_) | WritePlace::EndInPieces(_) => content.len(),
        };
        let end = start + data.len();
        content.resize(content.len().max(end), 0);
        content[start..end].copy_from_slice(&data);
        Ok(Written::ACCEPTED)
    }

    async fn flush(&self, handle: HandleId) -> FsResult<()> {
        self.hooks.delay().await;
        let inode = self.tree().handle(handle)?.inode;
        let name = self.tree().node(inode)?.name.clone();
        match name.as_str() {
            "no-space-at-close" => Err(FsError::NoSpace),
            "slow-to-close" => {
                self.hooks.at_gate(&name).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn sync(&self, handle: HandleId, _: Range<u64>, _: bool) -> FsResult<()> {
        self.tree().handle(handle).map(drop)
    }

    async fn release(&self, handle: HandleId) {
        self.tree().close(handle);
    }

    async fn open_directory(&self, _: &Identity, inode: Inode) -> FsResult<HandleId> {
        let mut tree = self.tree();
        tree.children(inode)?;
        Ok(tree.open(inode, false))
    }

    async fn read_directory(
        &self,
        handle: HandleId,
        from: ListFrom<'_>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        let ListFrom::Position(position) = from else {
            return Err(FsError::Unsupported("the door counts"));
        };
        self.hooks.delay().await;
        let mut tree = self.tree();
        let inode = tree.handle(handle)?.inode;
        let children: Vec<_> = tree.children(inode)?.clone().into_iter().collect();
        for (index, (name, child)) in children.iter().enumerate().skip(position as usize) {
            let entry = tree.entry(*child)?;
            let name = FileName::new(name.as_bytes()).expect("a name that was made");
            if sink.push(index as u64 + 1, &name, &entry).is_break() {
                break;
            }
            if sink.detail() == Detail::Attributes {
                tree.node(*child)?.references += 1;
            }
        }
        Ok(())
    }

    async fn release_directory(&self, handle: HandleId) {
        self.tree().close(handle);
    }

    async fn statistics(&self, _: &Identity, _: Inode) -> FsResult<Statistics> {
        Ok(Statistics {
            block_size: 4096,
            blocks: 1000,
            blocks_free: 600,
            blocks_available: 500,
            files: 500,
            files_free: 400,
            name_length_max: 255,
        })
    }
}

/// Names of this volume are text.
pub fn text(name: &FileName) -> Option<&str> {
    std::str::from_utf8(name.as_bytes()).ok()
}
