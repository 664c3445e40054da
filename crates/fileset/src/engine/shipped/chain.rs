//! The log in the bucket as a chain, and how one takes it over.
//!
//! ```text
//! epoch 1:  1 group   2 group   3 claim of epoch 2        (4 group: dead)
//! epoch 2:                      1 group   2 group   ...
//! ```
//!
//! An object of the log lies at its epoch and a number that counts there, and is only ever written where none is. So the
//! writer of an epoch and whoever wants to end it reach for the same place, the next one. Who is first has it. If
//! that is a claim, the epoch has ended: of a group behind it nothing was acknowledged, nor will be, because groups are
//! acknowledged in order. Claims stay for ever, for a writer may have slept for long.
//!
//! A writer that is busy would win each race for the next place. Then a *stop* is first put some places ahead, where
//! the writer will find it, and after that the claim at the first place that is free before. A stop ends the epoch and leaves
//! the log with who has it: a writer that finds one lets whoever put it go on for [`STOPPED`], and goes on in the next epoch
//! if nobody did. So a machine that dies before its claim is there shuts nobody out.
//!
//! Groups are on their way at once, up to [`IN_FLIGHT_MAX`]: of the last of them one may be missing. So a hole with as many
//! groups behind it was made by a deletion, and a checkpoint has all that is before: what deletions spared, and what a
//! request brought that arrived long after it was repeated. Deletions leave the last groups, [`IN_FLIGHT_MAX`], where they are.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use penstock_base::random;

use super::{
    bucket::{Bucket, Created},
    format::{CLAIM_SIZE, Claim, Group, LogObject, damaged},
    names::{LOG, LogName},
};
use crate::engine::{
    EngineError, EngineResult,
    record::{Record, Tip},
};

/// Groups that are on their way at once.
pub(super) const IN_FLIGHT_MAX: usize = 2;
/// How many places ahead a busy writer is stopped.
const AHEAD: u64 = 16;
/// How long a writer that was stopped waits for who stopped it: a few requests.
pub(super) const STOPPED: Duration = Duration::from_secs(2);
/// How often that is tried.
const CLAIM_ATTEMPTS: usize = 16;
/// Claims after which a store that was not seen to refuse a write is taken for one that does not.
const PROOFS_MAX: usize = 3;
/// Groups that are read at once.
const READS_MAX: usize = 8;

/// A group in the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: LogName,
    pub(super) bytes: u64,
    /// Its last operation; 0 where that was not looked for.
    pub(super) last: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Groups that join on to each other, in order.
    pub(super) groups: Vec<Link>,
    /// What does not.
    pub(super) dead: Vec<LogName>,
    /// The last claim.
    claim: Option<LogName>,
    /// The next place.
    next: LogName,
}

impl Chain {
    /// What a listing of the log shows.
    pub(super) fn of(listing: &[(String, u64)]) -> EngineResult<Self> {
        let objects = listing.iter();
        let objects = objects.filter_map(|(key, bytes)| Some((LogName::of_key(key)?, *bytes)));
        let objects: Vec<_> = objects.collect();
        let mut chain = Self {
            next: LogName {
                epoch: 0,
                number: 1,
            },
            ..Self::default()
        };
        let mut epochs = objects
            .chunk_by(|(one, _), (other, _)| one.epoch == other.epoch)
            .peekable();
        while let Some(epoch) = epochs.next() {
            chain.add_epoch(epoch, epochs.peek().is_none())?;
        }
        Ok(chain)
    }

    fn add_epoch(&mut self, objects: &[(LogName, u64)], is_last: bool) -> EngineResult<()> {
        let Some((first, _)) = objects.first() else {
            return Ok(());
        };
        if first.epoch != self.next.epoch {
            let text = format!("the log, of which epoch {} has no beginning,", first.epoch);
            return Err(damaged(text));
        }
        let begin = match is_last {
            true => behind_deleted(objects),
            false => leading_to_claim(objects),
        };
        if let Some(begin) = begin {
            self.begin_at(begin);
        }
        for (name, bytes) in objects {
            let (name, bytes) = (*name, *bytes);
            if name != self.next {
                self.dead.push(name);
            } else if bytes == CLAIM_SIZE {
                self.end_epoch();
            } else {
                self.groups.push(Link {
                    name,
                    bytes,
                    last: 0,
                });
                self.next = name.next();
            }
        }
        Ok(())
    }

