//! Where the symbolic links of a page lead.
//!
//! The store keeps the key of another object. The volume shows the shortest relative path to it,
//! so that it leads to the same object wherever the volume is mounted, and never out of it. A link
//! that leads out of the path that is listed, or whose target no path can name, stays a file:
//! reading it follows the link in the store.

use std::{collections::HashMap, sync::Arc};

use futures_util::{StreamExt, TryStreamExt, stream};
use penstock_object::{ErrorKind, FlatPage, Key, Store};

use super::worker::Shared;
use crate::SnapshotError;

/// Links of one page that are asked for at once.
const REQUESTS: usize = 4;

/// Bytes of the longest path that a link may hold.
const PATH_MAX: usize = 4095;

/// Targets by the places of their links in a page.
pub(super) type Targets = HashMap<usize, String>;

/// Asks for the targets of the links among the first `keys` objects of a page. Fails when there were
/// too many requests.
pub(super) async fn targets(
    shared: &Shared,
    page: &FlatPage,
    keys: usize,
) -> Result<Targets, SnapshotError> {
    let objects = page.objects().take(keys).enumerate();
    let links: Vec<_> = objects
        .filter(|(_, object)| object.is_link)
        .map(|(index, object)| (index, object.key.to_owned()))
        .collect();
    if links.is_empty() {
        return Ok(Targets::new());
    }
    let asked = links.into_iter().map(|(index, key)| async move {
        shared.count_link()?;
        let target = target(&shared.store, &key).await?;
        Ok::<_, SnapshotError>((index, target))
    });
    let found: Vec<_> = stream::iter(asked).buffered(REQUESTS).try_collect().await?;
    let leads_somewhere = |(index, target): (usize, Option<String>)| Some((index, target?));
    Ok(found.into_iter().filter_map(leads_somewhere).collect())
}

/// The path that a link holds; none where it is to stay a file.
async fn target(store: &Arc<dyn Store>, link: &str) -> Result<Option<String>, SnapshotError> {
    let Ok(key) = Key::new(link) else {
        return Ok(None);
    };
    match store.get_symlink(&key).await {
        Ok(target) => Ok(relative_path(link, target.as_str())),
        // It leads out of the path, or has gone since it was listed.
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The shortest path from the directory of `link` to `target`; none if that is no path.
fn relative_path(link: &str, target: &str) -> Option<String> {
    let is_name = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    if !target.split('/').all(is_name) {
        return None;
    }
    let directory = &link[..link.rfind('/').map_or(0, |slash| slash + 1)];
    let ours = directory.split_inclusive('/');
    let shared: usize = ours
        .zip(target.split_inclusive('/'))
        .take_while(|(ours, theirs)| ours == theirs)
        .map(|(ours, _)| ours.len())
        .sum();
    let ups = directory[shared..].matches('/').count();
    let path = format!("{}{}", "../".repeat(ups), &target[shared..]);
    (path.len() <= PATH_MAX).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_become_relative_paths() {
        for (link, target, path) in [
            ("link", "a", Some("a")),
            ("d/link", "a", Some("../a")),
            ("d/link", "d/e/f", Some("e/f")),
            ("d/e/link", "d/f/g", Some("../f/g")),
            ("a/link", "ab/c", Some("../ab/c")),
            ("link", "a//b", None),
            ("link", "a/../b", None),
            ("link", "a/", None),
        ] {
            assert_eq!(relative_path(link, target).as_deref(), path, "{link}");
        }
        let long = "x".repeat(PATH_MAX + 1);
        assert_eq!(relative_path("link", &long), None);
    }
}
