//! Reading directories.
//!
//! A listing is a row of LIST pages, each shown as it is: a page has all that `stat` needs, so no
//! entry is asked for on its own, and what was shown is remembered. At most three pages are in
//! memory and a fourth is under way: the next one is fetched while the current one is consumed,
//! and the one before is kept because a kernel may step back a little.
//!
//! Positions count the entries of the pages, shown or not, so they stay the same however often a
//! position is returned to. A table of continuations, one for each page, leads back to any of
//! them.
//!
//! A failure ends a call. What was shown before it is the receiver's, so the next call for that position is
//! answered with it: asking the store again would make a program wait for the same failure twice.
//!
//! Where files are saved behind, a directory of which memory knows all and believes all that it knows is shown from there,
//! for as long as a listing is believed that asked the store.
//!
//! Files that were created here and have not reached the store come first; they are noted before
//! the first page is asked for, and skipped when it shows them after all.

mod ahead;
mod order;
mod page;
mod pages;

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use penstock_base::{
    FsError, FsResult, Utf8Name,
    clock::{self, Instant},
};
use penstock_vfs::{Detail, DirectorySink, HandleId, Inode};
use tokio::sync::Mutex;

use crate::{
    handles::{HandleIds, Handles},
    inode::{Namespace, Reference, Tree},
    listing::pages::Pages,
    lookup::Lookups,
    mount::Mount,
};

/// Names in a directory that is listed from memory, at most.
const FROM_MEMORY_MAX: usize = 10_000;

/// How long a failure is kept for the call that follows it.
const FAILURE_AGE_MAX: Duration = Duration::from_secs(5);

/// An open directory.
#[derive(Debug)]
pub(crate) struct DirectoryHandle {
    inode: Inode,
    reading: Mutex<Reading>,
    namespace: Arc<Namespace>,
}

impl DirectoryHandle {
    pub(crate) fn inode(&self) -> Inode {
        self.inode
    }
}

impl Drop for DirectoryHandle {
    fn drop(&mut self) {
        self.namespace.lock().unpin(self.inode);
    }
}

/// What a handle knows between two calls.
#[derive(Debug, Default)]
struct Reading {
    listing: Option<Listing>,
    failure: Option<Failure>,
}

/// A failure that a receiver may not have been told.
#[derive(Debug)]
struct Failure {
    position: u64,
    error: FsError,
    since: Instant,
}

impl Reading {
    /// Keeps `error` for the next call.
    fn keep(&mut self, position: u64, error: FsError) {
        self.failure = Some(Failure {
            position,
            error,
            since: clock::now(),
        });
    }

    /// Fails with what ended the last call, where that was just now and at this position.
    fn recall(&mut self, position: u64) -> FsResult<()> {
        let failure = self.failure.take();
        let is_of_this_call = |failure: &Failure| {
            failure.position == position && failure.since.elapsed() < FAILURE_AGE_MAX
        };
        failure
            .filter(is_of_this_call)
            .map_or(Ok(()), |failure| Err(failure.error))
    }
}

/// Where a listing stands.
#[derive(Debug)]
struct Listing {
    /// Names of what the store lacks something of, in order; positions begin with them.
    unsaved: Vec<Utf8Name>,
    /// These are all names that there are, in the store or not.
    is_from_memory: bool,
    pages: Pages,
    /// Set as long as everything before this position was shown in order.
    whole: Option<u64>,
    begun: Instant,
    /// The directory's losses when the listing began.
    losses: u64,
}

/// Lists directories.
#[derive(Debug)]
pub(crate) struct Listings {
    pub(crate) mount: Arc<Mount>,
    pub(crate) lookups: Arc<Lookups>,
    ids: Arc<HandleIds>,
    pub(crate) handles: Handles<DirectoryHandle>,
}

impl Listings {
    /// No directory is open yet. Handles get their numbers from `ids`.
    pub(crate) fn new(
        mount: &Arc<Mount>,
        lookups: &Arc<Lookups>,
        ids: &Arc<HandleIds>,
    ) -> Arc<Self> {
        Arc::new(Self {
            mount: Arc::clone(mount),
            lookups: Arc::clone(lookups),
            ids: Arc::clone(ids),
            handles: Handles::new(ids),
        })
    }

