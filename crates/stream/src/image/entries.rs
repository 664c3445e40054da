//! What a directory holds, while it is open.
//!
//! Entries lie in one run of bytes in the order in which they came, which is nearly that of their
//! names: no order is kept while it is, and one is made when it is not. A directory too large for
//! memory is written out in sorted runs, which are merged when it is left. So memory is bounded by
//! [`DIRECTORIES_MEMORY`] for all open directories together, whatever they hold.

mod runs;

use std::{io, path::Path};

use runs::{Run, Spill};

/// Bytes of entries that all open directories hold in memory together.
pub(crate) const DIRECTORIES_MEMORY: usize = 192 << 20;

/// Bytes of a record before the name: node, kind and the length of the name.
const RECORD_HEAD: usize = 11;

/// What an entry leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

impl NodeKind {
    pub(crate) fn of_byte(byte: u8) -> Self {
        match byte {
            0 => Self::File,
            1 => Self::Directory,
            _ => Self::Symlink,
        }
    }
}

/// A name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) node: u64,
    pub(crate) kind: NodeKind,
}

/// The entries of an open directory.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    records: Vec<u8>,
    last: usize,
    /// The records are in the order of their names.
    unsorted: bool,
    spill: Option<Spill>,
}

impl Entries {
    /// Adds an entry, whose name has at most 64 KiB: writers that sort by something else put it
    /// before the name. Returns the bytes it takes.
    pub(crate) fn push(&mut self, entry: &Entry<'_>) -> usize {
        if !self.records.is_empty() && !self.unsorted {
            self.unsorted = record(&self.records, self.last).name > entry.name;
        }
        self.last = self.records.len();
        self.records.extend_from_slice(&entry.node.to_le_bytes());
        self.records.push(entry.kind as u8);
        let length = entry.name.len() as u16;
        self.records.extend_from_slice(&length.to_le_bytes());
        self.records.extend_from_slice(entry.name);
        RECORD_HEAD + entry.name.len()
    }

    /// Bytes in memory.
    pub(crate) fn held(&self) -> usize {
        self.records.len()
    }

    /// Moves what is in memory to a file without a name in `folder`.
    pub(crate) fn spill(&mut self, folder: &Path) -> io::Result<()> {
        let mut spill = match self.spill.take() {
            Some(spill) => spill,
            None => Spill::create(folder)?,
        };
        let mut sorted = self.take_run();
        spill.begin();
        while let Some(bytes) = sorted.next_record()? {
            spill.add(bytes)?;
        }
        spill.end()?;
        self.records = sorted.into_memory();
        self.spill = Some(spill);
        Ok(())
    }

    /// All entries in the order of their names; nothing is left here.
    pub(crate) fn take_sorted(&mut self) -> io::Result<Sorted> {
        let mut runs = match self.spill.take() {
            Some(spill) => spill.into_runs(),
            None => Vec::new(),
        };
        runs.push(self.take_run());
        Sorted::new(runs)
    }

    /// Empty entries that use the memory of what was sorted.
    pub(crate) fn reusing(sorted: Sorted) -> Self {
        let records = sorted.runs.into_iter().next_back();
        Self {
            records: records.map(Run::into_memory).unwrap_or_default(),
            ..Self::default()
        }
    }

    fn take_run(&mut self) -> Run {
        let records = std::mem::take(&mut self.records);
        let order = self.unsorted.then(|| order_of(&records));
        self.unsorted = false;
        self.last = 0;
        Run::in_memory(records, order)
    }
}

/// Where each record begins, in the order of names.
///
/// The first bytes of the names are sorted as numbers beside the places: looking at a record costs
/// a wait for memory, and mostly they differ early.
fn order_of(records: &[u8]) -> Vec<u32> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < records.len() {
        starts.push((leading_bytes(record(records, at).name), at as u32));
        at += record_length(&records[at..]);
    }
    starts.sort_by(|one, other| {
        let name = |start: u32| record(records, start as usize).name;
        one.0
            .cmp(&other.0)
            .then_with(|| name(one.1).cmp(name(other.1)))
    });
    starts.into_iter().map(|(_, start)| start).collect()
}

/// The first eight bytes as a number; zeros stand for those that a short name lacks.
fn leading_bytes(name: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = name.len().min(8);
    bytes[..length].copy_from_slice(&name[..length]);
    u64::from_be_bytes(bytes)
}

fn record_length(bytes: &[u8]) -> usize {
    RECORD_HEAD + usize::from(u16::from_le_bytes([bytes[9], bytes[10]]))
}

fn record(records: &[u8], start: usize) -> Entry<'_> {
    let bytes = &records[start..];
    let (node, rest) = bytes.split_first_chunk().expect("records have a head");
    Entry {
        name: &bytes[RECORD_HEAD..record_length(bytes)],
        node: u64::from_le_bytes(*node),
        kind: NodeKind::of_byte(rest[0]),
    }
}

/// Gives the entries of a directory in the order of their names.
#[derive(Debug)]
pub(crate) struct Sorted {
    runs: Vec<Run>,
    current: usize,
    /// The runs stand at their first records, of which none was given yet.
    fresh: bool,
}

impl Sorted {
    fn new(mut runs: Vec<Run>) -> io::Result<Self> {
        for run in &mut runs {
            run.advance()?;
        }
        Ok(Self {
            runs,
            current: 0,
            fresh: true,
        })
    }

    /// The next entry, or none at the end.
    pub(crate) fn next_entry(&mut self) -> io::Result<Option<Entry<'_>>> {
        if !self.fresh {
            self.runs[self.current].advance()?;
        }
        self.fresh = false;
        // Runs are few, and hardly ever overlap: the one that gave the last entry gives the next.
        let first = |index: usize| self.runs[index].current().map(|entry| entry.name);
        let mut best = None;
        for index in 0..self.runs.len() {
            if let Some(name) = first(index)
                && best.is_none_or(|(_, least)| name < least)
            {
                best = Some((index, name));
            }
        }
        let Some((index, _)) = best else {
            return Ok(None);
        };
        self.current = index;
        Ok(self.runs[index].current())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(entries: &mut Entries) -> Vec<(Vec<u8>, u64, NodeKind)> {
        let mut sorted = entries.take_sorted().expect("readable");
        let mut found = Vec::new();
        while let Some(entry) = sorted.next_entry().expect("readable") {
            found.push((entry.name.to_vec(), entry.node, entry.kind));
        }
        found
    }

    proptest! {
        #[test]
        fn entries_come_back_sorted_whether_spilled_or_not(
            names in proptest::collection::hash_set(
                proptest::collection::vec(any::<u8>(), 1..256), 0..60),
            every in 1_usize..30,
            spilling: bool,
        ) {
            let folder = tempfile::tempdir().expect("a folder");
            let mut entries = Entries::default();
            let mut expected = Vec::new();
            for (number, name) in names.into_iter().enumerate() {
                let node = number as u64 * 7;
                let kind = NodeKind::of_byte((number % 3) as u8);
                entries.push(&Entry { name: &name, node, kind });
                expected.push((name, node, kind));
                if spilling && number % every == 0 {
                    entries.spill(folder.path()).expect("spilled");
                }
            }
            expected.sort_by(|one, other| one.0.cmp(&other.0));
            prop_assert_eq!(drain(&mut entries), expected);
            prop_assert_eq!(drain(&mut entries), Vec::new(), "nothing is left");
            prop_assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
        }
    }
}
