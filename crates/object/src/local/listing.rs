//! Pages of listings.
//!
//! The continuation of a page is its last key or prefix, so a listing can go on at any time. The
//! walk behind a page is kept for a while too: the next page then goes on without reading large
//! directories again. Such a listing shows a directory's keys as they were when it came to it,
//! less those that have gone since.

use std::{collections::VecDeque, time::Duration};

use penstock_base::{
    Mutex,
    clock::{self, Instant},
};

use super::{
    problem::Attempt,
    tree::Tree,
    walk::{After, Found, Walk},
};
use crate::{ListOptions, ListPage, ListedObject};

/// Entries in a page at most.
const PAGE_MAX: u32 = 1000;

/// Walks that are kept at once.
const WALKS_MAX: usize = 32;

/// How long a walk is kept for the next page.
const WALK_AGE_MAX: Duration = Duration::from_secs(60);

/// Walks that were interrupted at the end of a page.
#[derive(Default)]
pub(super) struct Listings(Mutex<VecDeque<Interrupted>>);

struct Interrupted {
    prefix: String,
    delimited: bool,
    continuation: String,
    since: Instant,
    walk: Walk,
}

impl Listings {
    /// The page that `options` ask for.
    pub(super) fn page(&self, tree: &Tree, options: &ListOptions) -> Attempt<ListPage> {
        let room = options.max_keys.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX) as usize;
        let mut walk = self.resume(options).unwrap_or_else(|| begin(options));
        let mut page = ListPage::default();
        let mut last = String::new();
        while let Some(found) = walk.next(tree)? {
            if page.objects.len() + page.common_prefixes.len() == room {
                walk.put_back(found);
                page.continuation = Some(last);
                break;
            }
            found.text().clone_into(&mut last);
            match found {
                Found::Object(key, version) => page.objects.push(ListedObject {
                    key,
                    size: version.size,
                    etag: version.etag(),
                    modified: version.modified(),
                    kind: version.kind(),
                    storage_class: String::new(),
                }),
                Found::Prefix(prefix) => page.common_prefixes.push(prefix),
            }
        }
        if let Some(continuation) = &page.continuation {
            self.keep(options, continuation, walk);
        }
        Ok(page)
    }

    fn keep(&self, options: &ListOptions, continuation: &str, walk: Walk) {
        let mut walks = self.0.lock();
        walks.retain(|kept| !kept.continues(options, continuation));
        walks.push_back(Interrupted {
            prefix: options.prefix.clone(),
            delimited: options.delimited,
            continuation: continuation.to_owned(),
            since: clock::now(),
            walk,
        });
        if walks.len() > WALKS_MAX {
            walks.pop_front();
        }
    }

    fn resume(&self, options: &ListOptions) -> Option<Walk> {
        let mut walks = self.0.lock();
        walks.retain(|kept| kept.since.elapsed() < WALK_AGE_MAX);
        let continuation = options.continuation.as_deref()?;
        let found = walks
            .iter()
            .position(|kept| kept.continues(options, continuation))?;
        walks.remove(found).map(|kept| kept.walk)
    }
}

impl Interrupted {
    fn continues(&self, options: &ListOptions, continuation: &str) -> bool {
        self.prefix == options.prefix
            && self.delimited == options.delimited
            && self.continuation == continuation
    }
}

fn begin(options: &ListOptions) -> Walk {
    let after = match (&options.continuation, &options.start_after) {
        (Some(last), _) => Some(after_entry(last, options)),
        (None, Some(key)) => Some(After::Key(key.clone())),
        (None, None) => None,
    };
    Walk::new(&options.prefix, options.delimited, after)
}

/// What follows `last`, which in a delimited listing may have been a prefix.
fn after_entry(last: &str, options: &ListOptions) -> After {
    let below = last.strip_prefix(options.prefix.as_str());
    if options.delimited && below.is_some_and(|below| below.contains('/')) {
        After::Prefix(last.to_owned())
    } else {
        After::Key(last.to_owned())
    }
}
