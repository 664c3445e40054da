//! The pages of one listing, fetched as they are needed.
//!
//! At first one page is fetched while the one before is read. Who goes on for long reads the whole of
//! a large directory, and gets it in ranges that are listed in parallel; see [`Ahead`].

use std::{collections::VecDeque, sync::Arc};

use penstock_base::{FsError, FsResult};
use penstock_object::{ListOptions, ListPage};
use penstock_vfs::Inode;
use tokio::task::JoinHandle;

use crate::{
    errors::for_reading,
    inode::{Reference, Resolved},
    key,
    listing::{ahead::Ahead, page::Page},
    lookup::Lookups,
    mount::Mount,
};

/// Pages in memory: the one before, the current one, and the next one when it is looked into.
const PAGES_KEPT: usize = 3;
/// The same where no memory is to spare.
const PAGES_KEPT_MIN: usize = 2;
/// Pages that are read one after the other before ranges are listed in parallel.
const PAGES_IN_TURN: usize = 16;

/// The pages of one listing.
#[derive(Debug)]
pub(super) struct Pages {
    source: Source,
    /// Where pages that were met so far begin, in order.
    starts: Vec<Start>,
    /// Consecutive pages.
    kept: VecDeque<Page>,
    /// The number of the first page kept, counted since the last jump.
    first_kept: usize,
    /// Where the page after the last one kept begins, if there is one.
    next: Option<Start>,
    /// The page after the last one kept.
    coming: Option<Coming>,
    /// The pages after it, once many were read.
    ahead: Option<Ahead>,
    /// Whether pages may begin where nothing but a guess says that one may.
    may_guess: bool,
    marker: bool,
}

/// What is listed.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) lookups: Arc<Lookups>,
    pub(super) directory: Inode,
    pub(super) prefix: Arc<str>,
}

/// Where a page begins.
#[derive(Debug, Clone)]
pub(super) struct Start {
    pub(super) position: u64,
    /// What leads to the page; `None` for the first, and for one that begins at a guess.
    pub(super) continuation: Option<String>,
    /// The last key of the page before.
    pub(super) after: Option<String>,
}

impl Start {
    /// A page that begins after `key`, whatever lies there.
    pub(super) fn guess(key: &str) -> Self {
        Self {
            position: 0,
            continuation: None,
            after: Some(key.to_owned()),
        }
    }

    fn is_guess(&self) -> bool {
        self.continuation.is_none() && self.after.is_some()
    }
}

