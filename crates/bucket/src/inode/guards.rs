//! The tree behind its lock, and the guards that give back what they took from it.

use std::sync::{Arc, Mutex};

use penstock_base::{
    FsResult, InMemory, MemoryBudget, Utf8Name,
    clock::{self, Instant},
};
use penstock_vfs::Inode;
use tokio::sync::Notify;

use crate::inode::{Known, Learned, Question, Tree, TreeSettings};

/// The tree of a volume, shared by everything that works on it.
#[derive(Debug)]
pub(crate) struct Namespace {
    tree: Mutex<Tree>,
    /// Somebody left the gate.
    pub(super) moved: Notify,
}

impl Namespace {
    pub(crate) fn new(budget: &Arc<MemoryBudget>, settings: TreeSettings) -> Arc<Self> {
        Arc::new(Self {
            tree: Mutex::new(Tree::new(budget, settings)),
            moved: Notify::new(),
        })
    }

    /// The tree. Held for some map operations, never across an await.
    pub(crate) fn lock(&self) -> InMemory<'_, Tree> {
        InMemory::lock(&self.tree)
    }

    /// The node that a name leads to, if it is in memory.
    pub(crate) fn hold(self: &Arc<Self>, parent: Inode, name: &Utf8Name) -> Option<Reference> {
        let inode = self.lock().hold(parent, name)?;
        Some(Reference::adopt(self, inode))
    }

    /// Whether a name leads to a node or is remembered to lead to something.
    pub(crate) fn has(&self, parent: Inode, name: &Utf8Name) -> bool {
        self.lock().entry(parent, name).is_some()
    }

    /// One more reference to a node.
    pub(crate) fn hold_again(self: &Arc<Self>, inode: Inode) -> FsResult<Reference> {
        self.lock().hold_again(inode)?;
        Ok(Reference::adopt(self, inode))
    }

    /// Begins a question to the store about names in `directory`.
    pub(crate) fn observe(self: &Arc<Self>, directory: Inode) -> FsResult<Observation> {
        let epoch = self.lock().begin_observation(directory)?;
        Ok(Observation {
            namespace: Arc::clone(self),
            directory,
            epoch,
            begun: clock::now(),
        })
    }
}

/// One reference to a node, given back on drop.
#[derive(Debug)]
pub(crate) struct Reference {
    namespace: Arc<Namespace>,
    inode: Inode,
    /// Whether somebody else gives it back.
    given_away: bool,
}

impl Reference {
    /// Takes over a reference that the tree counted already.
    pub(crate) fn adopt(namespace: &Arc<Namespace>, inode: Inode) -> Self {
        Self {
            namespace: Arc::clone(namespace),
            inode,
            given_away: false,
        }
    }

    pub(crate) fn inode(&self) -> Inode {
        self.inode
    }

    /// Leaves the reference to the caller of the volume, who will forget it.
    pub(crate) fn give_away(mut self) {
        self.given_away = true;
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        if !self.given_away {
            self.namespace.lock().forget(self.inode, 1);
        }
    }
}

/// A question to the store about names in a directory. While it lives, changes made here are
/// noted, so that its answer does not undo them.
#[derive(Debug)]
pub(crate) struct Observation {
    namespace: Arc<Namespace>,
    directory: Inode,
    epoch: u64,
    begun: Instant,
}

impl Observation {
    /// When the question was asked.
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// Applies the answer about one name. Returns `false` if it was outdated and is of no use.
    pub(crate) fn settle(&self, name: &Utf8Name, answer: Option<Known>) -> bool {
        self.apply(name, Question::of_the_name(self.epoch), answer)
    }

    /// The same of a file that a handle asks about, which goes on with what the store has now if nobody has seen
    /// what it had.
    pub(crate) fn settle_for_handle(&self, name: &Utf8Name, answer: Option<Known>) -> bool {
        let question = Question {
            for_handle: true,
            ..Question::of_the_name(self.epoch)
        };
        self.apply(name, question, answer)
    }

    fn apply(&self, name: &Utf8Name, question: Question, answer: Option<Known>) -> bool {
        let place = (self.directory, name);
        let mut tree = self.namespace.lock();
        let holds = tree.is_believable(place, self.epoch, answer.as_ref());
        tree.settle(place, question, answer);
        holds
    }

    /// Takes what was listed for all that there is in the directory. Returns whether memory has room for that
    /// and nothing changed that speaks against it.
    pub(crate) fn learn(&self, learned: Learned) -> bool {
        let mut tree = self.namespace.lock();
        tree.learn(self.directory, self.epoch, learned)
    }

    /// Applies the answer about one name and returns what it then leads to.
    pub(crate) fn resolve(&self, name: &Utf8Name, answer: Option<Known>) -> Resolved {
        let place = (self.directory, name);
        let mut tree = self.namespace.lock();
        let outdated = !tree.is_believable(place, self.epoch, answer.as_ref());
        let found = tree.settle_and_hold(place, self.epoch, answer);
        drop(tree);
        match found {
            Some(inode) => Resolved::Found(Reference::adopt(&self.namespace, inode)),
            None if outdated => Resolved::Outdated,
            None => Resolved::Absent,
        }
    }
}

/// What a name leads to after a question about it was answered.
#[derive(Debug)]
pub(crate) enum Resolved {
    Found(Reference),
    Absent,
    /// The name changed here since the question was asked, and memory does not know it.
    Outdated,
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.namespace
            .lock()
            .end_observation(self.directory, self.epoch);
    }
}

/// A change of the namespace is under way while this lives. See [`Namespace::enter`].
#[derive(Debug)]
pub(crate) struct Entered {
    namespace: Arc<Namespace>,
    id: u64,
}

impl Entered {
    pub(super) fn new(namespace: &Arc<Namespace>, id: u64) -> Self {
        Self {
            namespace: Arc::clone(namespace),
            id,
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.namespace.lock().leave(self.id);
        self.namespace.moved.notify_waiters();
    }
}
