//! Keys on their way from a listing to an index, kept in files.
//!
//! A listing comes in ranges that are taken in parallel. The objects of a range are written as a
//! *run*: a file of compact records in key order ([`record`], [`run`]). Ranges do not overlap, so the
//! runs one after the other, in the order of their ranges, are the whole path: a [`SpoolSource`].
//! Memory is a buffer for each run that is open, however many keys there are.
//!
//! A finished run is written down in a [`journal`]. When the process dies the next one over the
//! same directory finds there which ranges are done, checks those runs, sweeps everything else and
//! lists only the gaps. It does so only for the same source: the text that the caller gives for
//! it is equal (endpoint, bucket, path), and the journal was begun less than
//! [`SpoolSettings::age_max`] ago. What is taken over is as old as the journal: objects that
//! were written or removed in ranges that were done show as they were then, just as in any listing
//! that takes a while. Nothing is synced; a run that did not survive a power failure fails its
//! checksum and is listed again.

mod journal;
mod record;
mod run;
mod source;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use penstock_base::{Mutex, clock};
use rustix::fs::{FlockOperation, flock};

use journal::Journal;
pub(crate) use run::{RunReader, RunWriter};
pub use source::SpoolSource;

use crate::{SnapshotError, private};

/// Age up to which the runs of an interrupted listing are taken over if nobody says: an hour.
pub const AGE_MAX_DEFAULT: Duration = Duration::from_secs(3600);

/// Bytes in the longest key that is kept; stores have none above 1024.
pub const SPOOLED_KEY_MAX: usize = 4096;

/// Name of the file that says who uses the directory.
const LOCK_FILE: &str = "lock";

/// Where a spool lies and what it is of.
#[derive(Debug, Clone)]
pub struct SpoolSettings {
    /// A directory of the spool's own; made if need be.
    pub directory: PathBuf,
    /// What is listed, such that equal texts mean the same keys: endpoint, bucket and path.
    pub source: String,
    /// How old the runs of an interrupted listing may be to be taken over; zero never does.
    pub age_max: Duration,
}

impl SpoolSettings {
    /// Of `source` in `directory`, with the default age.
    pub fn new(directory: impl Into<PathBuf>, source: impl Into<String>) -> Self {
        Self {
            directory: directory.into(),
            source: source.into(),
            age_max: AGE_MAX_DEFAULT,
        }
    }
}

/// The keys after one key and up to another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    /// Exclusive; empty for the beginning.
    pub(crate) after: String,
    /// Inclusive; `None` for the end.
    pub(crate) up_to: Option<String>,
}

#[cfg(test)]
impl Span {
    /// All keys.
    pub(crate) fn all() -> Self {
        Self {
            after: String::new(),
            up_to: None,
        }
    }
}

/// A run that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FinishedRun {
    pub(crate) span: Span,
    /// The file's number; `None` for a span without keys.
    pub(crate) file: Option<u64>,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
}

/// A directory of runs. Used by one process at a time.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    state: Mutex<State>,
    next_file: AtomicU64,
    /// Holds the directory until dropped.
    _lock: File,
}

#[derive(Debug)]
struct State {
    journal: Journal,
    finished: Vec<FinishedRun>,
}

impl Spool {
    /// Takes the directory, with what an interrupted listing of the same source left there.
    /// Sweeps everything else that a spool may have left.
    ///
    /// Fails when another process uses it.
    pub fn open(settings: &SpoolSettings) -> Result<Self, SnapshotError> {
        let directory = settings.directory.clone();
        private::create_folder(&directory).map_err(|error| file_error(&directory, error))?;
        let lock = lock(&directory)?;
        let started = clock::wall_time();
        let (journal, finished) = Journal::open(settings, started)?;
        sweep(&directory, |number| {
            finished.iter().any(|run| run.file == Some(number))
        })?;
        let next = finished.iter().filter_map(|run| run.file).max();
        Ok(Self {
            directory,
            state: Mutex::new(State { journal, finished }),
            next_file: AtomicU64::new(next.map_or(0, |file| file + 1)),
            _lock: lock,
        })
    }

    /// Objects in finished runs.
    pub fn objects(&self) -> u64 {
        self.state
            .lock()
            .finished
            .iter()
            .map(|run| run.objects)
            .sum()
    }

    /// What is not in a finished run, in order.
    pub(crate) fn gaps(&self) -> Vec<Span> {
        gaps(&self.state.lock().finished)
    }

    /// A new run, whose file is made when the first object comes.
    pub(crate) fn begin_run(&self) -> RunWriter {
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        RunWriter::new(run_path(&self.directory, number), number)
    }

    /// Ends a run: it has all objects of `span`, which overlaps no other run's.
    pub(crate) fn finish_run(&self, run: RunWriter, span: Span) -> Result<(), SnapshotError> {
        self.keep(run.finish(span)?)
    }

