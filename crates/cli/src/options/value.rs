//! What an option can hold, how its text is read, and in which range it makes sense.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use penstock_base::{ByteSize, Secret};

use super::duration;

/// What an option holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// On or off.
    Flag,
    /// Bytes.
    Size { min: u64, max: u64 },
    /// A span of time.
    Duration { min: Duration, max: Duration },
    /// On, off, or a span of time.
    FlagOrDuration { min: Duration, max: Duration },
    /// A plain number.
    Count { min: u64, max: u64 },
    /// Permission bits in octal.
    Mode,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// One of a few words, of which on stands for the first and off for the last.
    FlagOrChoice(&'static [&'static str]),
    /// An address and port to listen on.
    Address,
    /// A file. A relative path is meant from where the command runs.
    Path,
    /// A file, or a URL, which is text.
    FileOrUrl,
    /// Any text; the word stands for it in help.
    Text(&'static str),
    /// A credential. Never printed, and refused where other users could see it.
    Secret,
}

/// What an option was set to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Flag(bool),
    Size(u64),
    Duration(Duration),
    Count(u64),
    Mode(u16),
    Choice(&'static str),
    Address(SocketAddr),
    Path(PathBuf),
    Text(String),
    Secret(Secret),
}

/// Permission bits that a mount can show for everything in it.
const MODE_MAX: u16 = 0o777;

impl Kind {
    /// Reads `text`. Fails with what would have been right, to follow "it must be".
    pub(crate) fn parse(self, text: &str) -> Result<Value, String> {
        let value = match self {
            Self::Flag => parse_flag(text).map(Value::Flag),
            Self::Size { min, max } => within(parse_size(text), min, max).map(Value::Size),
            Self::Duration { min, max } => {
                within(duration::parse(text), min, max).map(Value::Duration)
            }
            Self::FlagOrDuration { min, max } => match parse_flag(text) {
                Some(flag) => Some(Value::Flag(flag)),
                None => within(duration::parse(text), min, max).map(Value::Duration),
            },
            Self::Count { min, max } => {
                within(text.trim().parse().ok(), min, max).map(Value::Count)
            }
            Self::Mode => parse_mode(text).map(Value::Mode),
            Self::Choice(words) => {
                let word = words.iter().find(|word| word.eq_ignore_ascii_case(text));
                word.copied().map(Value::Choice)
            }
            Self::FlagOrChoice(words) => match parse_flag(text) {
                Some(true) => words.first().copied().map(Value::Choice),
                Some(false) => words.last().copied().map(Value::Choice),
                None => return Self::Choice(words).parse(text),
            },
            Self::Address => text.parse().ok().map(Value::Address),
            Self::FileOrUrl if text.contains("://") => Some(Value::Text(text.to_owned())),
            Self::Path | Self::FileOrUrl => std::path::absolute(text).ok().map(Value::Path),
            Self::Text(_) => (!text.is_empty()).then(|| Value::Text(text.to_owned())),
            Self::Secret => (!text.is_empty()).then(|| Value::Secret(Secret::new(text))),
        };
        value.ok_or_else(|| self.valid())
    }

    /// What is valid, in words, with examples.
    pub(crate) fn valid(self) -> String {
        match self {
            Self::Duration { .. } => format!("{}, such as 30s, 5m or 500ms", self.range()),
            Self::FlagOrDuration { .. } => format!("{}, such as 5m, 1h or 7d", self.range()),
            _ => self.range(),
        }
    }

    /// What is valid, in words.
    pub(crate) fn range(self) -> String {
        match self {
            Self::Flag => "on or off".to_owned(),
            Self::Size { min, max } => {
                format!("a size from {} to {}", ByteSize(min), ByteSize(max))
            }
            Self::Duration { min, max } => format!(
                "a duration from {} to {}",
                duration::display(min),
                duration::display(max)
            ),
            Self::FlagOrDuration { min, max } => format!(
                "on, off, or a duration from {} to {}",
                duration::display(min),
                duration::display(max)
            ),
            Self::Count { min, max } => format!("a whole number from {min} to {max}"),
            Self::Mode => format!("octal permissions from 0 to {MODE_MAX:o}"),
            Self::Choice(words) | Self::FlagOrChoice(words) => {
                format!("one of {}", words.join(", "))
            }
            Self::Address => "an address and port, such as 127.0.0.1:9400".to_owned(),
            Self::Path => "the path of a file".to_owned(),
            Self::FileOrUrl => "the path of a file, or a URL".to_owned(),
            Self::Text(_) | Self::Secret => "some text".to_owned(),
        }
    }

