//! Files of a volume as one side of a copy.

use std::{
    ffi::{CStr, CString},
    io,
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use penstock_vfs::{
    AttributeChanges, Attributes, Detail, FileKind, HandleId, NewKind, OpenOptions, TimeChange,
};
use rustix::io::Errno;

use super::{
    Content, Dress, Facts, Found, Keeps, Listing, Lost, Source, Target, Written, Xattrs, was_taken,
};
use crate::{
    local::{is_root, temporary_name},
    volume::{VolumeDirectory, VolumeFile, VolumeListing, VolumeNode, VolumeTree, errno_of},
};

/// Rights of its owner and its group, which a file lends to who runs it.
const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
/// Rights that a symbolic link has on Linux, where nobody can change them.
const LINK_PERMISSIONS: u16 = 0o777;

/// A file of a volume.
#[derive(Debug)]
pub(crate) struct VolumeSource(Arc<VolumeNode>);

impl VolumeSource {
    pub(crate) fn new(node: VolumeNode) -> Self {
        Self(Arc::new(node))
    }
}

fn facts(tree: &VolumeTree, attributes: Attributes) -> Facts {
    Facts {
        attributes,
        device: tree.id(),
    }
}

impl Source for VolumeSource {
    fn facts(&self) -> io::Result<Facts> {
        Ok(facts(self.0.tree(), self.0.attributes().clone()))
    }

    fn listing(&self) -> io::Result<Box<dyn Listing>> {
        Ok(Box::new(self.0.open_listing(Detail::Attributes)?))
    }

    fn read_link(&self) -> io::Result<Vec<u8>> {
        self.0.read_link().map(Into::into)
    }

    fn xattrs(&self) -> io::Result<Xattrs> {
        xattrs(&self.0)
    }

    fn open(&self) -> io::Result<Box<dyn Content>> {
        Ok(Box::new(VolumeContent {
            file: self.0.open(OpenOptions::READ)?,
            node: Arc::clone(&self.0),
        }))
    }
}

fn xattrs(node: &VolumeNode) -> io::Result<Xattrs> {
    let names = match node.xattrs() {
        Err(error) if is_unkept(&error) => return Ok(Vec::new()),
        names => names?,
    };
    let named = names.into_iter();
    named
        .map(|name| Ok((name.to_vec(), node.xattr(&name)?.to_vec())))
        .collect()
}

/// Whether a volume does not keep something of this kind.
fn is_unkept(error: &io::Error) -> bool {
    matches!(
        errno_of(error),
        Some(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::NOSPC)
    )
}

impl Listing for VolumeListing {
    fn next_page(&self) -> io::Result<Vec<Found>> {
        let page = Self::next_page(self)?.into_iter();
        let found = page.filter_map(|entry| {
            Some(Found {
                is_directory: entry.attributes.kind == FileKind::Directory,
                name: entry.name,
                file: Box::new(VolumeSource::new(entry.node?)),
            })
        });
        Ok(found.collect())
    }
}

struct VolumeContent {
    file: VolumeFile,
    node: Arc<VolumeNode>,
}

impl Content for VolumeContent {
    fn read_at(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let read = self.file.read_at(offset, length)?;
        // A copy, so that who waits for memory to write holds none of what it was read into.
        let mut bytes = BytesMut::with_capacity(read.len());
        read.slices()
            .iter()
            .for_each(|slice| bytes.extend_from_slice(slice));
        Ok(bytes.freeze())
    }

    fn has_changed(&self, seen: &Attributes) -> io::Result<bool> {
        let now = self.node.stat()?;
        Ok(now.size != seen.size || now.modified != seen.modified)
    }

    fn as_volume(&self) -> Option<&VolumeFile> {
        Some(&self.file)
    }
}

/// A directory of a volume that is copied into.
#[derive(Debug)]
pub(crate) struct VolumeTarget {
    pub(crate) directory: Arc<VolumeDirectory>,
    /// Owners, modes and times are kept.
    pub(crate) keeps_metadata: bool,
}

impl VolumeTarget {
    fn of(&self, directory: Arc<VolumeDirectory>) -> Arc<dyn Target> {
        Arc::new(Self {
            directory,
            keeps_metadata: self.keeps_metadata,
        })
    }

    /// Whether a file is not there before it is whole.
    fn appears_whole(&self) -> bool {
        !self.directory.tree().features().random_writes
    }

    /// Makes something under its name at once, or where that is taken under another one that then takes its place.
    fn under_name(
        &self,
        name: &CStr,
        is_taken: bool,
        make: &dyn Fn(&CStr) -> io::Result<()>,
    ) -> io::Result<()> {
        if !is_taken {
            return make(name);
        }
        if self.appears_whole() {
            self.directory.remove_file(name)?;
            return make(name);
        }
        let temporary = temporary_name(name);
        match make(&temporary) {
            Err(error) if was_taken(&error) => {
                self.directory.remove_file(&temporary)?;
                make(&temporary)?;
            }
            other => other?,
        }
        let renamed = self.directory.rename(&temporary, name);
        // Two names of one file stay as they are.
        let removed = self.directory.remove_file(&temporary);
        renamed?;
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn create_whole(
        &self,
        name: &CStr,
        existing: Option<&Facts>,
    ) -> io::Result<(VolumeNode, VolumeFile)> {
        let kind = existing.map(|existing| existing.attributes.kind);
        if kind == Some(FileKind::Regular) {
            let node = self.directory.find(name)?;
            let file = node.open(OpenOptions {
                truncate: true,
                ..OpenOptions::WRITE
            })?;
            return Ok((node, file));
        }
        if kind.is_some() {
            self.directory.remove_file(name)?;
        }
        self.directory.create(name, 0o600, OpenOptions::WRITE)
    }

    fn create_temporary(&self, temporary: &CStr) -> io::Result<(VolumeNode, VolumeFile)> {
        let create = || {
            self.directory
                .create(temporary, 0o600, OpenOptions::READ_WRITE)
        };
        match create() {
            Err(error) if was_taken(&error) => {
                self.directory.remove_file(temporary)?;
                create()
            }
            other => other,
        }
    }
}

impl Target for VolumeTarget {
    fn keeps(&self) -> Keeps {
        let features = self.directory.tree().features();
        Keeps {
            metadata: self.keeps_metadata,
            links: features.links_max > 1,
            holes: features.random_writes,
        }
    }

    fn learn(&self) -> io::Result<()> {
        if !self.appears_whole() {
            return Ok(());
        }
        let detail = Detail::Names;
        let listing = self.directory.node().open_listing(detail)?;
        while !listing.next_page()?.is_empty() {}
        Ok(())
    }

    fn facts(&self) -> io::Result<Facts> {
        let attributes = self.directory.node().stat()?;
        Ok(facts(self.directory.tree(), attributes))
    }

    fn find(&self, name: &CStr) -> io::Result<Option<Facts>> {
        let found = self.directory.stat_if_any(name)?;
        Ok(found.map(|attributes| facts(self.directory.tree(), attributes)))
    }

    fn source(&self, name: &CStr) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(VolumeSource::new(self.directory.find(name)?)))
    }

    fn as_source(&self) -> Box<dyn Source> {
        Box::new(DirectorySource(Arc::clone(&self.directory)))
    }

    fn open_in(&self, name: &CStr) -> io::Result<Arc<dyn Target>> {
        Ok(self.of(self.directory.open_in(name)?))
    }

    fn make_directory(&self, name: &CStr, permissions: u16) -> io::Result<Arc<dyn Target>> {
        Ok(self.of(self.directory.make_directory(name, permissions)?))
    }

    fn create(&self, name: &CStr, existing: Option<&Facts>) -> io::Result<Box<dyn Written>> {
        let temporary = (!self.appears_whole()).then(|| temporary_name(name));
        let (node, file) = match &temporary {
            None => self.create_whole(name, existing)?,
            Some(temporary) => self.create_temporary(temporary)?,
        };
        Ok(Box::new(VolumeWritten {
            directory: Arc::clone(&self.directory),
            keeps_metadata: self.keeps_metadata,
            name: name.to_owned(),
            temporary,
            node: Arc::new(node),
            file: Some(file),
            is_stored: false,
            is_published: false,
        }))
    }

    fn begin(&self, name: &CStr, may_replace: bool) -> io::Result<Box<dyn Written>> {
        let existing = self.find(name)?;
        let kind = existing.as_ref().map(|existing| existing.attributes.kind);
        match kind {
            Some(_) if !may_replace => Err(Errno::EXIST.into()),
            Some(FileKind::Directory) => {
                self.remove_directory(name)?;
                self.create(name, None)
            }
            _ => self.create(name, existing.as_ref()),
        }
    }

    fn clear_way(&self, name: &CStr) {
        if !self.appears_whole() {
            let _ = self.directory.remove_file(&temporary_name(name));
        }
    }

    fn make_other(
        &self,
        name: &CStr,
        kind: NewKind<'_>,
        permissions: u16,
        is_taken: bool,
    ) -> io::Result<()> {
        let permissions = match kind {
            NewKind::Symlink(_) => LINK_PERMISSIONS,
            _ => permissions,
        };
        self.under_name(name, is_taken, &|under| {
            self.directory.make(under, kind, permissions).map(drop)
        })
    }

    fn link(&self, from: &dyn Target, first: &CStr, name: &CStr, is_taken: bool) -> io::Result<()> {
        let from = from.as_volume().ok_or(Errno::XDEV)?;
        let node = from.directory.find(first)?;
        self.under_name(name, is_taken, &|under| self.directory.link(&node, under))
    }

    fn dress(&self, dress: &Dress, lost: Lost<'_>) -> io::Result<()> {
        dress_node(
            self.directory.node(),
            None,
            self.keeps_metadata,
            dress,
            lost,
        )
    }

    fn dress_named(
        &self,
        (name, kind): (&CStr, FileKind),
        dress: &Dress,
        lost: Lost<'_>,
    ) -> io::Result<()> {
        let node = self.directory.find(name)?;
        if node.attributes().kind != kind {
            return Err(Errno::STALE.into());
        }
        dress_node(&node, None, self.keeps_metadata, dress, lost)
    }

    fn remove_file(&self, name: &CStr) -> io::Result<()> {
        self.directory.remove_file(name)
    }

    fn remove_directory(&self, name: &CStr) -> io::Result<()> {
        self.directory.remove_directory(name)
    }

    fn as_volume(&self) -> Option<&Self> {
        Some(self)
    }
}

