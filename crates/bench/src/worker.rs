//! File operations of the benchmark's own, in a process of their own, and what must be in files.
//!
//! A process that touches a mount may hang in it until the mount is torn down. So the benchmark itself never does: it
//! starts itself as a worker with a job, and ends the worker when that takes too long.
//!
//! Content can be told without having kept it. Files that the benchmark makes hold the pattern of the development server,
//! which depends on the file's key and on the place. Files of our rw-bench hold one mebibyte over and over, begun at a
//! page that depends on the name. What fio writes by default has in every 512 bytes, at one of eight places, where in the
//! file it was written to ("scrambled" buffers). sysbench writes zeros.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    BenchError, BenchResult,
    store::{length, send},
};

const BLOCK: u64 = 1 << 20;
/// Files of one check at most; of more, some are looked at, evenly spread.
const FILES_MAX: usize = 2_000;
/// Pieces of a file that is too large to be read whole.
const PIECES: u64 = 16;
const PAGE: u64 = 4096;

/// A file and what must be in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Expected {
    /// Its path below the mount, which is also its key below the prefix.
    pub(crate) key: String,
    pub(crate) size: u64,
    pub(crate) content: Content,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Place {
    /// Through a mount, or in any directory.
    Directory(PathBuf),
    /// At a server that answers unsigned requests.
    Server {
        url: String,
        /// `/bucket/`.
        path: String,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Job {
    /// Make directories, with those above them.
    MakeDirectories { directories: Vec<PathBuf> },
    /// Write those files that are not there in their right size.
    Write { root: PathBuf, files: Vec<Expected> },
    /// Compare files with what must be in them, reading about so many bytes.
    Check {
        place: Place,
        files: Vec<Expected>,
        budget: u64,
    },
    /// Look that files are not there.
    CheckGone { place: Place, keys: Vec<String> },
    /// Remove files and directories that are there.
    Remove { place: Place, keys: Vec<String> },
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// What is wrong with the files.
    pub(crate) problem: Option<String>,
    pub(crate) compared: u64,
}

/// The worker itself: reads its job from a file, does it and prints its verdict.
///
/// # Errors
/// The job cannot be read. What goes wrong in it is part of the verdict.
pub fn work(job: &Path, output: &mut dyn Write) -> BenchResult<()> {
    let unusable = |error: io::Error| BenchError::unusable(job, &error);
    let text = fs::read_to_string(job).map_err(unusable)?;
    let job_of_file: Job =
        serde_json::from_str(&text).map_err(|error| unusable(io::Error::other(error)))?;
    let verdict = perform(&job_of_file);
    let text = serde_json::to_string(&verdict).expect("numbers and text");
    writeln!(output, "{text}").map_err(unusable)
}

fn perform(job: &Job) -> Verdict {
    let outcome = match job {
        Job::MakeDirectories { directories } => {
            let make = |directory: &PathBuf| named(directory, fs::create_dir_all(directory));
            directories.iter().try_for_each(make).map(|()| 0)
        }
        Job::Write { root, files } => {
            let make = |file: &Expected| named(&root.join(&file.key), write(root, file));
            files.iter().try_for_each(make).map(|()| 0)
        }
        Job::Check {
            place,
            files,
            budget,
        } => check_all(place, files, *budget),
        Job::CheckGone { place, keys } => check_gone(place, keys).map(|()| 0),
        Job::Remove { place, keys } => {
            let remove = |key: &String| named(Path::new(key), place.remove(key));
            keys.iter().try_for_each(remove).map(|()| 0)
        }
    };
    Verdict {
        compared: *outcome.as_ref().unwrap_or(&0),
        problem: outcome.err(),
    }
}

fn named(path: &Path, outcome: io::Result<()>) -> Result<(), String> {
    outcome.map_err(|error| format!("{}: {error}", path.display()))
}

fn write(root: &Path, file: &Expected) -> io::Result<()> {
    let path = root.join(&file.key);
    if fs::metadata(&path).is_ok_and(|metadata| metadata.len() == file.size) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut target = File::create(&path)?;
    let mut block = vec![0; BLOCK as usize];
    let mut offset = 0;
    while offset < file.size {
        let piece = &mut block[..(file.size - offset).min(BLOCK) as usize];
        file.content.make(&file.key, offset, piece);
        target.write_all(piece)?;
        offset += piece.len() as u64;
    }
    crate::system::close(target)
}

/// Those of many that are looked at, evenly spread.
fn some<T>(all: &[T]) -> impl ExactSizeIterator<Item = &T> {
    let step = all.len().div_ceil(FILES_MAX).max(1);
    all.iter().step_by(step)
}

fn check_gone(place: &Place, keys: &[String]) -> Result<(), String> {
    for key in some(keys) {
        match place.has(key) {
            Ok(false) => {}
            Ok(true) => return Err(format!("{key}: is still there")),
            Err(error) => return Err(format!("{key}: {error}")),
        }
    }
    Ok(())
}

fn check_all(place: &Place, files: &[Expected], budget: u64) -> Result<u64, String> {
    let count = some(files).len() as u64;
    let of_each = (budget / count.max(1)).max(PAGE);
    let mut compared = 0;
    for file in some(files) {
        compared += check(place, file, of_each).map_err(|why| format!("{}: {why}", file.key))?;
    }
    Ok(compared)
}

fn check(place: &Place, file: &Expected, budget: u64) -> Result<u64, String> {
    let (size, read) = place.open(&file.key).map_err(|error| error.to_string())?;
    if size != file.size {
        return Err(format!("has {size} bytes instead of {}", file.size));
    }
    if !file.content.is_known() {
        return Ok(0);
    }
    let mut block = vec![0; BLOCK as usize];
    let mut compared = 0;
    for (first, length) in pieces(file.size, budget) {
        let mut at = first;
        while at < first + length {
            let piece = &mut block[..(first + length - at).min(BLOCK) as usize];
            read(at, piece).map_err(|error| error.to_string())?;
            if let Some(wrong) = file.content.first_difference(&file.key, at, piece) {
                return Err(format!("byte {wrong} is not what it must be"));
            }
            at += piece.len() as u64;
            compared += piece.len() as u64;
        }
    }
    Ok(compared)
}

/// Which pieces of a file to read: all of it, or evenly spread ones with both ends.
fn pieces(size: u64, budget: u64) -> Vec<(u64, u64)> {
    let length = budget / PIECES / PAGE * PAGE;
    if size <= budget {
        return vec![(0, size)];
    }
    if length == 0 {
        return vec![(0, budget)];
    }
    let last = size - length;
    (0..PIECES)
        .map(|index| match index {
            index if index == PIECES - 1 => (last / PAGE * PAGE, size - last / PAGE * PAGE),
            index => (last / (PIECES - 1) * index / PAGE * PAGE, length),
        })
        .collect()
}

/// Reads what is at a place of an object or file.
type ReadAt<'a> = Box<dyn Fn(u64, &mut [u8]) -> io::Result<()> + 'a>;

impl Place {
    /// The size of an object or file, and its content.
    fn open(&self, key: &str) -> io::Result<(u64, ReadAt<'_>)> {
        match self {
            Self::Directory(root) => {
                let file = File::open(root.join(key))?;
                let size = file.metadata()?.len();
                Ok((
                    size,
                    Box::new(move |at, bytes| file.read_exact_at(bytes, at)),
                ))
            }
            Self::Server { url, path } => {
                let path = format!("{path}{key}");
                let answer = send("HEAD", (url, &path), None, "")?;
                if !answer.status().is_success() {
                    let why = format!("the server answers {}", answer.status().as_u16());
                    return Err(io::Error::other(why));
                }
                let read = move |at, bytes: &mut [u8]| {
                    let range = Some((at, bytes.len() as u64));
                    let answer = send("GET", (url, &path), range, "")?;
                    answer.into_body().into_reader().read_exact(bytes)
                };
                Ok((length(&answer).unwrap_or(0), Box::new(read)))
            }
        }
    }

    fn has(&self, key: &str) -> io::Result<bool> {
        match self {
            Self::Directory(root) => match fs::symlink_metadata(root.join(key)) {
                Ok(_) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(error) => Err(error),
            },
            Self::Server { url, path } => {
                let path = format!("{path}{key}");
                let status = send("HEAD", (url, &path), None, "")?.status();
                match status.as_u16() {
                    404 => Ok(false),
                    _ if status.is_success() => Ok(true),
                    code => Err(io::Error::other(format!("the server answers {code}"))),
                }
            }
        }
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        let outcome = match self {
            Self::Directory(root) if key.ends_with('/') => fs::remove_dir(root.join(key)),
            Self::Directory(root) => fs::remove_file(root.join(key)),
            Self::Server { url, path } => {
                let path = format!("{path}{key}");
                send("DELETE", (url, &path), None, "").map(drop)
            }
        };
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // Not everything that a suite made a directory for stays one in a bucket.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            outcome => outcome,
        }
    }
}

/// Bytes that rw-bench repeats.
const LOOP: usize = 1 << 20;
/// Bytes in which fio says once where they belong.
const FIO_UNIT: usize = 512;
/// Between the places where it may stand.
const FIO_STEP: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Content {
    /// The development server's pattern for the file's key.
    #[default]
    Pattern,
    RwBench,
    Fio,
    Zeros,
    /// Nobody can say; the size must be right.
    Any,
}

impl Content {
    /// Whether there is more to compare than the size.
    pub(crate) fn is_known(self) -> bool {
        self != Self::Any
    }

    /// The first place in `bytes`, which were found at `offset` of the file `key`, that is wrong.
    pub(crate) fn first_difference(self, key: &str, offset: u64, bytes: &[u8]) -> Option<u64> {
        let at = match self {
            Self::Any => None,
            Self::Zeros => bytes.iter().position(|byte| *byte != 0),
            Self::Fio => fio_difference(offset, bytes),
            Self::Pattern | Self::RwBench => {
                let mut expected = vec![0; bytes.len()];
                self.make(key, offset, &mut expected);
                if expected == bytes {
                    return None;
                }
                expected.iter().zip(bytes).position(|(a, b)| a != b)
            }
        };
        at.map(|at| offset + at as u64)
    }

    /// What the file `key` holds from `offset` on, where that can be made.
    pub(crate) fn make(self, key: &str, offset: u64, bytes: &mut [u8]) {
        match self {
            Self::RwBench => RwBenchContent::default().fill(key, offset, bytes),
            Self::Zeros => bytes.fill(0),
            _ => penstock_devserver::expected(key, offset, bytes),
        }
    }
}

fn fio_difference(offset: u64, bytes: &[u8]) -> Option<usize> {
    let units = bytes.chunks_exact(FIO_UNIT).enumerate();
    for (index, unit) in units {
        let at = index * FIO_UNIT;
        let expected = (offset + at as u64).to_le_bytes();
        let mut places = unit.chunks_exact(FIO_STEP);
        if !places.any(|place| place.starts_with(&expected)) {
            return Some(at);
        }
    }
    None
}

/// The bytes that rw-bench writes, made once.
#[derive(Debug, Clone)]
pub(crate) struct RwBenchContent {
    /// The loop twice, so that one whole turn from any start is one slice.
    twice: Vec<u8>,
}

impl Default for RwBenchContent {
    fn default() -> Self {
        let mut twice = vec![0; LOOP];
        penstock_devserver::expected("rw-bench", 0, &mut twice);
        twice.extend_from_within(..);
        Self { twice }
    }
}

impl RwBenchContent {
    /// At most a mebibyte of the file `name` from `offset` on.
    pub(crate) fn slice(&self, name: &str, offset: u64, length: usize) -> &[u8] {
        let start = (shift(name) + offset as usize) % LOOP;
        &self.twice[start..start + length.min(LOOP)]
    }

    fn fill(&self, key: &str, offset: u64, bytes: &mut [u8]) {
        let name = key.rsplit('/').next().unwrap_or(key);
        let mut at = offset;
        for piece in bytes.chunks_mut(LOOP) {
            piece.copy_from_slice(self.slice(name, at, piece.len()));
            at += piece.len() as u64;
        }
    }
}

/// Where in the loop a file begins: FNV-1a of its name, as a page.
fn shift(name: &str) -> usize {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) as usize % (LOOP / PAGE as usize) * PAGE as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_devserver::{Fill, Server, Settings};
    use proptest::prelude::*;

    fn expected(key: &str, size: u64, content: Content) -> Expected {
        Expected {
            key: key.to_owned(),
            size,
            content,
        }
    }

    #[test]
    fn what_is_written_is_there_and_damage_is_found() {
        let root = tempfile::tempdir().expect("a directory");
        let files = vec![
            expected("a/b", 3 * BLOCK + 5, Content::Pattern),
            expected("c", 0, Content::Zeros),
        ];
        let write = Job::Write {
            root: root.path().to_path_buf(),
            files: files.clone(),
        };
        assert_eq!(perform(&write), Verdict::default());
        let check = |files: &[Expected]| {
            perform(&Job::Check {
                place: Place::Directory(root.path().to_path_buf()),
                files: files.to_vec(),
                budget: 100 * BLOCK,
            })
        };
        assert_eq!(check(&files).compared, 3 * BLOCK + 5);
        let gone = |key: &str| {
            let place = Place::Directory(root.path().to_path_buf());
            let keys = vec![key.to_owned()];
            perform(&Job::CheckGone { place, keys }).problem
        };
        assert_eq!(gone("c"), Some("c: is still there".to_owned()));
        assert_eq!(gone("d"), None);
        let file = File::options()
            .write(true)
            .open(root.path().join("a/b"))
            .expect("opens");
        file.write_all_at(&[0; 7], BLOCK + 1).expect("written");
        let problem = check(&files).problem.expect("damage");
        assert!(problem.starts_with("a/b: byte 10485"), "{problem}");
        file.set_len(17).expect("cut");
        let problem = check(&files).problem.expect("damage");
        assert_eq!(problem, "a/b: has 17 bytes instead of 3145733");
        assert!(
            check(&[expected("none", 1, Content::Any)])
                .problem
                .is_some()
        );
    }

    #[test]
    fn the_servers_own_objects_are_what_is_expected() {
        let mut settings = Settings::with_bucket("b");
        settings.fills = vec!["b/p/:3:100KiB".parse::<Fill>().expect("valid")];
        let server = Server::start(settings).expect("starts");
        let place = Place::Server {
            url: server.url(),
            path: "/b/".to_owned(),
        };
        let files: Vec<_> = (0..3)
            .map(|index| expected(&format!("p/{index:08}"), 100 << 10, Content::Pattern))
            .collect();
        let check = |budget| {
            perform(&Job::Check {
                place: place.clone(),
                files: files.clone(),
                budget,
            })
        };
        assert_eq!(check(1 << 20).compared, 300 << 10);
        let spread = check(3 * PIECES * PAGE);
        assert!(
            spread.problem.is_none() && spread.compared >= 3 * PIECES * PAGE,
            "{spread:?}"
        );
        let keys = vec!["p/00000001".to_owned(), "p/none".to_owned()];
        let removal = Job::Remove {
            place: place.clone(),
            keys,
        };
        let gone = |keys: &[&str]| {
            let keys = keys.iter().map(|&key| key.to_owned()).collect();
            let place = place.clone();
            perform(&Job::CheckGone { place, keys }).problem
        };
        let still_there = Some("p/00000001: is still there".to_owned());
        assert_eq!(gone(&["p/none", "p/00000001"]), still_there);
        assert_eq!(perform(&removal), Verdict::default());
        assert_eq!(gone(&["p/none", "p/00000001"]), None);
        let problem = check(1 << 20).problem.expect("one is missing");
        assert_eq!(problem, "p/00000001: the server answers 404");
    }

    #[test]
    fn pieces_are_inside_and_reach_both_ends() {
        for size in [1, 5000, 1 << 20, (1 << 30) + 77] {
            for budget in [PAGE, 1 << 20, 1 << 28] {
                let pieces = pieces(size, budget);
                assert_eq!(pieces[0].0, 0);
                assert!(pieces.iter().all(|(first, length)| first + length <= size));
                let read: u64 = pieces.iter().map(|(_, length)| length).sum();
                assert!(read <= budget + PAGE, "{size} {budget}");
            }
        }
    }

    #[test]
    fn fio_says_where_each_512_bytes_belong() {
        let mut bytes = vec![7; 4 * FIO_UNIT];
        for index in 0..4 {
            let at = index * FIO_UNIT + (index % 8) * FIO_STEP;
            bytes[at..at + 8].copy_from_slice(&(1024 + (index * FIO_UNIT) as u64).to_le_bytes());
        }
        assert_eq!(Content::Fio.first_difference("f", 1024, &bytes), None);
        assert_eq!(Content::Fio.first_difference("f", 0, &bytes), Some(0));
        bytes[2 * FIO_UNIT..3 * FIO_UNIT].fill(0);
        assert_eq!(Content::Fio.first_difference("f", 1024, &bytes), Some(2048));
    }

    proptest! {
        // Each case makes megabytes.
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn what_is_made_is_recognised_and_damage_is_found(
            offset in 0_u64..5 << 20,
            length in 1_usize..3 << 20,
            at in any::<prop::sample::Index>(),
        ) {
            for content in [Content::RwBench, Content::Zeros] {
                let mut bytes = vec![1; length];
                content.make("d/17.dat", offset, &mut bytes);
                prop_assert_eq!(content.first_difference("d/17.dat", offset, &bytes), None);
                let at = at.index(length);
                bytes[at] ^= 1;
                let found = content.first_difference("d/17.dat", offset, &bytes);
                prop_assert_eq!(found, Some(offset + at as u64));
            }
        }
    }

    #[test]
    fn files_differ() {
        let make = |content: Content, key: &str| {
            let mut bytes = vec![0; 8192];
            content.make(key, 0, &mut bytes);
            bytes
        };
        for content in [Content::Pattern, Content::RwBench] {
            assert_ne!(make(content, "a/1.dat"), make(content, "a/2.dat"));
        }
    }
}
