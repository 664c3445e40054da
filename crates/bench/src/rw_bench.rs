//! rw-bench: many files of one size, written or read by many threads.
//!
//! The counterpart of the program that the ossfs 2.0 guide prints, with the same flags and the
//! same lines of output. It differs in three points. The original shrinks its buffer to what is
//! left of a file and never grows it again, so that a thread that met one small file reads all
//! later ones in small pieces; here every file is read a mebibyte at a time. What is written
//! depends on the file's name and not only zeros, so that it can be told whether the right bytes
//! arrived. And a file that fails is counted and makes the run fail.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use penstock_base::{clock, random};
use serde::{Deserialize, Serialize};

use crate::{BenchError, BenchResult, system, tool, worker::RwBenchContent};

/// Bytes of one read or write.
const BLOCK: usize = 1 << 20;
/// Threads at most.
const THREADS_MAX: usize = 65_536;
/// Complaints that are printed; the rest is counted.
const COMPLAINTS_MAX: usize = 5;

/// What to do.
#[derive(Debug, Clone)]
pub struct RwBench {
    /// The directory that holds the files, and nothing else.
    pub directory: PathBuf,
    /// How many files are worked on at a time.
    pub threads: usize,
    /// Write instead of read.
    pub write: bool,
    /// Size of each file that is written, in KiB.
    pub file_size_kib: u64,
    /// How many files to write.
    pub file_count: u64,
    /// Read the files in random order; in the order of the directory otherwise.
    pub shuffle: bool,
    /// Read at most so many files for each thread, so that few threads need not read all.
    pub files_per_thread: Option<u64>,
    /// Print the figures as one line of JSON too.
    pub json: bool,
}

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

type Sized = (PathBuf, u64);

/// What one file came to: bytes, and how long that took.
type Outcome = Result<(u64, Duration), String>;

/// Runs it and prints what the original prints.
///
/// # Errors
/// The directory cannot be listed, or some files failed.
pub fn run(bench: &RwBench, output: &mut dyn Write) -> BenchResult<()> {
    let cannot_print = |error: io::Error| {
        let cause = format!("cannot print: {error}");
        BenchError::new(cause, "check where it is redirected to")
    };
    let files = files(bench)?;
    let (word, what) = if bench.write {
        ("write", "Write")
    } else {
        ("read", "Read")
    };
    writeln!(
        output,
        "starting the {word} test with {} files",
        files.len()
    )
    .map_err(cannot_print)?;
    let started = clock::now();
    let outcomes = work(bench, &files);
    let took = started.elapsed();
    let figures = figures(took, &outcomes);
    let complaints = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    let complaints = complaints.take(COMPLAINTS_MAX);
    let mut text: String = complaints
        .map(|complaint| format!("{complaint}\n"))
        .collect();
    let rate = figures.bytes as f64 / figures.seconds.max(1e-9) / 1e6;
    text += &format!("Total time: {took:?}\n{what} throughput: {rate:.2} MByte/s\n");
    if bench.json {
        text += &serde_json::to_string(&figures).expect("numbers and text");
        text += "\n";
    }
    output.write_all(text.as_bytes()).map_err(cannot_print)?;
    match figures.failed {
        0 => Ok(()),
        failed => {
            let cause = format!("{failed} of {} files failed", files.len());
            Err(BenchError::new(cause, "see the lines above"))
        }
    }
}

fn files(bench: &RwBench) -> BenchResult<Vec<Sized>> {
    if bench.write {
        let path = |index| bench.directory.join(format!("{index}.dat"));
        let files = (0..bench.file_count).map(|index| (path(index), bench.file_size_kib * 1024));
        return Ok(files.collect());
    }
    let mut files = Vec::new();
    list(&bench.directory, &mut files)
        .map_err(|error| BenchError::unusable(&bench.directory, &error))?;
    files.sort();
    if bench.shuffle {
        shuffle(&mut files);
    }
    if let Some(each) = bench.files_per_thread {
        let most = each.saturating_mul(bench.threads as u64);
        files.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    }
    Ok(files)
}

fn list(directory: &Path, files: &mut Vec<Sized>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        match metadata.is_dir() {
            true => list(&entry.path(), files)?,
            false => files.push((entry.path(), metadata.len())),
        }
    }
    Ok(())
}

