//! The keys of what is shipped. Numbers are 16 hexadecimal digits, so that keys sort as they do.

use std::fmt;

/// What keys of the log begin with.
pub(super) const LOG: &str = "log/";
/// What keys of manifests begin with.
pub(super) const MANIFESTS: &str = "checkpoint/";
/// What keys of parts of checkpoints begin with.
pub(super) const PARTS: &str = "part/";

/// A place in the log: in which epoch, counted from 1 there. A group or a claim lies there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogName {
    pub(super) epoch: u64,
    pub(super) number: u64,
}

/// A manifest: up to which operation its checkpoint goes, and who wrote it. That of a later epoch is the newer one,
/// however far the other goes: a writer that was shut out goes on from parts that its successor may have deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ManifestName {
    pub(super) epoch: u64,
    pub(super) sequence: u64,
}

/// A part of the checkpoint up to an operation, and of those after it. `number` counts the parts of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartName {
    pub(super) sequence: u64,
    pub(super) epoch: u64,
    pub(super) number: u64,
}

impl LogName {
    pub(super) fn of_key(key: &str) -> Option<Self> {
        let [epoch, number] = numbers(key.strip_prefix(LOG)?)?;
        Some(Self { epoch, number })
    }

    /// The next place of its epoch.
    pub(super) fn next(self) -> Self {
        Self {
            number: self.number.saturating_add(1),
            ..self
        }
    }
}

impl ManifestName {
    pub(super) fn of_key(key: &str) -> Option<Self> {
        let [sequence, epoch] = numbers(key.strip_prefix(MANIFESTS)?)?;
        Some(Self { sequence, epoch })
    }
}

impl PartName {
    pub(super) fn of_key(key: &str) -> Option<Self> {
        let [sequence, epoch, number] = numbers(key.strip_prefix(PARTS)?)?;
        Some(Self {
            sequence,
            epoch,
            number,
        })
    }
}

impl fmt::Display for LogName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LOG}{:016x}-{:016x}", self.epoch, self.number)
    }
}

impl fmt::Display for ManifestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MANIFESTS}{:016x}-{:016x}", self.sequence, self.epoch)
    }
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sequence,
            epoch,
            number,
        } = self;
        write!(f, "{PARTS}{sequence:016x}-{epoch:016x}-{number:016x}")
    }
}

/// `N` numbers as they are written in keys, and nothing else.
fn numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let mut words = text.split('-');
    let mut numbers = [0; N];
    for number in &mut numbers {
        let word = words.next()?;
        if word.len() != 16 || !word.bytes().all(is_digit) {
            return None;
        }
        *number = u64::from_str_radix(word, 16).ok()?;
    }
    words.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_back_to_names() {
        let log = LogName {
            epoch: 0x1f,
            number: 7,
        };
        assert_eq!(log.to_string(), "log/000000000000001f-0000000000000007");
        assert_eq!(LogName::of_key(&log.to_string()), Some(log));
        let manifest = ManifestName {
            sequence: 9,
            epoch: 2,
        };
        assert_eq!(ManifestName::of_key(&manifest.to_string()), Some(manifest));
        let part = PartName {
            sequence: 9,
            epoch: 2,
            number: 3,
        };
        assert_eq!(PartName::of_key(&part.to_string()), Some(part));
        for other in ["log/", "log/1-2", "log/000000000000001F-0000000000000007"] {
            assert_eq!(LogName::of_key(other), None, "{other}");
        }
    }
}