    /// Opens a directory for listing. Asks the store nothing.
    pub(crate) fn open_directory(self: &Arc<Self>, inode: Inode) -> FsResult<HandleId> {
        let id = self.ids.next()?;
        let mut tree = self.mount.namespace.lock();
        tree.directory(inode)?;
        tree.pin(inode);
        drop(tree);
        let namespace = Arc::clone(&self.mount.namespace);
        let handle = DirectoryHandle {
            inode,
            reading: Mutex::default(),
            namespace,
        };
        self.handles.insert(id, Arc::new(handle));
        Ok(id)
    }

    /// Lists entries from `position` until `sink` is full or the directory ends. A failure after some
    /// entries is kept for the next call, so that the receiver gets what it took. So is one before the
    /// first entry, which a door may have put others before.
    pub(crate) async fn read_directory(
        self: &Arc<Self>,
        handle: &DirectoryHandle,
        position: u64,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        let mut reading = handle.reading.lock().await;
        reading.recall(position)?;
        if position == 0 {
            reading.listing = None;
        }
        let listing = match &mut reading.listing {
            Some(listing) => listing,
            none => none.insert(self.begin_or_recall(handle.inode)?),
        };
        let mut at = position;
        let shown = self.show(handle.inode, listing, &mut at, sink).await;
        if let Err(error) = &shown
            && (at == 0 || at > position)
        {
            reading.keep(at, error.clone());
        }
        if at == position { shown } else { Ok(()) }
    }

    /// Lists the entries after the one that is called `name`, or would be; all of them without a name. They come
    /// in the order of their keys, files that are not in the store yet among them, so that each comes once however
    /// often such a listing is begun anew.
    pub(crate) async fn list_after(
        self: &Arc<Self>,
        directory: Inode,
        name: Option<&Utf8Name>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        let mut listing = self.begin_listing(directory)?;
        let prefix = self.mount.namespace.lock().prefix(directory)?;
        let mut pages = Pages::new(&self.lookups, directory, prefix.clone(), 0);
        if let Some(name) = name {
            let found = self
                .lookups
                .find(directory, name, self.mount.change_patience())
                .await?;
            let is_directory = found.is_some_and(|found| {
                let tree = self.mount.namespace.lock();
                tree.directory(found.inode()).is_ok()
            });
            // A directory stands where the keys below it do.
            let (last, below) = if is_directory {
                (format!("{name}/"), char::MAX.to_string())
            } else {
                (name.to_string(), String::new())
            };
            listing.unsaved.retain(|unsaved| *unsaved.as_str() > *last);
            pages = pages.after(&format!("{prefix}{last}{below}"));
        }
        listing.pages = pages;
        listing.whole = None;
        let unsaved = std::mem::take(&mut listing.unsaved);
        self.show_merged(directory, &mut listing, unsaved, sink)
            .await
    }

    async fn show_merged(
        self: &Arc<Self>,
        directory: Inode,
        listing: &mut Listing,
        unsaved: Vec<Utf8Name>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        let mut unsaved = unsaved.into_iter().peekable();
        for position in 0.. {
            let found = listing.pages.seek(position).await?;
            let bound = found.map(|(number, index)| listing.pages.page(number).sorted_by(index));
            while let Some(name) =
                unsaved.next_if(|name| bound.as_deref().is_none_or(|bound| name.as_str() < bound))
            {
                let shown = self.show_unsaved(directory, &name, position, sink);
                if shown.is_break() {
                    return Ok(());
                }
            }
            let Some(at) = found else { break };
            let name = listing.pages.page(at.0).name(at.1);
            if unsaved.peek() == Some(name) {
                // It is in the store, too: shown as it is here, in the next round.
                continue;
            }
            // What was saved meanwhile came just now.
            if self
                .show_entry(listing, at, position + 1, sink)
                .await?
                .is_break()
            {
                break;
            }
        }
        Ok(())
    }

    async fn show(
        self: &Arc<Self>,
        directory: Inode,
        listing: &mut Listing,
        position: &mut u64,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        while let Some(name) = listing.unsaved_at(*position) {
            if listing.is_from_memory && !self.mount.namespace.has(directory, name) {
                // It was forgotten, or removed, since the listing began.
                let patience = self.mount.lookup_patience();
                self.lookups.find(directory, name, patience).await?;
            }
            if self
                .show_unsaved(directory, name, *position + 1, sink)
                .is_break()
            {
                return Ok(());
            }
            *position += 1;
        }
        if listing.is_from_memory {
            return Ok(());
        }
        self.show_pages(directory, listing, position, sink).await
    }

