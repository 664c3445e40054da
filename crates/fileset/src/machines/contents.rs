//! Of which files doors may have old bytes.
//!
//! A door is told when others change a file, but who opens the file may be faster than what the door does about it. So an
//! open says itself that the content is another one, until it is certain that one such answer arrived: when the handle that
//! came with it is used.

use std::collections::HashMap;

use penstock_base::Mutex;
use penstock_vfs::{HandleId, Inode};

/// See the module. With the handle that came with the news, if one did.
#[derive(Debug, Default)]
pub(crate) struct Contents(Mutex<HashMap<Inode, Option<HandleId>>>);

impl Contents {
    /// Others changed the content of a file.
    pub(super) fn changed(&self, inode: Inode) {
        self.0.lock().insert(inode, None);
    }

    /// A file was opened. Returns whether what a door has of it is what it holds.
    pub(crate) fn opened(&self, inode: Inode, handle: HandleId) -> bool {
        match self.0.lock().get_mut(&inode) {
            None => true,
            Some(told) => {
                *told = Some(handle);
                false
            }
        }
    }

    /// A handle is used, so whoever opened it had the answer.
    pub(crate) fn arrived(&self, inode: Inode, handle: HandleId) {
        let mut changed = self.0.lock();
        if changed.get(&inode) == Some(&Some(handle)) {
            changed.remove(&inode);
        }
    }

    /// No door has anything of a file.
    pub(crate) fn forget(&self, inode: Inode) {
        self.0.lock().remove(&inode);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_news_until_an_answer_that_said_so_arrived() {
        let (contents, inode) = (Contents::default(), Inode(2));
        assert!(contents.opened(inode, HandleId(1)));
        contents.changed(inode);
        assert!(!contents.opened(inode, HandleId(2)));
        // Whoever opened the first one knew nothing of it, and the second one may be on its way.
        contents.arrived(inode, HandleId(1));
        assert!(!contents.opened(inode, HandleId(3)));
        contents.arrived(inode, HandleId(3));
        assert!(contents.opened(inode, HandleId(4)));
        contents.changed(inode);
        assert!(!contents.opened(inode, HandleId(5)));
        contents.changed(inode);
        contents.arrived(inode, HandleId(5));
        assert!(!contents.opened(inode, HandleId(6)));
    }
}
