//! Handles to files of the volume and back.
//!
//! A stateless client never says that it lets go of a file. A volume with lasting numbers needs nothing of the kind: an
//! operation takes a reference and gives it back when it ends ([`Node`]). Of a volume without, a handle is good as long
//! as the volume keeps the inode, so a reference is kept for each file whose handle was given out ([`Kept`]), up to a
//! number, and until the volume wants it back.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use bytes::Bytes;
use penstock_base::{FileName, Mutex, clock, clock::Instant};
use penstock_vfs::{
    Attributes, Entry, Features, FileKind, HeldFile, Identity, Inode, Volume, Watcher,
};

use crate::{
    handles::{ExportId, Handle, Handles, Target},
    limits::{HELD_AT_LEAST, HELD_MAX, WANTED_MAX},
    protocol::nfs3::Status,
};

/// A file with a reference that goes back when this is dropped.
pub(crate) struct Node {
    volume: Arc<dyn Volume>,
    pub(crate) attributes: Attributes,
}

impl Node {
    /// The reference that came with `entry`.
    pub(crate) fn of(volume: &Arc<dyn Volume>, entry: Entry) -> Self {
        Self {
            volume: Arc::clone(volume),
            attributes: entry.attributes,
        }
    }

    pub(crate) fn inode(&self) -> Inode {
        self.attributes.inode
    }

    /// Fails unless it is a directory.
    pub(crate) fn directory(self) -> Result<Self, Status> {
        match self.attributes.kind {
            FileKind::Directory => Ok(self),
            _ => Err(Status::NOT_DIRECTORY),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.volume.forget(self.inode(), 1);
    }
}

/// The files that clients know.
pub(crate) struct Nodes {
    pub(crate) volume: Arc<dyn Volume>,
    features: Features,
    handles: Arc<Handles>,
    kept: Arc<Kept>,
}

impl Nodes {
    pub(crate) fn new(volume: Arc<dyn Volume>, handles: Arc<Handles>) -> Self {
        let features = volume.features();
        let kept = Arc::new(Kept::default());
        if !features.persistent_ids {
            let kept: Arc<dyn Watcher> = Arc::clone(&kept) as _;
            let watcher: Weak<dyn Watcher> = Arc::downgrade(&kept);
            volume.watch(watcher);
        }
        Self {
            volume,
            features,
            handles,
            kept,
        }
    }

    /// The file of a handle that is of an export.
    pub(crate) async fn find(
        &self,
        (by, export): (&Identity, ExportId),
        handle: &Bytes,
    ) -> Result<Node, Status> {
        match self.handles.decode(export, handle)? {
            Target::Lasting(id) => {
                let entry = self.volume.resolve(by, &id).await?;
                Ok(Node::of(&self.volume, entry))
            }
            Target::Root => self.held(by, Inode::ROOT).await,
            Target::Passing { inode, generation } => {
                let node = self.held(by, inode).await?;
                match node.attributes.generation == generation {
                    true => Ok(node),
                    false => Err(Status::STALE),
                }
            }
        }
    }

    /// A file that the volume knows, as it is now.
    async fn held(&self, by: &Identity, inode: Inode) -> Result<Node, Status> {
        let mut node = Node::of(&self.volume, self.volume.hold(by, inode).await?);
        node.attributes = self.volume.attributes(by, inode).await?.attributes;
        self.kept.use_now(inode);
        Ok(node)
    }

    /// The root.
    pub(crate) async fn root(&self, by: &Identity) -> Result<Node, Status> {
        self.held(by, Inode::ROOT).await
    }

    /// The handle of a file in an export, which is good from now on.
    pub(crate) fn handle(&self, export: ExportId, node: &Node) -> Handle {
        let inode = node.inode();
        if self.features.persistent_ids
            && let Some(id) = self.volume.node_id(inode)
        {
            return self.handles.encode(export, &Target::Lasting(id));
        }
        if inode == Inode::ROOT {
            return self.handles.encode(export, &Target::Root);
        }
        let generation = node.attributes.generation;
        let target = Target::Passing { inode, generation };
        self.handles.encode(export, &target)
    }

    /// The same of a file whose reference nobody needs any more.
    pub(crate) fn handle_for_ever(&self, export: ExportId, node: Node) -> Handle {
        let handle = self.handle(export, &node);
        if !self.features.persistent_ids && node.inode() != Inode::ROOT {
            drop(self.kept.keep(node));
        }
        handle
    }

    /// Gives back what the volume wants, as far as no client has used it for a while.
    pub(crate) fn sweep(&self) {
        drop(self.kept.give_back());
    }
}

/// References to files whose handles clients have, and what the volume wants back of them.
#[derive(Default)]
struct Kept {
    files: Mutex<HashMap<Inode, (Node, Instant)>>,
    wanted: Mutex<Vec<Inode>>,
}

impl Kept {
    fn use_now(&self, inode: Inode) {
        if let Some((_, used)) = self.files.lock().get_mut(&inode) {
            *used = clock::now();
        }
    }

    /// Keeps a reference. What is returned is one too many; it is dropped without the lock, for volumes have their own.
    fn keep(&self, node: Node) -> Vec<Node> {
        let mut files = self.files.lock();
        let now = clock::now();
        let replaced = files.insert(node.inode(), (node, now));
        let mut surplus: Vec<_> = replaced.map(|(node, _)| node).into_iter().collect();
        if files.len() > HELD_MAX {
            // A tenth at once, so that this is rare.
            let mut times: Vec<_> = files.values().map(|(_, used)| *used).collect();
            let (_, limit, _) = times.select_nth_unstable(HELD_MAX / 10);
            let limit = *limit;
            let old = files.extract_if(|_, (_, used)| *used <= limit);
            surplus.extend(old.map(|(_, (node, _))| node));
        }
        surplus
    }

    fn give_back(&self) -> Vec<Node> {
        let wanted = std::mem::take(&mut *self.wanted.lock());
        let mut files = self.files.lock();
        let is_idle = |used: &Instant| used.elapsed() >= HELD_AT_LEAST;
        let idle = wanted.into_iter().filter_map(|inode| {
            let (_, used) = files.get(&inode)?;
            is_idle(used).then(|| files.remove(&inode))?
        });
        idle.map(|(node, _)| node).collect()
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.files.lock().len();
        f.debug_struct("Kept").field("files", &count).finish()
    }
}

impl Watcher for Kept {
    fn references_wanted(&self, held: Vec<HeldFile>) {
        let mut wanted = self.wanted.lock();
        let room = WANTED_MAX.saturating_sub(wanted.len());
        wanted.extend(held.into_iter().take(room).map(|held| held.inode));
    }

    fn content_changed(&self, _inode: Inode) {
        // Nothing of the content is kept here, and nobody can tell a client.
    }

    fn attributes_changed(&self, _inode: Inode) {}

    fn name_changed(&self, _parent: Inode, _name: &FileName) {}
}