    /// The word that stands for the value in help.
    pub(crate) fn placeholder(self) -> String {
        match self {
            Self::Flag => "on|off".to_owned(),
            Self::Size { .. } => "SIZE".to_owned(),
            Self::Duration { .. } => "DURATION".to_owned(),
            Self::FlagOrDuration { .. } => "on|off|DURATION".to_owned(),
            Self::Count { .. } => "NUMBER".to_owned(),
            Self::Mode => "MODE".to_owned(),
            Self::Choice(words) | Self::FlagOrChoice(words) => words.join("|"),
            Self::Address => "ADDRESS:PORT".to_owned(),
            Self::Path => "FILE".to_owned(),
            Self::FileOrUrl => "FILE|URL".to_owned(),
            Self::Text(word) => word.to_owned(),
            Self::Secret => "SECRET".to_owned(),
        }
    }
}

fn within<T: PartialOrd + Copy>(value: Option<T>, min: T, max: T) -> Option<T> {
    value.filter(|value| *value >= min && *value <= max)
}

fn parse_size(text: &str) -> Option<u64> {
    text.parse::<ByteSize>().ok().map(|size| size.0)
}

/// Reads on and off in the spellings that configuration files use.
pub(crate) fn parse_flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

fn parse_mode(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    within(u16::from_str_radix(digits, 8).ok(), 0, MODE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Kind; 13] = [
        Kind::Flag,
        Kind::Size { min: 10, max: 4096 },
        Kind::Duration {
            min: Duration::from_secs(1),
            max: Duration::from_secs(60),
        },
        Kind::Count { min: 1, max: 9 },
        Kind::Mode,
        Kind::Choice(&["auto", "path"]),
        Kind::Address,
        Kind::Text("NAME"),
        Kind::Secret,
        Kind::Path,
        Kind::FlagOrDuration {
            min: Duration::from_secs(1),
            max: Duration::from_secs(60),
        },
        Kind::FileOrUrl,
        Kind::FlagOrChoice(&["all", "some", "off"]),
    ];

    #[test]
    fn reads_each_kind() {
        let cases = [
            (Kind::Flag, "off", Value::Flag(false)),
            (ALL[1], "4KiB", Value::Size(4096)),
            (ALL[2], "1m", Value::Duration(Duration::from_secs(60))),
            (ALL[3], "9", Value::Count(9)),
            (Kind::Mode, "0755", Value::Mode(0o755)),
            (ALL[5], "PATH", Value::Choice("path")),
            (ALL[10], "on", Value::Flag(true)),
            (ALL[10], "1m", Value::Duration(Duration::from_secs(60))),
            (ALL[12], "on", Value::Choice("all")),
            (ALL[12], "Some", Value::Choice("some")),
            (ALL[12], "false", Value::Choice("off")),
            (ALL[11], "/a/b", Value::Path("/a/b".into())),
            (ALL[11], "s3://a/b", Value::Text("s3://a/b".to_owned())),
        ];
        for (kind, text, value) in cases {
            assert_eq!(kind.parse(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn names_the_range_when_a_value_is_outside() {
        for (kind, text) in [
            (ALL[1], "9"),
            (ALL[1], "5KiB"),
            (ALL[2], "61s"),
            (ALL[3], "0"),
            (ALL[3], "-1"),
            (Kind::Mode, "0888"),
            (Kind::Mode, "+77"),
            (Kind::Mode, "1777"),
            (ALL[5], "host"),
            (ALL[10], "2m"),
            (ALL[10], "soon"),
            (Kind::Flag, "maybe"),
            (ALL[12], "none"),
            (Kind::Address, "localhost"),
            (Kind::Secret, ""),
        ] {
            assert_eq!(kind.parse(text), Err(kind.valid()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text: String) {
            for kind in ALL {
                let _ = kind.parse(&text);
            }
        }
    }
}
