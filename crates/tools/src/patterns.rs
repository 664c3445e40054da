//! What is left out: patterns as rsync has them.
//!
//! A pattern without a slash is for names anywhere. With a slash at its beginning it is for the whole path from
//! where the copy begins, with one elsewhere for the end of a path. A slash at its end makes it for directories
//! alone, `/***` for a directory and all that is in it. `*` and `?` stop at slashes, `**` does not, `[a-z]` and `[!a-z]`
//! are sets, also with classes such as `[[:digit:]_]`, `\` takes the next character as it is. In a file, `+ PATTERN` keeps what a later pattern would leave out; the first that fits decides.

use std::{io, ops::RangeInclusive, path::Path};

/// The most patterns that are taken.
const PATTERNS_MAX: usize = 100_000;

/// Patterns in the order in which they are tried.
#[derive(Debug, Clone, Default)]
pub struct Patterns(Vec<Pattern>);

#[derive(Debug, Clone)]
struct Pattern {
    text: Vec<u8>,
    leaves_out: bool,
    is_for_directories: bool,
    is_anchored: bool,
    /// For paths, not for single names.
    is_path: bool,
}

impl Patterns {
    /// Adds one from the command line.
    pub fn add(&mut self, text: &[u8]) -> io::Result<()> {
        if self.0.len() >= PATTERNS_MAX {
            return Err(io::Error::other(format!(
                "more than {PATTERNS_MAX} patterns"
            )));
        }
        let (leaves_out, text) = match text {
            [b'+', b' ', rest @ ..] => (false, rest),
            [b'-', b' ', rest @ ..] => (true, rest),
            text => (true, text),
        };
        if let Some(directory) = text.strip_suffix(b"/***") {
            let itself = [directory, b"/"].concat();
            self.0.push(Pattern::new(&itself, leaves_out));
        }
        self.0.push(Pattern::new(text, leaves_out));
        Ok(())
    }

    /// Adds those of a file, one a line; empty lines and those that begin with `#` or `;` are for people.
    pub fn add_file(&mut self, path: &Path) -> io::Result<()> {
        for line in std::fs::read(path)?.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !line.is_empty() && !matches!(line[0], b'#' | b';') {
                self.add(line)?;
            }
        }
        Ok(())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `path`, from where the copy begins and without a slash at either end, is left out.
    pub fn leave_out(&self, path: &[u8], is_directory: bool) -> bool {
        let fitting = self.0.iter().find(|one| one.fits(path, is_directory));
        fitting.is_some_and(|one| one.leaves_out)
    }
}

impl Pattern {
    fn new(text: &[u8], leaves_out: bool) -> Self {
        let is_for_directories = text.len() > 1 && text.ends_with(b"/");
        let text = text.strip_suffix(b"/").unwrap_or(text);
        let is_anchored = text.starts_with(b"/");
        let text = text.strip_prefix(b"/").unwrap_or(text);
        let is_path = is_anchored || text.contains(&b'/') || has_double_star(text);
        Self {
            text: text.to_vec(),
            leaves_out,
            is_for_directories,
            is_anchored,
            is_path,
        }
    }

    fn fits(&self, path: &[u8], is_directory: bool) -> bool {
        if self.is_for_directories && !is_directory {
            return false;
        }
        if self.is_anchored {
            return matches(&self.text, path);
        }
        if self.text.starts_with(b"**") {
            // As in rsync, so that `**/x` is for an `x` at the top, too.
            return matches(&self.text, &[b"/", path].concat());
        }
        let mut ends = ends(path);
        if self.is_path {
            return ends.any(|end| matches(&self.text, end));
        }
        ends.last().is_some_and(|name| matches(&self.text, name))
    }
}

fn has_double_star(text: &[u8]) -> bool {
    text.windows(2).any(|two| two == b"**")
}

/// The path, and what follows each of its slashes.
fn ends(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let after = (0..path.len()).filter(|at| path[*at] == b'/');
    std::iter::once(0)
        .chain(after.map(|at| at + 1))
        .map(|begin| &path[begin..])
}

/// Whether all of `text` is what `pattern` says. Takes time that is the product of both lengths: of stars of the
/// same kind only the last one is ever taken back.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut pos) = (0, 0);
    // Where to go on when the text after a star does not fit: its pattern, its text, for both kinds.
    let mut single: Option<(usize, usize)> = None;
    let mut double: Option<(usize, usize)> = None;
    loop {
        if pattern[at..].starts_with(b"**") {
            at += 2;
            double = Some((at, pos));
            single = None;
            continue;
        }
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            single = Some((at, pos));
            continue;
        }
        if at == pattern.len() && pos == text.len() {
            return true;
        }
        if let Some(width) = fits_one(&pattern[at..], text.get(pos).copied()) {
            at += width;
            pos += 1;
            continue;
        }
        let retry = match (single, double) {
            (Some((begin, from)), _) if text.get(from).is_some_and(|byte| *byte != b'/') => {
                single = Some((begin, from + 1));
                single
            }
            (_, Some((begin, from))) if from < text.len() => {
                single = None;
                double = Some((begin, from + 1));
                double
            }
            _ => return false,
        };
        (at, pos) = retry.unwrap_or_default();
    }
}

