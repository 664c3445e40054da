//! Directory listings.
//!
//! The kernel's positions are the volume's shifted by two, because `.` and `..` come first and
//! are the door's business: 0 is before `.`, 1 before `..`, and 2 is the volume's 0.
//!
//! Entries are encoded straight into the reply. With attributes each of them but the dots is a
//! reference that the kernel will give back; without, the reference goes back to the volume at
//! once. If the listing is cut short by an error behind its first entry, what there is is
//! answered, and the error comes with the next request.

use std::{ops::ControlFlow, sync::Arc};

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

/// What a listing tells of each entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    Names,
    Attributes,
}

pub(super) async fn open(adapter: Adapter, subject: Subject) -> Outcome {
    let opened = adapter.volume.open_directory(subject.caller, subject.node);
    let handle = opened.await?;
    let answer = Answer::body(|body| encode::opened_directory(body, handle));
    Ok(answer.or_undo(Undo::ReleaseDirectory(handle)))
}

pub(super) async fn release(adapter: Adapter, handle: HandleId) -> Outcome {
    adapter.volume.release_directory(handle).await;
    Ok(Answer::done())
}

pub(super) async fn read(
    adapter: Adapter,
    node: Inode,
    transfer: Transfer,
    detail: Detail,
) -> Outcome {
    let limit = (transfer.size as usize).min(LISTING_MAX);
    let mut listing = Listing::new(Arc::clone(&adapter.volume), limit, detail);
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
    detail: Detail,
    /// References taken so far. They go back when the listing is dropped unfinished.
    taken: Vec<Inode>,
}

impl Listing {
    fn new(volume: Arc<dyn Volume>, limit: usize, detail: Detail) -> Self {
        Self {
            volume,
            bytes: Vec::with_capacity(limit),
            limit,
            detail,
            taken: Vec::new(),
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
        match self.detail {
            Detail::Names => encode::directory_entry(&mut body, item),
            Detail::Attributes => encode::directory_entry_plus(&mut body, item, found),
        }
        if self.bytes.len() + body.as_slice().len() > self.limit {
            return ControlFlow::Break(());
        }
        self.bytes.extend_from_slice(body.as_slice());
        ControlFlow::Continue(())
    }

    fn finish(mut self) -> Answer {
        let bytes = std::mem::take(&mut self.bytes);
        let undo = match self.detail {
            Detail::Names => Undo::Nothing,
            Detail::Attributes => Undo::Forget(SmallVec::from_vec(std::mem::take(&mut self.taken))),
        };
        Answer::from(Reply::Bytes(bytes)).or_undo(undo)
    }
}

impl DirectorySink for Listing {
    fn push(&mut self, next: u64, name: &FileName, entry: &Entry) -> ControlFlow<()> {
        let next = next.saturating_add(DOTS);
        let item = DirectoryEntry::new(entry, next, name.as_str());
        self.append(item, Some(entry))?;
        self.taken.push(entry.attributes.inode);
        ControlFlow::Continue(())
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        for inode in &self.taken {
            self.volume.forget(*inode, 1);
        }
    }
}
