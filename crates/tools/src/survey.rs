//! How much there is to do in all, counted beside the work: without that nobody can say how long the rest takes.
//!
//! One thread lists what the work lists too, and ends with it. What it cannot read is left out, as the work tells of it. The
//! count is known only when it is whole ([`Report::left`]); a tree that is finished earlier than it is counted has none. Files
//! of this machine are counted alone: of a store the count would be as many requests again.

use std::{collections::VecDeque, io, path::PathBuf};

use penstock_vfs::FileKind;
use rustix::io::Errno;

use crate::{
    Patterns, Report, Stop, local,
    tree::{Found, Listing, Source, local::LocalSource},
};

/// Levels of directories that are kept open. A deeper tree is not counted: open files are for the work.
const LEVELS_MAX: usize = 32;

/// What is counted.
#[derive(Debug)]
pub struct Survey<'a> {
    /// What is left out.
    pub exclude: &'a Patterns,
    /// What is mounted below a place is left out.
    pub one_file_system: bool,
    /// Bytes count as well as names.
    pub with_sizes: bool,
}

/// A directory on the way.
struct Level {
    listing: Box<dyn Listing>,
    page: VecDeque<Found>,
    path: Vec<u8>,
}

/// What was counted so far.
#[derive(Debug, Default)]
struct Counted {
    entries: u64,
    bytes: u64,
}

impl Survey<'_> {
    /// Counts what is at `paths` and below, and tells `report`. Ends early, and tells nothing, once `stop` is set.
    pub fn count<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a PathBuf>,
        report: &Report,
        stop: &Stop,
    ) {
        let tops = paths.into_iter().map(|path| (path.clone(), Vec::new()));
        self.count_below(tops, report, stop);
    }

    /// The same, of paths with those that patterns know them by.
    pub(crate) fn count_below(
        &self,
        tops: impl IntoIterator<Item = (PathBuf, Vec<u8>)>,
        report: &Report,
        stop: &Stop,
    ) {
        let mut counted = Counted::default();
        for (place, path) in tops {
            let place = local::Place::through(&place);
            let added = place.and_then(|place| self.add((place, path), &mut counted, stop));
            if added.is_err() || stop.is_set() {
                return;
            }
        }
        report.expect(counted.entries, counted.bytes);
    }

    fn add(
        &self,
        (place, path): (local::Place, Vec<u8>),
        counted: &mut Counted,
        stop: &Stop,
    ) -> io::Result<()> {
        let top = LocalSource {
            directory: place.directory,
            name: place.name,
        };
        let facts = top.facts()?;
        counted.add(&top, self.with_sizes);
        if facts.attributes.kind != FileKind::Directory {
            return Ok(());
        }
        let mut levels = vec![Level::enter(&top, path)?];
        while let Some(level) = levels.last_mut() {
            if stop.is_set() {
                break;
            }
            let Some(found) = level.next() else {
                levels.pop();
                continue;
            };
            let path = level.path_of(&found);
            if !self.exclude.is_empty() && self.exclude.leave_out(&path, found.is_directory) {
                continue;
            }
            counted.add(&*found.file, self.with_sizes);
            let is_left = || self.one_file_system && is_elsewhere(&*found.file, facts.device);
            if !found.is_directory || is_left() {
                continue;
            }
            if levels.len() == LEVELS_MAX {
                return Err(Errno::MFILE.into());
            }
            levels.extend(Level::enter(&*found.file, path));
        }
        Ok(())
    }
}

impl Level {
    fn enter(directory: &dyn Source, path: Vec<u8>) -> io::Result<Self> {
        Ok(Self {
            listing: directory.listing()?,
            page: VecDeque::new(),
            path,
        })
    }

    fn next(&mut self) -> Option<Found> {
        if self.page.is_empty() {
            self.page = self.listing.next_page().unwrap_or_default().into();
        }
        self.page.pop_front()
    }

    fn path_of(&self, found: &Found) -> Vec<u8> {
        let name = found.name.as_bytes();
        match self.path.is_empty() {
            true => name.to_vec(),
            false => [&self.path, &b"/"[..], name].concat(),
        }
    }
}

impl Counted {
    fn add(&mut self, file: &dyn Source, with_sizes: bool) {
        self.entries += 1;
        if !with_sizes {
            return;
        }
        let attributes = file.facts().map(|facts| facts.attributes);
        let regular = attributes
            .ok()
            .filter(|found| found.kind == FileKind::Regular);
        // Holes are passed over, and what has several names is dealt with once.
        self.bytes += regular.map_or(0, |found| {
            found.size.min(found.allocated) / u64::from(found.links.max(1))
        });
    }
}

fn is_elsewhere(directory: &dyn Source, device: u64) -> bool {
    directory.facts().is_ok_and(|facts| facts.device != device)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// A report of nothing that was done yet, once what is at `path` was counted.
    fn counted(path: &Path, exclude: &Patterns, with_sizes: bool, stop: &Stop) -> Report {
        let report = Report::default();
        let survey = Survey {
            exclude,
            one_file_system: true,
            with_sizes,
        };
        survey.count([&path.to_owned()], &report, stop);
        report
    }

    fn left_of(done: u64, exclude: &Patterns) -> Option<f64> {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("a/b");
        fs::create_dir_all(&inner).expect("made");
        for number in 0..7 {
            fs::write(inner.join(number.to_string()), [0; 1000]).expect("written");
        }
        let report = counted(folder.path(), exclude, false, &Stop::default());
        report.files.add(done);
        report.left()
    }

    #[test]
    fn what_is_left_is_the_part_of_all_names_that_was_not_dealt_with() {
        let nothing = Patterns::default();
        assert_eq!(left_of(0, &nothing), Some(1.0));
        assert_eq!(left_of(5, &nothing), Some(0.5));
        assert_eq!(left_of(10, &nothing), Some(0.0));
        assert_eq!(left_of(11, &nothing), None, "the count was wrong");
    }

    #[test]
    fn what_patterns_leave_out_is_not_waited_for() {
        let mut exclude = Patterns::default();
        exclude.add(b"/a/b").expect("added");
        assert_eq!(left_of(1, &exclude), Some(0.5));
    }

    #[test]
    fn bytes_that_stay_as_they_are_count_as_done() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("large"), vec![0; 10 << 20]).expect("written");
        let nothing = Patterns::default();
        let report = counted(folder.path(), &nothing, true, &Stop::default());
        assert_eq!(report.left(), Some(1.0));
        report.directories.add(1);
        report.stay(10 << 20);
        assert_eq!(report.left(), Some(0.0));
    }

    /// The count had as many directories open as the tree has levels, and the work had none left.
    #[test]
    fn a_deep_tree_is_not_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = "d/".repeat(LEVELS_MAX);
        fs::create_dir_all(folder.path().join(deep)).expect("made");
        let nothing = Patterns::default();
        let report = counted(folder.path(), &nothing, false, &Stop::default());
        assert_eq!(report.left(), None);
    }

    #[test]
    fn a_count_that_was_cut_off_says_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let stop = Stop::default();
        stop.set();
        let report = counted(folder.path(), &Patterns::default(), false, &stop);
        assert_eq!(report.left(), None);
    }
}
