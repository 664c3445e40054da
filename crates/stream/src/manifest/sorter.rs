//! Rows in order, as many at a time as there is memory for.

use crate::{SnapshotError, SnapshotObject, Spool, Timestamp, spool::FinishedRun};

/// Runs at most: with the default memory enough for 16 GiB of rows.
const RUNS_MAX: usize = 256;

/// Sorted rows, aside in a spool.
#[derive(Debug)]
pub(super) struct SortedRun {
    pub(super) run: FinishedRun,
    pub(super) first: Vec<u8>,
    pub(super) last: Vec<u8>,
}

/// Gathers rows and writes them as sorted runs.
#[derive(Debug)]
pub(super) struct Sorter<'a> {
    spool: &'a Spool,
    memory: usize,
    /// Keys and tags of all rows, back to back.
    text: Vec<u8>,
    rows: Vec<Gathered>,
    runs: Vec<SortedRun>,
    repeated: u64,
}

#[derive(Debug, Clone, Copy)]
struct Gathered {
    key: usize,
    etag: usize,
    end: usize,
    size: u64,
    modified: Timestamp,
}

impl Gathered {
    fn key<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        &text[self.key..self.etag]
    }

    fn object<'a>(&self, text: &'a [u8]) -> SnapshotObject<'a> {
        SnapshotObject {
            key: self.key(text),
            size: self.size,
            modified: self.modified,
            etag: std::str::from_utf8(&text[self.etag..self.end]).expect("it was text"),
            target: "",
        }
    }
}

impl<'a> Sorter<'a> {
    /// With about `memory` bytes for rows.
    pub(super) fn new(spool: &'a Spool, memory: u64) -> Self {
        Self {
            spool,
            memory: usize::try_from(memory).unwrap_or(usize::MAX),
            text: Vec::new(),
            rows: Vec::new(),
            runs: Vec::new(),
            repeated: 0,
        }
    }

    /// Adds a row.
    pub(super) fn add(&mut self, object: &SnapshotObject<'_>) -> Result<(), SnapshotError> {
        let key = self.text.len();
        self.text.extend_from_slice(object.key);
        self.text.extend_from_slice(object.etag.as_bytes());
        self.rows.push(Gathered {
            key,
            etag: key + object.key.len(),
            end: self.text.len(),
            size: object.size,
            modified: object.modified,
        });
        if self.text.len() + self.rows.len() * size_of::<Gathered>() >= self.memory {
            self.write_run()?;
        }
        Ok(())
    }

    /// All runs in the order in which they were read, and how many rows repeated one of their run.
    pub(super) fn finish(mut self) -> Result<(Vec<SortedRun>, u64), SnapshotError> {
        self.write_run()?;
        Ok((self.runs, self.repeated))
    }

    fn write_run(&mut self) -> Result<(), SnapshotError> {
        let Self { text, rows, .. } = self;
        rows.sort_by(|one, other| one.key(text).cmp(other.key(text)));
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(());
        };
        if self.runs.len() == RUNS_MAX {
            let message = "the manifest is too large to be sorted here: sort it by key first, in the C locale";
            return Err(SnapshotError::Invalid(message.to_owned()));
        }
        let (first, last) = (first.key(text).to_vec(), last.key(text).to_vec());
        let mut run = self.spool.begin_run();
        let mut before: Option<&Gathered> = None;
        for row in rows.iter() {
            let object = row.object(text);
            match before.filter(|before| before.key(text) == object.key) {
                Some(before) => {
                    same(&before.object(text), &object)?;
                    self.repeated += 1;
                }
                None => run.write(&object)?,
            }
            before = Some(row);
        }
        let run = self.spool.finish_aside(run)?;
        self.runs.push(SortedRun { run, first, last });
        self.text.clear();
        self.rows.clear();
        Ok(())
    }
}

/// Fails where two rows of one key differ.
pub(super) fn same(
    one: &SnapshotObject<'_>,
    other: &SnapshotObject<'_>,
) -> Result<(), SnapshotError> {
    if one == other {
        return Ok(());
    }
    let key = String::from_utf8_lossy(one.key);
    Err(SnapshotError::Invalid(format!(
        "the manifest describes `{key}` twice and differently: keep one row, or name the column `is_latest`"
    )))
}
