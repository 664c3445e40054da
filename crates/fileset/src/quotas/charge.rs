//! Counting what files take, in the operation that takes it, and what limits a file.

use std::{collections::BTreeMap, time::SystemTime};

use penstock_base::{FsError, FsResult};
use penstock_vfs::Inode;

use super::{Use, limits::Growth};
use crate::{
    engine::{Reads, Transaction, counter},
    operations::{self, Asked},
    schema::{self, Counted, Limits, Node, Owners, Quotas, Subject},
};

/// What a file takes more, or gives back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Amount {
    pub(crate) bytes: i64,
    pub(crate) files: i64,
}

impl Amount {
    /// A file without bytes.
    pub(crate) const FILE: Self = Self { bytes: 0, files: 1 };

    /// All that a file takes.
    pub(super) fn of(node: &Node) -> Self {
        Self {
            bytes: node.allocated.cast_signed(),
            files: 1,
        }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.files += more.files;
    }

    pub(crate) fn back(self) -> Self {
        Self {
            bytes: -self.bytes,
            files: -self.files,
        }
    }
}

/// A file, and whose it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    inode: Inode,
    uid: u32,
    gid: u32,
    project: u64,
}

impl Owner {
    pub(crate) fn of(inode: Inode, node: &Node) -> Self {
        Self {
            inode,
            uid: node.uid,
            gid: node.gid,
            project: node.project,
        }
    }

    /// The directory for whose quota the file counts.
    fn directory(self) -> Option<Subject> {
        (self.project != 0).then_some(Subject::Directory(Inode(self.project)))
    }

    /// All whose use it is.
    fn subjects(self) -> impl Iterator<Item = Subject> {
        let always = [
            Subject::FileSystem,
            Subject::User(self.uid),
            Subject::Group(self.gid),
        ];
        always.into_iter().chain(self.directory())
    }
}

/// What all quotas have in common, if there is one.
pub(crate) fn record(reads: &dyn Reads) -> FsResult<Option<Quotas>> {
    let value = reads.get(schema::QUOTAS)?;
    value.map(|value| Quotas::decode(&value)).transpose()
}

/// Whether the limits of somebody count.
pub(super) fn counts(owners: Owners, subject: Subject) -> bool {
    match subject {
        Subject::User(_) | Subject::Group(_) => owners == Owners::COUNTED,
        Subject::FileSystem | Subject::Directory(_) => true,
    }
}

/// What somebody uses.
pub(crate) fn used(reads: &dyn Reads, subject: Subject) -> FsResult<Use> {
    let number = |counted| -> FsResult<u64> {
        let value = reads.get(&schema::used(subject, counted))?;
        Ok(u64::try_from(counter(value.as_ref())).unwrap_or_default())
    };
    Ok(Use {
        bytes: number(Counted::Bytes)?,
        files: number(Counted::Files)?,
    })
}

pub(super) fn add(
    transaction: &mut dyn Transaction,
    subject: Subject,
    amount: Amount,
) -> FsResult<()> {
    let amounts = [
        (Counted::Bytes, amount.bytes),
        (Counted::Files, amount.files),
    ];
    for (counted, amount) in amounts.into_iter().filter(|(_, amount)| *amount != 0) {
        transaction.add(&schema::used(subject, counted), amount)?;
    }
    Ok(())
}

/// Those whose use a file is counted as, besides the file system.
fn counted(reads: &dyn Reads, owner: Owner) -> FsResult<impl Iterator<Item = Subject> + use<>> {
    let owners = record(reads)?.map_or(Owners::Uncounted, |quotas| quotas.owners);
    let both = [Subject::User(owner.uid), Subject::Group(owner.gid)];
    let both = both.into_iter().filter(move |_| owners.has(owner.inode));
    Ok(both.chain(owner.directory()))
}

/// Counts what a file takes more.
pub(crate) fn charge(
    transaction: &mut dyn Transaction,
    owner: Owner,
    amount: Amount,
) -> FsResult<()> {
    if amount.bytes == 0 && amount.files == 0 {
        return Ok(());
    }
    add(transaction, Subject::FileSystem, amount)?;
    for subject in counted(transaction, owner)? {
        add(transaction, subject, amount)?;
    }
    Ok(())
}

/// Counts all of a file as somebody else's, unless it is the same one's. Fails if a limit is in the way.
pub(crate) fn hand_over(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    inode: Inode,
    (before, after): (&Node, &Node),
) -> FsResult<()> {
    let (from, to) = (Owner::of(inode, before), Owner::of(inode, after));
    let amount = Amount::of(before);
    let is_new = |subject: &Subject| from.subjects().all(|other| other != *subject);
    let more = Use {
        bytes: before.allocated,
        files: 1,
    };
    let limited = limited(transaction, to)?;
    for (subject, limits) in limited.into_iter().filter(|(subject, _)| is_new(subject)) {
        admit_one(transaction, asked, (subject, limits), more)?;
    }
    let (from, to): (Vec<_>, Vec<_>) = (
        counted(transaction, from)?.collect(),
        counted(transaction, to)?.collect(),
    );
    for subject in from.iter().filter(|subject| !to.contains(subject)) {
        add(transaction, *subject, amount.back())?;
    }
    for subject in to.iter().filter(|subject| !from.contains(subject)) {
        add(transaction, *subject, amount)?;
    }
    Ok(())
}

