//! md-bench: one operation on each of many small files, by many threads: the phases of mdtest, one at a time.
//!
//! Files lie and are named as the development server names those of a [`Crowd`], `0003/00000042`, so that inputs of a suite
//! are what a phase works on and outputs of a suite are what it leaves. Each thread has directories of its own where there
//! are as many directories as threads; else numbers go round. A phase that makes files makes their directories
//! before the clock starts.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use penstock_devserver::Crowd;

use crate::{
    BenchError, BenchResult,
    load::{self, Load, Outcome},
    system,
    worker::RwBenchContent,
};

/// What a renamed file's name ends with.
const RENAMED: &str = ".renamed";

/// What is done with each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Make it, empty; one that is there is an error.
    Create,
    /// Make it with content.
    Write,
    /// Make it with content and wait until that is durable.
    Store,
    /// Look at its attributes; another size is an error.
    Stat,
    /// Read all of it.
    Read,
    /// Give it another name in its directory.
    Rename,
    /// Remove it.
    Remove,
}

impl Phase {
    /// Every phase, in the order in which they can follow each other.
    pub const ALL: [Self; 7] = [
        Self::Create,
        Self::Write,
        Self::Store,
        Self::Stat,
        Self::Read,
        Self::Rename,
        Self::Remove,
    ];

    /// How it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Write => "write",
            Self::Store => "store",
            Self::Stat => "stat",
            Self::Read => "read",
            Self::Rename => "rename",
            Self::Remove => "remove",
        }
    }

    /// The phase of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.name() == name)
    }

    fn makes_files(self) -> bool {
        matches!(self, Self::Create | Self::Write | Self::Store)
    }
}

/// What to do.
#[derive(Debug, Clone)]
pub struct MdBench {
    /// The directory below which the files lie.
    pub directory: PathBuf,
    /// What is done with each file.
    pub phase: Phase,
    /// How many files there are in all.
    pub count: u64,
    /// Over how many directories they are spread; 0 for none, all in one.
    pub directories: u64,
    /// How many files are worked on at a time.
    pub threads: usize,
    /// Bytes in each file. Those of `create` are empty whatever it says.
    pub size: u64,
    /// Print the figures as one line of JSON too.
    pub json: bool,
}

/// Runs one phase and prints how long it took.
///
/// # Errors
/// A directory cannot be made, or some files failed.
pub fn run(bench: &MdBench, output: &mut dyn Write) -> BenchResult<()> {
    if bench.phase.makes_files() {
        bench.make_directories()?;
    }
    let load = Load {
        word: bench.phase.name(),
        count: usize::try_from(bench.count).unwrap_or(usize::MAX),
        threads: bench.threads,
        json: bench.json,
    };
    let content = RwBenchContent::default();
    load.run(
        output,
        |thread| bench.work(thread, &content),
        |figures| {
            let rate = figures.files as f64 / figures.seconds.max(1e-9);
            format!("{rate:.0} files/s")
        },
    )
}

impl MdBench {
    fn crowd(&self) -> Crowd {
        Crowd {
            bucket: String::new(),
            prefix: String::new(),
            count: self.count,
            size: self.size,
            directories: self.directories,
        }
    }

    /// Files in a directory, the last of which may have fewer.
    fn each(&self) -> u64 {
        self.count.div_ceil(self.directories.max(1)).max(1)
    }

    fn make_directories(&self) -> BenchResult<()> {
        let crowd = self.crowd();
        for first in (0..self.count).step_by(usize::try_from(self.each()).unwrap_or(usize::MAX)) {
            let path = self.directory.join(crowd.key(first));
            let directory = path.parent().unwrap_or(&self.directory);
            fs::create_dir_all(directory)
                .map_err(|error| BenchError::unusable(directory, &error))?;
        }
        Ok(())
    }

    /// The numbers of the files that are a thread's.
    fn numbers(&self, thread: usize) -> impl Iterator<Item = u64> + use<> {
        let (threads, thread) = (self.threads.max(1) as u64, thread as u64);
        let (count, each) = (self.count, self.each());
        // A thread's share is every so-manieth group of numbers: directories, or single files.
        let group = match self.directories >= threads {
            true => each,
            false => 1,
        };
        let firsts = (0..).map(move |turn| (thread + turn * threads) * group);
        let firsts = firsts.take_while(move |first| *first < count);
        firsts.flat_map(move |first| first..(first + group).min(count))
    }

    fn work(&self, thread: usize, content: &RwBenchContent) -> Vec<Outcome> {
        let crowd = self.crowd();
        let mut buffer = load::buffer(self.phase == Phase::Read);
        let numbers = self.numbers(thread);
        let outcomes = numbers.map(|number| {
            let path = self.directory.join(crowd.key(number));
            load::timed(&path, || match self.phase {
                Phase::Create | Phase::Write | Phase::Store => self.make(&path, content),
                Phase::Stat => self.look_at(&path),
                Phase::Read => load::read(&path, self.size, &mut buffer),
                Phase::Rename => fs::rename(&path, renamed(&path)).map(|()| 0),
                Phase::Remove => fs::remove_file(&path).map(|()| 0),
            })
        });
        outcomes.collect()
    }

