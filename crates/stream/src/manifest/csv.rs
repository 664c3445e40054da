//! Records of a CSV file, and lines of a text file.
//!
//! A field in double quotes may have commas, line ends and doubled quotes in it. What stands beside
//! quotes in a field is an error rather than a guess.

use std::io::BufRead;

use crate::SnapshotError;

/// Bytes in the longest record: the longest key with all its bytes encoded, and much beside it.
pub(super) const RECORD_MAX: usize = 64 << 10;

/// Reads records from front to back.
#[derive(Debug)]
pub(super) struct Records<R> {
    input: R,
    /// The present record as it stands in the file, without its end.
    raw: Vec<u8>,
    /// Its fields without quotes, back to back, and where each ends.
    text: Vec<u8>,
    ends: Vec<usize>,
    /// The line that the present record begins in, from 1, and the next one's.
    line: u64,
    next_line: u64,
}

impl<R: BufRead> Records<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            raw: Vec::new(),
            text: Vec::new(),
            ends: Vec::new(),
            line: 0,
            next_line: 1,
        }
    }

    /// The line that the present record begins in, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// The present record as text, if it is UTF-8.
    pub(super) fn raw(&self) -> Result<&str, SnapshotError> {
        std::str::from_utf8(&self.raw).map_err(|_| self.wrong("is not UTF-8"))
    }

    /// Moves to the next line that is not empty, which is a record of a text file; false at the
    /// end.
    pub(super) fn next_text(&mut self) -> Result<bool, SnapshotError> {
        loop {
            self.raw.clear();
            self.line = self.next_line;
            if !self.append_line()? {
                return Ok(false);
            }
            self.trim_end();
            if !self.raw.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Moves to the next record of a CSV file; false at the end.
    pub(super) fn next_record(&mut self) -> Result<bool, SnapshotError> {
        if !self.next_text()? {
            return Ok(false);
        }
        while self.is_open() {
            // The line end was in a field, too.
            self.raw.push(b'\n');
            if !self.append_line()? {
                return Err(self.wrong("begins a quoted field that does not end"));
            }
            self.trim_end();
        }
        self.split()?;
        Ok(true)
    }

    /// The fields of the present record.
    pub(super) fn fields(&self) -> usize {
        self.ends.len()
    }

    /// The field at `index`; empty where the record has fewer.
    pub(super) fn field(&self, index: usize) -> Result<&str, SnapshotError> {
        let Some(end) = self.ends.get(index) else {
            return Ok("");
        };
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        std::str::from_utf8(&self.text[start..*end]).map_err(|_| self.wrong("is not UTF-8"))
    }

    /// An error about the present record.
    pub(super) fn wrong(&self, what: &str) -> SnapshotError {
        SnapshotError::Invalid(format!("line {} of the manifest {what}", self.line))
    }

    /// Appends a line to the present record; false at the end of the file.
    fn append_line(&mut self) -> Result<bool, SnapshotError> {
        let failed = |source| SnapshotError::File {
            path: "the manifest".to_owned(),
            source,
        };
        let room = RECORD_MAX + 1 - self.raw.len().min(RECORD_MAX);
        let mut limited = std::io::Read::take(&mut self.input, room as u64);
        let count = limited.read_until(b'\n', &mut self.raw).map_err(failed)?;
        if self.raw.len() > RECORD_MAX {
            return Err(self.wrong("is too long: is it text, and not compressed?"));
        }
        self.next_line += u64::from(count > 0);
        Ok(count > 0)
    }

    fn trim_end(&mut self) {
        if self.raw.last() == Some(&b'\n') {
            self.raw.pop();
            if self.raw.last() == Some(&b'\r') {
                self.raw.pop();
            }
        }
    }

    /// Whether a quoted field of the present record has not ended: each quote opens or closes one.
    fn is_open(&self) -> bool {
        let quotes = self.raw.iter().filter(|byte| **byte == b'"');
        quotes.count() % 2 == 1
    }

    fn split(&mut self) -> Result<(), SnapshotError> {
        self.text.clear();
        self.ends.clear();
        let mut rest = self.raw.as_slice();
        loop {
            let after = match rest.strip_prefix(b"\"") {
                Some(quoted) => unquote(quoted, &mut self.text),
                None => plain(rest, &mut self.text),
            };
            let after = after.ok_or_else(|| self.wrong("has a quote where none can be"))?;
            self.ends.push(self.text.len());
            match after.split_first() {
                None => return Ok(()),
                Some((_, next)) => rest = next,
            }
        }
    }
}

/// Copies a field without quotes; returns what follows, which is nothing or begins with a comma.
fn plain<'a>(rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    let end = rest.iter().position(|byte| *byte == b',');
    let (field, after) = rest.split_at(end.unwrap_or(rest.len()));
    text.extend_from_slice(field);
    (!field.contains(&b'"')).then_some(after)
}

/// The same of a field whose opening quote was taken off.
fn unquote<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let end = rest.iter().position(|byte| *byte == b'"')?;
        text.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.first() {
            Some(b'"') => {
                text.push(b'"');
                rest = &rest[1..];
            }
            None | Some(b',') => return Some(rest),
            Some(_) => return None,
        }
    }
}
