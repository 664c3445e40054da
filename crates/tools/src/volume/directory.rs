//! A directory of a volume.

use std::{
    ffi::{CStr, CString},
    io,
    ops::ControlFlow,
    sync::Arc,
};

use penstock_base::{FileName, Mutex};
use penstock_vfs::{
    Attributes, Dentry, Detail, DirectorySink, Entry, Exclusivity, FileKind, HandleId, ListFrom,
    Lookup, New, NewKind, OpenOptions, RemoveKind, RenameMode,
};
use rustix::io::Errno;

use super::{VolumeFile, VolumeNode, VolumeTree, errors::name_error};
use crate::local::c_string;

/// Entries that are listed at once: as many as a store lists in one request.
const PAGE_ENTRIES: usize = 1000;

/// A directory that is held.
#[derive(Debug)]
pub struct VolumeDirectory(VolumeNode);

/// What a listing tells of a name.
#[derive(Debug)]
pub struct VolumeEntry {
    /// The name.
    pub name: CString,
    /// What it was when it was listed; with [`Detail::Names`] only its kind and number are true.
    pub attributes: Attributes,
    /// The file itself, with [`Detail::Attributes`].
    pub node: Option<VolumeNode>,
}

impl VolumeDirectory {
    /// `node` as a directory. Fails with `NOTDIR` if it is something else.
    pub fn of(node: VolumeNode) -> io::Result<Arc<Self>> {
        match node.attributes().kind {
            FileKind::Directory => Ok(Arc::new(Self(node))),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// The directory as a file with attributes.
    pub fn node(&self) -> &VolumeNode {
        &self.0
    }

    /// The tree that it is in.
    pub fn tree(&self) -> &VolumeTree {
        &self.0.tree
    }

    /// The directory `name` in this one. Fails with `NOTDIR` if it is something else.
    pub fn open_in(&self, name: &CStr) -> io::Result<Arc<Self>> {
        Self::of(self.find(name)?)
    }

    /// What has the name `name`.
    pub fn find(&self, name: &CStr) -> io::Result<VolumeNode> {
        self.find_if_any(name)?.ok_or_else(|| Errno::NOENT.into())
    }

    /// The same, or none if there is no such name.
    pub fn find_if_any(&self, name: &CStr) -> io::Result<Option<VolumeNode>> {
        let VolumeTree { volume, by, .. } = self.tree();
        let name = file_name(name)?;
        match self.tree().wait(volume.lookup(by, self.dentry(&name)))? {
            Lookup::Found(entry) => Ok(Some(self.hold(entry))),
            Lookup::Absent(_) => Ok(None),
        }
    }

    /// What is known of `name`; of a link, not of what it leads to.
    pub fn stat(&self, name: &CStr) -> io::Result<Attributes> {
        self.find(name).map(|node| node.attributes().clone())
    }

    /// The same, or none if there is no such name.
    pub fn stat_if_any(&self, name: &CStr) -> io::Result<Option<Attributes>> {
        let found = self.find_if_any(name)?;
        Ok(found.map(|node| node.attributes().clone()))
    }

    /// The next entries behind the name `after`, from the beginning without one; none at the end.
    pub fn list(&self, after: Option<&CStr>, detail: Detail) -> io::Result<Vec<VolumeEntry>> {
        let VolumeTree { volume, by, .. } = self.tree();
        let after = after.map(file_name).transpose()?;
        let from = after.as_ref().map_or(ListFrom::START, ListFrom::After);
        let mut page = Page::new(self.tree(), detail);
        let inode = self.0.attributes().inode;
        self.tree().wait(volume.list(by, inode, from, &mut page))?;
        Ok(page.entries)
    }

    /// Opens it for who wants all of its entries: see [`VolumeNode::open_listing`].
    pub fn open_listing(&self, detail: Detail) -> io::Result<VolumeListing> {
        self.0.open_listing(detail)
    }

    /// Makes a directory that is not there.
    pub fn make_directory(&self, name: &CStr, permissions: u16) -> io::Result<Arc<Self>> {
        Self::of(self.make(name, NewKind::Directory, permissions)?)
    }

    /// Makes a symbolic link.
    pub fn make_symlink(&self, name: &CStr, target: &[u8]) -> io::Result<VolumeNode> {
        self.make(name, NewKind::Symlink(target), 0o777)
    }

    /// Makes anything that needs not be opened. Fails with `EXIST` if the name is taken.
    pub fn make(&self, name: &CStr, kind: NewKind<'_>, permissions: u16) -> io::Result<VolumeNode> {
        let VolumeTree { volume, by, .. } = self.tree();
        let name = file_name(name)?;
        let made = volume.make(by, self.dentry(&name), new(kind, permissions), None);
        Ok(self.hold(self.tree().wait(made)?.entry))
    }

    /// Makes a regular file and opens it. Fails with `EXIST` if the name is taken.
    pub fn create(
        &self,
        name: &CStr,
        permissions: u16,
        options: OpenOptions,
    ) -> io::Result<(VolumeNode, VolumeFile)> {
        let VolumeTree { volume, by, .. } = self.tree();
        let name = file_name(name)?;
        let new = new(NewKind::Regular, permissions);
        let made = volume.make(by, self.dentry(&name), new, Some(options));
        let made = self.tree().wait(made)?;
        let node = self.hold(made.entry);
        match made.opened {
            Some(opened) => Ok((node, VolumeFile::new(self.tree(), opened.handle))),
            None => Err(Errno::BADF.into()),
        }
    }

    /// Gives `node` the name `name` too.
    pub fn link(&self, node: &VolumeNode, name: &CStr) -> io::Result<()> {
        let VolumeTree { volume, by, .. } = self.tree();
        let name = file_name(name)?;
        let made = volume.link(by, node.attributes().inode, self.dentry(&name));
        drop(self.hold(self.tree().wait(made)?.entry));
        Ok(())
    }

    /// Removes `name`, which is no directory.
    pub fn remove_file(&self, name: &CStr) -> io::Result<()> {
        self.remove(name, RemoveKind::File)
    }

    /// Removes the empty directory `name`.
    pub fn remove_directory(&self, name: &CStr) -> io::Result<()> {
        self.remove(name, RemoveKind::Directory)
    }

    fn remove(&self, name: &CStr, kind: RemoveKind) -> io::Result<()> {
        let VolumeTree { volume, by, .. } = self.tree();
        let name = file_name(name)?;
        let removed = volume.remove(by, self.dentry(&name), kind);
        self.tree().wait(removed).map(drop)
    }

    /// Gives what has the name `from` the name `to`, in the place of what has it.
    pub fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        let VolumeTree { volume, by, .. } = self.tree();
        let (from, to) = (file_name(from)?, file_name(to)?);
        let (from, to) = (self.dentry(&from), self.dentry(&to));
        let renamed = volume.rename(by, from, to, RenameMode::Replace);
        self.tree().wait(renamed).map(drop)
    }

    fn dentry<'a>(&self, name: &'a FileName) -> Dentry<'a> {
        Dentry::new(self.0.attributes().inode, name)
    }

    fn hold(&self, entry: Entry) -> VolumeNode {
        VolumeNode::holding(self.tree(), entry.attributes)
    }
}