/// Those whose limits hold a file, with these.
pub(super) fn limited(reads: &dyn Reads, owner: Owner) -> FsResult<Vec<(Subject, Limits)>> {
    match record(reads)? {
        Some(quotas) => limited_by(reads, quotas, owner),
        None => Ok(Vec::new()),
    }
}

fn limited_by(
    reads: &dyn Reads,
    Quotas { owners }: Quotas,
    owner: Owner,
) -> FsResult<Vec<(Subject, Limits)>> {
    let mut found = Vec::new();
    for subject in owner.subjects().filter(|subject| counts(owners, *subject)) {
        if let Some(value) = reads.get(&schema::limits(subject))? {
            found.push((subject, Limits::decode(&value)?));
        }
    }
    Ok(found)
}

/// Whether somebody is held to the limits of a subject.
pub(super) fn is_held(uid: u32, subject: Subject) -> bool {
    uid != 0 || !matches!(subject, Subject::User(_) | Subject::Group(_))
}

/// What a limit that is in the way is answered with: that of the file system is its size.
pub(super) fn refusal(subject: Subject) -> FsError {
    match subject {
        Subject::FileSystem => FsError::NoSpace,
        _ => FsError::QuotaExceeded,
    }
}

/// Fails unless all limits of a file allow it to take more. What it takes is for the caller to count.
pub(crate) fn admit(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    owner: Owner,
    more: Use,
) -> FsResult<()> {
    for limited in limited(transaction, owner)? {
        admit_one(transaction, asked, limited, more)?;
    }
    Ok(())
}

fn admit_one(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    (subject, limits): (Subject, Limits),
    more: Use,
) -> FsResult<()> {
    let used = used(transaction, subject)?;
    let growth = Growth {
        more,
        now: asked.now,
    };
    let after = limits.after(used, &growth, is_held(asked.by.uid, subject));
    let after = after.ok_or_else(|| refusal(subject))?;
    if after != limits {
        transaction.put(&schema::limits(subject), after.encode());
    }
    Ok(())
}

/// Whether a limit is nearly reached that counts for a file wherever it is: of the file system, the user or the group.
pub(crate) fn is_short(reads: &dyn Reads, owner: Owner) -> FsResult<bool> {
    let anywhere = Owner {
        project: 0,
        ..owner
    };
    for (subject, limits) in limited(reads, anywhere)? {
        if limits.is_nearly_reached(used(reads, subject)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Who writes so many bytes to which file, and what of others was accepted before and is not in the metadata.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    pub(crate) inode: Inode,
    pub(crate) uid: u32,
    pub(crate) now: SystemTime,
    pub(crate) bytes: u64,
    pub(crate) accepted: &'a BTreeMap<Subject, u64>,
}

/// Those whose limits hold a file.
pub(crate) fn limiting(reads: &dyn Reads, inode: Inode) -> FsResult<Vec<Subject>> {
    let Some(quotas) = record(reads)? else {
        return Ok(Vec::new());
    };
    let owner = Owner::of(inode, &operations::node(reads, inode)?);
    let limited = limited_by(reads, quotas, owner)?;
    Ok(limited.into_iter().map(|(subject, _)| subject).collect())
}

/// Fails unless all limits of a file allow a write. Returns those whose soft limit it passes.
pub(crate) fn admit_write(reads: &dyn Reads, writing: &Writing<'_>) -> FsResult<Vec<Subject>> {
    let node = operations::node(reads, writing.inode)?;
    let growth = Growth {
        more: Use {
            bytes: writing.bytes,
            files: 0,
        },
        now: writing.now,
    };
    let mut passed = Vec::new();
    for (subject, limits) in limited(reads, Owner::of(writing.inode, &node))? {
        let mut used = used(reads, subject)?;
        let accepted = writing.accepted.get(&subject).copied().unwrap_or_default();
        used.bytes = used.bytes.saturating_add(accepted);
        let after = limits.after(used, &growth, is_held(writing.uid, subject));
        if after.ok_or_else(|| refusal(subject))? != limits {
            passed.push(subject);
        }
    }
    Ok(passed)
}

/// What limits the files below a directory, whoever they belong to: limits with what is used of them.
pub(crate) fn sizes(reads: &dyn Reads, inode: Inode) -> FsResult<Vec<(Limits, Use)>> {
    let limited = limited(reads, Owner::of(inode, &operations::node(reads, inode)?))?;
    let limited = limited.into_iter();
    let limited = limited.filter(|(subject, _)| is_held(0, *subject));
    limited
        .map(|(subject, limits)| Ok((limits, used(reads, subject)?)))
        .collect()
}

/// The soft limit of bytes of somebody was passed.
pub(crate) fn note_passed(
    transaction: &mut dyn Transaction,
    subject: Subject,
    now: SystemTime,
) -> FsResult<()> {
    let key = schema::limits(subject);
    if let Some(value) = transaction.get(&key)? {
        let mut limits = Limits::decode(&value)?;
        limits.bytes.exceeded = Some(now);
        transaction.put(&key, limits.encode());
    }
    Ok(())
}
