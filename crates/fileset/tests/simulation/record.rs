//! What happened in a run, line by line: two runs of one seed have the same.

use std::{
    fmt::Display,
    time::{Duration, SystemTime},
};

use penstock_base::{Mutex, clock};

/// When runs begin.
pub const BEGUN: SystemTime = SystemTime::UNIX_EPOCH;

/// Lines that are shown of a run that failed.
const SHOWN: usize = 80;

/// See the module.
#[derive(Debug, Default)]
pub struct Record(Mutex<Vec<String>>);

impl Record {
    /// Adds a line with the time.
    pub fn note(&self, text: impl Display) {
        let at = elapsed();
        let line = format!("{:>5}.{:03} {text}", at.as_secs(), at.subsec_millis());
        self.0.lock().push(line);
    }

    /// All lines.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// The last lines.
    pub fn end(&self) -> String {
        let lines = self.0.lock();
        lines[lines.len().saturating_sub(SHOWN)..].join("\n")
    }
}

/// Time since the run began, over all its processes.
pub fn elapsed() -> Duration {
    let since = clock::wall_time().duration_since(BEGUN);
    since.expect("it goes forward")
}
