//! rw-bench: many files of one size, written or read by many threads.
//!
//! The counterpart of the program that the ossfs 2.0 guide prints, with the same flags and the
//! same lines of output. It differs in three points. The original shrinks its buffer to what is
//! left of a file and never grows it again, so that a thread that met one small file reads all
//! later ones in small pieces; here every file is read a mebibyte at a time. What is written
//! depends on the file's name and not only zeros, so that it can be told whether the right bytes
//! arrived. And a file that fails is counted and makes the run fail.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use penstock_base::random;

use crate::{
    BenchError, BenchResult,
    load::{self, Load, Outcome},
    system,
    worker::RwBenchContent,
};

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

type Sized = (PathBuf, u64);

/// Runs it and prints what the original prints.
///
/// # Errors
/// The directory cannot be listed, or some files failed.
pub fn run(bench: &RwBench, output: &mut dyn Write) -> BenchResult<()> {
    let files = files(bench)?;
    let (word, what) = if bench.write {
        ("write", "Write")
    } else {
        ("read", "Read")
    };
    let load = Load {
        word,
        count: files.len(),
        threads: bench.threads.min(files.len()),
        json: bench.json,
    };
    let next = AtomicUsize::new(0);
    let content = bench.write.then(RwBenchContent::default);
    load.run(
        output,
        |_| work(&files, &next, content.as_ref()),
        |figures| {
            let rate = figures.bytes as f64 / figures.seconds.max(1e-9) / 1e6;
            format!("{what} throughput: {rate:.2} MByte/s")
        },
    )
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

/// What one thread does: whichever file is next, until there is none.
fn work(files: &[Sized], next: &AtomicUsize, content: Option<&RwBenchContent>) -> Vec<Outcome> {
    let mut mine = Vec::new();
    let mut buffer = load::buffer(content.is_none());
    while let Some((path, size)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
        mine.push(load::timed(path, || match content {
            Some(content) => write(path, *size, content),
            None => load::read(path, *size, &mut buffer),
        }));
    }
    mine
}

fn write(path: &Path, size: u64, content: &RwBenchContent) -> io::Result<u64> {
    let target = File::create(path)?;
    load::fill(&target, path, size, content)?;
    // Closing is when some clients store a file; `drop` would hide that they could not.
    system::close(target)?;
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{load::figures_of, worker::Content};

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
