//! Directory listings.
//!
//! The kernel's positions are the volume's shifted by two, because `.` and `..` come first and
//! are the door's business: 0 is before `.`, 1 before `..`, and 2 is the volume's 0.
//!
//! Entries are encoded straight into the reply. With attributes each of them but the dots is a
//! reference that the kernel will give back. If the listing is cut short by an error behind its first entry, what there is is
//! answered, and the error comes with the next request.

use std::{ops::ControlFlow, sync::Arc};

use penstock_base::FileName;
use penstock_vfs::{Detail, DirectorySink, Entry, HandleId, Inode, ListFrom, Volume};
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

pub(super) async fn open(adapter: Adapter, subject: Subject) -> Outcome {
    let opened = adapter.volume.open_directory(&subject.by, subject.node);
    let handle = opened.await?;
    let answer = Answer::body(|body| encode::opened_directory(body, handle));
    Ok(answer.or_undo(Undo::ReleaseDirectory(handle)))
}

pub(super) async fn sync(adapter: Adapter, handle: HandleId) -> Outcome {
    adapter.volume.sync_directory(handle).await?;
    Ok(Answer::done())
}

pub(super) async fn release(adapter: Adapter, handle: HandleId) -> Outcome {
    adapter.volume.release_directory(handle).await;
    Ok(Answer::done())
}

pub(super) async fn read(
    adapter: Adapter,
    subject: Subject,
    transfer: Transfer,
    detail: Detail,
) -> Outcome {
    let limit = (transfer.size as usize).min(LISTING_MAX);
    let mut listing = Listing::new(Arc::clone(&adapter.volume), limit, detail);
    for position in transfer.offset..DOTS {
        if listing.push_dot(subject.node, position).is_break() {
            return Ok(listing.finish());
        }
    }
    let from = ListFrom::Position(transfer.offset.saturating_sub(DOTS));
    let listed = adapter
        .volume
        .read_directory(transfer.handle, from, &mut listing)
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
        let taken = SmallVec::from_vec(std::mem::take(&mut self.taken));
        Answer::from(Reply::Bytes(bytes)).or_undo(Undo::Forget(taken))
    }
}

impl DirectorySink for Listing {
    fn detail(&self) -> Detail {
        self.detail
    }

    fn push(&mut self, next: u64, name: &FileName, entry: &Entry) -> ControlFlow<()> {
        let next = next.saturating_add(DOTS);
        let item = DirectoryEntry::new(entry, next, name.as_bytes());
        self.append(item, Some(entry))?;
        if self.detail == Detail::Attributes {
            self.taken.push(entry.attributes.inode);
        }
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
