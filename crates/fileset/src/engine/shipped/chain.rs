//! The log in the bucket as a chain, and how one takes it over.
//!
//! ```text
//! epoch 1:  group 1-9   group 10-30   claim of epoch 2 before 31      (group 40-45: dead)
//! epoch 2:                            group 31-33   group 34-60   ...
//! ```
//!
//! An object of the log lies at its epoch and its first operation, and is only ever written where none is. So the
//! writer of an epoch and whoever wants to end it reach for the same place: the one behind the last group. Who is
//! first has it. If that is a claim, the epoch has ended: no later group of it has a place that joins on, and of a
//! group that does not join on nothing was acknowledged. Claims stay for ever, for a writer may have slept for long.
//!
//! Groups are on their way at once, up to [`IN_FLIGHT_MAX`]: of the last of them one may be missing.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use penstock_base::random;

use super::{
    bucket::{Bucket, Created},
    format::{CLAIM_SIZE, Claim, Group, LogObject, damaged},
    names::{LOG, LogName},
};
use crate::engine::{EngineError, EngineResult, record::Record};

/// Groups that are on their way at once.
pub(super) const IN_FLIGHT_MAX: usize = 2;
/// How often a place in the log is reached for while its writer is faster.
const CLAIM_ATTEMPTS: usize = 16;
/// Groups that are read at once.
const READS_MAX: usize = 8;

/// A group in the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: LogName,
    pub(super) bytes: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Groups that join on to each other, in order.
    pub(super) groups: Vec<Link>,
    /// Those that do not.
    pub(super) dead: Vec<LogName>,
    /// The last claim.
    claim: Option<LogName>,
    /// The epoch that goes on.
    epoch: u64,
}

impl Chain {
    /// What a listing of the log shows.
    pub(super) fn of(listing: &[(String, u64)]) -> EngineResult<Self> {
        let mut chain = Self::default();
        for (key, bytes) in listing {
            let Some(name) = LogName::of_key(key) else {
                continue;
            };
            if name.epoch > chain.epoch {
                return Err(damaged(format!(
                    "the log, of which epoch {} has no beginning,",
                    name.epoch
                )));
            }
            if name.epoch < chain.epoch {
                chain.dead.push(name);
            } else if *bytes == CLAIM_SIZE {
                chain.claim = Some(name);
                chain.epoch += 1;
            } else {
                let bytes = *bytes;
                chain.groups.push(Link { name, bytes });
            }
        }
        Ok(chain)
    }

    /// That of the bucket now.
    pub(super) async fn read(bucket: &Bucket) -> EngineResult<Self> {
        Self::of(&bucket.list(LOG).await?)
    }

    /// Whether nothing was ever shipped, or claimed.
    pub(super) fn is_empty(&self) -> bool {
        self.claim.is_none() && self.groups.is_empty()
    }

    /// Who has the epoch that goes on, if anybody does.
    pub(super) async fn holder(&self, bucket: &Bucket) -> EngineResult<Option<u64>> {
        let Some(name) = self.claim else {
            return Ok(None);
        };
        match read(bucket, name).await? {
            Some(LogObject::Claim(claim)) => Ok(Some(claim.holder)),
            _ => Err(damaged(name)),
        }
    }

    /// The epoch that goes on.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The first operation that is not in the log. What does not join on is dead from then on.
    pub(super) async fn end(&mut self, bucket: &Bucket) -> EngineResult<u64> {
        let begin = self
            .groups
            .partition_point(|link| link.name.epoch < self.epoch);
        let count = self.groups.len() - begin;
        let mut next = self.claim.map_or(1, |claim| claim.first);
        // The groups at the beginning of an epoch go when a checkpoint has them, but for so many.
        let tail = self.groups.len() - count.min(IN_FLIGHT_MAX);
        if count >= IN_FLIGHT_MAX {
            next = self.groups[tail].name.first;
        }
        for at in tail..self.groups.len() {
            let name = self.groups[at].name;
            if name.first != next {
                let dead = self.groups.drain(at..);
                self.dead.extend(dead.map(|link| link.name));
                break;
            }
            next = group(bucket, name).await?.last + 1;
        }
        Ok(next)
    }

    /// Groups that may have operations behind `sequence`.
    pub(super) fn behind(&self, sequence: u64) -> &[Link] {
        behind(&self.groups, sequence)
    }
}

/// Those of `links` that may have operations behind `sequence`.
pub(super) fn behind(links: &[Link], sequence: u64) -> &[Link] {
    let ends = links.iter().skip(1).map(|next| next.name.first);
    let passed = ends.take_while(|next| *next <= sequence + 1).count();
    &links[passed..]
}

/// Reads what lies at a place of the log.
async fn read(bucket: &Bucket, name: LogName) -> EngineResult<Option<LogObject>> {
    let bytes = bucket.read(&name.to_string()).await?;
    let decode = |bytes: Bytes| LogObject::decode(&bytes, bucket.identity, name);
    bytes.map(decode).transpose()
}

