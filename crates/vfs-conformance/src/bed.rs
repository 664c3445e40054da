//! A volume under test, used as a door uses it.

use std::{any::Any, collections::BTreeMap, ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use penstock_base::{FileName, FsError, FsResult};
use penstock_vfs::{
    AttributeChanges, Attributes, Dentry, Detail, DirectorySink, Entry, Exclusivity, HandleId,
    Identity, Inode, ListFrom, Lookup, Made, New, NewKind, OpenOptions, Position, RemoveKind,
    RenameMode, Volume, WritePlace,
};

/// Files that every volume under test holds in the beginning.
pub const FILES: [(&str, &[u8]); 6] = [
    ("a", b"the first"),
    ("d/b", b"0123456789"),
    ("d/c", b"x"),
    ("d/e/f", b"deep"),
    ("d/e-", b"beside a directory in the order of bytes"),
    ("z", b"the last"),
];

/// A volume to test, with whatever must live as long.
pub struct Ground {
    volume: Arc<dyn Volume>,
    /// Whether it was made with [`FILES`], because nothing can be written to it.
    is_filled: bool,
    again: Option<Arc<dyn Volume>>,
    _kept: Box<dyn Any + Send + Sync>,
}

impl Ground {
    /// An empty volume that can be written.
    pub fn writable(volume: Arc<dyn Volume>) -> Self {
        Self {
            volume,
            is_filled: false,
            again: None,
            _kept: Box::new(()),
        }
    }

    /// A volume that cannot be changed and holds [`FILES`].
    pub fn filled(volume: Arc<dyn Volume>) -> Self {
        Self {
            is_filled: true,
            ..Self::writable(volume)
        }
    }

    /// The same, with what serves the same files after a restart, or beside it: a volume with
    /// [`persistent_ids`](penstock_vfs::Features::persistent_ids) must have that.
    #[must_use]
    pub fn served_again_by(self, volume: Arc<dyn Volume>) -> Self {
        Self {
            again: Some(volume),
            ..self
        }
    }

    /// The same, with something that must live as long.
    #[must_use]
    pub fn keeping(self, kept: impl Any + Send + Sync) -> Self {
        Self {
            _kept: Box::new(kept),
            ..self
        }
    }
}

/// A volume under test.
pub struct Bed {
    ground: Ground,
    /// Who asks.
    pub by: Identity,
}

/// Takes some entries, and then is full.
struct Receiver {
    detail: Detail,
    room: usize,
    taken: Vec<Listed>,
}

/// An entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Where a listing goes on after it.
    pub next: u64,
    /// Its attributes.
    pub attributes: Attributes,
}

impl DirectorySink for Receiver {
    fn detail(&self) -> Detail {
        self.detail
    }

    fn push(&mut self, next: u64, name: &FileName, entry: &Entry) -> ControlFlow<()> {
        if self.taken.len() == self.room {
            return ControlFlow::Break(());
        }
        self.taken.push(Listed {
            name: name.to_string(),
            next,
            attributes: entry.attributes.clone(),
        });
        ControlFlow::Continue(())
    }
}

/// A name.
pub(crate) fn name(text: &str) -> FileName {
    FileName::new(text.as_bytes()).unwrap()
}