fn new(kind: NewKind<'_>, permissions: u16) -> New<'_> {
    New {
        kind,
        permissions,
        umask: 0,
        exclusivity: Exclusivity::New,
    }
}

fn file_name(name: &CStr) -> io::Result<FileName> {
    FileName::new(name.to_bytes()).map_err(name_error)
}

/// A directory that is being listed.
#[derive(Debug)]
pub struct VolumeListing {
    tree: VolumeTree,
    handle: HandleId,
    detail: Detail,
    /// From where it goes on; one lists at a time.
    position: Mutex<u64>,
}

impl VolumeNode {
    /// Opens a directory for who wants all of its entries: what a volume knows then spares questions about names that
    /// are not there.
    pub fn open_listing(&self, detail: Detail) -> io::Result<VolumeListing> {
        let VolumeTree { volume, by, .. } = &self.tree;
        let opened = volume.open_directory(by, self.attributes().inode);
        Ok(VolumeListing {
            handle: self.tree.wait(opened)?,
            tree: self.tree.clone(),
            detail,
            position: Mutex::new(0),
        })
    }
}

impl VolumeListing {
    /// The next entries; none at the end.
    pub fn next_page(&self) -> io::Result<Vec<VolumeEntry>> {
        let volume = &self.tree.volume;
        let mut position = self.position.lock();
        let mut page = Page::new(&self.tree, self.detail);
        page.position = *position;
        let from = ListFrom::Position(*position);
        let listed = volume.read_directory(self.handle, from, &mut page);
        self.tree.wait(listed)?;
        *position = page.position;
        Ok(page.entries)
    }
}

impl Drop for VolumeListing {
    fn drop(&mut self) {
        let released = self.tree.volume.release_directory(self.handle);
        self.tree.runtime.block_on(released);
    }
}

/// Some entries.
struct Page<'a> {
    tree: &'a VolumeTree,
    detail: Detail,
    entries: Vec<VolumeEntry>,
    /// From where the listing goes on after them.
    position: u64,
}

impl<'a> Page<'a> {
    fn new(tree: &'a VolumeTree, detail: Detail) -> Self {
        Self {
            tree,
            detail,
            entries: Vec::new(),
            position: 0,
        }
    }
}

impl DirectorySink for Page<'_> {
    fn detail(&self) -> Detail {
        self.detail
    }

    fn push(&mut self, next: u64, name: &FileName, entry: &Entry) -> ControlFlow<()> {
        let is_full = self.entries.len() == PAGE_ENTRIES;
        // A name of a volume has no NUL.
        let Some(name) = c_string(name.as_bytes()).ok().filter(|_| !is_full) else {
            return ControlFlow::Break(());
        };
        self.position = next;
        let attributes = entry.attributes.clone();
        let node = (self.detail == Detail::Attributes)
            .then(|| VolumeNode::holding(self.tree, attributes.clone()));
        self.entries.push(VolumeEntry {
            name,
            attributes,
            node,
        });
        ControlFlow::Continue(())
    }
}
