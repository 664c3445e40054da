//! Quotas: what users, groups, directories and the whole file system may use, and what they do.
//!
//! ```text
//!  make, chown ──► what is used, and the limit, read in the operation ──► `QuotaExceeded`, or counted with it
//!  write ──► what is used + what was accepted and is not saved ──► `QuotaExceeded`, or accepted: a save fails of no limit
//!  save, cut, collect ──► counters move, and nobody looks at them
//! ```
//!
//! Use is counted with [`Transaction::add`], so changes of different files of one user do not wait for each other. As long
//! as nothing is limited an operation looks at a flag and at no key ([`Preserving`](crate::snapshots)), and nothing
//! but the file system's own counters is counted.
//!
//! Counters of users and groups begin with the first limit of one: all files are counted in the order of their numbers, in
//! steps, beside those who change them. A file that was not reached yet is not counted by who changes it, so at each
//! moment the counters say what the files up to there come to. Limits of users and groups count once all were reached.
//!
//! The quota of a directory is that of a project elsewhere: each file has the number of the directory for which it counts, and what
//! is made in a directory counts for what that does. Nothing is moved or linked from what counts for one into what counts for
//! another. What was there before is marked in steps, from above (`marking`). Such quotas do not nest.
//!
//! | part | what it does |
//! |---|---|
//! | `limits` | what becomes of use that grows |
//! | `charge` | counts what files take, and finds out what limits one |
//! | `room` | what was accepted of writes and is not in the metadata |
//! | `counting` | counts all files to their owners |
//! | `marking` | lets what is below a directory count for its quota |
//! | `places` | where directories with quotas are |
//!
//! The superuser is not held to limits of users and groups, as in Linux, but counted; to those of directories and of the
//! file system everybody is. What only snapshots have is nobody's.

mod charge;
mod counting;
mod limits;
mod marking;
mod places;
mod room;

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    time::{Duration, SystemTime},
};

use penstock_base::{FsError, FsResult};
use penstock_vfs::Inode;

pub(crate) use charge::{
    Amount, Owner, Writing, admit, admit_write, charge, hand_over, is_short, limiting, note_passed,
    record, sizes, used,
};
pub use counting::{Counting, count, count_some};
pub(crate) use marking::{follow, join};
pub use places::directory_at;
pub(crate) use places::{path_of, paths_of};
pub(crate) use room::{Accepted, Room};

pub use crate::schema::{Limit, Limits, Subject};
use crate::{
    engine::{Engine, Reads, Transaction, query, transact},
    operations::raise_format,
    schema::{self, Format, Owners, Quotas, kind},
};

/// How long a soft limit may be exceeded, usually.
pub const GRACE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How much somebody uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Use {
    /// Bytes of files that are written, holes apart.
    pub bytes: u64,
    /// Files of all kinds, those without a name too.
    pub files: u64,
}

/// A quota with what is used of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// Whose.
    pub subject: Subject,
    /// What they may use.
    pub limits: Limits,
    /// What they do. Means nothing while it is being counted.
    pub used: Use,
    /// Whether all is counted. Until then limits of users and groups count for nobody, and those of directories for what was.
    pub is_counted: bool,
    /// Where a directory is, from the root on.
    pub path: Option<String>,
}

/// What becomes of limits: what is `None` stays as it is, and 0 takes a limit away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// Of bytes.
    pub bytes: LimitChange,
    /// Of files.
    pub files: LimitChange,
    /// Of the grace time, to the second.
    pub grace: Option<Duration>,
}

/// What becomes of the limits of bytes, or of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitChange {
    /// Of the soft one.
    pub soft: Option<u64>,
    /// Of the hard one.
    pub hard: Option<u64>,
}

impl LimitChange {
    fn of(self, limit: Limit) -> FsResult<Limit> {
        let changed = Limit {
            soft: self.soft.unwrap_or(limit.soft),
            hard: self.hard.unwrap_or(limit.hard),
            // Who exceeds a limit gets no new time by a change of it.
            exceeded: limit.exceeded,
        };
        match changed.hard != 0 && changed.soft > changed.hard {
            true => Err(FsError::InvalidArgument(
                "a soft limit is not above the hard one",
            )),
            false => Ok(changed),
        }
    }
}

impl Change {
    fn of(self, limits: Option<Limits>) -> FsResult<Limits> {
        let limits = limits.unwrap_or(Limits {
            bytes: Limit::default(),
            files: Limit::default(),
            grace: GRACE,
        });
        Ok(Limits {
            bytes: self.bytes.of(limits.bytes)?,
            files: self.files.of(limits.files)?,
            grace: self.grace.unwrap_or(limits.grace),
        })
    }
}

impl Quota {
    /// Until when what exceeds the soft limit is bearable: of bytes and of files, if these are exceeded at `now`.
    pub fn grace_ends(&self, now: SystemTime) -> [Option<SystemTime>; 2] {
        let pairs = [
            (self.limits.bytes, self.used.bytes),
            (self.limits.files, self.used.files),
        ];
        pairs.map(|(limit, used)| {
            let is_exceeded = limit.soft != 0 && used > limit.soft;
            let since = limit.exceeded.unwrap_or(now);
            since.checked_add(self.limits.grace).filter(|_| is_exceeded)
        })
    }
}

