//! Objects that the tree does not show, and why.

use std::fmt;

/// Why an object is not in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HiddenReason {
    /// There is a directory of the same name: `a` beside `a/b`.
    DirectoryOfTheSameName,
    /// An empty component, as in `a//b`.
    EmptyName,
    /// A component `.` or `..`.
    Dots,
    /// A NUL in a component.
    Nul,
    /// A component of more than 255 bytes.
    LongName,
}

impl HiddenReason {
    /// All reasons.
    pub const ALL: [Self; 5] = [
        Self::DirectoryOfTheSameName,
        Self::EmptyName,
        Self::Dots,
        Self::Nul,
        Self::LongName,
    ];

    /// A word for counters and tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::DirectoryOfTheSameName => "directory_of_same_name",
            Self::EmptyName => "empty_name",
            Self::Dots => "dots",
            Self::Nul => "nul",
            Self::LongName => "long_name",
        }
    }

    fn explanation(self) -> &'static str {
        match self {
            Self::DirectoryOfTheSameName => "a directory has the same name, and is shown instead",
            Self::EmptyName => "two slashes in a row or at the beginning leave a name empty",
            Self::Dots => "`.` and `..` are no names of files",
            Self::Nul => "a name of a file cannot have a NUL in it",
            Self::LongName => "a name of a file has at most 255 bytes",
        }
    }
}

/// Bytes of a key that a report repeats.
const KEY_SHOWN_MAX: usize = 200;

/// How many objects are hidden, with the first one of each reason.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hidden {
    counts: [u64; HiddenReason::ALL.len()],
    first: [Option<String>; HiddenReason::ALL.len()],
}

impl Hidden {
    /// Objects that are hidden for this reason.
    pub fn count(&self, reason: HiddenReason) -> u64 {
        self.counts[reason as usize]
    }

    /// Objects that are hidden for whatever reason.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// A line for each reason that there was: an example, the remedy, how many there are.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        HiddenReason::ALL.into_iter().filter_map(|reason| {
            let key = self.first[reason as usize].as_ref()?;
            let others = self.count(reason) - 1;
            let others = match others {
                0 => String::new(),
                _ => format!(" (and {others} more)"),
            };
            Some(format!(
                "the object {key} is hidden: {}; rename it in the store to see it{others}",
                reason.explanation()
            ))
        })
    }

    pub(super) fn note(&mut self, reason: HiddenReason, key: &[u8]) {
        self.counts[reason as usize] += 1;
        self.first[reason as usize].get_or_insert_with(|| shown(key));
    }
}

impl fmt::Display for Hidden {
    /// `3 hidden (dots 1, nul 2)`, or `0 hidden`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} hidden", self.total())?;
        let counted = |reason: &HiddenReason| self.count(*reason) > 0;
        let reasons: Vec<String> = HiddenReason::ALL
            .into_iter()
            .filter(counted)
            .map(|reason| format!("{} {}", reason.word(), self.count(reason)))
            .collect();
        if reasons.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", reasons.join(", "))
    }
}

/// A key in quotes, of which a long one shows its beginning.
fn shown(key: &[u8]) -> String {
    let text = String::from_utf8_lossy(key);
    match text.floor_char_boundary(KEY_SHOWN_MAX) {
        end if end < text.len() => format!("{:?}...", &text[..end]),
        _ => format!("{text:?}"),
    }
}
