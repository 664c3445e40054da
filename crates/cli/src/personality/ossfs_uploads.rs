//! The utility mode of ossfs 1.91: unfinished uploads, by `penstock uploads`.

use std::time::Duration;

use super::collector::Collector;
use crate::{
    command_line,
    commands::uploads::{self, Request},
    environment::Environment,
    failure::{Failure, Outcome},
};

/// Younger uploads may belong to somebody who is still at it.
const AGE_DEFAULT: Duration = Duration::from_secs(24 * 3600);

/// What is to be done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    List,
    /// Remove those that are at least this old.
    Abort(Duration),
}

impl Wanted {
    /// What stands behind `--incomplete-mpu-abort`: nothing, `=all` or an age.
    pub(super) fn abort(text: &str) -> Outcome<Self> {
        let age = match text.strip_prefix('=') {
            None if text.is_empty() => Some(AGE_DEFAULT),
            None => None,
            Some("all" | "ALL") => Some(Duration::ZERO),
            Some(age) => parse_age(age),
        };
        age.map(Self::Abort).ok_or_else(|| {
            Failure::usage(
                format!("`--incomplete-mpu-abort{text}` is not understood"),
                "write it alone, with =all, or with an age such as =1Y6M10D12h30m30s",
            )
        })
    }
}

/// Reads `1Y6M10D12h30m30s`, each unit at most once and the larger ones first. A month has 30 days.
fn parse_age(text: &str) -> Option<Duration> {
    const DAY: u64 = 24 * 3600;
    let units = [
        ('Y', 365 * DAY),
        ('M', 30 * DAY),
        ('D', DAY),
        ('h', 3600),
        ('m', 60),
        ('s', 1),
    ];
    let (mut units, mut rest, mut age) = (units.iter(), text, 0_u64);
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let (digits, letters) = rest.split_at(end);
        let letter = letters.chars().next()?;
        let (_, seconds) = units.find(|(unit, _)| *unit == letter)?;
        let count: u64 = digits.parse().ok()?;
        age = age.checked_add(count.checked_mul(*seconds)?)?;
        rest = &letters[letter.len_utf8()..];
    }
    (!text.is_empty()).then_some(Duration::from_secs(age))
}

/// Lists or removes the unfinished uploads of `source`.
pub(super) fn perform(
    wanted: Wanted,
    source: String,
    collector: Collector,
    environment: &Environment,
) -> Outcome {
    let values = command_line::collect(collector.finish(), Some(&source), environment)?;
    let (abort, older_than) = match wanted {
        Wanted::List => (false, Duration::ZERO),
        Wanted::Abort(age) => (true, age),
    };
    let request = Request {
        source,
        abort,
        older_than,
        as_json: false,
    };
    uploads::perform(&request, &values, environment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ages_are_read_as_the_program_writes_them() {
        let seconds = |text| parse_age(text).map(|age| age.as_secs());
        assert_eq!(seconds("30s"), Some(30));
        assert_eq!(seconds("1D12h"), Some(36 * 3600));
        let all = 365 * 86400 + 180 * 86400 + 10 * 86400 + 12 * 3600 + 30 * 60 + 30;
        assert_eq!(seconds("1Y6M10D12h30m30s"), Some(all));
        for wrong in ["", "5", "h", "1s1h", "1h1h", "1x", "99999999999999Y"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_to_remove_is_all_an_age_or_a_day() {
        let wanted = |text| Wanted::abort(text).ok();
        assert_eq!(wanted(""), Some(Wanted::Abort(AGE_DEFAULT)));
        assert_eq!(wanted("=all"), Some(Wanted::Abort(Duration::ZERO)));
        assert_eq!(wanted("=1m"), Some(Wanted::Abort(Duration::from_secs(60))));
        assert_eq!(wanted("=soon"), None);
        assert_eq!(wanted("ed"), None);
    }

    proptest! {
        #[test]
        fn never_panics(text: String) {
            let _ = Wanted::abort(&text);
        }
    }
}
