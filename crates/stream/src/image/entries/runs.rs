//! Sorted runs of directory entries, in memory or in a file.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
};

use penstock_base::random;

use super::{Entry, RECORD_HEAD, record, record_length};
use crate::private;

/// Bytes that are read or written at once.
const CHUNK: usize = 256 << 10;

/// A file of runs. It has no name any more, so it is gone with the process.
#[derive(Debug)]
pub(super) struct Spill {
    file: Arc<File>,
    chunk: Vec<u8>,
    end: u64,
    /// Where runs begin and end.
    runs: Vec<(u64, u64)>,
}

impl Spill {
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let path = folder.join(format!(".entries-{:016x}", random::number()));
        let file = private::create_new(&path)?;
        fs::remove_file(&path)?;
        Ok(Self {
            file: Arc::new(file),
            chunk: Vec::with_capacity(CHUNK),
            end: 0,
            runs: Vec::new(),
        })
    }

    pub(super) fn begin(&mut self) {
        self.runs.push((self.end, self.end));
    }

    pub(super) fn add(&mut self, record: &[u8]) -> io::Result<()> {
        if self.chunk.len() + record.len() > CHUNK {
            self.flush()?;
        }
        self.chunk.extend_from_slice(record);
        Ok(())
    }

    pub(super) fn end(&mut self) -> io::Result<()> {
        self.flush()?;
        if let Some(run) = self.runs.last_mut() {
            run.1 = self.end;
        }
        Ok(())
    }

    pub(super) fn into_runs(self) -> Vec<Run> {
        let run = |&(next, end): &(u64, u64)| {
            let source = Source::File {
                file: Arc::clone(&self.file),
                next,
                end,
            };
            Run::new(Vec::new(), source)
        };
        self.runs.iter().map(run).collect()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.chunk, self.end)?;
        self.end += self.chunk.len() as u64;
        self.chunk.clear();
        Ok(())
    }
}

/// Records in the order of their names, of which one is looked at.
#[derive(Debug)]
pub(super) struct Run {
    /// All records, or those that were read last.
    records: Vec<u8>,
    /// The record that is looked at, if there is one.
    current: Option<usize>,
    /// The record behind it.
    next: usize,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// In memory as they lie.
    Memory,
    /// In memory, in an order of their own, of which so many were looked at.
    Ordered(Vec<u32>, usize),
    /// In a file, from the first position to the second.
    File {
        file: Arc<File>,
        next: u64,
        end: u64,
    },
}

impl Run {
    fn new(records: Vec<u8>, source: Source) -> Self {
        Self {
            records,
            current: None,
            next: 0,
            source,
        }
    }

    pub(super) fn in_memory(records: Vec<u8>, order: Option<Vec<u32>>) -> Self {
        let source = order.map_or(Source::Memory, |order| Source::Ordered(order, 0));
        Self::new(records, source)
    }

    /// The memory of the records, empty.
    pub(super) fn into_memory(mut self) -> Vec<u8> {
        self.records.clear();
        self.records
    }

    /// What is looked at; none before the first and after the last.
    pub(super) fn current(&self) -> Option<Entry<'_>> {
        self.current.map(|start| record(&self.records, start))
    }

    /// Looks at the next record and gives its bytes.
    pub(super) fn next_record(&mut self) -> io::Result<Option<&[u8]>> {
        self.advance()?;
        Ok(self.current.map(|start| {
            let bytes = &self.records[start..];
            &bytes[..record_length(bytes)]
        }))
    }

    /// Looks at the next record.
    pub(super) fn advance(&mut self) -> io::Result<()> {
        self.current = match &mut self.source {
            Source::Memory => self.step(),
            Source::Ordered(order, given) => {
                let start = order.get(*given).map(|start| *start as usize);
                *given += 1;
                start
            }
            Source::File { .. } => {
                self.fill()?;
                self.step()
            }
        };
        Ok(())
    }

    fn step(&mut self) -> Option<usize> {
        let start = self.next;
        let bytes = self
            .records
            .get(start..)
            .filter(|bytes| !bytes.is_empty())?;
        self.next += record_length(bytes);
        Some(start)
    }

    /// Makes sure that the next record is in memory, if there is one.
    fn fill(&mut self) -> io::Result<()> {
        let Source::File { file, next, end } = &mut self.source else {
            return Ok(());
        };
        let rest = &self.records[self.next..];
        let whole = rest.len() >= RECORD_HEAD && rest.len() >= record_length(rest);
        if whole || next == end {
            return Ok(());
        }
        self.records.drain(..self.next);
        self.next = 0;
        let held = self.records.len();
        let more = (*end - *next).min(CHUNK as u64) as usize;
        self.records.resize(held + more, 0);
        file.read_exact_at(&mut self.records[held..], *next)?;
        *next += more as u64;
        Ok(())
    }
}
