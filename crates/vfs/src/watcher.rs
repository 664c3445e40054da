//! What a volume tells the doors that serve it.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use penstock_base::FileName;

use crate::Inode;

/// A file whose references a volume would like back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldFile {
    /// The file.
    pub inode: Inode,
    /// The directory that it is in.
    pub parent: Inode,
    /// Its name there.
    pub name: FileName,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// A door as its volume sees it.
///
/// Every method only takes note and never blocks: volumes call them while they hold locks. What a door
/// cannot do then it does later or, where that is harmless, never.
pub trait Watcher: Send + Sync + fmt::Debug {
    /// The volume needs room: references to `held` shall come back as calls of [`crate::Volume::forget`] as
    /// far as nobody uses them.
    fn references_wanted(&self, held: Vec<HeldFile>);

    /// The file holds something else than the door was given of it. What the door keeps of the content goes
    /// soon, or at the next open if that keeps nothing.
    fn content_changed(&self, inode: Inode);
}

/// The doors of a volume: what it tells them, it tells all. One that has gone hears nothing.
#[derive(Debug, Default)]
pub struct Watchers(Vec<Weak<dyn Watcher>>);

impl Watchers {
    /// Adds a door.
    pub fn add(&mut self, door: Weak<dyn Watcher>) {
        self.0.retain(|door| door.strong_count() > 0);
        self.0.push(door);
    }

    /// Whether no door is there to hear.
    pub fn is_empty(&self) -> bool {
        self.doors().next().is_none()
    }

    fn doors(&self) -> impl Iterator<Item = Arc<dyn Watcher>> {
        self.0.iter().filter_map(Weak::upgrade)
    }
}

impl Watcher for Watchers {
    fn references_wanted(&self, held: Vec<HeldFile>) {
        for door in self.doors() {
            door.references_wanted(held.clone());
        }
    }

    fn content_changed(&self, inode: Inode) {
        for door in self.doors() {
            door.content_changed(inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Door(Mutex<Vec<Inode>>);

    impl Watcher for Door {
        fn references_wanted(&self, held: Vec<HeldFile>) {
            let inodes = held.into_iter().map(|held| held.inode);
            self.0.lock().unwrap().extend(inodes);
        }

        fn content_changed(&self, inode: Inode) {
            self.0.lock().unwrap().push(inode);
        }
    }

    #[test]
    fn every_door_that_is_there_is_told() {
        let (first, second) = (Arc::new(Door::default()), Arc::new(Door::default()));
        let mut watchers = Watchers::default();
        for door in [&first, &second] {
            let door: Arc<dyn Watcher> = Arc::clone(door) as _;
            watchers.add(Arc::downgrade(&door));
        }
        watchers.content_changed(Inode(2));
        drop(first);
        let held = HeldFile {
            inode: Inode(3),
            parent: Inode::ROOT,
            name: FileName::new(b"name").unwrap(),
            is_directory: false,
        };
        watchers.references_wanted(vec![held]);
        assert_eq!(*second.0.lock().unwrap(), [Inode(2), Inode(3)]);
        assert!(!watchers.is_empty());
        drop(second);
        assert!(watchers.is_empty());
    }
}
