//! Keys as paths.

use penstock_base::NAME_LENGTH_MAX;

use super::HiddenReason;

/// A key, split as far as its components can be names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Components<'a> {
    directory_length: usize,
    leaf: Result<Option<&'a [u8]>, HiddenReason>,
}

impl<'a> Components<'a> {
    pub(super) fn of(key: &'a [u8]) -> Self {
        let mut start = 0;
        loop {
            let rest = &key[start..];
            let slash = rest.iter().position(|byte| *byte == b'/');
            let name = &rest[..slash.unwrap_or(rest.len())];
            let leaf = match (check(name), slash) {
                (Ok(()), Some(slash)) => {
                    start += slash + 1;
                    continue;
                }
                (Ok(()), None) => Ok(Some(name)),
                // A key that ends with a slash marks a directory; the empty one marks the root.
                (Err(_), None) if rest.is_empty() => Ok(None),
                (Err(reason), _) => Err(reason),
            };
            return Self {
                directory_length: start,
                leaf,
            };
        }
    }

    /// Bytes of the key that name directories, up to and with the last slash; up to the first
    /// component that is no name, if there is one.
    pub(super) fn directory_length(&self) -> usize {
        self.directory_length
    }

    /// The name of the file, none if the key marks the directory, or why no file can show it.
    pub(super) fn leaf(&self) -> Result<Option<&'a [u8]>, HiddenReason> {
        self.leaf
    }
}

fn check(name: &[u8]) -> Result<(), HiddenReason> {
    match name {
        b"" => Err(HiddenReason::EmptyName),
        b"." | b".." => Err(HiddenReason::Dots),
        _ if name.len() > NAME_LENGTH_MAX => Err(HiddenReason::LongName),
        _ if name.contains(&0) => Err(HiddenReason::Nul),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(key: &str) -> (&str, Result<Option<&str>, HiddenReason>) {
        let components = Components::of(key.as_bytes());
        let text = |bytes| std::str::from_utf8(bytes).expect("a key of text");
        let leaf = components.leaf().map(|name| name.map(text));
        (&key[..components.directory_length()], leaf)
    }

    #[test]
    fn keys_name_files_and_mark_directories() {
        assert_eq!(split("a"), ("", Ok(Some("a"))));
        assert_eq!(split("a/b/c"), ("a/b/", Ok(Some("c"))));
        assert_eq!(split("a/b/"), ("a/b/", Ok(None)));
        assert_eq!(split(""), ("", Ok(None)));
    }

    #[test]
    fn keys_that_no_file_can_have_are_told_apart() {
        let long = "x".repeat(256);
        assert_eq!(split("a//b"), ("a/", Err(HiddenReason::EmptyName)));
        assert_eq!(split("/"), ("", Err(HiddenReason::EmptyName)));
        assert_eq!(split("a/../b/c"), ("a/", Err(HiddenReason::Dots)));
        assert_eq!(split("a/./"), ("a/", Err(HiddenReason::Dots)));
        assert_eq!(split("a\0/b"), ("", Err(HiddenReason::Nul)));
        assert_eq!(split(&long), ("", Err(HiddenReason::LongName)));
        assert_eq!(split(&long[1..]), ("", Ok(Some(&long[1..]))));
        assert_eq!(split(".../..a"), (".../", Ok(Some("..a"))));
    }
}