/// A directory of a volume that is looked at as it would be copied.
#[derive(Debug)]
pub(crate) struct DirectorySource(pub(crate) Arc<VolumeDirectory>);

impl Source for DirectorySource {
    fn facts(&self) -> io::Result<Facts> {
        let attributes = self.0.node().stat()?;
        Ok(facts(self.0.tree(), attributes))
    }

    fn listing(&self) -> io::Result<Box<dyn Listing>> {
        Ok(Box::new(self.0.node().open_listing(Detail::Attributes)?))
    }

    fn read_link(&self) -> io::Result<Vec<u8>> {
        self.0.node().read_link().map(Into::into)
    }

    fn xattrs(&self) -> io::Result<Xattrs> {
        xattrs(self.0.node())
    }

    fn open(&self) -> io::Result<Box<dyn Content>> {
        Err(Errno::ISDIR.into())
    }
}

/// A file of a volume that is being written.
struct VolumeWritten {
    directory: Arc<VolumeDirectory>,
    keeps_metadata: bool,
    name: CString,
    /// The name that it has meanwhile, where it is seen before it is whole.
    temporary: Option<CString>,
    node: Arc<VolumeNode>,
    /// None once it is finished.
    file: Option<VolumeFile>,
    /// It was finished, and that went well: what has the name in a bucket is this.
    is_stored: bool,
    is_published: bool,
}

