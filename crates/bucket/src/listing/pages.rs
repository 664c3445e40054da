//! The pages of one listing, fetched as they are needed.

use std::{collections::VecDeque, sync::Arc};

use penstock_base::{FsError, FsResult};
use penstock_object::ListOptions;
use penstock_vfs::Inode;
use tokio::task::JoinHandle;

use crate::{core::Core, errors::for_reading, key, listing::page::Page};

/// Pages in memory: the one before, the current one, and the next one when it is looked into.
const PAGES_KEPT: usize = 3;

/// The pages of one listing.
#[derive(Debug)]
pub(super) struct Pages {
    core: Arc<Core>,
    directory: Inode,
    prefix: Arc<str>,
    /// Where each page that was met so far begins.
    starts: Vec<Start>,
    /// Consecutive pages.
    kept: VecDeque<Page>,
    /// The number of the first page kept.
    first_kept: usize,
    /// The page after the last one kept.
    coming: Option<Coming>,
    marker: bool,
}

/// Where a page begins.
#[derive(Debug, Clone)]
pub(super) struct Start {
    pub(super) position: u64,
    /// What leads to the page; `None` for the first.
    continuation: Option<String>,
    /// The last key of the page before.
    pub(super) after: Option<String>,
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
    pub(super) fn new(core: &Arc<Core>, directory: Inode, prefix: String, first: u64) -> Self {
        Self {
            core: Arc::clone(core),
            directory,
            prefix: prefix.into(),
            starts: vec![Start {
                position: first,
                continuation: None,
                after: None,
            }],
            kept: VecDeque::new(),
            first_kept: 0,
            coming: None,
            marker: false,
        }
    }

    /// Whether a page so far had the object that marks the directory.
    pub(super) fn marker(&self) -> bool {
        self.marker
    }

    /// A page that [`Pages::seek`] found.
    pub(super) fn page(&self, number: usize) -> &Page {
        &self.kept[number - self.first_kept]
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
        let directory = key::directory_prefix(&self.prefix, page.name(index));
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
            None => for_reading(self.core.first_below(&directory).await)?.is_some(),
        };
        if hidden && self.page(number).is_file(index) {
            let key = key::checked_key(directory.trim_end_matches('/'))?;
            self.core.note_hidden_file(&key);
        }
        Ok(hidden)
    }

    /// Forgets the pages kept and goes to the last page that begins at or before `position`.
    fn restart(&mut self, position: u64) {
        let later = self
            .starts
            .partition_point(|start| start.position <= position);
        self.first_kept = later.saturating_sub(1);
        self.kept.clear();
        self.coming = None;
    }

    /// Adds the next page. Returns `false` behind the last one.
    async fn load_next(&mut self) -> FsResult<bool> {
        self.request_next();
        let Some(coming) = &mut self.coming else {
            return Ok(false);
        };
        let arrived = (&mut coming.0).await;
        self.coming = None;
        let page =
            arrived.map_err(|error| FsError::Io(format!("a listing broke off: {error}")))??;
        self.keep(page);
        Ok(true)
    }

    fn keep(&mut self, page: Page) {
        self.marker |= page.marker;
        let next = self.first_kept + self.kept.len() + 1;
        if self.starts.len() == next && page.continuation.is_some() {
            let continuation = page.continuation.clone();
            self.starts.push(Start {
                position: page.end(),
                continuation,
                after: Some(page.last_key.clone()).filter(|key| !key.is_empty()),
            });
        }
        self.kept.push_back(page);
        if self.kept.len() > PAGES_KEPT {
            self.kept.pop_front();
            self.first_kept += 1;
        }
    }

    /// Begins to fetch the page after the last one kept, if there is one and it is not under way.
    fn request_next(&mut self) {
        if self.coming.is_some() {
            return;
        }
        let number = self.first_kept + self.kept.len();
        let Some(start) = self.starts.get(number).cloned() else {
            return;
        };
        let (core, directory) = (Arc::clone(&self.core), self.directory);
        let prefix = Arc::clone(&self.prefix);
        self.coming = Some(Coming(tokio::spawn(fetch(core, directory, prefix, start))));
    }
}

async fn fetch(
    core: Arc<Core>,
    directory: Inode,
    prefix: Arc<str>,
    start: Start,
) -> FsResult<Page> {
    let observation = core.namespace.observe(directory)?;
    let options = ListOptions {
        prefix: prefix.to_string(),
        delimited: true,
        continuation: start.continuation.clone(),
        ..ListOptions::default()
    };
    let page = for_reading(core.store().list(options).await)?;
    let mut page = Page::new(&core, &prefix, &start, (page, observation))?;
    if core.keeps_metadata() {
        page.describe(&core, directory, &prefix).await?;
    }
    Ok(page)
}

impl Core {
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
