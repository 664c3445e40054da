//! Several maps seen as one: what an upper layer says of a key hides what those below it say.

use std::{
    collections::{BTreeMap, btree_map},
    iter::Peekable,
    ops::{Bound, Range},
};

use bytes::Bytes;

use super::{EngineResult, Reads, Visitor};

/// Changes by key; `None` for keys that were removed.
pub(super) type Changes = BTreeMap<Bytes, Option<Bytes>>;

/// A key with what a layer says of it.
pub(super) type Said = EngineResult<(Bytes, Option<Bytes>)>;

/// A map that says something of some keys.
pub(super) trait Layer {
    /// What it says of a key; the outer `None` if nothing.
    fn says(&self, key: &[u8]) -> EngineResult<Option<Option<Bytes>>>;

    /// What it says of the keys of a range, in order.
    fn says_all<'a>(
        &'a self,
        range: Range<&[u8]>,
    ) -> EngineResult<Box<dyn Iterator<Item = Said> + 'a>>;
}

impl Layer for Changes {
    fn says(&self, key: &[u8]) -> EngineResult<Option<Option<Bytes>>> {
        Ok(self.get(key).cloned())
    }

    fn says_all<'a>(
        &'a self,
        range: Range<&[u8]>,
    ) -> EngineResult<Box<dyn Iterator<Item = Said> + 'a>> {
        let found = within(self, range);
        Ok(Box::new(
            found.map(|(key, value)| Ok((key.clone(), value.clone()))),
        ))
    }
}

/// The keys of a range, in order, with what a map has of them.
pub(super) fn within<'a, T>(
    map: &'a BTreeMap<Bytes, T>,
    range: Range<&[u8]>,
) -> btree_map::Range<'a, Bytes, T> {
    let range = in_order(range);
    let bounds = (Bound::Included(range.start), Bound::Excluded(range.end));
    map.range::<[u8], _>(bounds)
}

/// An empty range instead of one that ends before it begins.
pub(super) fn in_order(range: Range<&[u8]>) -> Range<&[u8]> {
    let end = range.end.max(range.start);
    range.start..end
}

/// Layers as one state, the uppermost first.
pub(super) struct Layered<'a>(pub(super) Vec<&'a dyn Layer>);

impl Reads for Layered<'_> {
    fn get(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        for layer in &self.0 {
            if let Some(said) = layer.says(key)? {
                return Ok(said);
            }
        }
        Ok(None)
    }

    fn scan(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()> {
        let layers = self.0.iter();
        let layers = layers.map(|layer| Ok(layer.says_all(range.clone())?.peekable()));
        let mut layers = layers.collect::<EngineResult<Vec<_>>>()?;
        while let Some((key, value)) = next(&mut layers)? {
            if let Some(value) = value
                && visit(&key, &value).is_break()
            {
                break;
            }
        }
        Ok(())
    }
}

/// One layer that is all there is.
pub(super) struct Whole<L>(pub(super) L);

impl<L: Layer> Reads for Whole<L> {
    fn get(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        Layered(vec![&self.0]).get(key)
    }

    fn scan(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()> {
        Layered(vec![&self.0]).scan(range, visit)
    }
}

/// The first key of all layers with what the uppermost of them says; the others are passed over.
pub(super) fn next<I: Iterator<Item = Said>>(
    layers: &mut [Peekable<I>],
) -> EngineResult<Option<(Bytes, Option<Bytes>)>> {
    let mut first: Option<(Bytes, usize)> = None;
    for (index, layer) in layers.iter_mut().enumerate() {
        let Some(said) = layer.peek() else { continue };
        let (key, _) = said.as_ref().map_err(Clone::clone)?;
        if first.as_ref().is_none_or(|(least, _)| key < least) {
            first = Some((key.clone(), index));
        }
    }
    let Some((least, index)) = first else {
        return Ok(None);
    };
    let said = layers[index].next();
    for layer in layers.iter_mut() {
        layer.next_if(|said| matches!(said, Ok((key, _)) if *key == least));
    }
    said.transpose()
}