    /// Goes on at a place. What is not before it was deleted, so a checkpoint has all that is before it.
    fn begin_at(&mut self, place: LogName) {
        if place.number > 1 {
            let covered = self.groups.drain(..);
            self.dead.extend(covered.map(|link| link.name));
        }
        self.next = place;
    }

    /// That of the bucket now.
    pub(super) async fn read(bucket: &Bucket) -> EngineResult<Self> {
        Self::of(&bucket.list(LOG).await?)
    }

    /// Whether nothing was ever shipped, or claimed.
    fn is_empty(&self) -> bool {
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
        self.next.epoch
    }

    /// Behind the last operation in it.
    pub(super) async fn tip(&self, bucket: &Bucket) -> EngineResult<Tip> {
        match self.groups.last() {
            Some(link) => {
                let tip = group(bucket, link.name).await?.tip();
                tip.ok_or_else(|| damaged(link.name))
            }
            None => Ok(Tip::default()),
        }
    }

    /// The place behind operation `sequence`, if it goes back that far and on from there.
    pub(super) async fn tip_at(&self, bucket: &Bucket, sequence: u64) -> EngineResult<Option<Tip>> {
        let Some(link) = self.behind(bucket, sequence).await?.first() else {
            return Ok(None);
        };
        let records = group(bucket, link.name).await?.records();
        let records = records.ok_or_else(|| damaged(link.name))?;
        let mut places = records.into_iter().map(|(before, _)| before);
        Ok(places.find(|place| place.sequence == sequence))
    }

    /// Groups at `place` and behind it.
    pub(super) fn from(&self, place: LogName) -> &[Link] {
        from(&self.groups, place)
    }

    /// The last groups, with all operations behind `sequence`.
    pub(super) async fn behind(&self, bucket: &Bucket, sequence: u64) -> EngineResult<&[Link]> {
        let mut at = self.groups.len();
        while at > 0 {
            let group = group(bucket, self.groups[at - 1].name).await?;
            if group.last <= sequence {
                break;
            }
            at -= 1;
            if group.before.sequence <= sequence {
                break;
            }
        }
        Ok(&self.groups[at..])
    }

    /// A claim is at the next place.
    fn end_epoch(&mut self) {
        self.claim = Some(self.next);
        self.next = LogName {
            epoch: self.next.epoch.saturating_add(1),
            number: 1,
        };
    }

    /// Takes in what was found at the next place.
    fn add(&mut self, there: &Bytes, bucket: &Bucket) -> EngineResult<()> {
        let bytes = there.len() as u64;
        if let LogObject::Claim(_) = LogObject::decode(there, bucket.identity, self.next)? {
            self.end_epoch();
            return Ok(());
        }
        self.groups.push(Link {
            name: self.next,
            bytes,
            last: 0,
        });
        self.next = self.next.next();
        Ok(())
    }
}

/// Where the groups begin that lead to the end of an epoch which has ended: its first claim.
fn leading_to_claim(objects: &[(LogName, u64)]) -> Option<LogName> {
    let end = objects.iter().position(|(_, bytes)| *bytes == CLAIM_SIZE)?;
    let run = objects[..=end].windows(2).rev();
    let joined = run.take_while(|pair| pair[0].0.next() == pair[1].0);
    Some(objects[end - joined.count()].0)
}

/// Where an epoch begins that goes on: behind the last hole that groups left which were deleted, if there is one.
fn behind_deleted(objects: &[(LogName, u64)]) -> Option<LogName> {
    let mut groups = 0;
    for (at, (name, bytes)) in objects.iter().enumerate().rev() {
        groups += usize::from(*bytes != CLAIM_SIZE);
        let before = at.checked_sub(1).map_or(0, |at| objects[at].0.number);
        if name.number != before.saturating_add(1) && groups >= IN_FLIGHT_MAX {
            return Some(*name);
        }
    }
    None
}

/// Those of `links` that lie at `place` and behind it.
pub(super) fn from(links: &[Link], place: LogName) -> &[Link] {
    &links[links.partition_point(|link| link.name < place)..]
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
        Some(LogObject::Group(group)) => Ok(group),
        Some(LogObject::Claim(_)) => Err(damaged(name)),
        None => Err(EngineError::Store(format!("{name} is gone"))),
    }
}

