//! Ranges of keys that are listed side by side.
//!
//! Whoever receives a full page leaves the upper half of what his range seems to have left to somebody else. Where
//! that half begins is a guess by the characters that keys had so far ([`Alphabet`]): a bad one costs a request, and
//! never a key, since both halves are the whole.

use penstock_object::{Alphabet, FlatPage};

/// Ranges of one path that are listed at once.
pub(super) const RANGES_MAX: usize = 8;
/// Pages that a range must seem to have left to be cut: fewer are listed sooner than shared.
const PAGES_TO_CUT: f64 = 3.0;
/// Keys of each page that the alphabet learns from.
const SAMPLES_PER_PAGE: usize = 16;

/// What is known of the keys of a path, and how many ranges there are of them.
#[derive(Debug)]
pub(super) struct Ranges {
    alphabet: Alphabet,
    under_way: usize,
}

impl Default for Ranges {
    /// One that is everything.
    fn default() -> Self {
        Self {
            alphabet: Alphabet::default(),
            under_way: 1,
        }
    }
}

/// Keys that are still to be listed: those of one range.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    /// Only keys after this one.
    pub(super) after: Option<String>,
    /// Where the page before ended, instead.
    pub(super) continuation: Option<String>,
    /// The last key of the range; none for the end of all.
    up_to: Option<String>,
}

/// What follows from a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Keys at its front that belong to the range.
    pub(super) keys: usize,
    /// The rest of the range, and another that was cut from it.
    pub(super) next: [Option<Range>; 2],
}

impl Ranges {
    /// Takes notice of `page` of `range`, whose keys begin with `prefix`.
    pub(super) fn receive(&mut self, range: Range, page: &FlatPage, prefix: &str) -> Step {
        let keys = match &range.up_to {
            Some(end) => page.count_up_to(end),
            None => page.len(),
        };
        let is_done = keys < page.len() || page.continuation.is_none();
        if is_done {
            self.under_way -= 1;
            let next = [None, None];
            return Step { keys, next };
        }
        let mut rest = Range {
            after: None,
            continuation: page.continuation.clone(),
            ..range
        };
        let upper = self.cut(&mut rest, page, prefix);
        let next = [Some(rest), upper];
        Step { keys, next }
    }

    /// Takes the upper half of `rest`, if it is worth it.
    fn cut(&mut self, rest: &mut Range, page: &FlatPage, prefix: &str) -> Option<Range> {
        let below = |index| page.key(index).strip_prefix(prefix).unwrap_or_default();
        let step = (page.len() / SAMPLES_PER_PAGE).max(1);
        for index in (0..page.len()).step_by(step) {
            self.alphabet.learn(below(index));
        }
        let (first, last) = (below(0), below(page.len().checked_sub(1)?));
        let end = rest
            .up_to
            .as_deref()
            .and_then(|end| end.strip_prefix(prefix));
        let is_large = self.alphabet.ahead(first, last, end) >= PAGES_TO_CUT;
        if !is_large || self.under_way >= RANGES_MAX {
            return None;
        }
        let middle = format!("{prefix}{}", self.alphabet.between(last, end)?);
        self.under_way += 1;
        Some(Range {
            after: Some(middle.clone()),
            continuation: None,
            up_to: rest.up_to.replace(middle),
        })
    }
}
