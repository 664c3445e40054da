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
    /// soon, whatever else it is told.
    fn content_changed(&self, inode: Inode);

    /// Owner, mode, times, size or links of the file are others than the door was given, and its content is the same.
    fn attributes_changed(&self, inode: Inode);

    /// What the door was given under this name is not true any more, whether it was a file or that there is none.
    fn name_changed(&self, parent: Inode, name: &FileName);
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

    fn attributes_changed(&self, inode: Inode) {
        for door in self.doors() {
            door.attributes_changed(inode);
        }
    }

    fn name_changed(&self, parent: Inode, name: &FileName) {
        for door in self.doors() {
            door.name_changed(parent, name);
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

        fn attributes_changed(&self, inode: Inode) {
            self.0.lock().unwrap().push(inode);
        }

        fn name_changed(&self, parent: Inode, _name: &FileName) {
            self.0.lock().unwrap().push(parent);
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
        watchers.attributes_changed(Inode(4));
        watchers.name_changed(Inode(5), &FileName::new(b"name").unwrap());
        drop(first);
        let held = HeldFile {
            inode: Inode(3),
            parent: Inode::ROOT,
            name: FileName::new(b"name").unwrap(),
            is_directory: false,
        };
        watchers.references_wanted(vec![held]);
        let told = second.0.lock().unwrap().clone();
        assert_eq!(told, [2, 4, 5, 3].map(Inode));
        assert!(!watchers.is_empty());
        drop(second);
        assert!(watchers.is_empty());
    }
}
