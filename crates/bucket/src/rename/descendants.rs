//! The objects below a directory that is renamed.

use std::hash::{DefaultHasher, Hash, Hasher};

use penstock_base::{FsError, FsResult, Reservation};
use penstock_object::{ETag, ListOptions, ListedObject, ObjectKind};

use crate::{core::Core, errors::for_reading};

/// Bytes that one object in the list occupies, about, with a name of average length.
const DESCENDANT_COST: u64 = 128;

/// An object below a directory that is renamed.
#[derive(Debug, Clone)]
pub(super) struct Descendant {
    /// The key without the directory's prefix; empty for the object that marks the directory.
    pub(super) suffix: Box<str>,
    pub(super) size: u64,
    pub(super) kind: ObjectKind,
    /// A hash of the version: enough to tell whether it changed, at a tenth of the memory.
    pub(super) version: u64,
}

/// All objects below a directory, in byte order of their keys.
#[derive(Debug, Default)]
pub(super) struct Descendants {
    pub(super) objects: Vec<Descendant>,
    reservation: Option<Reservation>,
}

impl Descendants {
    /// Whether the list has this very version of an object.
    pub(super) fn has(&self, other: &Descendant) -> bool {
        let found = self
            .objects
            .binary_search_by(|object| object.suffix.cmp(&other.suffix));
        found.is_ok_and(|index| self.objects[index].version == other.version)
    }

    fn charge(&mut self, reservation: Reservation) {
        match &mut self.reservation {
            Some(held) => held.merge(reservation),
            none => *none = Some(reservation),
        }
    }
}

impl Core {
    /// Lists everything below the directory `prefix`. Fails with `LimitReached` when that is more
    /// than the settings allow and with `OutOfMemory` when it does not fit into the budget.
    pub(super) async fn descendants(&self, prefix: &str) -> FsResult<Descendants> {
        let mut found = Descendants::default();
        let mut options = ListOptions {
            prefix: prefix.to_owned(),
            ..ListOptions::default()
        };
        loop {
            let page = for_reading(self.store().list(options.clone()).await)?;
            self.check_rename_limit(prefix, found.objects.len() + page.objects.len())?;
            let cost = page.objects.len() as u64 * DESCENDANT_COST;
            let budget = self.transfer.pool().budget();
            found.charge(budget.try_reserve(cost).ok_or(FsError::OutOfMemory)?);
            found
                .objects
                .extend(page.objects.iter().map(|object| describe(prefix, object)));
            options.continuation = page.continuation;
            if options.continuation.is_none() {
                return Ok(found);
            }
        }
    }

    fn check_rename_limit(&self, prefix: &str, count: usize) -> FsResult<()> {
        let limit = self.settings.rename_dir_limit;
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

fn describe(prefix: &str, object: &ListedObject) -> Descendant {
    let suffix = object.key.strip_prefix(prefix).unwrap_or_default().into();
    let version = hash(&object.etag);
    Descendant {
        suffix,
        size: object.size,
        kind: object.kind,
        version,
    }
}

fn hash(etag: &ETag) -> u64 {
    let mut hasher = DefaultHasher::new();
    etag.hash(&mut hasher);
    hasher.finish()
}
