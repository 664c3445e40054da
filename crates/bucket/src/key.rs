//! Paths as object keys.
//!
//! A file `c` in the directory `a/b` is the object `a/b/c`. A directory is the prefix `a/b/`,
//! whether or not an object of that very name marks it; the root is the empty prefix.

use penstock_base::{FsError, FsResult, Utf8Name};
use penstock_object::Key;

/// What follows the name of a directory in the keys of objects by which some programs mark it.
pub(crate) const OLD_FOLDER: &str = "_$folder$";

/// The key of the file `name` below a directory's prefix.
pub(crate) fn file_key(prefix: &str, name: &Utf8Name) -> FsResult<Key> {
    checked_key(format!("{prefix}{name}"))
}

/// The prefix of the directory `name` below a directory's prefix.
pub(crate) fn directory_prefix(prefix: &str, name: &Utf8Name) -> String {
    format!("{prefix}{name}/")
}

/// The key of the object that marks a directory, which is its prefix.
pub(crate) fn marker_key(prefix: &str) -> FsResult<Key> {
    checked_key(prefix)
}

/// A key made of `text`, which is not empty.
pub(crate) fn checked_key(text: impl AsRef<str>) -> FsResult<Key> {
    Key::new(text).map_err(|_| FsError::NameTooLong)
}

/// The name in its directory of a key that a delimited listing of `prefix` shows, or `None` if
/// no file can have that name.
pub(crate) fn listed_name(prefix: &str, key: &str) -> Option<Utf8Name> {
    let name = key.strip_prefix(prefix)?;
    Utf8Name::new(name.strip_suffix('/').unwrap_or(name)).ok()
}

/// The names in its directory that a key may lead to which a delimited listing of `prefix` shows: also that of the
/// directory which `name_$folder$` marks.
pub(crate) fn names_told(prefix: &str, key: &str) -> impl Iterator<Item = Utf8Name> {
    let marked = key.strip_suffix(OLD_FOLDER);
    let marked = marked.and_then(|marked| listed_name(prefix, marked));
    listed_name(prefix, key).into_iter().chain(marked)
}

/// The relative path from the directory `prefix` to `target`.
pub(crate) fn relative_path(prefix: &str, target: &str) -> String {
    let shared = prefix
        .split_inclusive('/')
        .zip(target.split_inclusive('/'))
        .take_while(|(ours, theirs)| ours == theirs)
        .map(|(ours, _)| ours.len())
        .sum::<usize>();
    let ups = prefix[shared..].matches('/').count();
    format!("{}{}", "../".repeat(ups), &target[shared..])
}

/// The key that a relative path from the directory `prefix` leads to, or `None` if it is
/// absolute, leaves the volume or names the root.
pub(crate) fn followed_path(prefix: &str, path: &str) -> Option<String> {
    if path.is_empty() || path.starts_with('/') || path.contains('\0') {
        return None;
    }
    let mut components: Vec<&str> = prefix.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(components.pop()?),
            name => components.push(name),
        }
    }
    (!components.is_empty()).then(|| components.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> Utf8Name {
        Utf8Name::new(text).expect("a valid name")
    }

    #[test]
    fn keys_join_prefix_and_name() {
        let key = file_key("a/b/", &name("c")).expect("short");
        assert_eq!(key.as_str(), "a/b/c");
        assert_eq!(directory_prefix("a/", &name("b")), "a/b/");
        let deep = "d/".repeat(511);
        assert_eq!(
            file_key(&deep, &name("x")).map(|key| key.as_str().len()),
            Ok(1023)
        );
        assert_eq!(file_key(&deep, &name("xy")), Err(FsError::NameTooLong));
    }

    #[test]
    fn names_that_no_file_can_have_are_not_made() {
        for key in ["a//", "a/../", "a/./", "a/..", "a/x\0y", "a/", "other"] {
            assert_eq!(listed_name("a/", key), None, "{key}");
        }
        assert_eq!(listed_name("a/", "a/b/"), Some(name("b")));
        assert_eq!(listed_name("", "b"), Some(name("b")));
        assert_eq!(listed_name("a/", &format!("a/{}", "x".repeat(256))), None);
    }

    #[test]
    fn links_stay_within_the_volume() {
        assert_eq!(followed_path("a/b/", "../c"), Some("a/c".to_owned()));
        assert_eq!(followed_path("a/b/", "./c//d"), Some("a/b/c/d".to_owned()));
        for outside in ["/c", "../../../c", "", "../.."] {
            assert_eq!(followed_path("a/b/", outside), None, "{outside}");
        }
    }

    proptest! {
        #[test]
        fn a_relative_path_leads_back(
            from in prop::collection::vec("[ab]{1,2}", 0..4),
            to in prop::collection::vec("[ab]{1,2}", 1..4),
        ) {
            let prefix: String = from.iter().map(|part| format!("{part}/")).collect();
            let target = to.join("/");
            let path = relative_path(&prefix, &target);
            prop_assert_eq!(followed_path(&prefix, &path), Some(target));
        }
    }
}
