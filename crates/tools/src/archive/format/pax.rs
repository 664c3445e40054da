//! Records that extend a header: `LENGTH KEY=VALUE`, one a line.

use std::collections::BTreeMap;

/// A record: key and value.
pub(super) type Record = (Vec<u8>, Vec<u8>);

/// Records for all members that follow: of each key the last one.
#[derive(Debug, Default)]
pub(super) struct Global(BTreeMap<Vec<u8>, Vec<u8>>);

impl Global {
    /// Takes more of them. Without a value one ends what was said before. Says whether they are held: not beyond `size_max` bytes.
    pub(super) fn take(&mut self, records: Vec<Record>, size_max: usize) -> bool {
        let size = |(key, value): (&Vec<u8>, &Vec<u8>)| key.len() + value.len();
        let added = records.iter().map(|(key, value)| size((key, value)));
        if self.0.iter().map(size).chain(added).sum::<usize>() > size_max {
            return false;
        }
        for (key, value) in records {
            match value.is_empty() {
                true => self.0.remove(&key),
                false => self.0.insert(key, value),
            };
        }
        true
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
        self.0.iter()
    }
}

/// The records in `body`; none if it is damaged.
pub(super) fn parse(mut body: &[u8]) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    while !body.is_empty() && body[0] != 0 {
        let blank = body.iter().take(20).position(|byte| *byte == b' ')?;
        let length: usize = std::str::from_utf8(&body[..blank]).ok()?.parse().ok()?;
        if length <= blank + 2 || length > body.len() || body[length - 1] != b'\n' {
            return None;
        }
        let text = &body[blank + 1..length - 1];
        let sign = text.iter().position(|byte| *byte == b'=')?;
        records.push((text[..sign].to_vec(), text[sign + 1..].to_vec()));
        body = &body[length..];
    }
    Some(records)
}

/// Adds a record to `body`.
pub(super) fn add(body: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // The length counts its own digits.
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    body.extend(format!("{length} ").bytes());
    body.extend_from_slice(key);
    body.push(b'=');
    body.extend_from_slice(value);
    body.push(b'\n');
}

/// A whole number.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A time such as `-1.5`, in seconds and nanoseconds.
pub(super) fn time(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_negative = whole.starts_with('-');
    let seconds: i64 = if whole == "-" { 0 } else { whole.parse().ok()? };
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    match (is_negative, nanoseconds) {
        (true, 1..) => Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds)),
        _ => Some((seconds, nanoseconds)),
    }
}

/// A time in words.
pub(super) fn time_text((seconds, nanoseconds): (i64, u32)) -> String {
    match (seconds, nanoseconds) {
        (seconds, 0) => seconds.to_string(),
        (seconds @ 0.., nanoseconds) => format!("{seconds}.{nanoseconds:09}"),
        (seconds, nanoseconds) => {
            format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanoseconds)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_every_length_come_back() {
        for length in 0..1200 {
            let mut body = Vec::new();
            let value = vec![b'\n'; length];
            add(&mut body, b"path", &value);
            add(&mut body, b"x", b"=");
            let expected = vec![(b"path".to_vec(), value), (b"x".to_vec(), b"=".to_vec())];
            assert_eq!(parse(&body), Some(expected));
        }
        for damaged in ["5 a", "x a=b\n", "99 a=b\n", "6 ab\n\n", "0 a=b\n", "3 =\n"] {
            assert_eq!(parse(damaged.as_bytes()), None, "{damaged}");
        }
    }

    #[test]
    fn times_come_back() {
        for when in [
            (0, 0),
            (5, 1),
            (-1, 0),
            (-1, 500_000_000),
            (-7, 1),
            (1 << 40, 999_999_999),
        ] {
            assert_eq!(time(time_text(when).as_bytes()), Some(when));
        }
        assert_eq!(time(b"1.5"), Some((1, 500_000_000)));
        assert_eq!(time(b"-0.25"), Some((-1, 750_000_000)));
        assert_eq!(time(b"x"), None);
    }
}
