//! Listing a bucket: keys in byte order, rolled up at a delimiter, page by page.

use std::ops::Bound;

use super::objects::{Listed, Objects};

/// What to list.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListingQuery {
    pub(crate) prefix: String,
    /// Empty for none.
    pub(crate) delimiter: String,
    /// Only keys after this one. A rolled-up prefix here leaves out all that it stands for.
    pub(crate) after: String,
    pub(crate) max_keys: usize,
}

/// One line of a listing.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Object(String, Listed),
    /// What keys were rolled up into; ends with the delimiter.
    Prefix(String),
}

impl Entry {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Object(name, _) | Self::Prefix(name) => name,
        }
    }
}

/// One page.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    pub(crate) truncated: bool,
}

impl Listing {
    /// The name of the last entry: where the next page begins.
    pub(crate) fn last_name(&self) -> &str {
        self.entries.last().map_or("", Entry::name)
    }

    pub(super) fn of(objects: &Objects, query: &ListingQuery) -> Self {
        let mut listing = Self::default();
        let mut walk = objects.walk(&first_bound(query));
        while let Some((name, object)) = walk.next() {
            if !name.starts_with(&query.prefix) {
                break;
            }
            if listing.entries.len() >= query.max_keys {
                listing.truncated = query.max_keys > 0;
                break;
            }
            match rolled_up(&name, query) {
                Some(prefix) => {
                    walk = objects.walk(&after_prefix(prefix));
                    listing.entries.push(Entry::Prefix(prefix.to_owned()));
                }
                None => listing.entries.push(Entry::Object(name, object)),
            }
        }
        listing
    }
}

fn first_bound(query: &ListingQuery) -> Bound<Vec<u8>> {
    let after = query.after.as_str();
    if after < query.prefix.as_str() {
        return Bound::Included(query.prefix.clone().into_bytes());
    }
    match rolled_up(after, query) {
        Some(prefix) if prefix == after => after_prefix(prefix),
        _ => Bound::Excluded(after.as_bytes().to_vec()),
    }
}

/// The part of `name` up to the first delimiter behind the prefix.
fn rolled_up<'a>(name: &'a str, query: &ListingQuery) -> Option<&'a str> {
    if query.delimiter.is_empty() {
        return None;
    }
    let rest = name.strip_prefix(&query.prefix)?;
    let at = rest.find(&query.delimiter)?;
    Some(&name[..query.prefix.len() + at + query.delimiter.len()])
}

/// The first key that does not begin with `prefix`: its last byte, one higher. UTF-8 has no
/// byte 255, so there is room.
fn after_prefix(prefix: &str) -> Bound<Vec<u8>> {
    let mut next = prefix.as_bytes().to_vec();
    if let Some(last) = next.last_mut() {
        *last += 1;
    }
    Bound::Included(next)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use proptest::prelude::*;

    use super::*;
    use crate::store::{Content, Object};

    fn objects(keys: &BTreeSet<String>) -> Objects {
        let object = || Arc::new(Object::new(Content::default(), String::new()));
        keys.iter()
            .map(|key| (key.clone().into_bytes(), object()))
            .collect()
    }

    /// The same by brute force: every key, rolled up, without repeats.
    fn expected(keys: &BTreeSet<String>, query: &ListingQuery) -> Vec<String> {
        let mut names: Vec<String> = keys
            .iter()
            .filter(|key| key.starts_with(&query.prefix))
            .map(|key| rolled_up(key, query).unwrap_or(key).to_owned())
            .filter(|name| *name > query.after)
            .collect();
        names.dedup();
        names
    }

    proptest! {
        #[test]
        fn pages_make_up_the_whole(
            keys in prop::collection::btree_set("[ab/é]{1,6}", 0..30),
            prefix in "[ab/]{0,2}",
            delimiter in "[/a]?",
            max_keys in 1..5usize,
        ) {
            let objects = objects(&keys);
            let mut query = ListingQuery { prefix, delimiter, after: String::new(), max_keys };
            let all = expected(&keys, &query);
            let mut names = Vec::new();
            loop {
                let page = Listing::of(&objects, &query);
                prop_assert!(page.entries.len() <= max_keys);
                names.extend(page.entries.iter().map(|entry| entry.name().to_owned()));
                if !page.truncated {
                    break;
                }
                query.after = page.last_name().to_owned();
            }
            prop_assert_eq!(names, all);
        }

        #[test]
        fn starts_after_any_key(
            keys in prop::collection::btree_set("[ab/]{1,5}", 0..30),
            after in "[ab/]{0,5}",
        ) {
            let query = ListingQuery { after, max_keys: 1000, ..ListingQuery::default() };
            let page = Listing::of(&objects(&keys), &query);
            let names: Vec<_> = page.entries.iter().map(|entry| entry.name().to_owned()).collect();
            prop_assert_eq!(names, expected(&keys, &query));
        }
    }
}