/// Reads a group that must be there.
async fn group(bucket: &Bucket, name: LogName) -> EngineResult<Group> {
    match read(bucket, name).await? {
        Some(LogObject::Group(group)) if group.last >= group.first => Ok(group),
        Some(_) => Err(damaged(name)),
        None => Err(EngineError::Store(format!("{name} is gone"))),
    }
}

/// Visits all records of `links` in order, each joining on to the one before.
pub(super) async fn visit(
    bucket: &Bucket,
    links: &[Link],
    mut visit: impl FnMut(Record) -> EngineResult<()>,
) -> EngineResult<()> {
    let names: Vec<_> = links.iter().map(|link| link.name).collect();
    let reads = names.into_iter().map(|name| async move {
        let group = group(bucket, name).await?;
        group.records().ok_or_else(|| damaged(name))
    });
    let mut groups = stream::iter(reads).buffered(READS_MAX);
    let mut next = None;
    while let Some(records) = groups.next().await {
        for record in records? {
            if next.is_some_and(|next| next != record.sequence) {
                let text = format!(
                    "the log in the bucket lacks what is before {}",
                    record.sequence
                );
                return Err(EngineError::Corrupt(text));
            }
            next = Some(record.sequence + 1);
            visit(record)?;
        }
    }
    Ok(())
}

/// Who may take a log over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// It must be empty.
    Nobody,
    /// It must be one's own.
    Oneself,
    /// Whoever has it.
    Anybody,
}

/// An epoch that has begun.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) epoch: u64,
    /// All before it.
    pub(super) chain: Chain,
    /// The last operation before it.
    pub(super) last: u64,
}

/// Ends the epoch that goes on and begins the next one: nothing more is acknowledged by who had it.
pub(super) async fn claim(bucket: &Bucket, holder: u64, from: From) -> EngineResult<Claimed> {
    let token = random::number();
    for _ in 0..CLAIM_ATTEMPTS {
        let mut chain = Chain::read(bucket).await?;
        check(&chain, bucket, (holder, from)).await?;
        let first = chain.end(bucket).await?;
        let claim = Claim {
            epoch: chain.epoch,
            first,
            holder,
            token,
        };
        let name = LogName {
            epoch: chain.epoch,
            first,
        };
        let body = claim.encode(bucket.identity);
        if bucket.create(&name.to_string(), body).await? != Created::Done {
            continue;
        }
        if !bucket.refuses_overwriting() {
            return Err(EngineError::Store(
                "the store passes over `If-None-Match`, without which no writer is kept out: \
                 use a store that has it, or durability=local"
                    .to_owned(),
            ));
        }
        return Ok(Claimed {
            epoch: chain.epoch + 1,
            last: first - 1,
            chain,
        });
    }
    Err(EngineError::Store(
        "its writer is faster each time: end it first".to_owned(),
    ))
}

async fn check(chain: &Chain, bucket: &Bucket, (holder, from): (u64, From)) -> EngineResult<()> {
    match from {
        From::Anybody => Ok(()),
        From::Nobody if chain.is_empty() => Ok(()),
        From::Nobody => Err(EngineError::Store("there is a log already".to_owned())),
        From::Oneself if chain.holder(bucket).await? == Some(holder) => Ok(()),
        From::Oneself => Err(EngineError::Fenced(
            "another machine has attached it, and what this one has is old: \
             `penstock fileset attach` brings it back here"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(objects: &[(u64, u64, u64)]) -> Vec<(String, u64)> {
        let objects = objects.iter();
        let named =
            objects.map(|&(epoch, first, bytes)| (LogName { epoch, first }.to_string(), bytes));
        named.collect()
    }

    #[test]
    fn what_lies_behind_a_claim_is_dead() {
        let listing = listing(&[
            (0, 1, CLAIM_SIZE),
            (1, 1, 100),
            (1, 10, 100),
            (1, 31, CLAIM_SIZE),
            (1, 40, 100),
            (2, 31, 100),
        ]);
        let chain = Chain::of(&listing).unwrap();
        let firsts: Vec<_> = chain.groups.iter().map(|link| link.name.first).collect();
        assert_eq!(firsts, [1, 10, 31]);
        assert_eq!(
            chain.dead,
            [LogName {
                epoch: 1,
                first: 40
            }]
        );
        assert_eq!(chain.epoch(), 2);
        let behind = |sequence| chain.behind(sequence).len();
        assert_eq!([0, 8, 9, 29, 30, 500].map(behind), [3, 3, 2, 2, 1, 1]);
    }

    #[test]
    fn an_epoch_that_nobody_claimed_is_refused() {
        assert!(Chain::of(&listing(&[(1, 1, 100)])).is_err());
        assert!(Chain::of(&listing(&[(0, 1, CLAIM_SIZE), (2, 1, 100)])).is_err());
    }
}
