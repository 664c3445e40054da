//! What load generators share: threads that do something with many files, what each file came to, and the figures.
//!
//! [`Load::run`] prints the lines of the program in the ossfs 2.0 guide, and with `json` one line that [`crate::tool`] reads. A
//! file that fails is counted, complained about, and makes the run fail.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    path::Path,
    time::Duration,
};

use penstock_base::clock;
use serde::{Deserialize, Serialize};

use crate::{BenchError, BenchResult, tool, worker::RwBenchContent};

/// Bytes of one read or write.
const BLOCK: usize = 1 << 20;
/// Threads at most.
const THREADS_MAX: usize = 65_536;
/// Complaints that are printed; the rest is counted.
const COMPLAINTS_MAX: usize = 5;

/// What came of it, as the line of JSON has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) seconds: f64,
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    pub(crate) failed: u64,
    /// Of one file, by percentile.
    pub(crate) latency_seconds: BTreeMap<String, f64>,
}

/// What one file came to: bytes, and how long that took.
pub(crate) type Outcome = Result<(u64, Duration), String>;

/// How a generator works and tells of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// What is done: `write`.
    pub(crate) word: &'static str,
    /// With how many files.
    pub(crate) count: usize,
    pub(crate) threads: usize,
    /// Print the figures as one line of JSON too.
    pub(crate) json: bool,
}

impl Load {
    /// Has each thread do `worker` of its number, and prints what came of all. `rate` says the speed in a line.
    pub(crate) fn run(
        &self,
        output: &mut dyn Write,
        worker: impl Fn(usize) -> Vec<Outcome> + Sync,
        rate: impl Fn(&Figures) -> String,
    ) -> BenchResult<()> {
        let Self { word, count, .. } = self;
        writeln!(output, "starting the {word} test with {count} files")
            .map_err(|error| cannot_print(&error))?;
        let started = clock::now();
        let outcomes = self.outcomes(worker);
        let took = started.elapsed();
        let figures = Figures::of(took, &outcomes);
        let complaints = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        let complaints = complaints.take(COMPLAINTS_MAX);
        let mut text: String = complaints
            .map(|complaint| format!("{complaint}\n"))
            .collect();
        text += &format!("Total time: {took:?}\n{}\n", rate(&figures));
        if self.json {
            text += &serde_json::to_string(&figures).expect("numbers and text");
            text += "\n";
        }
        output
            .write_all(text.as_bytes())
            .map_err(|error| cannot_print(&error))?;
        match figures.failed {
            0 => Ok(()),
            failed => {
                let cause = format!("{failed} of {count} files failed");
                Err(BenchError::new(cause, "see the lines above"))
            }
        }
    }

    fn outcomes(&self, worker: impl Fn(usize) -> Vec<Outcome> + Sync) -> Vec<Outcome> {
        let worker = &worker;
        let threads = 0..self.threads.clamp(1, THREADS_MAX);
        std::thread::scope(|scope| {
            let threads: Vec<_> = threads
                .map(|number| scope.spawn(move || worker(number)))
                .collect();
            let outcomes = threads
                .into_iter()
                .map(|thread| thread.join().expect("it does not panic"));
            outcomes.collect::<Vec<_>>().concat()
        })
    }
}

pub(crate) fn cannot_print(error: &io::Error) -> BenchError {
    let cause = format!("cannot print: {error}");
    BenchError::new(cause, "check where it is redirected to")
}

/// Does something with one file, which comes to so many bytes.
pub(crate) fn timed(path: &Path, work: impl FnOnce() -> io::Result<u64>) -> Outcome {
    let started = clock::now();
    let moved = work().map(|bytes| (bytes, started.elapsed()));
    moved.map_err(|error| format!("{}: {error}", path.display()))
}

/// What a thread reads into, if it reads.
pub(crate) fn buffer(is_reading: bool) -> Vec<u8> {
    vec![0; if is_reading { BLOCK } else { 0 }]
}

/// Writes what the file `path` must hold.
pub(crate) fn fill(
    target: &File,
    path: &Path,
    size: u64,
    content: &RwBenchContent,
) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut offset = 0;
    while offset < size {
        let left = usize::try_from(size - offset).unwrap_or(BLOCK);
        let piece = content.slice(&name, offset, left.min(BLOCK));
        target.write_all_at(piece, offset)?;
        offset += piece.len() as u64;
    }
    Ok(())
}

/// Reads a file of this size, and returns it; a shorter one is an error.
pub(crate) fn read(path: &Path, size: u64, buffer: &mut [u8]) -> io::Result<u64> {
    let source = File::open(path)?;
    let mut offset = 0;
    while offset < size {
        let left = usize::try_from(size - offset).unwrap_or(BLOCK);
        let count = source.read_at(&mut buffer[..left.min(BLOCK)], offset)?;
        if count == 0 {
            return Err(io::Error::other(format!("ends at {offset} of {size}")));
        }
        offset += count as u64;
    }
    Ok(offset)
}

impl Figures {
    fn of(took: Duration, outcomes: &[Outcome]) -> Self {
        let done: Vec<_> = outcomes.iter().filter_map(|it| it.as_ref().ok()).collect();
        let mut latencies: Vec<f64> = done.iter().map(|(_, took)| took.as_secs_f64()).collect();
        Self {
            seconds: took.as_secs_f64(),
            bytes: done.iter().map(|(bytes, _)| bytes).sum(),
            files: done.len() as u64,
            failed: (outcomes.len() - done.len()) as u64,
            latency_seconds: tool::percentiles(&mut latencies),
        }
    }
}

/// The figures that a generator has printed, for tests.
#[cfg(test)]
pub(crate) fn figures_of(output: &[u8]) -> Figures {
    let text = String::from_utf8_lossy(output);
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
}
