//! What directories get at the end, held within a limit.

use std::{cmp::Reverse, collections::BTreeMap};

use super::super::{Member, names};

/// Directories with their owners, modes, times and attributes, by path.
#[derive(Debug)]
pub(super) struct Kept {
    directories: BTreeMap<Vec<u8>, Member>,
    /// Bytes of memory that they take, about.
    bytes: u64,
    bytes_max: u64,
}

impl Kept {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            directories: BTreeMap::new(),
            bytes: 0,
            bytes_max,
        }
    }

    pub(super) fn has(&self, path: &[u8]) -> bool {
        self.directories.contains_key(path)
    }

    pub(super) fn has_room(&self, path: &[u8], member: &Member) -> bool {
        self.bytes + weight(path, member) <= self.bytes_max
    }

    /// Keeps a directory, in the place of what was kept of the same path.
    pub(super) fn add(&mut self, path: Vec<u8>, member: Member) {
        self.forget(&path);
        self.bytes += weight(&path, &member);
        self.directories.insert(path, member);
    }

    /// What has this path is no directory any more.
    pub(super) fn forget(&mut self, path: &[u8]) {
        if let Some(member) = self.directories.remove(path) {
            self.bytes -= weight(path, &member);
        }
    }

    /// Takes all, those below before those above.
    pub(super) fn take(&mut self) -> Vec<(Vec<u8>, Member)> {
        self.take_where(|_| true)
    }

    /// Takes likewise what is not above `path`.
    pub(super) fn take_all_but_above(&mut self, path: &[u8]) -> Vec<(Vec<u8>, Member)> {
        self.take_where(|other| !is_above(other, path))
    }

    fn take_where(&mut self, goes: impl Fn(&[u8]) -> bool) -> Vec<(Vec<u8>, Member)> {
        let mut taken: Vec<_> = self
            .directories
            .extract_if(.., |path, _| goes(path))
            .collect();
        for (path, member) in &taken {
            self.bytes -= weight(path, member);
        }
        taken.sort_by_key(|(path, _)| Reverse(names::steps(path).count()));
        taken
    }
}

fn weight(path: &[u8], member: &Member) -> u64 {
    (path.len() + size_of::<Vec<u8>>()) as u64 + member.weight()
}

fn is_above(directory: &[u8], path: &[u8]) -> bool {
    let below = path.strip_prefix(directory);
    directory.is_empty() || below.is_some_and(|below| below.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Kind;

    fn kept(paths: &[&str]) -> Kept {
        let mut kept = Kept::new(u64::MAX);
        for path in paths {
            kept.add(path.as_bytes().to_vec(), directory());
        }
        kept
    }

    fn directory() -> Member {
        Member::new(Vec::new(), Kind::Directory)
    }

    fn paths(taken: Vec<(Vec<u8>, Member)>) -> Vec<String> {
        let paths = taken.into_iter().map(|(path, _)| path);
        paths.map(|path| String::from_utf8(path).unwrap()).collect()
    }

    #[test]
    fn directories_are_taken_from_the_deepest_to_the_root() {
        let mut kept = kept(&["", "a", "a/b", "a/b/c", "d/e", "d"]);
        assert_eq!(paths(kept.take()), ["a/b/c", "a/b", "d/e", "a", "d", ""]);
        assert_eq!(kept.bytes, 0);
    }

    #[test]
    fn what_is_above_where_the_archive_is_stays() {
        let mut kept = kept(&["", "a", "a/b", "a/bc", "a/b/d"]);
        assert_eq!(paths(kept.take_all_but_above(b"a/b/c")), ["a/b/d", "a/bc"]);
        assert_eq!(paths(kept.take()), ["a/b", "a", ""]);
    }

    #[test]
    fn a_path_and_a_member_count_against_the_limit_until_they_are_forgotten() {
        let mut kept = Kept::new(8 << 10);
        let path = vec![b'd'; 4000];
        assert!(kept.has_room(&path, &directory()));
        for _ in 0..2 {
            kept.add(path.clone(), directory());
        }
        let mut owned = directory();
        owned.owner_names.0 = vec![b'o'; 4000];
        assert!(!kept.has_room(b"other", &owned));
        kept.forget(&path);
        assert!(kept.has_room(b"other", &owned));
        assert_eq!(kept.bytes, 0);
    }
}
