//! The entries of an answer to READDIR or READDIRPLUS.

use std::{ops::ControlFlow, sync::Arc};

use penstock_base::FileName;
use penstock_vfs::{Detail, DirectorySink, Entry, Inode, Volume};

use crate::{
    nodes::Node,
    places::cookie_of,
    protocol::{nfs3::HANDLE_MAX, xdr::opaque_length},
};

/// Bytes of an entry beside its name: that there is one, its number and its cookie.
const ENTRY: usize = 4 + 8 + 8;
/// The same of its attributes and its handle, each with whether they are there.
const PLUS: usize = 4 + 84 + 4 + opaque_fixed(HANDLE_MAX);

const fn opaque_fixed(length: usize) -> usize {
    4 + length
}

/// Bytes that an entry takes at most.
pub(super) fn entry_bytes(name_length: usize, has_attributes: bool) -> usize {
    let plus = if has_attributes { PLUS } else { 0 };
    ENTRY + opaque_length(name_length) + plus
}

/// What an entry is called.
pub(super) enum ListedName {
    /// `.` or `..`.
    Dots(&'static [u8]),
    Name(FileName),
}

impl ListedName {
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Dots(dots) => dots,
            Self::Name(name) => name.as_bytes(),
        }
    }
}

/// An entry of a directory.
pub(super) struct Listed {
    pub(super) name: ListedName,
    pub(super) inode: Inode,
    pub(super) cookie: u64,
    /// The file, where its attributes are wanted.
    pub(super) node: Option<Node>,
}

/// Entries up to a number of bytes.
pub(super) struct Page {
    volume: Arc<dyn Volume>,
    /// Entries have room for attributes and handles.
    pub(super) is_plus: bool,
    /// They have them, too.
    pub(super) shows_files: bool,
    room: usize,
    pub(super) entries: Vec<Listed>,
    /// There was no room for another one.
    pub(super) is_full: bool,
}

impl Page {
    pub(super) fn new(volume: &Arc<dyn Volume>, is_plus: bool, room: usize) -> Self {
        Self {
            volume: Arc::clone(volume),
            is_plus,
            shows_files: false,
            room,
            entries: Vec::new(),
            is_full: false,
        }
    }

    /// The names in it.
    pub(super) fn names(&self) -> impl Iterator<Item = &FileName> {
        self.entries.iter().filter_map(|entry| match &entry.name {
            ListedName::Dots(_) => None,
            ListedName::Name(name) => Some(name),
        })
    }

    /// Whether there was room for so many bytes, which are taken then.
    pub(super) fn takes(&mut self, name_length: usize) -> bool {
        let bytes = entry_bytes(name_length, self.is_plus);
        let left = self.room.checked_sub(bytes);
        self.room = left.unwrap_or(self.room);
        self.is_full |= left.is_none();
        left.is_some()
    }

    /// Adds `.` or `..`, for which there was room.
    pub(super) fn push_dots(&mut self, name: &'static [u8], node: Node, cookie: u64) {
        self.entries.push(Listed {
            name: ListedName::Dots(name),
            inode: node.inode(),
            cookie,
            node: self.shows_files.then_some(node),
        });
    }
}

impl DirectorySink for Page {
    fn detail(&self) -> Detail {
        match self.shows_files {
            true => Detail::Attributes,
            false => Detail::Names,
        }
    }

    fn push(&mut self, _next: u64, name: &FileName, entry: &Entry) -> ControlFlow<()> {
        if self.is_full || !self.takes(name.as_bytes().len()) {
            return ControlFlow::Break(());
        }
        self.entries.push(Listed {
            name: ListedName::Name(name.clone()),
            inode: entry.attributes.inode,
            cookie: cookie_of(name),
            node: self
                .shows_files
                .then(|| Node::of(&self.volume, entry.clone())),
        });
        ControlFlow::Continue(())
    }
}
