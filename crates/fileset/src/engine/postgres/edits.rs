//! What operations change: keys are set, removed or counted on. What is counted is known to the database alone, so that
//! machines which count at the same time need not wait for each other.

use std::{collections::BTreeMap, ops::Range};

use bytes::Bytes;

use crate::engine::{
    EngineResult, Reads, Transaction, Visitor, counter,
    layers::{Changes, Layer, Layered, Said, within},
};

/// How a counter or a mark moves: to `floor`, or by `plus` if it comes farther so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) floor: i64,
    pub(super) plus: i64,
}

impl Count {
    fn add(amount: i64) -> Self {
        Self {
            floor: i64::MIN,
            plus: amount,
        }
    }

    fn advance(to: u64) -> Self {
        Self {
            floor: i64::try_from(to).unwrap_or(i64::MAX),
            plus: 1,
        }
    }

    /// Both, one after the other.
    fn then(self, later: Self) -> Self {
        Self {
            floor: later.floor.max(self.floor.saturating_add(later.plus)),
            plus: self.plus.saturating_add(later.plus),
        }
    }

    /// Where it stands then.
    fn of(self, value: Option<&Bytes>) -> Bytes {
        number(counter(value).saturating_add(self.plus).max(self.floor))
    }
}

/// The value of a counter or a mark.
pub(super) fn number(value: i64) -> Bytes {
    Bytes::copy_from_slice(&value.to_le_bytes())
}

/// What becomes of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Edit {
    Set(Bytes),
    Remove,
    Count(Count),
}

/// Edits by key.
#[derive(Debug, Clone, Default)]
pub(super) struct Edits(BTreeMap<Bytes, Edit>);

impl Edits {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Edit)> {
        self.0.iter()
    }

    /// Bytes in keys and values.
    pub(super) fn size(&self) -> usize {
        let size = |(key, edit): (&Bytes, &Edit)| match edit {
            Edit::Set(value) => key.len() + value.len(),
            Edit::Remove | Edit::Count(_) => key.len() + size_of::<i64>(),
        };
        self.0.iter().map(size).sum()
    }

    /// One more, behind those that there are.
    fn make(&mut self, key: Bytes, edit: Edit) {
        let edit = match (edit, self.0.get(&key)) {
            (Edit::Count(count), Some(Edit::Set(value))) => Edit::Set(count.of(Some(value))),
            (Edit::Count(count), Some(Edit::Remove)) => Edit::Set(count.of(None)),
            (Edit::Count(count), Some(Edit::Count(before))) => Edit::Count(before.then(count)),
            (edit, _) => edit,
        };
        self.0.insert(key, edit);
    }

    /// More of them, behind those that there are.
    pub(super) fn extend(&mut self, later: Self) {
        for (key, edit) in later.0 {
            self.make(key, edit);
        }
    }

    /// What the database has then; without counters, which stand where it alone knows.
    pub(super) fn settled(self) -> Changes {
        let settled = self.0.into_iter().filter_map(|(key, edit)| match edit {
            Edit::Set(value) => Some((key, Some(value))),
            Edit::Remove => Some((key, None)),
            Edit::Count(_) => None,
        });
        settled.collect()
    }
}

/// Edits above the layers that they change.
pub(super) struct Over<'a> {
    pub(super) edits: &'a Edits,
    pub(super) below: &'a Layered<'a>,
}

impl Over<'_> {
    fn value(&self, key: &[u8], edit: &Edit) -> EngineResult<Option<Bytes>> {
        Ok(match edit {
            Edit::Set(value) => Some(value.clone()),
            Edit::Remove => None,
            Edit::Count(count) => Some(count.of(self.below.get(key)?.as_ref())),
        })
    }
}

impl Layer for Over<'_> {
    fn says(&self, key: &[u8]) -> EngineResult<Option<Option<Bytes>>> {
        let edit = self.edits.0.get(key);
        edit.map(|edit| self.value(key, edit)).transpose()
    }

    fn says_all<'a>(
        &'a self,
        range: Range<&[u8]>,
    ) -> EngineResult<Box<dyn Iterator<Item = Said> + 'a>> {
        let found = within(&self.edits.0, range);
        let found = found.map(|(key, edit)| Ok((key.clone(), self.value(key, edit)?)));
        Ok(Box::new(found))
    }
}

/// An operation at work.
pub(super) struct Draft<'a> {
    edits: Edits,
    below: Layered<'a>,
    has_others: bool,
}

impl<'a> Draft<'a> {
    /// Nothing is changed yet of what `below` says, the uppermost layer first, and others may change.
    pub(super) fn new(below: Layered<'a>, has_others: bool) -> Self {
        Self {
            edits: Edits::default(),
            below,
            has_others,
        }
    }

    /// What was changed.
    pub(super) fn into_edits(self) -> Edits {
        self.edits
    }

    fn over(&self) -> Over<'_> {
        Over {
            edits: &self.edits,
            below: &self.below,
        }
    }
}

impl Reads for Draft<'_> {
    fn get(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        match self.over().says(key)? {
            Some(said) => Ok(said),
            None => self.below.get(key),
        }
    }

    fn scan(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()> {
        let own = self.over();
        let mut layers: Vec<&dyn Layer> = vec![&own];
        layers.extend(&self.below.0);
        Layered(layers).scan(range, visit)
    }
}

impl Transaction for Draft<'_> {
    fn has_others(&self) -> bool {
        self.has_others
    }

    fn put(&mut self, key: &[u8], value: Bytes) {
        self.edits
            .make(Bytes::copy_from_slice(key), Edit::Set(value));
    }

    fn delete(&mut self, key: &[u8]) {
        self.edits.make(Bytes::copy_from_slice(key), Edit::Remove);
    }

    fn add(&mut self, key: &[u8], amount: i64) -> EngineResult<()> {
        let count = Edit::Count(Count::add(amount));
        self.edits.make(Bytes::copy_from_slice(key), count);
        Ok(())
    }

    fn advance(&mut self, key: &[u8], to: u64) -> EngineResult<()> {
        let count = Edit::Count(Count::advance(to));
        self.edits.make(Bytes::copy_from_slice(key), count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_in_a_row_are_one_count(
            start in -1000_i64..1000,
            steps in prop::collection::vec((any::<bool>(), -1000_i64..1000), 1..10),
        ) {
            let counts = steps.iter().map(|(adds, amount)| match adds {
                true => Count::add(*amount),
                false => Count::advance(amount.unsigned_abs()),
            });
            let one_by_one = counts.clone().fold(number(start), |value, count| count.of(Some(&value)));
            let at_once = counts.reduce(Count::then).map(|count| count.of(Some(&number(start))));
            prop_assert_eq!(Some(one_by_one), at_once);
        }
    }
}
