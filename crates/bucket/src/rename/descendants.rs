//! The objects below a directory that is renamed.

use std::collections::HashSet;

use penstock_base::{FsError, FsResult, Reservation, clock};
use penstock_object::{ETag, ListOptions, ListedObject, ObjectKind};

use crate::{errors::for_reading, rename::Renames};

/// Bytes that one object in the list occupies, about, with a name of average length.
const DESCENDANT_COST: u64 = 224;

/// An object below a directory that is renamed.
#[derive(Debug, Clone)]
pub(super) struct Descendant {
    /// The key without the directory's prefix; empty for the object that marks the directory.
    pub(super) suffix: Box<str>,
    pub(super) size: u64,
    pub(super) kind: ObjectKind,
    /// The version that is copied and, if it is still there then, deleted.
    pub(super) etag: ETag,
    /// The version of the copy, once there is one.
    pub(super) copy: Option<ETag>,
}

/// All objects below a directory, in byte order of their keys.
#[derive(Debug, Default)]
pub(super) struct Descendants {
    pub(super) objects: Vec<Descendant>,
    reservation: Option<Reservation>,
}

impl Descendants {
    /// The copy of this very version of an object, if the list has one.
    pub(super) fn copy_of(&self, other: &Descendant) -> Option<&ETag> {
        let found = find(&self.objects, &other.suffix);
        found
            .filter(|object| object.etag == other.etag)
            .and_then(|object| object.copy.as_ref())
    }

    /// Takes over what was copied in place of the objects at these indices, or leaves out what is
    /// gone.
    pub(super) fn bring_up_to_date(&mut self, copied: Vec<(usize, Option<Descendant>)>) {
        let mut gone = HashSet::new();
        for (index, now) in copied {
            match now {
                Some(now) => self.objects[index] = now,
                None => drop(gone.insert(index)),
            }
        }
        let mut index = 0..;
        self.objects
            .retain(|_| index.next().is_none_or(|index| !gone.contains(&index)));
    }

    fn charge(&mut self, reservation: Reservation) {
        match &mut self.reservation {
            Some(held) => held.merge(reservation),
            none => *none = Some(reservation),
        }
    }
}

impl Renames {
    /// Lists everything below the directory `prefix`. Fails with `LimitReached` when that is more
    /// than the settings allow and with `OutOfMemory` when no memory for the list comes in time.
    pub(super) async fn descendants(&self, prefix: &str) -> FsResult<Descendants> {
        let (mut found, mut last) = (Descendants::default(), None::<String>);
        let mut options = ListOptions {
            prefix: prefix.to_owned(),
            ..ListOptions::default()
        };
        loop {
            let page = for_reading(self.mount.store().list(options.clone()).await)?;
            check_hidden(prefix, page.hidden)?;
            let keys = page.objects.iter().map(|object| object.key.as_str());
            self.mount.check_order(last.as_deref(), keys)?;
            self.check_rename_limit(prefix, found.objects.len() + page.objects.len())?;
            let cost = page.objects.len() as u64 * DESCENDANT_COST;
            found.charge(self.list_memory(cost).await?);
            found
                .objects
                .extend(page.objects.iter().map(|object| describe(prefix, object)));
            last = page
                .objects
                .into_iter()
                .last()
                .map(|last| last.key)
                .or(last);
            options.continuation = page.continuation;
            if options.continuation.is_none() {
                return Ok(found);
            }
        }
    }

    /// Memory for a list, in line with those that write. What is read ahead makes way.
    async fn list_memory(&self, bytes: u64) -> FsResult<Reservation> {
        let memory = self.mount.transfer.pool().budget().reserve(bytes);
        clock::deadline(self.mount.transfer.settings().memory_wait, memory)
            .await
            .map_err(|_| FsError::OutOfMemory)?
    }

    /// Whether all copies of an earlier attempt are below `prefix` as they were made. The object
    /// that marks the directory does not count.
    pub(super) async fn has_copies(&self, prefix: &str, copied: &Descendants) -> FsResult<bool> {
        let present = self.descendants(prefix).await?;
        let mut copies = copied.objects.iter().filter(|copy| !copy.suffix.is_empty());
        Ok(copies.all(|copied| {
            let found = find(&present.objects, &copied.suffix);
            found.is_some_and(|found| {
                // The store may name links in another way when it lists them.
                copied.kind == ObjectKind::Symlink || copied.copy.as_ref() == Some(&found.etag)
            })
        }))
    }

    /// Those of `objects`, neighbours in the directory `prefix` after `before`, that have another
    /// version by now, as they are now.
    pub(super) async fn changed_since(
        &self,
        prefix: &str,
        before: &str,
        objects: &[Descendant],
    ) -> FsResult<Vec<Descendant>> {
        let mut changed = Vec::new();
        let mut options = ListOptions {
            prefix: prefix.to_owned(),
            start_after: Some(format!("{prefix}{before}")),
            ..ListOptions::default()
        };
        let last = objects.last().map(|last| last.suffix.as_ref());
        loop {
            let page = for_reading(self.mount.store().list(options.clone()).await)?;
            let now = page.objects.iter().map(|object| describe(prefix, object));
            changed.extend(now.filter(|now| {
                let known = find(objects, &now.suffix);
                known.is_some_and(|known| known.etag != now.etag)
            }));
            let reached = page.objects.last().map(|last| last.key.as_str());
            let beyond = reached.and_then(|key| key.strip_prefix(prefix)) >= last;
            options.continuation = page.continuation;
            if beyond || options.continuation.is_none() {
                return Ok(changed);
            }
        }
    }

    fn check_rename_limit(&self, prefix: &str, count: usize) -> FsResult<()> {
        let limit = self.mount.settings.rename_dir_limit;
        if count <= limit {
            return Ok(());
        }
        tracing::warn!(
            "refused to rename the directory `{prefix}`: it holds more than {limit} objects; \
             raise rename_dir_limit or rename its parts"
        );
        Err(FsError::LimitReached(
            "the directory holds too many objects; see rename_dir_limit",
        ))
    }
}

/// Fails where something below `prefix` would stay where it is.
fn check_hidden(prefix: &str, hidden: usize) -> FsResult<()> {
    if hidden == 0 {
        return Ok(());
    }
    tracing::warn!(
        "refused to rename the directory `{prefix}`: the store does not tell the names of {hidden} \
         objects in it, which have control characters; rename them in the store"
    );
    Err(FsError::Unsupported(
        "the directory holds objects whose names the store does not tell",
    ))
}

fn find<'list>(objects: &'list [Descendant], suffix: &str) -> Option<&'list Descendant> {
    let found = objects.binary_search_by(|object| object.suffix.as_ref().cmp(suffix));
    found.ok().map(|index| &objects[index])
}

fn describe(prefix: &str, object: &ListedObject) -> Descendant {
    let suffix = object.key.strip_prefix(prefix).unwrap_or_default().into();
    Descendant {
        suffix,
        size: object.size,
        kind: object.kind,
        etag: object.etag.clone(),
        copy: None,
    }
}