impl VolumeWritten {
    fn file(&self) -> io::Result<&VolumeFile> {
        self.file.as_ref().ok_or_else(|| Errno::BADF.into())
    }
}

impl Written for VolumeWritten {
    fn write_at(&self, offset: u64, data: Bytes) -> io::Result<()> {
        self.file()?.write_at(offset, data)
    }

    fn copy_from(&self, source: &dyn Content, offset: u64, length: u64) -> io::Result<u64> {
        let tree = self.directory.tree();
        let source = source.as_volume();
        let source = source.filter(|source| source.tree().id() == tree.id());
        match source.filter(|_| tree.features().copies_ranges) {
            Some(source) => source.copy_to(self.file()?, offset, length),
            None => Ok(0),
        }
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        let changes = AttributeChanges {
            size: Some(size),
            handle: Some(self.file()?.handle()),
            ..AttributeChanges::default()
        };
        self.node.set_attributes(changes).map(drop)
    }

    fn dress(&mut self, dress: &Dress, lost: Lost<'_>) -> io::Result<()> {
        let handle = self.file()?.handle();
        dress_node(&self.node, Some(handle), self.keeps_metadata, dress, lost)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.file.take().map_or(Ok(()), VolumeFile::finish)?;
        self.is_stored = true;
        Ok(())
    }