    /// Begins a listing, which asks the store nothing where files are saved behind and memory knows everything.
    fn begin_or_recall(self: &Arc<Self>, directory: Inode) -> FsResult<Listing> {
        let mut listing = self.begin_listing(directory)?;
        if self.mount.save_behind().is_none() {
            return Ok(listing);
        }
        let tree = self.mount.namespace.lock();
        if let Some(names) = tree.names_known(directory, FROM_MEMORY_MAX)? {
            listing.unsaved = names;
            listing.is_from_memory = true;
            // It tells nothing new.
            listing.whole = None;
        }
        drop(tree);
        Ok(listing)
    }

    fn begin_listing(self: &Arc<Self>, directory: Inode) -> FsResult<Listing> {
        let tree = self.mount.namespace.lock();
        let prefix = tree.prefix(directory)?;
        let unsaved = unsaved_in(&tree, directory)?;
        let losses = tree.directory(directory)?.losses;
        drop(tree);
        let first = unsaved.len() as u64;
        let pages = Pages::new(&self.lookups, directory, prefix, first);
        Ok(Listing {
            unsaved,
            is_from_memory: false,
            pages,
            whole: Some(first),
            begun: clock::now(),
            losses,
        })
    }

    fn show_unsaved(
        &self,
        parent: Inode,
        name: &Utf8Name,
        next: u64,
        sink: &mut dyn DirectorySink,
    ) -> ControlFlow<()> {
        match self.mount.namespace.hold(parent, name) {
            Some(found) => self.push(found, name, next, sink),
            // Removed since the listing began.
            None => ControlFlow::Continue(()),
        }
    }

    async fn show_pages(
        &self,
        directory: Inode,
        listing: &mut Listing,
        position: &mut u64,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        while let Some((number, index)) = listing.pages.seek(*position).await? {
            let shown = self.show_entry(listing, (number, index), *position + 1, sink);
            if shown.await?.is_break() {
                return Ok(());
            }
            listing.whole = listing.whole.filter(|until| *until >= *position);
            listing.whole = listing.whole.map(|until| until.max(*position + 1));
            *position += 1;
        }
        if listing.whole == Some(*position) {
            self.note_whole(directory, listing);
        }
        Ok(())
    }

    /// Offers an entry of a page.
    async fn show_entry(
        &self,
        listing: &mut Listing,
        (number, index): (usize, usize),
        next: u64,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<ControlFlow<()>> {
        let hidden = listing.pages.is_hidden(number, index).await?;
        let name = listing.pages.page(number).name(index);
        // Entries that changed here since the page was asked for are shown as they are now.
        if !hidden
            && listing.unsaved.binary_search(name).is_err()
            && let Some(found) = listing.pages.resolve(number, index).await?
        {
            return Ok(self.push(found, name, next, sink));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Offers an entry. A receiver that takes it holds the reference from then on.
    fn push(
        &self,
        found: Reference,
        name: &Utf8Name,
        next: u64,
        sink: &mut dyn DirectorySink,
    ) -> ControlFlow<()> {
        let Ok(entry) = self.mount.entry(found.inode()) else {
            return ControlFlow::Continue(());
        };
        let flow = sink.push(next, name.as_file_name(), &entry);
        if flow.is_continue() && sink.detail() == Detail::Attributes {
            found.give_away();
        }
        flow
    }

    /// Remembers that the directory holds what was listed and nothing else.
    fn note_whole(&self, directory: Inode, listing: &Listing) {
        let mut tree = self.mount.namespace.lock();
        if let Ok(directory) = tree.directory_mut(directory)
            && directory.losses == listing.losses
        {
            directory.complete_until = Some(self.mount.complete_until(listing.begun));
            directory.marker = Some(directory.marker == Some(true) || listing.pages.marker());
        }
    }
}

impl Listing {
    fn unsaved_at(&self, position: u64) -> Option<&Utf8Name> {
        self.unsaved.get(usize::try_from(position).ok()?)
    }
}

/// The names in a directory of what the store lacks something of, in order.
fn unsaved_in(tree: &Tree, directory: Inode) -> FsResult<Vec<Utf8Name>> {
    let entries = tree.directory(directory)?.entries.iter();
    let mut names: Vec<Utf8Name> = entries
        .filter(|(_, entry)| tree.is_ours(entry))
        .map(|(name, _)| name.clone())
        .collect();
    names.sort_unstable();
    Ok(names)
}
