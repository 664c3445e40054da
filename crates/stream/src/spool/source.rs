//! All runs, one after the other.

use std::collections::VecDeque;

use super::{FinishedRun, RunReader, Spool};
use crate::{ObjectSource, SnapshotError, SnapshotObject};

/// The objects of a path from the runs of a [`Spool`], whose directory it keeps.
#[derive(Debug)]
pub struct SpoolSource {
    spool: Spool,
    waiting: VecDeque<FinishedRun>,
    reader: Option<RunReader>,
    /// The last key of the run before the present one.
    last: Vec<u8>,
    objects: u64,
    bytes: u64,
}

impl SpoolSource {
    pub(super) fn new(spool: Spool, runs: Vec<FinishedRun>) -> Self {
        Self {
            spool,
            objects: runs.iter().map(|run| run.objects).sum(),
            bytes: runs.iter().map(|run| run.bytes).sum(),
            waiting: runs.into(),
            reader: None,
            last: Vec::new(),
        }
    }

    /// Objects in all.
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// Bytes that the runs take on the disk.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the directory back, for instance to discard it.
    pub fn into_spool(self) -> Spool {
        self.spool
    }

    /// Moves on to the next object, through as many runs as it takes.
    fn advance(&mut self) -> Result<bool, SnapshotError> {
        loop {
            if let Some(reader) = &mut self.reader {
                if reader.advance()? {
                    return Ok(true);
                }
                self.last.clear();
                self.last.extend_from_slice(reader.object().key);
                self.reader = None;
            }
            let Some(run) = self.waiting.pop_front() else {
                return Ok(false);
            };
            if let Some(number) = run.file {
                self.open(number, &run)?;
                return Ok(true);
            }
        }
    }

    /// Opens a run, which has an object, and moves to that.
    fn open(&mut self, number: u64, run: &FinishedRun) -> Result<(), SnapshotError> {
        let path = self.spool.path_of(number);
        let mut reader = RunReader::open(&path, run)?;
        reader.advance()?;
        if reader.object().key <= self.last.as_slice() {
            let path = path.display();
            return Err(SnapshotError::Invalid(format!(
                "`{path}` does not follow the run before it: remove its directory and list again"
            )));
        }
        self.reader = Some(reader);
        Ok(())
    }
}

impl ObjectSource for SpoolSource {
    fn next_object(&mut self) -> Result<Option<SnapshotObject<'_>>, SnapshotError> {
        if !self.advance()? {
            return Ok(None);
        }
        Ok(self.reader.as_ref().map(RunReader::object))
    }
}
