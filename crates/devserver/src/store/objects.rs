//! The objects of a bucket: those that are stored, and crowds of those that are computed.

use std::{
    collections::{BTreeMap, btree_map},
    iter::Peekable,
    ops::Bound,
    sync::Arc,
    time::SystemTime,
};

use super::{
    crowd::{Cursor, Member, Members},
    object::{Kind, Object},
};

/// Objects in byte order of their keys.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    stored: BTreeMap<Vec<u8>, Arc<Object>>,
    /// No member has the key of a stored object.
    crowds: Vec<Members>,
}

/// An object as a listing shows it.
#[derive(Debug, Clone)]
pub(crate) enum Listed {
    Stored(Arc<Object>),
    Member(Member),
}

impl Listed {
    pub(crate) fn etag(&self) -> &str {
        match self {
            Self::Stored(object) => &object.etag,
            Self::Member(member) => member.etag.as_str(),
        }
    }

    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Stored(object) => object.length(),
            Self::Member(member) => member.size,
        }
    }

    pub(crate) fn modified(&self) -> SystemTime {
        match self {
            Self::Stored(object) => object.modified,
            Self::Member(member) => member.modified,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Stored(object) => object.kind,
            Self::Member(_) => Kind::Normal,
        }
    }

    /// Empty for the standard class.
    pub(crate) fn storage_class(&self) -> &str {
        match self {
            Self::Stored(object) => &object.attributes.storage_class,
            Self::Member(_) => "",
        }
    }
}

impl Objects {
    pub(super) fn get(&self, key: &[u8]) -> Option<Arc<Object>> {
        let stored = self.stored.get(key).cloned();
        stored.or_else(|| self.crowds.iter().find_map(|crowd| crowd.object(key)))
    }

    /// Stores an object and returns the stored one that it replaces.
    pub(super) fn insert(&mut self, key: &[u8], object: Arc<Object>) -> Option<Arc<Object>> {
        for crowd in &mut self.crowds {
            crowd.remove(key);
        }
        self.stored.insert(key.to_vec(), object)
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Arc<Object>> {
        let object = self.get(key)?;
        if self.stored.remove(key).is_none() {
            for crowd in &mut self.crowds {
                crowd.remove(key);
            }
        }
        Some(object)
    }

    /// Adds a crowd; members that have the keys of others take their places.
    pub(super) fn add_crowd(&mut self, members: Members) {
        self.stored.retain(|key, _| members.object(key).is_none());
        self.crowds.push(members);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.crowds.iter().all(|crowd| crowd.count() == 0)
    }

    /// Objects and their bytes.
    pub(super) fn totals(&self) -> (u64, u64) {
        let stored = self.stored.values().map(|object| object.length());
        let crowds = self.crowds.iter();
        let members: u64 = crowds.clone().map(Members::count).sum();
        let bytes: u64 = crowds.map(Members::bytes).sum();
        (
            self.stored.len() as u64 + members,
            stored.sum::<u64>() + bytes,
        )
    }

    /// The objects from `from` on, in order.
    pub(super) fn walk(&self, from: &Bound<Vec<u8>>) -> Walk<'_> {
        let bound = from.as_ref().map(Vec::as_slice);
        let (key, inclusive) = match bound {
            Bound::Included(key) => (key, true),
            Bound::Excluded(key) => (key, false),
            Bound::Unbounded => (&[][..], true),
        };
        let cursors = self.crowds.iter().map(|crowd| crowd.cursor(key, inclusive));
        Walk {
            stored: self
                .stored
                .range::<[u8], _>((bound, Bound::Unbounded))
                .peekable(),
            crowds: cursors.collect(),
        }
    }
}

#[cfg(test)]
impl FromIterator<(Vec<u8>, Arc<Object>)> for Objects {
    fn from_iter<I: IntoIterator<Item = (Vec<u8>, Arc<Object>)>>(objects: I) -> Self {
        Self {
            stored: objects.into_iter().collect(),
            crowds: Vec::new(),
        }
    }
}

/// The objects of a bucket in order.
pub(super) struct Walk<'a> {
    stored: Peekable<btree_map::Range<'a, Vec<u8>, Arc<Object>>>,
    crowds: Vec<Cursor<'a>>,
}

impl Iterator for Walk<'_> {
    type Item = (String, Listed);

    fn next(&mut self) -> Option<Self::Item> {
        let cursors = self.crowds.iter_mut();
        let first = cursors
            .filter(|cursor| cursor.key().is_some())
            .min_by(|one, other| one.key().cmp(&other.key()));
        let stored = self.stored.peek().map(|(key, _)| key.as_slice());
        match first {
            Some(cursor)
                if stored
                    .is_none_or(|key| cursor.key().is_some_and(|first| first.as_bytes() < key)) =>
            {
                let (key, member) = cursor.take()?;
                Some((key, Listed::Member(member)))
            }
            _ => {
                let (key, object) = self.stored.next()?;
                let name = String::from_utf8_lossy(key).into_owned();
                Some((name, Listed::Stored(Arc::clone(object))))
            }
        }
    }
}
