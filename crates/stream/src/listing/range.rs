//! A range of keys that somebody lists.

use penstock_object::{Alphabet, FlatPage};

use crate::spool::Span;

/// How much less a range counts of which no page has arrived: what it holds is a guess.
const UNSEEN_DISCOUNT: f64 = 0.5;

/// The largest estimate: one that is beyond a number's precision is as good as none.
const LEFT_MAX: f64 = 1e15;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Range {
    /// Everything up to here was listed.
    pub(super) position: String,
    /// Inclusive; comes nearer when somebody takes the upper part.
    pub(super) end: Option<String>,
    /// Whether a page has arrived.
    pub(super) seen: bool,
    /// Keys that are left, as far as can be told: infinity where nothing is known, zero where the
    /// range cannot be split.
    pub(super) left: f64,
    /// The first key of the last page, and how many there were.
    page: (String, usize),
}

impl Range {
    /// The keys of `span`, about `left` of them.
    pub(super) fn new(span: Span, left: f64) -> Self {
        Self {
            position: span.after,
            end: span.up_to,
            seen: false,
            left,
            page: (String::new(), 0),
        }
    }

    /// The estimate by which ranges are compared.
    pub(super) fn weight(&self) -> f64 {
        if self.seen {
            self.left
        } else {
            self.left * UNSEEN_DISCOUNT
        }
    }

    /// Takes the keys of `page` that lie in the range and returns how many these are.
    pub(super) fn advance(&mut self, page: &FlatPage) -> usize {
        let taken = match &self.end {
            Some(end) => page.count_up_to(end),
            None => page.len(),
        };
        self.seen = true;
        if taken > 0 {
            page.key(taken - 1).clone_into(&mut self.position);
            self.page = (page.key(0).to_owned(), taken);
        }
        taken
    }

    /// Estimates what is left from how dense the keys of the last page lay.
    pub(super) fn estimate(&mut self, alphabet: &Alphabet) {
        let (first, keys) = &self.page;
        if *keys == 0 {
            return;
        }
        let ahead = alphabet.ahead(first, &self.position, self.end.as_deref());
        self.left = (ahead * *keys as f64).min(LEFT_MAX);
    }

    /// Leaves what is after `middle` to somebody else.
    pub(super) fn split(&mut self, middle: &str, alphabet: &Alphabet) -> Range {
        let span = Span {
            after: middle.to_owned(),
            up_to: self.end.replace(middle.to_owned()),
        };
        let before = self.left;
        self.left = before / 2.0;
        if self.seen {
            self.estimate(alphabet);
        }
        let upper = if self.left < before {
            before - self.left
        } else {
            before / 2.0
        };
        Range::new(span, upper)
    }
}