    fn content(&self) -> io::Result<Box<dyn Content>> {
        Ok(Box::new(VolumeContent {
            file: self.node.open(OpenOptions::READ)?,
            node: Arc::clone(&self.node),
        }))
    }

    fn publish(mut self: Box<Self>) -> io::Result<()> {
        if let Some(temporary) = &self.temporary {
            self.directory.rename(temporary, &self.name)?;
        }
        self.is_published = true;
        Ok(())
    }
}

impl Drop for VolumeWritten {
    fn drop(&mut self) {
        if self.is_published {
            return;
        }
        // What is open is given up.
        self.file = None;
        let left = self.temporary.as_ref();
        // What could not be stored left in its place what was there.
        if let Some(left) = left.or_else(|| self.is_stored.then_some(&self.name)) {
            let _ = self.directory.remove_file(left);
        }
    }
}

/// Gives a file what it is to have, through `handle` if it is open.
fn dress_node(
    node: &VolumeNode,
    handle: Option<HandleId>,
    keeps_metadata: bool,
    dress: &Dress,
    lost: Lost<'_>,
) -> io::Result<()> {
    if let Some(wanted) = &dress.xattrs {
        set_xattrs(node, wanted, dress.adds_xattrs, lost)?;
    }
    if !keeps_metadata {
        return Ok(());
    }
    let mut permissions = dress.permissions;
    if let Some(owner) = dress.owner {
        let withheld = give(node, handle, owner)?;
        permissions = permissions.map(|permissions| permissions & !withheld);
    }
    if node.attributes().kind == FileKind::Symlink {
        permissions = None;
    }
    if permissions.is_none() && dress.times.is_none() {
        return Ok(());
    }
    let changes = AttributeChanges {
        permissions,
        accessed: dress.times.map(|times| TimeChange::To(times.0)),
        modified: dress.times.map(|times| TimeChange::To(times.1)),
        handle,
        ..AttributeChanges::default()
    };
    node.set_attributes(changes).map(drop)
}

/// Gives a file its owner. Who may not give files away keeps them, and gives the group if that is possible. Returns
/// those rights that the file must not lend then.
fn give(node: &VolumeNode, handle: Option<HandleId>, owner: (u32, u32)) -> io::Result<u16> {
    let seen = node.attributes();
    if (seen.uid, seen.gid) == owner {
        return Ok(0);
    }
    let group = AttributeChanges {
        gid: Some(owner.1),
        handle,
        ..AttributeChanges::default()
    };
    let both = AttributeChanges {
        uid: Some(owner.0),
        ..group
    };
    match node.set_attributes(both) {
        Err(error) if errno_of(&error) == Some(Errno::PERM) && !is_root() => {
            let mut withheld = 0;
            if seen.uid != owner.0 {
                withheld |= SET_UID;
            }
            if node.set_attributes(group).is_err() {
                withheld |= SET_GID;
            }
            Ok(withheld)
        }
        done => done.map(|_| 0),
    }
}

/// Gives a file these attributes and takes others away. What the volume does not take is told by its kind.
fn set_xattrs(
    node: &VolumeNode,
    wanted: &Xattrs,
    others_stay: bool,
    lost: Lost<'_>,
) -> io::Result<()> {
    let existing = xattrs(node)?;
    for (name, _) in &existing {
        if !others_stay && wanted.iter().all(|(other, _)| other != name) {
            node.remove_xattr(name)?;
        }
    }
    for (name, value) in wanted {
        if existing.iter().any(|one| (&one.0, &one.1) == (name, value)) {
            continue;
        }
        match node.set_xattr(name, value) {
            Err(error) if is_unkept(&error) => lost(&kind_of_xattr(name)),
            set => set?,
        }
    }
    Ok(())
}

fn kind_of_xattr(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == b'.');
    let kind = String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]);
    match name.starts_with(b"system.posix_acl_") {
        true => "access lists".to_owned(),
        false => format!("extended attributes {kind}.*"),
    }
}
