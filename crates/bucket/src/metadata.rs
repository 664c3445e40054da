//! Owner, mode, times, links and extended attributes, kept in the metadata of objects.
//!
//! [`crate::posix`] says in which form. Here is when it is asked for and when it is stored:
//!
//! - [`asking`]: HEAD tells it, of a file with its name, of a directory of the object that marks
//!   it. A listing does not, so entries are asked for in parallel, unless they are known to be
//!   unchanged or the settings do without.
//! - [`saving`]: a file that is being written takes its metadata along when it is saved. A node
//!   holds it as `unsaved` until then.
//! - [`change`]: otherwise the object is copied onto itself, on condition that it still is the
//!   version whose metadata was changed. One change of a file at a time, and none while it is
//!   renamed or removed, see [`locks`].
//! - [`behind`]: or that is done later, where files are saved behind the close.
//! - [`directories`]: markers, which are written anew instead, and those of other programs, which
//!   are read and replaced by the common form when they are changed.
//! - [`xattrs`].
//!
//! The root of the mount is no object; what is changed of it lives in memory.

mod asking;
mod behind;
mod change;
mod directories;
mod locks;
mod pace;
mod saving;
mod xattrs;

use std::sync::Arc;

use penstock_base::clock;
use penstock_vfs::{FileKind, Owner};

use crate::{
    ContentTypes,
    inode::{Known, Node},
    lookup::Lookups,
    mount::Mount,
    posix::{KeptMetadata, LinkTarget, PosixAttributes},
};

pub(crate) use asking::Wanted;
pub(crate) use change::{MetadataChange, moment};
pub(crate) use locks::MetadataLocks;
pub(crate) use pace::Pace;

/// Set-group-ID: on a directory, new entries get its group.
const SET_GID: u16 = 0o2000;

/// Changes what is kept of files beside their bytes.
#[derive(Debug)]
pub(crate) struct Metadata {
    pub(crate) mount: Arc<Mount>,
    pub(crate) lookups: Arc<Lookups>,
    pub(crate) metadata_locks: MetadataLocks,
}

impl Metadata {
    /// Of what `mount` shows.
    pub(crate) fn new(mount: &Arc<Mount>, lookups: &Arc<Lookups>) -> Arc<Self> {
        Arc::new(Self {
            mount: Arc::clone(mount),
            lookups: Arc::clone(lookups),
            metadata_locks: MetadataLocks::default(),
        })
    }
}

impl Mount {
    /// Whether metadata is kept at all.
    pub(crate) fn keeps_metadata(&self) -> bool {
        self.settings.metadata.keep
    }

    /// Whether files are described at all when they are saved.
    pub(crate) fn describes_files(&self) -> bool {
        self.keeps_metadata() || *self.settings.content_types != ContentTypes::default()
    }

    /// What a new file says of itself.
    pub(crate) fn new_attributes(
        &self,
        kind: FileKind,
        (owner, permissions): (Owner, u16),
        parent: &Node,
    ) -> PosixAttributes {
        let group = parent
            .kept()
            .filter(|kept| kept.posix.permissions().unwrap_or(0) & SET_GID != 0);
        let inherited = group.and_then(|kept| kept.posix.gid);
        let keeps_group = group.is_some() && kind == FileKind::Directory;
        let mut attributes = PosixAttributes {
            uid: Some(owner.uid),
            gid: Some(inherited.unwrap_or(owner.gid)),
            ..PosixAttributes::default()
        };
        let extra = if keeps_group { SET_GID } else { 0 };
        attributes.set_permissions(kind, permissions | extra);
        attributes
    }
}

impl Node {
    /// What is known to be kept of this file, or will be once it is saved.
    pub(crate) fn kept(&self) -> Option<&Arc<KeptMetadata>> {
        let stored = || self.known.as_ref()?.kept.as_ref();
        self.unsaved.as_ref().or_else(stored)
    }

    /// Moves what a save sent to what is known of the store.
    pub(crate) fn take_sent(&mut self, known: &mut Known) {
        let sent = self.sent.take();
        if known.kept.is_none() {
            let before = self.known.as_mut().and_then(|known| known.kept.take());
            known.kept = sent.clone().or(before);
        }
        // Unless it was changed since.
        if let (Some(sent), Some(unsaved)) = (&sent, &self.unsaved)
            && Arc::ptr_eq(sent, unsaved)
        {
            self.unsaved = None;
        }
    }

    /// Notes that the content changed: its time is that of the write, and whoever executes it no
    /// longer becomes somebody else. Returns whether that changed what the next save says.
    pub(crate) fn note_written(&mut self) -> bool {
        self.note_modified_by_store();
        let Some(kept) = self.kept() else {
            return false;
        };
        let mut posix = kept.posix.clone();
        posix.modified = None;
        posix.changed = None;
        posix.drop_privileges();
        let changes = self.unsaved.is_none() || posix != kept.posix;
        if changes {
            self.unsaved = Some(Arc::new(KeptMetadata {
                posix,
                ..KeptMetadata::clone(kept)
            }));
        }
        changes
    }
}

impl Known {
    /// The same answer with what was known before beyond it, if it is about the same version.
    pub(crate) fn completed_by(self, before: Option<&Self>) -> Self {
        match before {
            Some(before) if self.kept.is_none() && before.still_describes(&self) => Self {
                until: self.until,
                ..before.clone()
            },
            Some(before) if self.kept.is_none() && before.still_marks(&self) => before.clone(),
            _ => self,
        }
    }

    /// Whether metadata that is known of an object is that of the object that a listing shows.
    /// Metadata can change without the tag, but not without the time.
    pub(crate) fn still_describes(&self, listed: &Self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.settled)
            && self.etag.is_some()
            && self.etag == listed.etag
            && seconds(self.modified) == seconds(listed.modified)
    }

    /// Whether metadata that is known of the version that a listing shows answers every question of a program: then
    /// a listing asks no more than they.
    pub(crate) fn is_believed_of(&self, listed: &Self) -> bool {
        self.kind == listed.kind
            && self.kept.is_some()
            && self.etag.is_some()
            && self.etag == listed.etag
            && self.until > clock::now()
    }

    /// The same of a directory, which a listing shows without any version.
    fn still_marks(&self, listed: &Self) -> bool {
        let directories = [self.kind, listed.kind] == [FileKind::Directory; 2];
        directories && self.kept.is_some() && self.until > clock::now()
    }

    /// The size that a file of this kind shows.
    pub(crate) fn shown_size(&self) -> u64 {
        let link = self.kept.as_ref().and_then(|kept| kept.posix.link.as_ref());
        match link {
            Some(LinkTarget::Header(target)) => target.len() as u64,
            _ => self.size,
        }
    }
}

/// Listings and HEAD tell times in different resolutions.
fn seconds(time: Option<std::time::SystemTime>) -> Option<u64> {
    let since = time?.duration_since(std::time::SystemTime::UNIX_EPOCH);
    since.ok().map(|since| since.as_secs())
}