/// A page under way; given up when dropped.
#[derive(Debug)]
struct Coming(JoinHandle<FsResult<Page>>);

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Pages {
    /// A listing of the directory `prefix` whose first entry has the position `first`.
    pub(super) fn new(
        lookups: &Arc<Lookups>,
        directory: Inode,
        prefix: String,
        first: u64,
    ) -> Self {
        let start = Start {
            position: first,
            continuation: None,
            after: None,
        };
        Self {
            source: Source {
                lookups: Arc::clone(lookups),
                directory,
                prefix: prefix.into(),
            },
            starts: vec![start.clone()],
            kept: VecDeque::new(),
            first_kept: 0,
            next: Some(start),
            coming: None,
            ahead: None,
            may_guess: lookups.lists_without_asking(),
            marker: false,
        }
    }

    /// The same of what comes after `key`.
    pub(super) fn after(mut self, key: &str) -> Self {
        let start = Start {
            position: self.starts[0].position,
            ..Start::guess(key)
        };
        // Where the store does not begin in the middle, its listing is read from the beginning.
        self.starts.push(start.clone());
        self.next = Some(start);
        self
    }

    /// Whether a page so far had the object that marks the directory.
    pub(super) fn marker(&self) -> bool {
        self.marker
    }

    /// A page that [`Pages::seek`] found.
    pub(super) fn page(&self, number: usize) -> &Page {
        &self.kept[number - self.first_kept]
    }

    /// What an entry of a page leads to now, if to anything.
    pub(super) async fn resolve(&self, number: usize, index: usize) -> FsResult<Option<Reference>> {
        let page = self.page(number);
        match page.resolve(index) {
            Resolved::Found(found) => Ok(Some(found)),
            Resolved::Absent => Ok(None),
            Resolved::Outdated => {
                let Source {
                    lookups, directory, ..
                } = &self.source;
                let patience = lookups.mount.lookup_patience();
                lookups.find(*directory, page.name(index), patience).await
            }
        }
    }

    /// The page with the entry at `position` and the entry's index there, or `None` behind the
    /// end.
    pub(super) async fn seek(&mut self, position: u64) -> FsResult<Option<(usize, usize)>> {
        if self.kept.front().is_none_or(|page| position < page.first) {
            self.restart(position);
        }
        loop {
            let found = self.kept.iter().position(|page| position < page.end());
            if let Some(found) = found {
                if found + 1 == self.kept.len() {
                    self.request_next();
                }
                // Positions before the first page are never asked for.
                let index = position.saturating_sub(self.kept[found].first);
                return Ok(Some((
                    self.first_kept + found,
                    usize::try_from(index).unwrap_or(0),
                )));
            }
            if !self.load_next().await? {
                return Ok(None);
            }
        }
    }

    /// Whether the entry is a file that a directory of the same name hides. In byte order such a
    /// directory may come much later than the file, on another page.
    pub(super) async fn is_hidden(&mut self, number: usize, index: usize) -> FsResult<bool> {
        let page = self.page(number);
        if !page.is_object(index) {
            return Ok(false);
        }
        let directory = key::directory_prefix(&self.source.prefix, page.name(index));
        let mut hidden = page.has_directory(&directory);
        if hidden.is_none() {
            let loaded = number + 1 < self.first_kept + self.kept.len() || self.load_next().await?;
            hidden = if loaded {
                self.page(number + 1).has_directory(&directory)
            } else {
                None
            };
        }
        let hidden = match hidden {
            Some(hidden) => hidden,
            None => for_reading(self.source.lookups.mount.first_below(&directory).await)?.is_some(),
        };
        if hidden && self.page(number).is_file(index) {
            let key = key::checked_key(directory.trim_end_matches('/'))?;
            self.source.lookups.mount.note_hidden_file(&key);
        }
        Ok(hidden)
    }

    /// Forgets the pages kept and goes to the last page that begins at or before `position`.
    fn restart(&mut self, position: u64) {
        let later = self
            .starts
            .partition_point(|start| start.position <= position);
        self.next = self.starts.get(later.saturating_sub(1)).cloned();
        self.first_kept = 0;
        self.kept.clear();
        self.coming = None;
        self.ahead = None;
    }

    /// Adds the next page. Returns `false` behind the last one.
    async fn load_next(&mut self) -> FsResult<bool> {
        self.request_next();
        if let Some(ahead) = &mut self.ahead {
            if let Ok(page) = ahead.next().await {
                self.keep(page);
                return Ok(true);
            }
            // What is wrong with a page that was guessed may be the guess.
            self.ahead = None;
            self.may_guess = false;
            self.starts.retain(|start| !start.is_guess());
            self.request_next();
        }
        let Some(coming) = &mut self.coming else {
            return Ok(false);
        };
        let arrived = (&mut coming.0).await;
        self.coming = None;
        let arrived =
            arrived.map_err(|error| FsError::Io(format!("a listing broke off: {error}")))?;
        let is_guess = self.next.as_ref().is_some_and(Start::is_guess);
        let page = match arrived {
            Err(FsError::Unsupported(_)) if is_guess && self.may_guess => {
                self.may_guess = false;
                self.request_next();
                return Box::pin(self.load_next()).await;
            }
            page => page?,
        };
        self.keep(page);
        Ok(true)
    }

    fn keep(&mut self, mut page: Page) {
        let position = self.next.take().map_or(page.first, |next| next.position);
        page.place_at(position);
        self.marker |= page.marker;
        self.next.clone_from(&page.next);
        if let Some(next) = &page.next
            && self
                .starts
                .last()
                .is_none_or(|last| last.position < next.position)
        {
            self.starts.push(next.clone());
        }
        let paid = page.pay(self.source.lookups.mount.transfer.pool().budget());
        self.kept.push_back(page);
        let most = if paid { PAGES_KEPT } else { PAGES_KEPT_MIN };
        while self.kept.len() > most {
            self.kept.pop_front();
            self.first_kept += 1;
        }
    }

    /// Begins to fetch the page after the last one kept, if there is one and it is not under way.
    fn request_next(&mut self) {
        let Some(start) = self.next.clone() else {
            self.ahead = None;
            return;
        };
        if let Some(ahead) = &mut self.ahead {
            return ahead.extend();
        }
        if self.coming.is_some() {
            return;
        }
        if self.may_guess && self.first_kept + self.kept.len() >= PAGES_IN_TURN {
            let page = self.kept.back();
            self.ahead = page.and_then(|page| Ahead::new(&self.source, page, &start));
        }
        if self.ahead.is_none() {
            self.coming = Some(Coming(self.fetch(start)));
        }
    }

    fn fetch(&self, start: Start) -> JoinHandle<FsResult<Page>> {
        let source = self.source.clone();
        if self.may_guess || !start.is_guess() {
            return tokio::spawn(source.fetch(start));
        }
        let later = self
            .starts
            .partition_point(|sure| sure.position <= start.position);
        let sure = self.starts.get(later.saturating_sub(1)).cloned();
        let after = start.after.clone().unwrap_or_default();
        tokio::spawn(source.fetch_after(after, sure.unwrap_or(start)))
    }
}

