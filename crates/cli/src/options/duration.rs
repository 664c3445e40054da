//! Spans of time as people write them.

use std::time::Duration;

/// Units by descending length, in milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Reads `90s`, `1m30s`, `500ms`, `2h`, `1d`; a bare number is seconds.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (milliseconds, behind) = leading_part(rest)?;
        total = total.checked_add(milliseconds)?;
        rest = behind;
    }
    (!text.is_empty()).then_some(Duration::from_millis(total))
}

/// The first number and unit of `text` in milliseconds, and what follows them.
fn leading_part(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (unit, rest) = rest.split_at(letters);
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let milliseconds = number.parse::<u64>().ok()?.checked_mul(*factor)?;
    Some((milliseconds, rest))
}

/// Writes a duration the way [`parse`] reads it: `1m30s`. Less than a millisecond is dropped.
pub(crate) fn display(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, factor) in UNITS {
        if rest >= factor {
            text.push_str(&format!("{}{unit}", rest / factor));
            rest %= factor;
        }
    }
    if text.is_empty() {
        text.push_str("0s");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_usual_spellings() {
        for (text, milliseconds) in [
            ("0", 0),
            ("60", 60_000),
            ("90s", 90_000),
            ("1m0s", 60_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            ("1d", 86_400_000),
        ] {
            let expected = Some(Duration::from_millis(milliseconds));
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_span() {
        for text in ["", "s", "-1", "1.5s", "1x", "1 s", "99999999999999999999d"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_are_inverse(milliseconds in 0..u64::MAX / 2) {
            let duration = Duration::from_millis(milliseconds);
            prop_assert_eq!(parse(&display(duration)), Some(duration));
        }

        #[test]
        fn never_panics(text: String) {
            let _ = parse(&text);
        }
    }
}