/// Limits what somebody uses, or changes that. It holds when this returns, is durable, and seen by all machines; but for
/// users and groups not before all files were counted, which is for [`count_some`] to do. While a volume has the file
/// system open, its [`set_quota`](crate::FilesetVolume::set_quota) does it.
pub async fn set(engine: &dyn Engine, subject: Subject, change: Change) -> FsResult<()> {
    transact(engine, move |transaction| {
        set_now(transaction, subject, change)
    })
    .await?;
    Ok(engine.sync().await?)
}

fn set_now(transaction: &mut dyn Transaction, subject: Subject, change: Change) -> FsResult<()> {
    raise_format(transaction, Format::with_quotas)?;
    let key = schema::limits(subject);
    let before = transaction.get(&key)?;
    let before = before.map(|before| Limits::decode(&before)).transpose()?;
    transaction.put(&key, change.of(before)?.encode());
    if let (Subject::Directory(inode), None) = (subject, before) {
        marking::begin(transaction, inode)?;
    }
    let owners = match record(transaction)? {
        Some(Quotas { owners }) => owners,
        None => Owners::Uncounted,
    };
    let owners = match (subject, owners) {
        (Subject::User(_) | Subject::Group(_), Owners::Uncounted) => Owners::Clearing,
        _ => owners,
    };
    transaction.put(schema::QUOTAS, Quotas { owners }.encode());
    Ok(())
}

/// Takes a limit away; durable when this returns. Fails with `NotFound` if there is none. With the last of users and groups
/// what is counted of them goes.
pub async fn remove(engine: &dyn Engine, subject: Subject) -> FsResult<()> {
    let is_last = transact(engine, move |transaction| remove_now(transaction, subject)).await?;
    if is_last {
        counting::clear(engine).await?;
    }
    Ok(engine.sync().await?)
}

/// Returns whether no user and no group is limited any more.
fn remove_now(transaction: &mut dyn Transaction, subject: Subject) -> FsResult<bool> {
    let key = schema::limits(subject);
    transaction.get(&key)?.ok_or(FsError::NotFound)?;
    transaction.delete(&key);
    if let Subject::Directory(inode) = subject {
        marking::undo(transaction, inode)?;
    }
    let has_owners = shrink(transaction)?;
    Ok(!has_owners && is_owner(&subject))
}

fn is_owner(subject: &Subject) -> bool {
    matches!(subject, Subject::User(_) | Subject::Group(_))
}

/// Limits were taken away: what needs none of those that are left goes. Returns whether a user or a group has one.
fn shrink(transaction: &mut dyn Transaction) -> FsResult<bool> {
    let left = limits(transaction)?;
    let has_owners = left.keys().any(is_owner);
    match (left.is_empty(), has_owners) {
        (true, _) => transaction.delete(schema::QUOTAS),
        (false, false) => {
            let owners = Owners::Uncounted;
            transaction.put(schema::QUOTAS, Quotas { owners }.encode());
        }
        (false, true) => {}
    }
    Ok(has_owners)
}

/// A directory with a quota is gone.
pub(crate) fn end(transaction: &mut dyn Transaction, directory: Inode) -> FsResult<()> {
    let key = schema::limits(Subject::Directory(directory));
    if transaction.get(&key)?.is_some() {
        transaction.delete(&key);
        shrink(transaction)?;
    }
    Ok(())
}

/// All limits.
fn limits(reads: &dyn Reads) -> FsResult<BTreeMap<Subject, Limits>> {
    let (mut found, mut outcome) = (BTreeMap::new(), Ok(()));
    let range = &[kind::QUOTA, 0][..]..&[kind::QUOTA + 1][..];
    reads.scan(range, &mut |key, value| {
        let limits =
            schema::limits_in(key).and_then(|subject| Ok((subject, Limits::decode(value)?)));
        match limits {
            Ok((subject, limits)) => drop(found.insert(subject, limits)),
            Err(error) => outcome = Err(error),
        }
        ControlFlow::Continue(())
    })?;
    outcome.map(|()| found)
}

/// All quotas, the file system's first, then users, groups and directories by number.
pub async fn list(engine: &dyn Engine) -> FsResult<Vec<Quota>> {
    query(engine, |reads| {
        let owners = record(reads)?.map_or(Owners::Uncounted, |quotas| quotas.owners);
        let is_marked = marking::next(reads)?.is_none();
        let all = limits(reads)?.into_iter();
        all.map(|(subject, limits)| {
            let directory = match subject {
                Subject::Directory(inode) => Some(inode),
                _ => None,
            };
            let path = directory.map(|inode| places::path_of(reads, inode));
            Ok(Quota {
                subject,
                limits,
                used: charge::used(reads, subject)?,
                is_counted: charge::counts(owners, subject) && (directory.is_none() || is_marked),
                path: path.transpose()?,
            })
        })
        .collect()
    })
    .await
}