/// A file, a directory or a link that must not be there yet.
pub(crate) fn new(kind: NewKind<'_>) -> New<'_> {
    New {
        kind,
        permissions: 0o750,
        umask: 0,
        exclusivity: Exclusivity::New,
    }
}

impl Bed {
    /// The volume of `ground`, holding [`FILES`].
    pub async fn over(ground: Ground) -> Self {
        let bed = Self {
            by: Identity::root(),
            ground,
        };
        if !bed.ground.is_filled {
            for (path, content) in FILES {
                bed.fill(path, content).await;
            }
        }
        bed
    }

    /// The volume.
    pub fn volume(&self) -> &dyn Volume {
        &*self.ground.volume
    }

    /// What serves the same files as the volume after a restart.
    pub fn volume_again(&self) -> &dyn Volume {
        let again = self.ground.again.as_deref();
        again.expect("a volume with persistent ids is tested with `Ground::served_again_by`")
    }

    /// Whether the volume can be changed.
    pub fn is_writable(&self) -> bool {
        !self.ground.is_filled
    }

    async fn fill(&self, path: &str, content: &[u8]) {
        let mut at = Inode::ROOT;
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return self.store(at, part, content).await;
            }
            at = match self.find(at, part).await {
                Ok(found) => found.inode,
                Err(_) => {
                    self.make(at, part, new(NewKind::Directory))
                        .await
                        .unwrap()
                        .inode
                }
            };
        }
    }

    /// Writes a file whole, new or not.
    pub async fn store(&self, parent: Inode, text: &str, content: &[u8]) {
        let exclusivity = Exclusivity::TakeExisting;
        let file = New {
            exclusivity,
            ..new(NewKind::Regular)
        };
        let options = OpenOptions {
            truncate: true,
            ..OpenOptions::WRITE
        };
        let made = self.made(parent, text, file, Some(options)).await.unwrap();
        let handle = made.opened.unwrap().handle;
        self.write(handle, WritePlace::At(0), content)
            .await
            .unwrap();
        self.close(handle).await.unwrap();
    }

    /// Looks a name up, and keeps the reference.
    pub async fn find(&self, parent: Inode, text: &str) -> FsResult<Attributes> {
        let name = name(text);
        let found = self.volume().lookup(&self.by, Dentry::new(parent, &name));
        match found.await? {
            Lookup::Found(entry) => Ok(entry.attributes),
            Lookup::Absent(_) => Err(FsError::NotFound),
        }
    }

    /// What a path leads to.
    pub async fn at(&self, path: &str) -> FsResult<Attributes> {
        let mut at = self
            .volume()
            .attributes(&self.by, Inode::ROOT)
            .await?
            .attributes;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at = self.find(at.inode, part).await?;
        }
        Ok(at)
    }

    /// Makes something.
    pub async fn make(&self, parent: Inode, text: &str, new: New<'_>) -> FsResult<Attributes> {
        Ok(self.made(parent, text, new, None).await?.entry.attributes)
    }

    /// Makes something, and opens it if told how.
    pub async fn made(
        &self,
        parent: Inode,
        text: &str,
        new: New<'_>,
        open: Option<OpenOptions>,
    ) -> FsResult<Made> {
        let name = name(text);
        let dentry = Dentry::new(parent, &name);
        self.volume().make(&self.by, dentry, new, open).await
    }

    /// Opens a file.
    pub async fn open(&self, inode: Inode, options: OpenOptions) -> FsResult<HandleId> {
        let opened = self.volume().open(&self.by, inode, options).await?;
        Ok(opened.handle)
    }

    /// Writes, and says what the volume says.
    pub async fn write(&self, handle: HandleId, place: WritePlace, data: &[u8]) -> FsResult<()> {
        let data = Bytes::copy_from_slice(data);
        let written = self.volume().write(&self.by, handle, place, data);
        written.await.map(drop)
    }

    /// Reads through a handle.
    pub async fn read(&self, handle: HandleId, offset: u64, length: u32) -> FsResult<Vec<u8>> {
        let at = Position { handle, offset };
        let payload = self.volume().read(&self.by, at, length).await?;
        Ok(payload.to_vec())
    }

    /// The whole of a small file.
    pub async fn content(&self, path: &str) -> FsResult<Vec<u8>> {
        let handle = self
            .open(self.at(path).await?.inode, OpenOptions::READ)
            .await?;
        let read = self.read(handle, 0, 1 << 20).await;
        self.volume().release(handle).await;
        read
    }

    /// Closes the only descriptor of a handle.
    pub async fn close(&self, handle: HandleId) -> FsResult<()> {
        let flushed = self.volume().flush(handle).await;
        self.volume().release(handle).await;
        flushed
    }

    /// Removes a name.
    pub async fn remove(&self, parent: Inode, text: &str, kind: RemoveKind) -> FsResult<()> {
        let name = name(text);
        let removed = self
            .volume()
            .remove(&self.by, Dentry::new(parent, &name), kind);
        removed.await.map(drop)
    }

    /// Moves a name within a directory.
    pub async fn rename(
        &self,
        parent: Inode,
        (from, to): (&str, &str),
        mode: RenameMode,
    ) -> FsResult<()> {
        let (from, to) = (name(from), name(to));
        let (source, target) = (Dentry::new(parent, &from), Dentry::new(parent, &to));
        let renamed = self.volume().rename(&self.by, source, target, mode);
        renamed.await.map(drop)
    }

    /// Changes attributes.
    pub async fn change(&self, inode: Inode, changes: AttributeChanges) -> FsResult<Attributes> {
        let changed = self.volume().set_attributes(&self.by, inode, changes);
        Ok(changed.await?.attributes)
    }

    /// Lists some entries through a handle.
    pub async fn list_some(
        &self,
        handle: HandleId,
        from: ListFrom<'_>,
        (room, detail): (usize, Detail),
    ) -> FsResult<Vec<Listed>> {
        let mut receiver = Receiver {
            detail,
            room,
            taken: Vec::new(),
        };
        let listed = self.volume().read_directory(handle, from, &mut receiver);
        listed.await.map(|()| receiver.taken)
    }

    /// Lists some entries without a handle.
    pub async fn list_after(
        &self,
        directory: Inode,
        from: ListFrom<'_>,
        room: usize,
    ) -> FsResult<Vec<Listed>> {
        let mut receiver = Receiver {
            detail: Detail::Attributes,
            room,
            taken: Vec::new(),
        };
        let listed = self.volume().list(&self.by, directory, from, &mut receiver);
        listed.await.map(|()| receiver.taken)
    }

    /// Every entry of a directory by its name, listed `room` at a time.
    pub async fn list(&self, directory: Inode, room: usize) -> BTreeMap<String, Listed> {
        let handle = self
            .volume()
            .open_directory(&self.by, directory)
            .await
            .unwrap();
        let (mut all, mut position) = (BTreeMap::new(), 0);
        loop {
            let from = ListFrom::Position(position);
            let some = self
                .list_some(handle, from, (room, Detail::Attributes))
                .await
                .unwrap();
            let Some(last) = some.last() else { break };
            position = last.next;
            for listed in some {
                let twice = all.insert(listed.name.clone(), listed);
                assert_eq!(twice, None, "listed twice");
            }
        }
        self.volume().release_directory(handle).await;
        all
    }
}
