//! The map as a list of objects: for comparing it with a new listing.

use super::{Decoder, GROUP, ObjectMap};
use crate::{ObjectSource, SnapshotError, SnapshotObject};

/// The objects of a map in the order of their keys.
#[derive(Debug)]
pub struct MappedObjects<'a> {
    map: &'a ObjectMap,
    next: u32,
    /// Stands behind the record that was read last, in the group of that record.
    decoder: Option<Decoder<'a>>,
    etag: String,
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
            target: "",
        }))
    }
}
