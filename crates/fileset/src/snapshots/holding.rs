//! What snapshots hold of the bucket.

use std::collections::BTreeMap;

use bytes::Bytes;
use penstock_base::FsResult;

use super::{clearing::held_from, records};
use crate::{
    data::{ObjectId, UNKNOWN_LENGTH},
    engine::{Engine, Reads, query},
    garbage::Count,
    schema::{self, ObjectUse, kind},
};

/// Objects that no file needs, and snapshots do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holding {
    /// All of them.
    pub total: Count,
    /// Those that go with one snapshot, by its number.
    pub alone: BTreeMap<u64, Count>,
}

/// What snapshots hold. Takes as long as there are objects that are held.
pub async fn holding(engine: &dyn Engine) -> FsResult<Holding> {
    let records = query(engine, |reads| records(reads)).await?;
    let there = records.iter().filter(|(_, record)| !record.is_removed);
    let there: Vec<u64> = there.map(|(number, _)| *number).collect();
    let (mut holding, mut next) = (Holding::default(), Some(Bytes::from_static(&[kind::HELD])));
    while let Some(from) = next {
        let (held, behind) = query(engine, |reads| held_page(reads, &from)).await?;
        held.iter()
            .for_each(|(died, known)| holding.add(&there, *died, *known));
        next = behind;
    }
    Ok(holding)
}

type Page = (Vec<(u64, ObjectUse)>, Option<Bytes>);

fn held_page(reads: &dyn Reads, from: &[u8]) -> FsResult<Page> {
    let (held, next) = held_from(reads, from)?;
    let known = |(died, object): (u64, ObjectId)| {
        let value = reads.get(&schema::object(object))?;
        let value = value.ok_or_else(|| schema::damaged("the use of an object"))?;
        Ok((died, ObjectUse::decode(&value)?))
    };
    let known: FsResult<Vec<_>> = held.into_iter().map(known).collect();
    Ok((known?, next))
}

impl Holding {
    fn add(&mut self, there: &[u64], died: u64, known: ObjectUse) {
        let bytes = match known.length == u64::from(UNKNOWN_LENGTH) {
            // It waits on this disk, and is not sealed.
            true => 0,
            false => known.length,
        };
        let first = there.partition_point(|number| *number <= known.born);
        let behind = there.partition_point(|number| *number <= died);
        self.total += bytes;
        if let [one] = there[first..behind.max(first)] {
            *self.alone.entry(one).or_default() += bytes;
        }
    }
}
