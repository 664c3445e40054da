//! Appending to objects.

use std::collections::HashMap;

use penstock_base::{Mutex, Payload};

use super::Oss;
use crate::{
    Appended, Checksum, ChecksumKind, ETag, ErrorKind, Key, ObjectResult, Operation, PutOptions,
    rest::{Dialect, Draft, RestStore},
    sign::Query,
};

/// Objects whose checksum is remembered from one append to the next.
const OBJECTS_MAX: usize = 1024;

/// The length and checksum of objects that were appended to, so that the next answer, which
/// tells the checksum of the whole object, can be compared.
#[derive(Debug, Default)]
pub(super) struct AppendedSums(Mutex<HashMap<Key, (u64, Checksum)>>);

impl AppendedSums {
    fn at(&self, key: &Key, position: u64) -> Option<Checksum> {
        let sums = self.0.lock();
        let (length, checksum) = sums.get(key)?;
        (*length == position).then_some(*checksum)
    }

    fn remember(&self, key: &Key, length: u64, checksum: Checksum) {
        let mut sums = self.0.lock();
        if sums.len() >= OBJECTS_MAX {
            sums.clear();
        }
        sums.insert(key.clone(), (length, checksum));
    }
}

impl RestStore<Oss> {
    pub(super) async fn append(
        &self,
        key: &Key,
        position: u64,
        body: Payload,
        options: &PutOptions,
    ) -> ObjectResult<Appended> {
        let size = body.len() as u64;
        let ours = self.sum_after(key, position, &body);
        let query = Query::new()
            .flag("append")
            .with("position", position.to_string());
        let mut draft = Draft::new(Operation::Append, "POST")
            .about(key)
            .with_query(query)
            .with_body(body)
            .once();
        self.describe_object(&mut draft, options)?;
        let response = self.send_only(&draft).await?;
        let headers = &response.headers;
        let next_position = headers.number("x-oss-next-append-position");
        let next_position = next_position.unwrap_or(position + size);
        if next_position != position + size {
            let message = format!("the object is {next_position} bytes long after the append");
            return Err(draft.error(ErrorKind::Protocol, message));
        }
        let theirs = self.dialect.checksum_in(headers);
        self.compare(&draft, ours, theirs)?;
        if let Some(checksum) = theirs {
            let appended = &self.dialect.appended;
            appended.remember(key, next_position, checksum);
        }
        Ok(Appended {
            next_position,
            etag: headers.get("etag").map(ETag::new),
            checksum: theirs,
        })
    }

    /// The checksum of the object with `body` at its end, where that of what is before is known.
    fn sum_after(&self, key: &Key, position: u64, body: &Payload) -> Option<Checksum> {
        let kind = self.dialect.body_checksum(crate::rest::WritePlan::FULL)?;
        debug_assert_eq!(kind, ChecksumKind::Crc64Ecma);
        if position == 0 {
            return Some(body.checksum(kind));
        }
        let before = self.dialect.appended.at(key, position)?;
        before.followed_by(body.checksum(kind), body.len() as u64)
    }
}
