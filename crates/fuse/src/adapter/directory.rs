//! Directory listings.
//!
//! The kernel's positions are the volume's shifted by two, because `.` and `..` come first and
//! are the door's business: 0 is before `.`, 1 before `..`, and 2 is the volume's 0.
//!
//! Entries are encoded straight into the reply. One with attributes is a reference that the kernel
//! will give back; of the others the reference goes back to the volume at once: of the dots, where the kernel
//! asks for names, and in a large directory at which nobody looks, see [`super::large_listings`]. If the listing is
//! cut short by an error behind its first entry, what there is is
//! answered, and the error comes with the next request.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use penstock_base::FileName;
use penstock_vfs::{DirectorySink, Entry, HandleId, Inode, Volume};
use smallvec::SmallVec;

use super::{Adapter, Answer, Outcome, Reply, Subject, Undo};
use crate::protocol::{
    Transfer,
    encode::{self, Body, DirectoryEntry},
};

/// Positions of `.` and `..`.
const DOTS: u64 = 2;
/// What `..` is numbered: its inode is not known here, and nobody relies on it.
const UNKNOWN_INODE: u64 = 0xffff_ffff;
/// Bytes that a listing may have at most, whatever the kernel asks for.
const LISTING_MAX: usize = 1 << 20;

/// How the kernel asks for a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// READDIR
    Names,
    /// READDIRPLUS
    Attributes,
}

/// Which entries of a reply have attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    None,
    /// All, and who looks at the first of them has to look up its name.
    Probing,
    All,
}

pub(super) async fn open(adapter: Adapter, subject: Subject) -> Outcome {
    let opened = adapter.volume.open_directory(subject.caller, subject.node);
    let handle = opened.await?;
    let answer = Answer::body(|body| encode::opened_directory(body, handle));
    Ok(answer.or_undo(Undo::ReleaseDirectory(handle)))
}

pub(super) async fn release(adapter: Adapter, node: Inode, handle: HandleId) -> Outcome {
    adapter.large_listings.ended(node);
    adapter.volume.release_directory(handle).await;
    Ok(Answer::done())
}

pub(super) async fn read(adapter: Adapter, node: Inode, transfer: Transfer, form: Form) -> Outcome {
    let limit = (transfer.size as usize).min(LISTING_MAX);
    let detail = match form {
        Form::Names => Detail::None,
        Form::Attributes => adapter.large_listings.detail(node, transfer.offset),
    };
    let mut listing = Listing::new(Arc::clone(&adapter.volume), limit, (form, detail));
    for position in transfer.offset..DOTS {
        if listing.push_dot(node, position).is_break() {
            return Ok(listing.finish());
        }
    }
    let position = transfer.offset.saturating_sub(DOTS);
    let listed = adapter
        .volume
        .read_directory(transfer.handle, position, &mut listing)
        .await;
    match listed {
        Err(error) if listing.is_empty() => Err(error.into()),
        _ => Ok(listing.finish()),
    }
}

/// A reply that fills with entries.
struct Listing {
    volume: Arc<dyn Volume>,
    bytes: Vec<u8>,
    limit: usize,
    form: Form,
    detail: Detail,
    /// References that the kernel gets. They go back when the listing is dropped unfinished.
    shown: Vec<Inode>,
    /// References that go back in any case.
    named: Vec<Inode>,
}

impl Listing {
    fn new(volume: Arc<dyn Volume>, limit: usize, (form, detail): (Form, Detail)) -> Self {
        Self {
            volume,
            bytes: Vec::with_capacity(limit),
            limit,
            form,
            detail,
            shown: Vec::new(),
            named: Vec::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn push_dot(&mut self, node: Inode, position: u64) -> ControlFlow<()> {
        let (inode, name) = match position {
            0 => (node.0, &b"."[..]),
            _ => (UNKNOWN_INODE, &b".."[..]),
        };
        let item = DirectoryEntry {
            inode,
            next: position + 1,
            file_type: libc::S_IFDIR,
            name,
        };
        self.append(item, None)
    }

    fn append(&mut self, item: DirectoryEntry<'_>, found: Option<&Entry>) -> ControlFlow<()> {
        let mut body = Body::default();
        match self.form {
            Form::Names => encode::directory_entry(&mut body, item),
            Form::Attributes => encode::directory_entry_plus(&mut body, item, found),
        }
        if self.bytes.len() + body.as_slice().len() > self.limit {
            return ControlFlow::Break(());
        }
        self.bytes.extend_from_slice(body.as_slice());
        ControlFlow::Continue(())
    }

    fn finish(mut self) -> Answer {
        let bytes = std::mem::take(&mut self.bytes);
        let shown = std::mem::take(&mut self.shown);
        Answer::from(Reply::Bytes(bytes)).or_undo(Undo::Forget(SmallVec::from_vec(shown)))
    }
}

impl DirectorySink for Listing {
    fn push(&mut self, next: u64, name: &FileName, entry: &Entry) -> ControlFlow<()> {
        let next = next.saturating_add(DOTS);
        let item = DirectoryEntry::new(entry, next, name.as_str());
        let is_shown = self.detail != Detail::None;
        if self.detail == Detail::Probing && self.is_empty() {
            let asked_for = Entry {
                entry_ttl: Duration::ZERO,
                ..entry.clone()
            };
            self.append(item, Some(&asked_for))?;
        } else {
            self.append(item, is_shown.then_some(entry))?;
        }
        let taken = if is_shown {
            &mut self.shown
        } else {
            &mut self.named
        };
        taken.push(entry.attributes.inode);
        ControlFlow::Continue(())
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        for inode in self.shown.iter().chain(&self.named) {
            self.volume.forget(*inode, 1);
        }
    }
}
