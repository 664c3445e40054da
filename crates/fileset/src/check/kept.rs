//! What the keys say of snapshots: that what each needs is there, and that nothing is held for none.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use penstock_base::FsResult;

use crate::{
    data::ObjectId,
    engine::{counter, mark},
    schema::{self, Chunk, FILE_MAX, ObjectUse, Share, SnapshotRecord, kind},
    snapshots::is_needed,
};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    records: Vec<(u64, SnapshotRecord)>,
    names: BTreeMap<Bytes, u64>,
    counted: i64,
    /// Objects with the snapshots as which they are held.
    held: BTreeSet<(u64, ObjectId)>,
    /// Objects of kept chunks, with the snapshots for which these were kept: behind one, until another.
    used: BTreeMap<ObjectId, Vec<(u64, u64)>>,
    /// The last key of which something was kept, and for which snapshot.
    last: (Bytes, u64),
    /// The last snapshot for which something was kept, and the last file of which it was.
    kept_for: u64,
    kept_of: u64,
}

impl Snapshots {
    pub(super) fn look(&mut self, key: &[u8], value: &Bytes) -> FsResult<()> {
        match key[0] {
            kind::SNAPSHOT => {
                let number = schema::inode_in(key)?.0;
                self.records.push((number, SnapshotRecord::decode(value)?));
            }
            kind::SNAPSHOT_NAME => {
                let name = Bytes::copy_from_slice(&key[1..]);
                self.names.insert(name, mark(Some(value)));
            }
            kind::HELD => drop(self.held.insert(schema::held_in(key)?)),
            _ => self.look_at_kept(key, value)?,
        }
        Ok(())
    }

    /// What is written of the directory of all snapshots.
    pub(super) fn look_at_directory(&mut self, key: &[u8], value: &Bytes) -> FsResult<()> {
        match key.first() {
            Some(&kind::DIRECTORIES) => self.counted = counter(Some(value)),
            Some(&kind::TIMES) => {}
            _ => return Err(schema::damaged("a key")),
        }
        Ok(())
    }

    fn look_at_kept(&mut self, kept: &[u8], value: &Bytes) -> FsResult<()> {
        let (key, number) = schema::kept_in(kept)?;
        let value = schema::decode_kept(value)?;
        self.kept_for = self.kept_for.max(number);
        let file = schema::inode_in(key)?.0;
        if file <= FILE_MAX {
            self.kept_of = self.kept_of.max(file);
        }
        let before = match self.last.0 == key {
            true => self.last.1,
            false => 0,
        };
        self.last = (Bytes::copy_from_slice(key), number);
        if let (Some(&kind::CHUNK), Some(value)) = (key.first(), value) {
            for extent in Chunk::decode(&value)?.extents {
                let used = self.used.entry(extent.stored.object).or_default();
                used.push((before, number));
            }
        }
        Ok(())
    }

    /// What is wrong. Keys were looked at in their order, but objects come before those.
    pub(super) fn problems(
        &self,
        objects: &BTreeMap<ObjectId, (Option<ObjectUse>, Share)>,
    ) -> Vec<String> {
        let mut problems = self.wrong_names();
        let known = |object: &ObjectId| objects.get(object).and_then(|(known, _)| *known);
        for (died, object) in &self.held {
            let known = known(object).filter(|known| known.used == 0 && known.died == *died);
            match known {
                None => problems.push(format!("{object}: is held for snapshots and in use")),
                Some(known) if !self.is_needed(known.born, *died) && !self.is_clearing() => {
                    problems.push(format!(
                        "{object}: is held for snapshots, and none needs it"
                    ));
                }
                Some(_) => {}
            }
        }
        let held = objects.iter().filter(|(object, (known, _))| {
            let died = known.map_or(0, |known| known.died);
            died != 0 && !self.held.contains(&(died, **object))
        });
        problems.extend(held.map(|(object, _)| format!("{object}: is held, and no key says so")));
        for (object, used) in &self.used {
            let is_needed = used.iter().any(|(from, to)| self.is_needed(*from, *to));
            if is_needed && known(object).is_none() {
                problems.push(format!("{object}: a snapshot needs it, and it is not held"));
            }
        }
        problems
    }

    fn wrong_names(&self) -> Vec<String> {
        let there = self.records.iter().filter(|(_, record)| !record.is_removed);
        let there: BTreeMap<_, _> = there
            .map(|(number, record)| (record.name.clone(), *number))
            .collect();
        let mut problems = Vec::new();
        if there != self.names {
            problems.push("the names of snapshots and the snapshots differ".to_owned());
        }
        if self.counted != there.len() as i64 {
            let (counted, there) = (self.counted, there.len());
            problems.push(format!(
                "{counted} snapshots are counted, {there} are there"
            ));
        }
        problems
    }

    /// The latest snapshot that was not removed, and the last file in it.
    pub(super) fn latest(&self) -> Option<(u64, u64)> {
        let there = self.records.iter().filter(|(_, record)| !record.is_removed);
        let there = there.map(|(number, record)| (*number, record.last_file));
        there.max()
    }

    /// The last number of which something says that a snapshot had it.
    pub(super) fn greatest(&self) -> u64 {
        let records = self.records.iter().map(|(number, _)| *number);
        let held = self.held.iter().map(|(died, _)| *died);
        let all = records.chain(self.names.values().copied()).chain(held);
        all.max().unwrap_or(0).max(self.kept_for)
    }

    /// The last number that files had when snapshots were taken, and of what was kept of one.
    pub(super) fn last_file(&self) -> u64 {
        let records = self.records.iter().map(|(_, record)| record.last_file);
        records.max().unwrap_or(0).max(self.kept_of)
    }

    fn is_needed(&self, from: u64, to: u64) -> bool {
        is_needed(&self.records, from, to)
    }

    /// What a removed snapshot held is being cleared away.
    fn is_clearing(&self) -> bool {
        self.records.iter().any(|(_, record)| record.is_removed)
    }
}