/// Visits all records of `links` in order with what each goes on behind, each joining on to the one before.
pub(super) async fn visit(
    bucket: &Bucket,
    links: &[Link],
    visit: impl FnMut(Tip, Record) -> EngineResult<()>,
) -> EngineResult<()> {
    visit_known(bucket, (links, &|_| None), visit).await
}

/// The same, where some groups are `known`.
pub(super) async fn visit_known(
    bucket: &Bucket,
    (links, known): (&[Link], &(dyn Fn(LogName) -> Option<Group> + Sync)),
    mut visit: impl FnMut(Tip, Record) -> EngineResult<()>,
) -> EngineResult<()> {
    let names: Vec<_> = links.iter().map(|link| link.name).collect();
    let reads = names.into_iter().map(|name| async move {
        let group = match known(name) {
            Some(group) => group,
            None => group(bucket, name).await?,
        };
        group.records().ok_or_else(|| damaged(name))
    });
    let mut groups = stream::iter(reads).buffered(READS_MAX);
    let mut next = None;
    while let Some(records) = groups.next().await {
        for (before, record) in records? {
            if next.is_some_and(|next| next != before) {
                let sequence = record.sequence;
                let text = format!("the log in the bucket lacks what is before {sequence}");
                return Err(EngineError::Corrupt(text));
            }
            next = before.behind(&record);
            visit(before, record)?;
        }
    }
    Ok(())
}

/// Who may have a log before it is taken over.
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
#[derive(Debug, Default)]
pub(super) struct Claimed {
    pub(super) epoch: u64,
    /// All before it.
    pub(super) chain: Chain,
    /// Behind the last operation before it.
    pub(super) tip: Tip,
}

impl Claimed {
    /// Before the first place of the epoch.
    pub(super) fn place(&self) -> LogName {
        LogName {
            epoch: self.epoch,
            number: 0,
        }
    }
}

/// Ends the epoch that goes on and begins the next one: nothing more is acknowledged by who had it.
pub(super) async fn claim(bucket: &Bucket, holder: u64, from: From) -> EngineResult<Claimed> {
    let token = random::number().max(1);
    let mut chain = Chain::read(bucket).await?;
    check(&chain, bucket, (holder, from)).await?;
    let claim = |name| Claim {
        name,
        holder,
        token,
    };
    let mut proofs = 0;
    for attempt in 0..CLAIM_ATTEMPTS as u64 * AHEAD {
        if attempt % AHEAD == 1 {
            stop(bucket, &chain, holder).await?;
        }
        let epoch = chain.epoch();
        match put(bucket, claim(chain.next)).await? {
            Created::Done if bucket.refuses_overwriting() => return claimed(bucket, chain).await,
            Created::Done => {
                proofs += 1;
                if proofs == PROOFS_MAX {
                    return Err(unproven());
                }
                // An answer was lost that would have shown it: the next write shows it.
                chain.end_epoch();
                continue;
            }
            Created::Taken(there) => chain.add(&there, bucket)?,
        }
        if chain.epoch() != epoch {
            // Somebody else ended it: is it he who may be followed?
            check(&chain, bucket, (holder, from)).await?;
        }
    }
    Err(EngineError::Store(
        "its writer is faster each time: end it first".to_owned(),
    ))
}

/// Puts a stop ahead of who writes to the log; `holder` has one that nobody had.
async fn stop(bucket: &Bucket, chain: &Chain, holder: u64) -> EngineResult<()> {
    let ahead = LogName {
        number: chain.next.number.saturating_add(AHEAD),
        ..chain.next
    };
    let stop = Claim {
        name: ahead,
        holder: chain.holder(bucket).await?.unwrap_or(holder),
        token: Claim::STOP,
    };
    put(bucket, stop).await.map(drop)
}

async fn put(bucket: &Bucket, claim: Claim) -> EngineResult<Created> {
    let body = claim.encode(bucket.identity);
    bucket.create(&claim.name.to_string(), body).await
}

async fn claimed(bucket: &Bucket, chain: Chain) -> EngineResult<Claimed> {
    Ok(Claimed {
        epoch: chain.epoch() + 1,
        tip: chain.tip(bucket).await?,
        chain,
    })
}

fn unproven() -> EngineError {
    EngineError::Store(
        "the store is not seen to refuse a write where something is (`If-None-Match`), without \
         which no writer is kept out: take a store that does, or durability `local`"
            .to_owned(),
    )
}

