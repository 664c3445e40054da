//! Ranges of a large directory that are listed in parallel, ahead of the reader.
//!
//! A listing is a chain: each page says where the next begins, so a million names take a thousand
//! round trips. But a page may begin anywhere. From how far the last page reached it is reckoned where
//! a few pages later a name might stand ([`Alphabet::beyond`]), and so where the next range begins. A
//! bad guess costs a request, never a name: a range ends exactly where the next one begins, and is
//! listed until then, however many pages that are.
//!
//! - **Order.** Ranges are read one after the other; each is a task that lists its pages one after
//!   the other, and waits while some are unread.
//! - **Bounds.** More ranges are begun as more is read, up to [`RANGES_MAX`], each with memory of its
//!   own, which is there to spare or the range is not begun. Where guesses cost too many requests the
//!   rest becomes one range.
//! - **Failures.** Nothing is wrong with the listing if a page fails that was guessed: the reader goes
//!   back to pages that the store continued itself.

use std::collections::VecDeque;

use penstock_base::{FsError, FsResult, KIB, Reservation};
use penstock_object::Alphabet;
use tokio::{sync::mpsc, task::JoinHandle};

use super::{
    page::Page,
    pages::{Source, Start},
};
use crate::lookup::Lookups;

/// Ranges at once.
const RANGES_MAX: usize = 16;
/// Pages that a range should have.
const RANGE_PAGES: usize = 4;
/// Bytes of a page, about, with what it is made from.
const PAGE_COST: u64 = 512 * KIB;
/// Names of a page that the alphabet learns from.
const SAMPLES: usize = 32;
/// Requests beyond one for each full page: a few, and one for each page.
const EXTRA_REQUESTS: u64 = 32;
/// Entries of a full page.
const PAGE_ENTRIES: u64 = 1000;

/// The pages of a listing from some page on.
#[derive(Debug)]
pub(super) struct Ahead {
    source: Source,
    alphabet: Alphabet,
    /// The first and the last name of the largest page of late.
    extent: (String, String),
    /// In order; the first is being read.
    ranges: VecDeque<Range>,
    /// The key that the next range begins after; `None` when nothing is left.
    frontier: Option<String>,
    /// Ranges that may be under way.
    width: usize,
    requests: u64,
    entries: u64,
}

/// A part of a directory that is being listed; given up when dropped.
#[derive(Debug)]
struct Range {
    pages: mpsc::Receiver<FsResult<Page>>,
    task: JoinHandle<()>,
    /// What pays for the pages that wait.
    _memory: Option<Reservation>,
}

impl Drop for Range {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Ahead {
    /// Goes on behind `page`, from `start`. None if there is no telling where to cut.
    pub(super) fn new(source: &Source, page: &Page, start: &Start) -> Option<Self> {
        let mut ahead = Self {
            source: source.clone(),
            alphabet: Alphabet::default(),
            extent: Default::default(),
            ranges: VecDeque::new(),
            frontier: None,
            width: 1,
            requests: 0,
            entries: 0,
        };
        ahead.learn(page);
        let last = start.after.as_deref()?;
        let end = ahead.cut_behind(last)?;
        ahead.begin(start.clone(), Some(end), None);
        Some(ahead)
    }

    /// The next page.
    pub(super) async fn next(&mut self) -> FsResult<Page> {
        loop {
            self.extend();
            let Some(range) = self.ranges.front_mut() else {
                return Err(FsError::Io("the ranges of a listing have a gap".to_owned()));
            };
            let Some(page) = range.pages.recv().await else {
                self.ranges.pop_front();
                continue;
            };
            let page = page?;
            self.requests += 1;
            self.entries += page.end() - page.first;
            self.learn(&page);
            self.width = (self.width + 1).min(RANGES_MAX);
            return Ok(page);
        }
    }

    /// Begins more ranges if there is room for them.
    pub(super) fn extend(&mut self) {
        while self.ranges.len() < self.width.max(1)
            && let Some(frontier) = self.frontier.clone()
        {
            let budget = self.source.lookups.mount.transfer.pool().budget();
            let memory = budget.try_reserve_spare(PAGE_COST * (RANGE_PAGES as u64 + 1));
            if memory.is_none() && !self.ranges.is_empty() {
                return;
            }
            let end = self.cut_behind(&frontier).filter(|_| self.guesses_pay());
            self.begin(Start::guess(&frontier), end, memory);
        }
    }

    fn begin(&mut self, start: Start, end: Option<String>, memory: Option<Reservation>) {
        let (sender, pages) = mpsc::channel(RANGE_PAGES);
        let (source, until) = (self.source.clone(), end.clone());
        self.frontier = end;
        self.ranges.push_back(Range {
            pages,
            task: tokio::spawn(list(source, start, until, sender)),
            _memory: memory,
        });
    }

    /// Whether most requests bring what they could.
    fn guesses_pay(&self) -> bool {
        self.requests <= 2 * self.entries / PAGE_ENTRIES + EXTRA_REQUESTS
    }

    /// A key some pages behind `key`.
    fn cut_behind(&self, key: &str) -> Option<String> {
        let prefix = &*self.source.prefix;
        let name = key.strip_prefix(prefix)?.trim_end_matches('/');
        let extent = (self.extent.0.as_str(), self.extent.1.as_str());
        let cut = self.alphabet.beyond(extent, name, RANGE_PAGES as f64)?;
        let cut = format!("{prefix}{cut}");
        (cut.as_str() > key).then_some(cut)
    }

    fn learn(&mut self, page: &Page) {
        let step = (page.names().count() / SAMPLES).max(1);
        let samples = page.names().step_by(step);
        samples.for_each(|name| self.alphabet.learn(name));
        let is_full = page.end() - page.first >= PAGE_ENTRIES / 2;
        if let Some((first, last)) = page.extent().filter(|_| is_full) {
            self.extent = (first.to_owned(), last.to_owned());
        }
    }
}

/// Lists from `start` to the key `end`, or to the end of the directory.
async fn list(
    source: Source,
    mut start: Start,
    end: Option<String>,
    pages: mpsc::Sender<FsResult<Page>>,
) {
    loop {
        let mut page = source.clone().fetch(start).await;
        let mut next = None;
        if let Ok(page) = &mut page {
            let prefix = &source.prefix;
            let is_done = end.as_ref().is_some_and(|end| page.cut(prefix, end));
            next = page.next.clone().filter(|_| !is_done);
        }
        if pages.send(page).await.is_err() {
            return;
        }
        match next {
            Some(next) => start = next,
            None => return,
        }
    }
}

impl Lookups {
    /// Whether a listing asks for nothing but its pages: what is asked for each entry takes longer
    /// than the pages, and is asked for in vain if nobody reads on.
    pub(super) fn lists_without_asking(&self) -> bool {
        !self.mount.keeps_metadata() || self.mount.settings.metadata.readdir_optimize
    }
}