/// How much of `pattern` stands for the character `byte`; none if it does not fit.
fn fits_one(pattern: &[u8], byte: Option<u8>) -> Option<usize> {
    let byte = byte?;
    match pattern {
        [] => None,
        [b'?', ..] => (byte != b'/').then_some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', ..] => match set(pattern) {
            Some((width, holds)) => (byte != b'/' && holds(byte)).then_some(width),
            None => (byte == b'[').then_some(1),
        },
        [plain, ..] => (*plain == byte).then_some(1),
    }
}

/// A set such as `[a-z_]`, `[!0-9]` or `[[:alpha:]-]`: how long it is and what it holds; none if it has no end.
fn set(pattern: &[u8]) -> Option<(usize, impl Fn(u8) -> bool)> {
    let is_negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let begin = if is_negated { 2 } else { 1 };
    let mut end = begin;
    // The first member may be a bracket itself.
    while end == begin || *pattern.get(end)? != b']' {
        end += member(&pattern[end..])?.0;
    }
    let members = &pattern[begin..end];
    let holds = move |byte: u8| {
        let mut rest = members;
        while let Some((width, member)) = member(rest) {
            if member.holds(byte) {
                return !is_negated;
            }
            rest = &rest[width..];
        }
        is_negated
    };
    Some((end + 1, holds))
}

/// What a set has.
enum Member {
    Class(IsOf),
    Range(RangeInclusive<u8>),
}

impl Member {
    fn holds(&self, byte: u8) -> bool {
        match self {
            Self::Class(is_of) => is_of(&byte),
            Self::Range(range) => range.contains(&byte),
        }
    }
}

/// The first member of a set, and how long it is; none behind the last one.
fn member(members: &[u8]) -> Option<(usize, Member)> {
    if let Some((name, is_of)) = CLASSES.iter().find(|(name, _)| members.starts_with(name)) {
        return Some((name.len(), Member::Class(*is_of)));
    }
    match members {
        [low, b'-', high, ..] if *high != b']' => Some((3, Member::Range(*low..=*high))),
        [one, ..] => Some((1, Member::Range(*one..=*one))),
        [] => None,
    }
}

/// Whether a byte is of a class.
type IsOf = fn(&u8) -> bool;

/// The classes of POSIX, of ASCII.
const CLASSES: [(&[u8], IsOf); 12] = [
    (b"[:alnum:]", u8::is_ascii_alphanumeric),
    (b"[:alpha:]", u8::is_ascii_alphabetic),
    (b"[:blank:]", |byte| matches!(byte, b' ' | b'\t')),
    (b"[:cntrl:]", u8::is_ascii_control),
    (b"[:digit:]", u8::is_ascii_digit),
    (b"[:graph:]", u8::is_ascii_graphic),
    (b"[:lower:]", u8::is_ascii_lowercase),
    (b"[:print:]", |byte| (b' '..=b'~').contains(byte)),
    (b"[:punct:]", u8::is_ascii_punctuation),
    (b"[:space:]", |byte| matches!(byte, b' ' | b'\t'..=b'\r')),
    (b"[:upper:]", u8::is_ascii_uppercase),
    (b"[:xdigit:]", u8::is_ascii_hexdigit),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(patterns: &[&str], path: &str, is_directory: bool) -> bool {
        let mut all = Patterns::default();
        for pattern in patterns {
            all.add(pattern.as_bytes()).unwrap();
        }
        all.leave_out(path.as_bytes(), is_directory)
    }

    #[test]
    fn a_pattern_fits_as_rsync_has_it() {
        let cases = [
            ("*.o", "a/b/c.o", true),
            ("*.o", "a.o/c", false),
            ("foo", "a/foo", true),
            ("/foo", "foo", true),
            ("/foo", "a/foo", false),
            ("a/b", "x/a/b", true),
            ("a/b", "x/xa/b", false),
            ("/a/*/c", "a/b/c", true),
            ("/a/*/c", "a/b/b/c", false),
            ("/a/**/c", "a/b/b/c", true),
            ("a**c", "a/b/c", true),
            ("f?o", "f/o", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("*a*b*c", "xaxbxc", true),
            ("*a*b*c", "xaxbx", false),
            ("**/x*y/z", "p/q/xaay/z", true),
            ("**/foo", "foo", true),
            ("**/foo", "a/b/foo", true),
            ("**/foo", "a/xfoo", false),
            ("**foo", "a/xfoo", true),
            ("foo/***", "a/foo/b/c", true),
            ("foo/***", "a/foo", false),
            ("/foo/***", "a/foo/b", false),
            ("[[:digit:]_]x", "7x", true),
            ("[[:digit:]_]x", "_x", true),
            ("[[:digit:]_]x", "ax", false),
            ("[![:space:]]", "a", true),
            ("[]a]x", "]x", true),
            ("[a-]x", "-x", true),
            ("[a-]x", "bx", false),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(
                left_out(&[pattern], path, false),
                expected,
                "{pattern} {path}"
            );
        }
    }

    #[test]
    fn a_slash_at_the_end_is_for_directories() {
        assert!(left_out(&["build/"], "a/build", true));
        assert!(!left_out(&["build/"], "a/build", false));
        assert!(left_out(&["**/build/"], "build", true));
        assert!(left_out(&["build/***"], "a/build", true));
    }

    #[test]
    fn the_first_that_fits_decides() {
        let patterns = ["+ keep.o", "*.o"];
        assert!(!left_out(&patterns, "a/keep.o", false));
        assert!(left_out(&patterns, "a/b.o", false));
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = "*a".repeat(200);
        let text = "a".repeat(4000) + "b";
        assert!(!left_out(&[&pattern], &text, false));
    }
}
