//! Names in listings that may be no names.
//!
//! A store that does not encode names puts a sign in the place of what XML cannot hold, and a name may
//! well have that sign itself. So whoever is listed with it is asked for: what is not there under this
//! name has another one, which nobody can say. It is left out and counted.

use futures_util::{StreamExt, TryStreamExt, stream};

use super::{Dialect, Draft, RestStore, list::listing, write::protocol};
use crate::{
    ErrorKind, Key, ListOptions, ListPage, ListedObject, ObjectResult,
    xml::{Doubtful, read_list},
};

/// Names that are asked for at once.
const ASKED_AT_ONCE: usize = 8;

impl<D: Dialect> RestStore<D> {
    /// Reads a page of a listing, and asks for what may not be meant by its name.
    pub(super) async fn read_page(&self, draft: &Draft, answer: &[u8]) -> ObjectResult<ListPage> {
        let (mut page, Doubtful { objects, prefixes }) =
            read_list(answer).map_err(|error| protocol(draft, &error))?;
        page.hidden = objects.len() + prefixes.len();
        if page.hidden == 0 {
            return Ok(page);
        }
        let objects = stream::iter(objects).map(|object| self.confirm_object(object));
        let objects: Vec<_> = objects.buffered(ASKED_AT_ONCE).try_collect().await?;
        let prefixes = stream::iter(prefixes).map(|prefix| self.confirm_prefix(prefix));
        let prefixes: Vec<_> = prefixes.buffered(ASKED_AT_ONCE).try_collect().await?;
        page.hidden -= insert(&mut page.objects, objects, |object| &object.key);
        page.hidden -= insert(&mut page.common_prefixes, prefixes, |prefix| prefix);
        Ok(page)
    }

    async fn confirm_object(&self, object: ListedObject) -> ObjectResult<Option<ListedObject>> {
        let Ok(key) = Key::new(&object.key) else {
            return Ok(None);
        };
        match self.head(&key).await {
            Ok(info) => Ok((info.size == object.size).then_some(object)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn confirm_prefix(&self, prefix: String) -> ObjectResult<Option<String>> {
        let options = ListOptions {
            prefix: prefix.clone(),
            max_keys: Some(1),
            ..ListOptions::default()
        };
        let draft = listing(&options, self.listing);
        let answer = self.fetch(&draft).await?;
        let read = read_list(&answer).map_err(|error| protocol(&draft, &error));
        let (page, doubtful) = read?;
        let is_there = !page.objects.is_empty() || !doubtful.objects.is_empty();
        Ok(is_there.then_some(prefix))
    }
}

/// Puts what was confirmed in its place in an ordered list, and returns how much that was. Of several
/// with one name the last has it: what cannot be said comes before the sign for it.
fn insert<T>(list: &mut Vec<T>, confirmed: Vec<Option<T>>, name: impl Fn(&T) -> &String) -> usize {
    let before = list.len();
    for entry in confirmed.into_iter().flatten() {
        let at = list.partition_point(|other| name(other) < name(&entry));
        match list.get_mut(at) {
            Some(same) if name(same) == name(&entry) => *same = entry,
            _ => list.insert(at, entry),
        }
    }
    list.len() - before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_confirmed_is_put_in_its_place_once() {
        let text = str::to_owned;
        let mut list = ["a", "c"].map(text).to_vec();
        let confirmed = ["b", "b", "d"].map(|name| Some(text(name)));
        let count = insert(&mut list, confirmed.to_vec(), |name| name);
        assert_eq!(count, 2);
        assert_eq!(list, ["a", "b", "c", "d"]);
    }
}
