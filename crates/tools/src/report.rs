//! What a tool did and what it could not.
//!
//! Counters may be looked at while the tool runs. Failures are kept up to a limit and counted beyond.

use std::{
    fmt::Display,
    io,
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use penstock_base::Mutex;
use serde::Serialize;

/// Failures that are kept in words.
const LINES_MAX: usize = 1000;
/// Bytes that weigh as much as one file where throughput is compared.
const BYTES_PER_UNIT: u64 = 128 << 10;

/// A counter that many threads add to.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// What was added so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Forgets what was added before, for what is a level and not a count.
    pub fn set(&self, level: u64) {
        self.0.store(level, Ordering::Relaxed);
    }
}

/// Who is told each thing that is done.
type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// What was done so far.
#[derive(Default)]
pub struct Report {
    /// Files of any kind but directories: removed, copied, archived.
    pub files: Counter,
    /// Directories likewise.
    pub directories: Counter,
    /// Bytes of content that were copied or archived.
    pub bytes: Counter,
    /// What was there already and the same, or left out as asked.
    pub unchanged: Counter,
    /// Bytes of files that were.
    unchanged_bytes: Counter,
    /// How much there is to do in all, as [`work`](Self::work) counts, once that is known.
    expected: OnceLock<u64>,
    /// What was removed from a target that mirrors its source.
    pub removed: Counter,
    /// Bytes of the input that were taken in so far, where it is one file.
    pub input: Counter,
    /// Bytes that the input has; 0 where that is not known.
    pub input_total: Counter,
    failed: Counter,
    has_changed: AtomicBool,
    lines: Mutex<Vec<String>>,
    remarks: Mutex<Vec<String>>,
    listener: Option<Listener>,
}

/// The end of a tool, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// See [`Report::files`].
    pub files: u64,
    /// See [`Report::directories`].
    pub directories: u64,
    /// See [`Report::bytes`].
    pub bytes: u64,
    /// See [`Report::unchanged`].
    pub unchanged: u64,
    /// See [`Report::removed`].
    pub removed: u64,
    /// How much could not be done.
    pub failed: u64,
    /// What could not be done, in words, up to a limit.
    pub failures: Vec<String>,
    /// What was done otherwise than asked, such as what a target does not keep.
    pub remarks: Vec<String>,
}

impl Report {
    /// A report that tells `listener` of each thing that is done.
    pub fn telling(listener: Listener) -> Self {
        Self {
            listener: Some(listener),
            ..Self::default()
        }
    }

    /// Tells of one thing, if anybody listens.
    pub(crate) fn tell(&self, line: impl FnOnce() -> String) {
        if let Some(listener) = &self.listener {
            listener(&line());
        }
    }

    /// Something could not be done, and why.
    pub fn fail(&self, line: impl Display) {
        self.failed.add(1);
        let mut lines = self.lines.lock();
        if lines.len() < LINES_MAX {
            lines.push(line.to_string());
        }
    }

    /// `action`, such as "cannot remove", failed for `path`.
    pub fn fail_at(&self, action: &str, path: &Path, error: impl Into<io::Error>) {
        self.fail(format_args!(
            "{action} '{}': {}",
            path.display(),
            reason(&error.into())
        ));
    }

    /// What a mirror has and its source has not could not be removed; `path` is from where the copy begins.
    pub(crate) fn fail_to_remove(&self, path: &[u8], error: &io::Error) {
        self.fail(format_args!(
            "cannot remove '{}' of the target: {}",
            String::from_utf8_lossy(path),
            reason(error)
        ));
    }

    /// A file changed while it was read. Counts as a failure of a milder kind.
    pub fn note_change(&self, path: &Path) {
        self.has_changed.store(true, Ordering::Relaxed);
        let mut lines = self.lines.lock();
        if lines.len() < LINES_MAX {
            lines.push(format!(
                "'{}' changed while it was read; copy it again",
                path.display()
            ));
        }
    }

    /// Something that was done otherwise than asked, and is no failure.
    pub fn remark(&self, line: impl Display) {
        let mut lines = self.remarks.lock();
        if lines.len() < LINES_MAX {
            lines.push(line.to_string());
        }
    }

    /// How much could not be done.
    pub fn failed(&self) -> u64 {
        self.failed.get()
    }

    /// Whether a file changed while it was read.
    pub fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::Relaxed)
    }

    /// A file of `size` bytes is there already and stays.
    pub(crate) fn stay(&self, size: u64) {
        self.unchanged.add(1);
        self.unchanged_bytes.add(size);
    }

    /// There are so many names, and so many bytes in them, in all.
    pub(crate) fn expect(&self, entries: u64, bytes: u64) {
        // It is counted once.
        let _ = self.expected.set(entries + bytes / BYTES_PER_UNIT);
    }

    /// The part of the work that is left, from 1 to 0. None where it is not known, or where more was done than was counted.
    pub fn left(&self) -> Option<f64> {
        let expected = *self.expected.get()?;
        let passed_over = self.failed.get() + self.unchanged_bytes.get() / BYTES_PER_UNIT;
        let left = expected.checked_sub(self.work() + passed_over)?;
        Some(left as f64 / expected.max(1) as f64)
    }

    /// How much was done, in units that compare intervals.
    pub fn work(&self) -> u64 {
        self.entries() + self.bytes.get() / BYTES_PER_UNIT
    }

    /// Files and directories that were dealt with.
    pub(crate) fn entries(&self) -> u64 {
        self.files.get() + self.directories.get() + self.unchanged.get()
    }

    /// Everything so far.
    pub fn summary(&self) -> Summary {
        Summary {
            files: self.files.get(),
            directories: self.directories.get(),
            bytes: self.bytes.get(),
            unchanged: self.unchanged.get(),
            removed: self.removed.get(),
            failed: self.failed.get(),
            failures: self.lines.lock().clone(),
            remarks: self.remarks.lock().clone(),
        }
    }
}

/// What the system says of an error, without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_beyond_those_that_are_kept() {
        let report = Report::default();
        for number in 0..LINES_MAX + 5 {
            report.fail(number);
        }
        let summary = report.summary();
        assert_eq!(summary.failed as usize, LINES_MAX + 5);
        assert_eq!(summary.failures.len(), LINES_MAX);
    }

    #[test]
    fn a_failure_says_what_and_why_without_numbers() {
        let report = Report::default();
        let error = io::Error::from_raw_os_error(13);
        report.fail_at("cannot remove", Path::new("a/b"), error);
        let line = "cannot remove 'a/b': Permission denied";
        assert_eq!(report.summary().failures, [line]);
    }
}
