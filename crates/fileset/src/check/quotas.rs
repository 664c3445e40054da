//! What the keys say of quotas: that each counter says what the files come to whose owners are counted.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use bytes::Bytes;
use penstock_base::FsResult;
use penstock_vfs::Inode;

use super::Seen;
use crate::{
    engine::counter,
    schema::{self, Counted, Limits, Owners, QUOTAS, Subject, kind},
};

type Counters = BTreeMap<(Subject, Counted), i64>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    record: Option<schema::Quotas>,
    counters: Counters,
}

/// A counter that says something else than the files do.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) subject: Subject,
    pub(super) counted: Counted,
    says: i64,
    pub(super) there: i64,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.counted {
            Counted::Bytes => "bytes",
            Counted::Files => "files",
        };
        let (says, there) = (self.says, self.there);
        write!(
            f,
            "{}: {says} {what} are counted, {there} are there",
            self.subject
        )
    }
}

impl Quotas {
    pub(super) fn look(&mut self, key: &[u8], value: &Bytes) -> FsResult<()> {
        match key {
            QUOTAS => self.record = Some(schema::Quotas::decode(value)?),
            [kind::QUOTA, ..] => {
                schema::limits_in(key)?;
                Limits::decode(value)?;
            }
            _ => drop(
                self.counters
                    .insert(schema::used_in(key)?, counter(Some(value))),
            ),
        }
        Ok(())
    }

    /// Counters that are wrong. Those of users and groups mean something while these are counted.
    pub(super) fn wrong(&self, inodes: &HashMap<u64, Seen>) -> impl Iterator<Item = Wrong> {
        let owners = self
            .record
            .map_or(Owners::Uncounted, |record| record.owners);
        let there = sums(inodes, owners);
        let means_something = move |subject: &Subject| match subject {
            Subject::Directory(_) => true,
            _ => matches!(owners, Owners::CountedBelow(_)),
        };
        let all: BTreeSet<_> = self.counters.keys().chain(there.keys()).copied().collect();
        let says = self.counters.clone();
        let value = |counters: &Counters, key| counters.get(&key).copied().unwrap_or_default();
        let wrong = all.into_iter().map(move |(subject, counted)| Wrong {
            subject,
            counted,
            says: value(&says, (subject, counted)),
            there: value(&there, (subject, counted)),
        });
        wrong.filter(move |wrong| wrong.says != wrong.there && means_something(&wrong.subject))
    }
}

/// What the files come to that are counted so.
fn sums(inodes: &HashMap<u64, Seen>, owners: Owners) -> Counters {
    let mut sums = Counters::new();
    let nodes = inodes.iter();
    let nodes = nodes.filter_map(|(inode, seen)| Some((*inode, seen.node.as_ref()?)));
    for (inode, node) in nodes {
        let both = [Subject::User(node.uid), Subject::Group(node.gid)];
        let both = both.into_iter().filter(|_| owners.has(Inode(inode)));
        let directory = (node.project != 0).then_some(Subject::Directory(Inode(node.project)));
        for subject in both.chain(directory) {
            *sums.entry((subject, Counted::Bytes)).or_default() += node.allocated.cast_signed();
            *sums.entry((subject, Counted::Files)).or_default() += 1;
        }
    }
    sums
}
