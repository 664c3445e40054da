//! File operations of the benchmark's own, in a process of their own.
//!
//! Whoever touches a mount may hang in it until the mount is torn down. So the benchmark itself
//! never does: it starts itself as a worker with a job, and ends the worker when that takes too
//! long.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{BenchError, BenchResult, content::Content, http::Request};

/// Bytes of one read or write.
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

/// Where files are looked at.
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

/// What a worker is to do.
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
    /// Remove files and directories that are there.
    Remove { place: Place, keys: Vec<String> },
}

/// What a worker says at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// What is wrong with the files.
    pub(crate) problem: Option<String>,
    /// Bytes that were compared.
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
        Job::MakeDirectories { directories } => directories
            .iter()
            .try_for_each(|directory| named(directory, fs::create_dir_all(directory)))
            .map(|()| 0),
        Job::Write { root, files } => files
            .iter()
            .try_for_each(|file| named(&root.join(&file.key), write(root, file)))
            .map(|()| 0),
        Job::Check {
            place,
            files,
            budget,
        } => check_all(place, files, *budget),
        Job::Remove { place, keys } => keys
            .iter()
            .try_for_each(|key| place.remove(key).map_err(|error| format!("{key}: {error}")))
            .map(|()| 0),
    };
    match outcome {
        Ok(compared) => Verdict {
            problem: None,
            compared,
        },
        Err(problem) => Verdict {
            problem: Some(problem),
            compared: 0,
        },
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

fn check_all(place: &Place, files: &[Expected], budget: u64) -> Result<u64, String> {
    let step = files.len().div_ceil(FILES_MAX).max(1);
    let count = files.len().div_ceil(step) as u64;
    let of_each = (budget / count.max(1)).max(PAGE);
    let mut compared = 0;
    for file in files.iter().step_by(step) {
        compared += check(place, file, of_each).map_err(|why| format!("{}: {why}", file.key))?;
    }
    Ok(compared)
}

fn check(place: &Place, file: &Expected, budget: u64) -> Result<u64, String> {
    let opened = place.open(&file.key).map_err(|error| error.to_string())?;
    if opened.size != file.size {
        return Err(format!(
            "has {} bytes instead of {}",
            opened.size, file.size
        ));
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
            opened.read(at, piece).map_err(|error| error.to_string())?;
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

/// An object or file that is compared.
struct Opened<'a> {
    size: u64,
    source: Source<'a>,
}

enum Source<'a> {
    File(File),
    Object { url: &'a str, path: String },
}

impl Opened<'_> {
    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        match &self.source {
            Source::File(file) => file.read_exact_at(bytes, at),
            Source::Object { url, path } => {
                let mut request = Request::new("GET", url, path);
                request.range = Some((at, bytes.len() as u64));
                request.send()?.body.read_exact(bytes)
            }
        }
    }
}

impl Place {
    fn open(&self, key: &str) -> io::Result<Opened<'_>> {
        match self {
            Self::Directory(root) => {
                let file = File::open(root.join(key))?;
                Ok(Opened {
                    size: file.metadata()?.len(),
                    source: Source::File(file),
                })
            }
            Self::Server { url, path } => {
                let path = format!("{path}{key}");
                let answer = Request::new("HEAD", url, &path).send()?;
                if answer.status != 200 {
                    let why = format!("the server answers {}", answer.status);
                    return Err(io::Error::other(why));
                }
                Ok(Opened {
                    size: answer.length,
                    source: Source::Object { url, path },
                })
            }
        }
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        let outcome = match self {
            Self::Directory(root) if key.ends_with('/') => fs::remove_dir(root.join(key)),
            Self::Directory(root) => fs::remove_file(root.join(key)),
            Self::Server { url, path } => {
                let path = format!("{path}{key}");
                Request::new("DELETE", url, &path).send().map(drop)
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

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_devserver::{Fill, Server, Settings};

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
        assert_eq!(perform(&removal), Verdict::default());
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
}
