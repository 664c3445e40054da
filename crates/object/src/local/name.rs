//! Which file holds which object.
//!
//! An object lies at its key's path, so that other tools find it there and an existing directory
//! of files is a bucket. What a path cannot express is escaped, one component of the key at a
//! time, with names that start with `.penstock`:
//!
//! | component of a key | names on disk |
//! |---|---|
//! | most: 1 to 255 bytes, not `.` or `..`, no NUL, not starting with `.penstock` | itself |
//! | any other: empty (`a//b`, `a/`), `.`, `..`, ... | `.penstock=TEXT` |
//! | one whose escaped name exceeds 255 bytes | `.penstock+TEXT/.penstock+TEXT/.penstock=TEXT` |
//!
//! TEXT is the component with `%` and NUL as `%25` and `%00`, in pieces of [`PIECE_MAX`] bytes.
//!
//! An object `a` beside objects `a/...` cannot be a file `a`, because that is a directory. It is
//! [`OBJECT_NAME`] in that directory. A file `a` becomes a directory when something is written
//! below it.
//!
//! Every component has exactly one spelling. Names that no component is spelled like, among them
//! [`PRIVATE_NAME`], are hidden, hence two keys never share a file and a file never has two keys.

use crate::Key;

/// Penstock's own directory in the bucket's.
pub(super) const PRIVATE_NAME: &str = ".penstock";

/// The object whose key is the path of the directory that this file is in.
pub(super) const OBJECT_NAME: &str = ".penstock-object";

/// The beginning of the last piece of an escaped component.
const LAST_MARK: &str = ".penstock=";

/// The beginning of a directory for each piece but the last.
const PIECE_MARK: &str = ".penstock+";

/// Bytes of escaped text in one name.
const PIECE_MAX: usize = 240;

/// Bytes in the longest file name (`NAME_MAX` of limits.h).
const NAME_MAX: usize = 255;

/// The file of an object: the names on the way to it from the bucket's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    names: Vec<String>,
}

impl Location {
    pub(super) fn of(key: &Key) -> Self {
        Self {
            names: directory_names(key.as_str()),
        }
    }

    /// The names of the directory that holds it.
    pub(super) fn parents(&self) -> &[String] {
        &self.names[..self.names.len() - 1]
    }

    /// Its name there.
    pub(super) fn name(&self) -> &str {
        self.names.last().expect("a key has a component")
    }

    /// All names.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }
}

/// The names of the directory for keys that start with `path` and a slash.
pub(super) fn directory_names(path: &str) -> Vec<String> {
    let mut names = Vec::new();
    for component in path.split('/') {
        push_names(&mut names, component);
    }
    names
}

/// Adds the names that `component` is spelled with.
pub(super) fn push_names(names: &mut Vec<String>, component: &str) {
    if is_plain(component) {
        names.push(component.to_owned());
        return;
    }
    let mut piece = String::new();
    for character in component.chars() {
        let length = match character {
            '%' | '\0' => 3,
            other => other.len_utf8(),
        };
        if piece.len() + length > PIECE_MAX {
            names.push(format!("{PIECE_MARK}{piece}"));
            piece.clear();
        }
        match character {
            '%' => piece.push_str("%25"),
            '\0' => piece.push_str("%00"),
            other => piece.push(other),
        }
    }
    names.push(format!("{LAST_MARK}{piece}"));
}

fn is_plain(component: &str) -> bool {
    !matches!(component, "" | "." | "..")
        && component.len() <= NAME_MAX
        && !component.contains('\0')
        && !component.starts_with(PRIVATE_NAME)
}

