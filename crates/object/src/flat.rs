//! A page of a listing in one piece of memory.
//!
//! Somebody who lists millions of objects wants of each its key, size, tag and time, once, in
//! order. [`crate::ListPage`] makes three strings of each, which costs more than reading them. A
//! [`FlatPage`] keeps the text of all entries back to back and of each entry only where it ends.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::ListPage;

/// One page of a listing without a delimiter.
#[derive(Debug, Clone, Default)]
pub struct FlatPage {
    /// Key and tag of the first entry, of the second, and so on.
    text: String,
    entries: Vec<Entry>,
    /// Bytes at the beginning of each key that callers do not see.
    hidden: usize,
    /// Where the next page begins; `None` on the last one.
    pub continuation: Option<String>,
}

/// An object of a [`FlatPage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlatObject<'a> {
    /// The key as text: a listing may hold names that [`crate::Key`] refuses.
    pub key: &'a str,
    /// Bytes in the object.
    pub size: u64,
    /// The content's version, without quotes.
    pub etag: &'a str,
    /// When the object was written.
    pub modified: FlatTime,
    /// Whether it points to another object (OSS).
    pub is_link: bool,
}

/// A point in time as listings have it: seconds since 1970 and nanoseconds below a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlatTime {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Less than a second.
    pub nanoseconds: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// Where in the text the key begins, where it ends and the tag begins, where that ends.
    key: usize,
    etag: usize,
    end: usize,
    size: u64,
    modified: FlatTime,
    is_link: bool,
}

impl From<SystemTime> for FlatTime {
    fn from(time: SystemTime) -> Self {
        let whole = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self {
                seconds: whole(since),
                nanoseconds: since.subsec_nanos(),
            },
            Err(error) => match (whole(error.duration()), error.duration().subsec_nanos()) {
                (seconds, 0) => Self {
                    seconds: -seconds,
                    nanoseconds: 0,
                },
                (seconds, below) => Self {
                    seconds: -seconds - 1,
                    nanoseconds: 1_000_000_000 - below,
                },
            },
        }
    }
}

impl FlatPage {
    /// An empty page with room for `objects` whose text has `bytes` in all.
    pub fn with_capacity(objects: usize, bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes),
            entries: Vec::with_capacity(objects),
            ..Self::default()
        }
    }

    /// Objects on the page.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is on the page.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The object at `index`. Panics beyond the end, like a slice.
    pub fn object(&self, index: usize) -> FlatObject<'_> {
        let entry = &self.entries[index];
        FlatObject {
            key: self.key(index),
            size: entry.size,
            etag: &self.text[entry.etag..entry.end],
            modified: entry.modified,
            is_link: entry.is_link,
        }
    }

    /// The key at `index`. Panics beyond the end, like a slice.
    pub fn key(&self, index: usize) -> &str {
        let entry = &self.entries[index];
        &self.text[entry.key + self.hidden..entry.etag]
    }

    /// The objects in order.
    pub fn objects(&self) -> impl Iterator<Item = FlatObject<'_>> {
        (0..self.len()).map(|index| self.object(index))
    }

    /// How many keys at the front of the page are not after `last`, given that all are in order.
    pub fn count_up_to(&self, last: &str) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle) <= last {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Adds an object whose key is `key`.
    pub fn push(&mut self, object: &FlatObject<'_>) {
        let key = self.text.len();
        self.text.push_str(object.key);
        let etag = self.text.len();
        self.text.push_str(object.etag);
        self.entries.push(Entry {
            key,
            etag,
            end: self.text.len(),
            size: object.size,
            modified: object.modified,
            is_link: object.is_link,
        });
    }

    /// Takes `prefix` off every key, and leaves out the key that is the prefix itself and those
    /// that do not start with it.
    pub fn strip_prefix(&mut self, prefix: &str) {
        let (text, hidden) = (&self.text, self.hidden);
        self.entries.retain(|entry| {
            let key = &text[entry.key + hidden..entry.etag];
            key.len() > prefix.len() && key.starts_with(prefix)
        });
        self.hidden += prefix.len();
    }
}

impl PartialEq for FlatPage {
    /// Whether callers see the same.
    fn eq(&self, other: &Self) -> bool {
        self.continuation == other.continuation && self.objects().eq(other.objects())
    }
}

impl Eq for FlatPage {}

impl From<ListPage> for FlatPage {
    /// The objects of `page`; what was rolled up is lost.
    fn from(page: ListPage) -> Self {
        let length = |object: &crate::ListedObject| object.key.len() + object.etag.as_str().len();
        let bytes = page.objects.iter().map(length).sum();
        let mut flat = Self::with_capacity(page.objects.len(), bytes);
        for object in &page.objects {
            flat.push(&FlatObject {
                key: &object.key,
                size: object.size,
                etag: object.etag.as_str(),
                modified: object.modified.into(),
                is_link: object.kind == crate::ObjectKind::Symlink,
            });
        }
        flat.continuation = page.continuation;
        flat
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(keys: &[&str]) -> FlatPage {
        let mut page = FlatPage::default();
        for (index, key) in keys.iter().enumerate() {
            page.push(&FlatObject {
                key,
                size: index as u64,
                etag: "tag",
                modified: FlatTime::default(),
                is_link: false,
            });
        }
        page
    }

    fn keys(page: &FlatPage) -> Vec<&str> {
        page.objects().map(|object| object.key).collect()
    }

    #[test]
    fn a_prefix_is_taken_off_and_its_own_key_left_out() {
        let mut page = page(&["p/", "p/a", "p/b/c", "q"]);
        page.strip_prefix("p/");
        assert_eq!(keys(&page), ["a", "b/c"]);
        assert_eq!((page.object(1).size, page.object(1).etag), (2, "tag"));
        page.strip_prefix("b/");
        assert_eq!(keys(&page), ["c"]);
    }

    #[test]
    fn counts_the_keys_up_to_another() {
        let page = page(&["a", "c", "e"]);
        let counts = ["", "a", "b", "e", "f"].map(|last| page.count_up_to(last));
        assert_eq!(counts, [0, 1, 1, 3, 3]);
    }

    #[test]
    fn times_before_1970_keep_their_fraction() {
        let time = FlatTime::from(UNIX_EPOCH - Duration::from_millis(1250));
        assert_eq!((time.seconds, time.nanoseconds), (-2, 750_000_000));
    }
}
