//! One page of a listing, cut from an ordered map.

use std::{collections::BTreeMap, ops::Bound};

use super::object::Object;
use penstock_object::{ListOptions, ListPage, ListedObject};

/// Entries in a page at most.
const PAGE_MAX: u32 = 1000;

/// The page that `options` ask for. Its continuation is its last key or rolled-up prefix.
pub(super) fn page(objects: &BTreeMap<String, Object>, options: &ListOptions) -> ListPage {
    let room = options.max_keys.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX) as usize;
    let mut page = ListPage::default();
    let mut last = None;
    let mut next = start(options);
    while let Some((key, object)) = first_from(objects, &options.prefix, &next) {
        if page.objects.len() + page.common_prefixes.len() == room {
            page.continuation = last;
            break;
        }
        let entry = if let Some(rolled_up) = rolled_up(key, options) {
            page.common_prefixes.push(rolled_up.to_owned());
            rolled_up
        } else {
            page.objects.push(listed(key, object));
            key
        };
        next = after(entry, options);
        last = Some(entry.to_owned());
    }
    page
}

/// Where the search for the page's first key begins.
fn start(options: &ListOptions) -> Bound<String> {
    match (&options.continuation, &options.start_after) {
        (Some(entry), _) => after(entry, options),
        (None, Some(key)) => Bound::Excluded(key.clone()),
        (None, None) => Bound::Unbounded,
    }
}

/// What follows `entry`: for a rolled-up prefix the first key that does not start with it.
fn after(entry: &str, options: &ListOptions) -> Bound<String> {
    match rolled_up(entry, options).and_then(|prefix| prefix.strip_suffix('/')) {
        // `0` is the character after `/`.
        Some(directory) => Bound::Included(format!("{directory}0")),
        None => Bound::Excluded(entry.to_owned()),
    }
}

/// The prefix, `/` included, that a delimited listing shows in place of `key`.
fn rolled_up<'a>(key: &'a str, options: &ListOptions) -> Option<&'a str> {
    let rest = key.strip_prefix(options.prefix.as_str())?;
    let slash = rest.find('/').filter(|_| options.delimited)?;
    Some(&key[..options.prefix.len() + slash + 1])
}

fn first_from<'a>(
    objects: &'a BTreeMap<String, Object>,
    prefix: &str,
    bound: &Bound<String>,
) -> Option<(&'a str, &'a Object)> {
    let from = match bound {
        Bound::Included(key) | Bound::Excluded(key) if key.as_str() >= prefix => {
            bound.as_ref().map(String::as_str)
        }
        _ => Bound::Included(prefix),
    };
    let (key, object) = objects.range::<str, _>((from, Bound::Unbounded)).next()?;
    key.starts_with(prefix).then_some((key.as_str(), object))
}

fn listed(key: &str, object: &Object) -> ListedObject {
    ListedObject {
        key: key.to_owned(),
        size: object.size(),
        etag: object.etag().clone(),
        modified: object.modified(),
        kind: object.kind(),
        storage_class: String::new(),
    }
}