/// What a name on disk stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning<'a> {
    /// A whole component.
    Component(&'a str),
    /// A directory with the rest of an escaped component, of which this is a piece.
    Piece(&'a str),
    /// The last piece of an escaped component.
    Last(&'a str),
    /// Nothing, as far as keys go.
    Hidden,
}

/// What `name` stands for where a component begins.
pub(super) fn meaning(name: &str) -> Meaning<'_> {
    if let Some(text) = name.strip_prefix(PIECE_MARK) {
        Meaning::Piece(text)
    } else if let Some(text) = name.strip_prefix(LAST_MARK) {
        Meaning::Last(text)
    } else if is_plain(name) {
        Meaning::Component(name)
    } else {
        Meaning::Hidden
    }
}

/// The component that is spelled with `names`, all but the last of which are
/// [`Meaning::Piece`]s; `None` if none is.
pub(super) fn component(names: &[String]) -> Option<String> {
    let mut text = String::new();
    for name in names {
        match meaning(name) {
            Meaning::Component(piece) | Meaning::Piece(piece) | Meaning::Last(piece) => {
                text.push_str(piece);
            }
            Meaning::Hidden => return None,
        }
    }
    let component = match names {
        [name] if is_plain(name) => text,
        _ => text.replace("%00", "\0").replace("%25", "%"),
    };
    let mut spelling = Vec::new();
    push_names(&mut spelling, &component);
    (spelling == names).then_some(component)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn spelled(component: &str) -> Vec<String> {
        let mut names = Vec::new();
        push_names(&mut names, component);
        names
    }

    #[test]
    fn ordinary_keys_are_paths() {
        for key in [
            "a",
            "dir/file.txt",
            "Ünïcödé/日本語",
            ".hidden/...",
            "100%/a b",
            "%25",
        ] {
            assert_eq!(directory_names(key).join("/"), key);
        }
    }

    #[test]
    fn what_a_path_cannot_express_is_escaped() {
        for (key, path) in [
            ("a//b", "a/.penstock=/b"),
            ("a/", "a/.penstock="),
            ("./..", ".penstock=./.penstock=.."),
            (".penstock/x", ".penstock=.penstock/x"),
            (".penstock=a", ".penstock=.penstock=a"),
            ("nul\0%", ".penstock=nul%00%25"),
        ] {
            assert_eq!(directory_names(key).join("/"), path);
        }
        let long = "x".repeat(500);
        let names = spelled(&long);
        let lengths: Vec<usize> = names.iter().map(String::len).collect();
        assert_eq!(lengths, [250, 250, 30]);
    }

    #[test]
    fn foreign_names_that_look_like_escapes_are_hidden() {
        for name in [
            ".penstock",
            ".penstock-object",
            ".penstock=a",
            ".penstock=%41",
            ".penstock=%",
            ".penstock=%2F",
            ".penstock-",
            ".penstockade",
        ] {
            assert_eq!(component(&[name.to_owned()]), None, "{name}");
        }
        let pieces = [".penstock+a".to_owned(), ".penstock=b".to_owned()];
        assert_eq!(component(&pieces), None, "pieces that are too short");
    }

    /// Components of the kinds that trouble the escapes.
    fn components() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-c%.\\x00=+]{0,6}",
            "\\.penstock[=+]?(%25|%00|%|\\x00|[a-c.]){0,4}",
            "[%ü\\x00x]{200,400}",
            "[^/]{0,80}",
        ]
    }

    proptest! {
        #[test]
        fn every_component_has_one_spelling_and_back(text in components()) {
            let names = spelled(&text);
            prop_assert_eq!(component(&names), Some(text));
            for (index, name) in names.iter().enumerate() {
                prop_assert!(name.len() <= NAME_MAX && !name.contains(['/', '\0']));
                prop_assert!(!matches!(name.as_str(), "" | "." | ".." | PRIVATE_NAME | OBJECT_NAME));
                let last = index + 1 == names.len();
                prop_assert_eq!(matches!(meaning(name), Meaning::Piece(_)), !last);
            }
        }

        #[test]
        fn names_on_disk_have_one_meaning(names in prop::collection::vec(components(), 1..3)) {
            if let Some(component) = component(&names) {
                prop_assert_eq!(spelled(&component), names);
            }
        }

        #[test]
        fn keys_never_share_a_file(keys in prop::collection::vec("[ab./%]{1,8}", 2..40)) {
            let mut files = HashMap::new();
            for key in keys {
                let before = files.insert(directory_names(&key).join("/"), key.clone());
                prop_assert!(before.is_none_or(|other| other == key));
            }
        }
    }
}
