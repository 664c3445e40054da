//! Names of members: which are meant, and which are refused.

use super::Selection;
use crate::local::is_temporary;

/// Longest path that the system takes.
const PATH_MAX: usize = 4096;

/// The parts of a member's path. Fails in words on one that leads out of the tree.
pub(super) fn parts(name: &[u8]) -> Result<Vec<&[u8]>, &'static str> {
    if name.starts_with(b"/") {
        return Err("its name is absolute");
    }
    if name.len() > PATH_MAX || name.contains(&0) {
        return Err("its name is none that a file can have");
    }
    let mut parts = Vec::new();
    for part in steps(name) {
        match part {
            b".." => return Err("its name has `..` in it"),
            part if part.len() > 255 => return Err("a part of its name is longer than 255 bytes"),
            part => parts.push(part),
        }
    }
    Ok(parts)
}

/// Refuses names under which neighbours are written, at each place of a path.
pub(super) fn check(parts: &[&[u8]]) -> Result<(), &'static str> {
    match parts.iter().any(|part| is_temporary(part)) {
        false => Ok(()),
        true => Err("files on their way have such names, `.parcp-...`"),
    }
}

/// The parts of a path that lead somewhere else.
pub(super) fn steps(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parts = path.split(|byte| *byte == b'/');
    parts.filter(|part| !matches!(*part, b"" | b"."))
}

/// Whether a symbolic link at `parts` with this target leads out of the tree, or might: what is before a `..` can be a
/// link itself.
pub(super) fn leads_out(parts: &[&[u8]], target: &[u8]) -> bool {
    let steps: Vec<&[u8]> = steps(target).collect();
    let ups = steps.iter().take_while(|step| **step == b"..").count();
    target.starts_with(b"/") || ups >= parts.len() || steps[ups..].contains(&&b".."[..])
}

impl Selection {
    /// Whether a member of these parts is meant. Notes in `seen` which of the wanted ones were there.
    pub(super) fn has(&self, parts: &[&[u8]], is_directory: bool, seen: &mut [bool]) -> bool {
        let path = parts.join(&b'/');
        let is_out = |end| {
            let path = parts[..end].join(&b'/');
            self.exclude
                .leave_out(&path, is_directory || end < parts.len())
        };
        if !self.exclude.is_empty() && (1..=parts.len()).any(is_out) {
            return false;
        }
        if self.members.is_empty() {
            return true;
        }
        let mut is_wanted = false;
        for (wanted, seen) in self.members.iter().zip(seen) {
            let trimmed = trim(wanted);
            let is_below = path.strip_prefix(trimmed);
            if is_below.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")) {
                *seen = true;
                is_wanted = true;
            }
        }
        is_wanted
    }
}

fn trim(name: &[u8]) -> &[u8] {
    let name = name.strip_prefix(b"./").unwrap_or(name);
    name.strip_suffix(b"/").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_are_refused() {
        for name in ["/a", "../a", "a/../../b", "a/..", "a\0b"] {
            assert!(parts(name.as_bytes()).is_err(), "{name}");
        }
        assert_eq!(parts(b"./a//b/").unwrap(), [b"a", b"b"]);
    }

    #[test]
    fn links_that_lead_out_are_seen() {
        let at = parts(b"a/b/link").unwrap();
        for (target, expected) in [
            ("x", false),
            ("../../x", false),
            ("../../../x", true),
            ("./.././x/y", false),
            ("c/../x", true),
            ("../c/../x", true),
            ("/etc", true),
        ] {
            assert_eq!(leads_out(&at, target.as_bytes()), expected, "{target}");
        }
    }
}