    fn make(&self, path: &Path, content: &RwBenchContent) -> io::Result<u64> {
        let size = match self.phase {
            Phase::Create => 0,
            _ => self.size,
        };
        let target = File::create_new(path)?;
        load::fill(&target, path, size, content)?;
        if self.phase == Phase::Store {
            target.sync_all()?;
        }
        system::close(target)?;
        Ok(size)
    }

    fn look_at(&self, path: &Path) -> io::Result<u64> {
        let size = fs::symlink_metadata(path)?.len();
        match size == self.size {
            true => Ok(0),
            false => {
                let why = format!("has {size} bytes instead of {}", self.size);
                Err(io::Error::other(why))
            }
        }
    }
}

fn renamed(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(RENAMED);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{load::figures_of, worker::Content};
    use proptest::prelude::*;

    const SIZE: u64 = 5000;

    fn bench(directory: &Path, phase: Phase) -> MdBench {
        MdBench {
            directory: directory.to_path_buf(),
            phase,
            count: 23,
            directories: 5,
            threads: 4,
            size: SIZE,
            json: true,
        }
    }

    /// Runs a phase and returns how many bytes it moved, of all 23 files.
    fn moved(bench: &MdBench) -> u64 {
        let mut output = Vec::new();
        run(bench, &mut output).expect("every file succeeds");
        let figures = figures_of(&output);
        assert_eq!((figures.files, figures.failed), (23, 0));
        assert!(figures.latency_seconds["99"] >= figures.latency_seconds["50"]);
        figures.bytes
    }

    #[test]
    fn each_phase_works_on_what_the_one_before_it_left() {
        let root = tempfile::tempdir().expect("a directory");
        let of = |phase| bench(root.path(), phase);
        assert_eq!(moved(&of(Phase::Write)), 23 * SIZE);
        let last = root.path().join("0004/00000022");
        let bytes = fs::read(&last).expect("as a crowd names it");
        let wrong = Content::RwBench.first_difference("0004/00000022", 0, &bytes);
        assert_eq!((bytes.len() as u64, wrong), (SIZE, None));
        assert_eq!(moved(&of(Phase::Stat)), 0);
        assert_eq!(moved(&of(Phase::Read)), 23 * SIZE);
        assert_eq!(moved(&of(Phase::Rename)), 0);
        assert!(!last.exists());
        fs::rename(renamed(&last), &last).expect("was renamed");
        let mut output = Vec::new();
        run(&of(Phase::Remove), &mut output).expect_err("22 have another name");
        assert_eq!(figures_of(&output).files, 1);
        assert!(!last.exists());
    }

    #[test]
    fn created_files_are_empty_and_stored_ones_are_not() {
        let root = tempfile::tempdir().expect("a directory");
        let in_one = |phase| MdBench {
            directories: 0,
            ..bench(root.path(), phase)
        };
        assert_eq!(moved(&in_one(Phase::Create)), 0);
        let first = root.path().join("00000000");
        assert_eq!(fs::metadata(&first).expect("created").len(), 0);
        let mut output = Vec::new();
        let error = run(&in_one(Phase::Store), &mut output).expect_err("they are there");
        assert!(error.to_string().starts_with("23 of 23 files failed"));
        let error = run(&in_one(Phase::Stat), &mut output).expect_err("they are empty");
        assert!(error.to_string().starts_with("23 of 23 files failed"));
        assert_eq!(moved(&in_one(Phase::Remove)), 0);
        assert_eq!(moved(&in_one(Phase::Store)), 23 * SIZE);
        assert_eq!(fs::metadata(&first).expect("stored").len(), SIZE);
    }

    #[test]
    fn threads_have_directories_of_their_own_if_there_are_enough() {
        let root = Path::new("/");
        let mut bench = bench(root, Phase::Stat);
        let directories = |bench: &MdBench, thread| {
            let mut found: Vec<_> = bench.numbers(thread).map(|it| it / bench.each()).collect();
            found.dedup();
            found
        };
        assert_eq!(directories(&bench, 0), [0, 4]);
        assert_eq!(directories(&bench, 3), [3]);
        bench.threads = 6;
        assert!(bench.numbers(1).eq([1, 7, 13, 19]));
    }

    proptest! {
        #[test]
        fn each_file_is_one_threads(count in 0_u64..300, directories in 0_u64..20, threads in 1_usize..20) {
            let bench = MdBench { count, directories, threads, ..bench(Path::new("/"), Phase::Stat) };
            let mut all: Vec<_> = (0..threads).flat_map(|thread| bench.numbers(thread)).collect();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..count));
        }
    }
}
