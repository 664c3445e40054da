//! Which place in the tree a key stands for.
//!
//! The rules are those of the bucket volume, so that both show the same tree of a bucket:
//!
//! - `/` separates names. A key that ends with one marks a directory and is no file.
//! - A directory wins over a file of its name: of `a` and `a/b`, `a` is hidden.
//! - A key with a component that no file can have as its name is hidden. The directories above
//!   that component are there nevertheless, as a delimited listing would show them.
//! - A directory is as old as its marker. One without is as old as the first object below it, in
//!   the order of keys.

use penstock_base::NAME_LENGTH_MAX;

/// Why an object is not in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hidden {
    /// A component is empty, as in `a//b` or `/a`.
    EmptyName,
    /// A component is `.` or `..`.
    Dots,
    /// A component has a NUL.
    Nul,
    /// A component is longer than 255 bytes.
    LongName,
    /// A directory has its name. [`place`] sees one key alone and never says this.
    BehindDirectory,
}

impl Hidden {
    /// Every reason, for tables of counts.
    pub const ALL: [Self; 5] = [
        Self::EmptyName,
        Self::Dots,
        Self::Nul,
        Self::LongName,
        Self::BehindDirectory,
    ];

    /// The reason in a report.
    pub fn text(self) -> &'static str {
        match self {
            Self::EmptyName => "an empty name in the key",
            Self::Dots => "`.` or `..` in the key",
            Self::Nul => "a NUL in the key",
            Self::LongName => "a name of more than 255 bytes in the key",
            Self::BehindDirectory => "a directory has the same name",
        }
    }
}

/// What an object is in its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaf<'a> {
    /// A file of this name.
    File(&'a [u8]),
    /// The mark of the directory itself.
    Marker,
    /// Nothing.
    Hidden(Hidden),
}

/// Where a key belongs in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The directories that the key goes through, each name followed by `/`; all of them can
    /// exist. Empty for the root.
    pub directory: &'a [u8],
    /// What is in the last of them.
    pub leaf: Leaf<'a>,
}

/// Where `key` belongs in the tree.
pub fn place(key: &[u8]) -> Place<'_> {
    let mut start = 0;
    while start < key.len() {
        let length = key[start..].iter().position(|byte| *byte == b'/');
        let name = &key[start..length.map_or(key.len(), |length| start + length)];
        let leaf = match (fault(name), length) {
            (Some(reason), _) => Leaf::Hidden(reason),
            (None, None) => Leaf::File(name),
            (None, Some(length)) => {
                start += length + 1;
                continue;
            }
        };
        let directory = &key[..start];
        return Place { directory, leaf };
    }
    Place {
        directory: key,
        leaf: Leaf::Marker,
    }
}

/// Why nothing can have `name`.
fn fault(name: &[u8]) -> Option<Hidden> {
    match name {
        b"" => Some(Hidden::EmptyName),
        b"." | b".." => Some(Hidden::Dots),
        _ if name.contains(&0) => Some(Hidden::Nul),
        _ if name.len() > NAME_LENGTH_MAX => Some(Hidden::LongName),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hidden(reason: Hidden) -> Leaf<'static> {
        Leaf::Hidden(reason)
    }

    #[test]
    fn keys_have_their_places() {
        let long = [b"d/".as_slice(), &[b'x'; 256]].concat();
        let longest = [b'x'; 255];
        let places: [(&[u8], &[u8], Leaf<'_>); 12] = [
            (b"a", b"", Leaf::File(b"a")),
            (b"a/b/c", b"a/b/", Leaf::File(b"c")),
            (b"a/b/", b"a/b/", Leaf::Marker),
            (b"a//b", b"a/", hidden(Hidden::EmptyName)),
            (b"a//", b"a/", hidden(Hidden::EmptyName)),
            (b"/a", b"", hidden(Hidden::EmptyName)),
            (b"a/./b", b"a/", hidden(Hidden::Dots)),
            (b"a/..", b"a/", hidden(Hidden::Dots)),
            (b"a/x\0y/b", b"a/", hidden(Hidden::Nul)),
            (&long, b"d/", hidden(Hidden::LongName)),
            (&longest, b"", Leaf::File(&longest)),
            (b"...", b"", Leaf::File(b"...")),
        ];
        for (key, directory, leaf) in places {
            assert_eq!(place(key), Place { directory, leaf }, "{key:?}");
        }
    }

    proptest! {
        #[test]
        fn directory_and_name_make_the_key(key in "[a./\\x00]{1,12}") {
            let Place { directory, leaf } = place(key.as_bytes());
            prop_assert!(key.as_bytes().starts_with(directory));
            prop_assert!(directory.is_empty() || directory.ends_with(b"/"));
            match leaf {
                Leaf::File(name) => prop_assert_eq!([directory, name].concat(), key.as_bytes()),
                Leaf::Marker => prop_assert_eq!(directory, key.as_bytes()),
                Leaf::Hidden(_) => prop_assert!(directory.len() < key.len()),
            }
        }
    }
}
