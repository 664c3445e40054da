//! What the nodes cost that somebody holds, and how doors are asked to hold fewer.
//!
//! A kernel holds every name that a program looked at until it needs the memory itself, which on a
//! large machine is never. So nodes may take a share of the budget; beyond it the door is asked to
//! give back what nobody uses, those first that were looked up longest ago. A file that was looked
//! up once more since is passed over once. What is in use stays, however much that is: nodes are
//! paid for as far as memory is to spare, and a door that holds one cannot be refused.
//!
//! What was freed is counted, too, so that the allocator gives it back; see [`crate::freed`].

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use penstock_base::MemoryBudget;
use penstock_vfs::{HeldFile, Inode, Watcher, Watchers};
use tokio::sync::Notify;

use crate::inode::{Node, Tree, charge::Charge, directory::SMALL_TABLE};

/// The share of the memory budget that nodes may take before a door is asked to hold fewer.
const BUDGET_SHARE: u64 = 4;
/// Nodes that a door is asked for at once: a share of all, one in this many.
const ASKED_SHARE: usize = 8;
/// The fewest and the most of them. Rarely and many is better than often and few: a kernel that forgets
/// something while a listing is on its way to it asks for the attributes once more.
const ASKED_MIN: usize = 1024;
const ASKED_MAX: usize = 32 * ASKED_MIN;
/// The part of what nodes may take after which it is worth to have the allocator give it back: one
/// in this many.
const FREED_SHARE: u64 = 16;

/// The account of nodes that somebody holds.
#[derive(Debug)]
pub(super) struct Holding {
    charge: Charge,
    bytes: u64,
    /// Bytes beyond which the door is asked to hold fewer.
    limit: u64,
    doors: Watchers,
    /// In the order in which they were looked up; some have gone since.
    order: VecDeque<Inode>,
    /// Nodes that the door was asked for last, and nodes that were added since.
    asked: usize,
    added: usize,
    freed: u64,
    much_freed: Arc<Notify>,
}

impl Holding {
    pub(super) fn new(budget: Arc<MemoryBudget>) -> Self {
        Self {
            bytes: 0,
            limit: budget.total() / BUDGET_SHARE,
            charge: Charge::new(budget),
            doors: Watchers::default(),
            order: VecDeque::new(),
            asked: ASKED_MIN,
            added: 0,
            freed: 0,
            much_freed: Arc::default(),
        }
    }

    fn change(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.charge.cover(bytes);
    }

    /// Whether it is time to ask the door, again if it gave back less than half.
    fn has_too_many(&self) -> bool {
        self.bytes > self.limit && self.added >= self.asked / 2 && !self.doors.is_empty()
    }
}

impl Drop for Holding {
    /// Whoever waits for it shall see that nothing comes any more.
    fn drop(&mut self) {
        self.much_freed.notify_one();
    }
}

impl Tree {
    /// Makes a door known that holds nodes.
    pub(crate) fn watch(&mut self, door: Weak<dyn Watcher>) {
        self.holding.doors.add(door);
    }

    /// Tells the doors that what they keep of a file's content is not what the file holds.
    pub(crate) fn tell_content_changed(&self, inode: Inode) {
        self.holding.doors.content_changed(inode);
    }

    /// Rings when so much was freed that the allocator should give it back.
    pub(crate) fn much_freed(&self) -> Arc<Notify> {
        Arc::clone(&self.holding.much_freed)
    }

    /// Pays for a new node and asks for older ones if there are too many.
    pub(super) fn begin_holding(&mut self, inode: Inode, cost: u64) {
        self.resume_holding(cost);
        self.holding.order.push_back(inode);
        self.holding.added += 1;
        if self.holding.order.len() > 2 * self.nodes.len() + SMALL_TABLE {
            let nodes = &self.nodes;
            self.holding.order.retain(|inode| nodes.contains_key(inode));
            self.holding.order.shrink_to(2 * nodes.len());
        }
        if self.holding.has_too_many() {
            self.ask_back();
        }
    }

    /// Pays for a node that nobody held for a while.
    pub(super) fn resume_holding(&mut self, cost: u64) {
        self.holding.change(self.holding.bytes + cost);
    }

    /// Gives back the account of a node.
    pub(super) fn end_holding(&mut self, cost: u64) {
        let room = self.nodes.capacity();
        if room > SMALL_TABLE && self.nodes.len() < room / 8 {
            self.nodes.shrink_to(room / 4);
        }
        let holding = &mut self.holding;
        holding.change(holding.bytes.saturating_sub(cost));
        holding.freed += cost;
        if holding.freed > holding.limit / FREED_SHARE {
            holding.freed = 0;
            holding.much_freed.notify_one();
        }
    }

    fn ask_back(&mut self) {
        let share = self.nodes.len() / ASKED_SHARE;
        self.holding.asked = share.clamp(ASKED_MIN, ASKED_MAX);
        self.holding.added = 0;
        let chosen = self.longest_unused(self.holding.asked);
        if !chosen.is_empty() {
            self.holding.doors.references_wanted(chosen);
        }
    }

    /// Nodes that the door could give back, the longest unused first. Each goes to the end of the
    /// order: what is not given back is asked for again when its turn comes.
    fn longest_unused(&mut self, most: usize) -> Vec<HeldFile> {
        let mut chosen = Vec::with_capacity(most);
        for _ in 0..self.holding.order.len().min(4 * most) {
            let Some(inode) = self.holding.order.pop_front() else {
                break;
            };
            let Some(node) = self.nodes.get_mut(&inode) else {
                continue;
            };
            self.holding.order.push_back(inode);
            if !std::mem::take(&mut node.used) {
                chosen.extend(node.returnable(inode));
            }
            if chosen.len() >= most {
                break;
            }
        }
        chosen
    }
}

impl Node {
    /// What a door is told that is to give this node back, unless something else needs it.
    fn returnable(&self, inode: Inode) -> Option<HeldFile> {
        let place = self.place.as_ref()?;
        let is_held_only = self.lookups > 0 && self.pins == 0 && self.file.is_none();
        is_held_only.then(|| HeldFile {
            inode,
            parent: place.parent,
            name: place.name.as_file_name().clone(),
            is_directory: self.directory.is_some(),
        })
    }
}