    fn keep(&self, finished: FinishedRun) -> Result<(), SnapshotError> {
        let mut state = self.state.lock();
        state.journal.add(&finished)?;
        state.finished.push(finished);
        Ok(())
    }

    /// Forgets all finished runs.
    pub(crate) fn forget(&self) -> Result<(), SnapshotError> {
        let mut state = self.state.lock();
        state.finished.clear();
        state.journal.clear()?;
        drop(state);
        sweep(&self.directory, |_| false)
    }

    /// Ends a run that is only a step on the way to another: it does not count as finished.
    pub(crate) fn finish_aside(&self, run: RunWriter) -> Result<FinishedRun, SnapshotError> {
        run.finish(Span {
            after: String::new(),
            up_to: None,
        })
    }

    /// Lets a run that was ended aside count after all, as all that is in `span`.
    pub(crate) fn adopt(&self, run: &FinishedRun, span: Span) -> Result<(), SnapshotError> {
        self.keep(FinishedRun {
            span,
            ..run.clone()
        })
    }

    /// Reads a run that was ended aside.
    pub(crate) fn read_aside(&self, run: &FinishedRun) -> Result<Option<RunReader>, SnapshotError> {
        let open = |number| RunReader::open(&self.path_of(number), run);
        run.file.map(open).transpose()
    }

    /// Removes a run that was ended aside.
    pub(crate) fn remove_aside(&self, run: &FinishedRun) -> Result<(), SnapshotError> {
        let Some(path) = run.file.map(|number| self.path_of(number)) else {
            return Ok(());
        };
        fs::remove_file(&path).map_err(|error| file_error(&path, error))
    }

    /// Where somebody who fills the spool may keep a file of that name.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The objects of all runs in key order. Fails where a range is missing.
    pub fn into_source(self) -> Result<SpoolSource, SnapshotError> {
        if let Some(gap) = self.gaps().first() {
            let message = format!("nothing is known about the keys after `{}`", gap.after);
            return Err(SnapshotError::Invalid(message));
        }
        let mut runs = std::mem::take(&mut self.state.lock().finished);
        runs.sort_by(|one, other| one.span.cmp(&other.span));
        Ok(SpoolSource::new(self, runs))
    }

    /// Removes what is in the directory, and the directory if it is empty then.
    pub fn discard(self) -> Result<(), SnapshotError> {
        sweep(&self.directory, |_| false)?;
        for name in [journal::JOURNAL_FILE, LOCK_FILE] {
            let path = self.directory.join(name);
            fs::remove_file(&path).map_err(|error| file_error(&path, error))?;
        }
        // Others may have put something there, which is theirs to remove.
        let _ = fs::remove_dir(&self.directory);
        Ok(())
    }

    fn path_of(&self, number: u64) -> PathBuf {
        run_path(&self.directory, number)
    }
}

/// What lies between runs.
fn gaps(runs: &[FinishedRun]) -> Vec<Span> {
    let mut spans: Vec<&Span> = runs.iter().map(|run| &run.span).collect();
    spans.sort();
    let mut gaps = Vec::new();
    let mut known = Some(String::new());
    for span in spans {
        let Some(end) = known else { return gaps };
        if span.after > end {
            gaps.push(Span {
                after: end,
                up_to: Some(span.after.clone()),
            });
        }
        known = span.up_to.clone();
    }
    gaps.extend(known.map(|after| Span { after, up_to: None }));
    gaps
}

fn lock(directory: &Path) -> Result<File, SnapshotError> {
    let path = directory.join(LOCK_FILE);
    let file = private::create(&path).map_err(|error| file_error(&path, error))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        let directory = directory.display();
        SnapshotError::Invalid(format!(
            "another process lists into `{directory}`: wait for it or give another directory"
        ))
    })?;
    Ok(file)
}

/// Removes the files of runs that are not `kept`.
fn sweep(directory: &Path, kept: impl Fn(u64) -> bool) -> Result<(), SnapshotError> {
    let entries = fs::read_dir(directory).map_err(|error| file_error(directory, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| file_error(directory, error))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(RUN_PREFIX));
        let number = number.and_then(|digits| digits.parse().ok());
        if number.is_some_and(|number| !kept(number)) {
            fs::remove_file(entry.path()).map_err(|error| file_error(&entry.path(), error))?;
        }
    }
    Ok(())
}

/// What names of run files begin with; a number follows.
const RUN_PREFIX: &str = "run-";

fn run_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{RUN_PREFIX}{number:06}"))
}

pub(crate) fn file_error(path: &Path, source: std::io::Error) -> SnapshotError {
    SnapshotError::File {
        path: path.display().to_string(),
        source,
    }
}
