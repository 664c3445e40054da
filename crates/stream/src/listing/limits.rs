//! How many requests there may be, in all and at once.

use super::LIST_CONCURRENCY_MAX;

/// Requests beyond the pages received, for each request that may be under way: what finding out how
/// keys are distributed may cost.
pub(super) const EXTRA_PER_CONCURRENCY: u64 = 6;

/// Such requests that are allowed for each page received until that number is reached, so that a
/// short listing stays cheap.
const EXTRA_PER_EARLY_PAGE: u64 = 4;

/// One request more is allowed for so many pages received: splitting ranges may cost half as many
/// requests as listing them does.
const PAGES_PER_EXTRA: u64 = 2;

/// Keys in a page where none was received yet.
const PAGE_KEYS: u64 = 1000;

/// Rounds of requests that may fail one after the other.
const FAILED_ROUNDS_MAX: u32 = 8;

/// Bounds the requests that split ranges.
#[derive(Debug)]
pub(super) struct Allowance {
    concurrency: u64,
    /// Requests for pages.
    requests: u64,
    /// Requests for where links lead.
    links: u64,
    keys: u64,
    largest_page: u64,
}

impl Allowance {
    pub(super) fn new(concurrency: usize) -> Self {
        Self {
            concurrency: concurrency as u64,
            requests: 0,
            links: 0,
            keys: 0,
            largest_page: 0,
        }
    }

    /// Counts a request for a page and returns how many requests there were.
    pub(super) fn request(&mut self) -> u64 {
        self.requests += 1;
        self.requests + self.links
    }

    /// The same of a request for where a link leads, which says nothing of how keys are distributed.
    pub(super) fn link(&mut self) -> u64 {
        self.links += 1;
        self.requests + self.links
    }

    /// Counts keys that were of use, out of `page` that came.
    pub(super) fn received(&mut self, keys: usize, page: usize) {
        self.keys += keys as u64;
        self.largest_page = self.largest_page.max(page as u64);
    }

    /// Whether one more request may go into splitting a range. Pages are counted as the fewest
    /// that the keys received would fit in.
    pub(super) fn permits_split(&self) -> bool {
        let largest = if self.largest_page == 0 {
            PAGE_KEYS
        } else {
            self.largest_page
        };
        let pages = self.keys / largest;
        let early = self.concurrency + EXTRA_PER_EARLY_PAGE * pages;
        let extra = early.min(EXTRA_PER_CONCURRENCY * self.concurrency);
        self.requests < pages + pages / PAGES_PER_EXTRA + extra
    }
}

/// Bounds the requests under way: fewer after failures, slowly more after successes.
#[derive(Debug)]
pub(super) struct Pace {
    limit: usize,
    limit_max: usize,
    /// Successes since the limit changed.
    calm: usize,
    /// Grows with each cut: failures of requests that began before it are no news.
    round: u32,
    failed_rounds: u32,
}

impl Pace {
    pub(super) fn new(concurrency: usize) -> Self {
        let limit_max = concurrency.clamp(1, LIST_CONCURRENCY_MAX);
        Self {
            limit: limit_max,
            limit_max,
            calm: 0,
            round: 0,
            failed_rounds: 0,
        }
    }

    /// Requests that may be under way.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// What a request notes when it begins.
    pub(super) fn round(&self) -> u32 {
        self.round
    }

    /// Failed rounds in a row.
    pub(super) fn failed_rounds(&self) -> u32 {
        self.failed_rounds
    }

    /// A request was answered. True when one more may be under way now.
    pub(super) fn succeeded(&mut self) -> bool {
        self.failed_rounds = 0;
        self.calm += 1;
        let grows = self.limit < self.limit_max && self.calm >= self.limit;
        if grows {
            self.limit += 1;
            self.calm = 0;
        }
        grows
    }

    /// A request that began in `round` failed in passing. False when that was once too often.
    pub(super) fn failed(&mut self, round: u32) -> bool {
        if round == self.round {
            self.round += 1;
            self.failed_rounds += 1;
            self.limit = (self.limit / 2).max(1);
            self.calm = 0;
        }
        self.failed_rounds < FAILED_ROUNDS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_costs_a_share_of_the_pages() {
        let mut allowance = Allowance::new(4);
        let mut splits = 0;
        let mut pages = 0u64;
        while pages < 1000 {
            while allowance.permits_split() {
                allowance.request();
                splits += 1;
            }
            allowance.request();
            allowance.received(1000, 1000);
            pages += 1;
            let bound = pages / PAGES_PER_EXTRA + 4 * EXTRA_PER_CONCURRENCY;
            assert!(splits <= bound, "{splits} after {pages} pages");
        }
        assert!(splits > pages / 3);
    }

    #[test]
    fn a_round_of_failures_counts_once() {
        let mut pace = Pace::new(64);
        let round = pace.round();
        assert!((0..64).all(|_| pace.failed(round)));
        assert_eq!((pace.limit(), pace.failed_rounds()), (32, 1));
        let raised = (0..32).filter(|_| pace.succeeded()).count();
        assert_eq!((raised, pace.limit(), pace.failed_rounds()), (1, 33, 0));
    }

    #[test]
    fn gives_up_after_rounds_without_success() {
        let mut pace = Pace::new(64);
        let rounds = (0..100)
            .take_while(|_| {
                let round = pace.round();
                pace.failed(round)
            })
            .count();
        assert_eq!(rounds as u32 + 1, FAILED_ROUNDS_MAX);
        assert_eq!(pace.limit(), 1);
    }
}