async fn check(chain: &Chain, bucket: &Bucket, (holder, from): (u64, From)) -> EngineResult<()> {
    match from {
        From::Anybody => Ok(()),
        From::Nobody if chain.is_empty() => Ok(()),
        From::Nobody => Err(EngineError::Fenced(
            "the bucket has a log already".to_owned(),
        )),
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

    fn chain(objects: &[(u64, u64, u64)]) -> EngineResult<Chain> {
        let objects = objects.iter();
        let named =
            objects.map(|&(epoch, number, bytes)| (LogName { epoch, number }.to_string(), bytes));
        Chain::of(&named.collect::<Vec<_>>())
    }

    fn groups(chain: &Chain) -> Vec<(u64, u64)> {
        let names = chain.groups.iter().map(|link| link.name);
        names.map(|name| (name.epoch, name.number)).collect()
    }

    #[test]
    fn what_lies_behind_a_claim_is_dead() {
        let chain = chain(&[
            (0, 1, CLAIM_SIZE),
            (1, 1, 100),
            (1, 2, 100),
            (1, 3, CLAIM_SIZE),
            (1, 4, 100),
            (1, 18, CLAIM_SIZE),
            (2, 1, 100),
        ])
        .unwrap();
        assert_eq!(groups(&chain), [(1, 1), (1, 2), (2, 1)]);
        assert_eq!(chain.dead.len(), 2);
        let next = LogName {
            epoch: 2,
            number: 2,
        };
        assert_eq!(chain.next, next);
    }

    #[test]
    fn what_was_sent_while_a_group_before_was_missing_is_dead() {
        let gap = chain(&[(0, 1, CLAIM_SIZE), (1, 1, 100), (1, 3, 100)]).unwrap();
        assert_eq!((groups(&gap), gap.next.number), (vec![(1, 1)], 2));
        let first = chain(&[(0, 1, CLAIM_SIZE), (1, 2, 100)]).unwrap();
        assert_eq!((groups(&first), first.next.number), (vec![], 1));
        let stopped = chain(&[(0, 1, CLAIM_SIZE), (1, 17, CLAIM_SIZE)]).unwrap();
        assert_eq!((stopped.next.epoch, stopped.next.number), (1, 1));
    }

    #[test]
    fn the_beginning_of_an_epoch_may_be_gone() {
        let chain = chain(&[
            (0, 1, CLAIM_SIZE),
            (1, 9, CLAIM_SIZE),
            (2, 5, 100),
            (2, 6, 100),
        ])
        .unwrap();
        assert_eq!(groups(&chain), [(2, 5), (2, 6)]);
    }

    #[test]
    fn a_hole_that_a_deletion_left_hides_nothing_behind_it() {
        let late = chain(&[
            (0, 1, CLAIM_SIZE),
            (1, 1, 100),
            (1, 7, 100),
            (1, 8, 100),
            (1, 9, 100),
        ])
        .unwrap();
        assert_eq!(groups(&late), [(1, 7), (1, 8), (1, 9)]);
        let between = chain(&[
            (0, 1, CLAIM_SIZE),
            (1, 1, 100),
            (1, 3, 100),
            (1, 7, 100),
            (1, 8, 100),
            (1, 10, 100),
        ])
        .unwrap();
        assert_eq!(groups(&between), [(1, 7), (1, 8)]);
        assert_eq!(between.next.number, 9);
        let ended = chain(&[
            (0, 1, CLAIM_SIZE),
            (1, 1, 100),
            (1, 7, 100),
            (1, 8, CLAIM_SIZE),
            (1, 9, 100),
            (1, 24, CLAIM_SIZE),
            (2, 1, 100),
        ])
        .unwrap();
        assert_eq!(groups(&ended), [(1, 7), (2, 1)]);
        let claimed = chain(&[
            (0, 1, CLAIM_SIZE),
            (1, 1, 100),
            (1, 7, 100),
            (1, 8, 100),
            (1, 9, CLAIM_SIZE),
            (1, 10, 100),
        ])
        .unwrap();
        assert_eq!(groups(&claimed), [(1, 7), (1, 8)]);
        assert_eq!(claimed.next.epoch, 2);
    }

    #[test]
    fn an_epoch_that_nobody_claimed_is_refused() {
        assert!(chain(&[(1, 1, 100)]).is_err());
        assert!(chain(&[(0, 1, CLAIM_SIZE), (2, 1, 100)]).is_err());
    }
}