impl Source {
    /// Fetches page after page from `start` on until one reaches beyond the key `after`, and begins it
    /// there. Entries cannot be counted for that: some may have been removed meanwhile.
    async fn fetch_after(self, after: String, mut start: Start) -> FsResult<Page> {
        loop {
            let mut page = self.clone().fetch(start).await?;
            start = match &page.next {
                Some(next) if page.last_key <= after => next.clone(),
                _ => {
                    page.skip_to(&self.prefix, &after);
                    return Ok(page);
                }
            };
        }
    }

    /// Fetches a page.
    pub(super) async fn fetch(self, start: Start) -> FsResult<Page> {
        let Self {
            lookups,
            directory,
            prefix,
        } = self;
        let mount = &lookups.mount;
        let observation = mount.namespace.observe(directory)?;
        let options = ListOptions {
            prefix: prefix.to_string(),
            delimited: true,
            start_after: start.after.clone().filter(|_| start.is_guess()),
            continuation: start.continuation.clone(),
            ..ListOptions::default()
        };
        let page = for_reading(mount.list(options).await)?;
        if start.is_guess() && !begins_after(&page, start.after.as_deref()) {
            return Err(FsError::Unsupported(
                "the store lists from the beginning only",
            ));
        }
        let mut page = Page::new(mount, &prefix, &start, (page, observation))?;
        if mount.keeps_metadata() {
            page.describe(&lookups, directory, &prefix).await?;
        }
        Ok(page)
    }
}

/// Whether nothing on a page comes before where it was asked for.
fn begins_after(page: &ListPage, after: Option<&str>) -> bool {
    let object = page.objects.first().map(|object| object.key.as_str());
    let first = object
        .into_iter()
        .chain(page.common_prefixes.first().map(String::as_str));
    first.min().is_none_or(|first| Some(first) > after)
}

impl Mount {
    /// Counts names in the directory `prefix` that the store does not tell.
    pub(crate) fn note_untold_names(&self, prefix: &str, count: usize) {
        self.metrics.hidden_names.add(count as u64);
        if self.notices.untold_names.first() {
            tracing::warn!(
                "{count} names in `{prefix}` are hidden: they have control characters, and the store \
                 does not encode names in listings; rename the objects in the store to see them \
                 (later cases are only counted)"
            );
        }
    }

    /// Counts a key that no file name can express.
    pub(crate) fn note_hidden_name(&self, key: &str) {
        self.metrics.hidden_names.increment();
        if self.notices.hidden_name.first() {
            tracing::warn!(
                "the key {key:?} cannot be shown as a file: names are 1 to 255 bytes without NUL, \
                 and not `.` or `..`; rename the object in the store to see it (later cases are \
                 only counted)"
            );
        }
    }
}