/// Fisher and Yates.
fn shuffle(files: &mut [Sized]) {
    for last in (1..files.len()).rev() {
        let other = (random::fraction() * (last + 1) as f64) as usize;
        files.swap(last, other.min(last));
    }
}

fn work(bench: &RwBench, files: &[Sized]) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let content = bench.write.then(RwBenchContent::default);
    let threads = bench.threads.clamp(1, THREADS_MAX).min(files.len().max(1));
    let worker = || {
        let mut mine = Vec::new();
        let mut buffer = vec![0; if bench.write { 0 } else { BLOCK }];
        while let Some((path, size)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let started = clock::now();
            let moved = match &content {
                Some(content) => write(path, *size, content),
                None => read(path, *size, &mut buffer),
            };
            let outcome = moved.map(|bytes| (bytes, started.elapsed()));
            mine.push(outcome.map_err(|error| format!("{}: {error}", path.display())));
        }
        mine
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let outcomes = threads
            .into_iter()
            .map(|thread| thread.join().expect("it does not panic"));
        outcomes.collect::<Vec<_>>().concat()
    })
}

fn write(path: &Path, size: u64, content: &RwBenchContent) -> io::Result<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let target = File::create(path)?;
    let mut offset = 0;
    while offset < size {
        let left = usize::try_from(size - offset).unwrap_or(BLOCK);
        let piece = content.slice(&name, offset, left.min(BLOCK));
        target.write_all_at(piece, offset)?;
        offset += piece.len() as u64;
    }
    // Closing is when some clients store a file; `drop` would hide that they could not.
    system::close(target)?;
    Ok(offset)
}

fn read(path: &Path, size: u64, buffer: &mut [u8]) -> io::Result<u64> {
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

fn figures(took: Duration, outcomes: &[Outcome]) -> Figures {
    let done: Vec<_> = outcomes.iter().filter_map(|it| it.as_ref().ok()).collect();
    let mut latencies: Vec<f64> = done.iter().map(|(_, took)| took.as_secs_f64()).collect();
    Figures {
        seconds: took.as_secs_f64(),
        bytes: done.iter().map(|(bytes, _)| bytes).sum(),
        files: done.len() as u64,
        failed: (outcomes.len() - done.len()) as u64,
        latency_seconds: tool::percentiles(&mut latencies),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::Content;

    fn bench(directory: &Path, write: bool) -> RwBench {
        RwBench {
            directory: directory.to_path_buf(),
            threads: 4,
            write,
            file_size_kib: 1500,
            file_count: 10,
            shuffle: !write,
            files_per_thread: None,
            json: true,
        }
    }

    fn figures_of(output: &[u8]) -> Figures {
        let text = String::from_utf8_lossy(output);
        serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
    }

    #[test]
    fn writes_and_reads_with_the_lines_of_the_original() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut output = Vec::new();
        run(&bench(directory.path(), true), &mut output).expect("writes");
        let text = String::from_utf8_lossy(&output).into_owned();
        assert!(text.starts_with("starting the write test with 10 files\nTotal time: "));
        assert!(text.contains("\nWrite throughput: "));
        let bytes = fs::read(directory.path().join("7.dat")).expect("written");
        assert_eq!(bytes.len(), 1500 << 10);
        assert_eq!(Content::RwBench.first_difference("7.dat", 0, &bytes), None);

        output.clear();
        run(&bench(directory.path(), false), &mut output).expect("reads");
        let figures = figures_of(&output);
        assert_eq!(
            (figures.files, figures.failed, figures.bytes),
            (10, 0, 15_000 << 10)
        );
        assert!(figures.latency_seconds["99"] >= figures.latency_seconds["50"]);

        output.clear();
        let few = RwBench {
            files_per_thread: Some(2),
            ..bench(directory.path(), false)
        };
        run(&few, &mut output).expect("reads");
        assert_eq!(figures_of(&output).files, 8);
    }

    #[test]
    fn files_that_fail_are_counted() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("3.dat")).expect("made");
        let mut output = Vec::new();
        let error = run(&bench(directory.path(), true), &mut output).expect_err("one fails");
        assert!(error.to_string().starts_with("1 of 10 files failed"));
        assert_eq!(figures_of(&output).files, 9);
    }
}
