//! The map as a list of objects: for comparing it with a new listing, and for making the tree.

use super::{Decoder, GROUP, ObjectMap};
use crate::{ObjectSource, SnapshotError, SnapshotObject, Timestamp};

/// The objects of a map in the order of their keys.
#[derive(Debug)]
pub struct MappedObjects<'a> {
    map: &'a ObjectMap,
    next: u32,
    /// Stands behind the record that was read last, in the group of that record.
    decoder: Option<Decoder<'a>>,
    etag: String,
}

/// What the tree needs to know of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) number: u32,
    pub(crate) key: &'a [u8],
    pub(crate) size: u64,
    pub(crate) modified: Timestamp,
}

impl<'a> MappedObjects<'a> {
    pub(super) fn new(map: &'a ObjectMap) -> Self {
        Self {
            map,
            next: 0,
            decoder: None,
            etag: String::new(),
        }
    }

    /// The next object without its tag, or none at the end.
    pub(crate) fn next_record(&mut self) -> Result<Option<Record<'_>>, SnapshotError> {
        let Some(number) = self.advance()? else {
            return Ok(None);
        };
        Ok(self.decoder.as_ref().map(|decoder| Record {
            number,
            key: &decoder.key,
            size: decoder.size,
            modified: decoder.modified,
        }))
    }

    /// The object of a number, without its tag. Numbers that rise are found fastest.
    pub(crate) fn record(&mut self, number: u32) -> Result<Option<Record<'_>>, SnapshotError> {
        let is_ahead = number >= self.next && number / GROUP == self.next / GROUP;
        if !is_ahead || self.decoder.is_none() {
            (self.next, self.decoder) = (number / GROUP * GROUP, None);
        }
        while self.next < number {
            self.advance()?;
        }
        self.next_record()
    }

    /// Reads the next record.
    fn advance(&mut self) -> Result<Option<u32>, SnapshotError> {
        let number = self.next;
        if number >= self.map.records {
            return Ok(None);
        }
        let decoder = match self.decoder.take() {
            Some(decoder) if !number.is_multiple_of(GROUP) => self.decoder.insert(decoder),
            _ => self.decoder.insert(self.map.decoder(number)?),
        };
        self.map.decode(decoder)?;
        self.next += 1;
        Ok(Some(number))
    }
}

impl ObjectSource for MappedObjects<'_> {
    fn next_object(&mut self) -> Result<Option<SnapshotObject<'_>>, SnapshotError> {
        if self.advance()?.is_none() {
            return Ok(None);
        }
        let decoder = self.decoder.as_ref().expect("a record was read");
        let etag = decoder.etag();
        self.etag = etag.ok_or_else(|| self.map.file.damaged("a tag"))?;
        Ok(Some(SnapshotObject {
            key: &decoder.key,
            size: decoder.size,
            modified: decoder.modified,
            etag: &self.etag,
        }))
    }
}
