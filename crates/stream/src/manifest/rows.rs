//! Rows of a manifest and what they say.

use std::{io::BufRead, mem};

use penstock_object::{FlatTime, parse_time};

use super::{ManifestSettings, SIZE_UNKNOWN, columns::Columns, csv::Records};
use crate::{SPOOLED_KEY_MAX, SnapshotError, SnapshotObject, Timestamp};

/// What files begin with that `gzip` made.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// What some programs put before UTF-8.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Reads rows from front to back.
#[derive(Debug)]
pub(super) struct Rows<R> {
    records: Records<R>,
    /// `None` for a text file.
    columns: Option<Columns>,
    percent_encoded: bool,
    /// Whether the present record, which is the first, is a row that was not read yet.
    pending: bool,
    row: Row,
}

/// A row.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) line: u64,
    pub(super) key: String,
    pub(super) size: Option<u64>,
    pub(super) modified: Timestamp,
    pub(super) etag: String,
    /// Whether it is of an old version or a deleted object.
    pub(super) is_old: bool,
}

impl Row {
    /// The object, under the key that it has in the volume.
    pub(super) fn object<'a>(&'a self, key: &'a str) -> SnapshotObject<'a> {
        SnapshotObject {
            key: key.as_bytes(),
            size: self.size.unwrap_or(SIZE_UNKNOWN),
            modified: self.modified,
            etag: &self.etag,
            target: "",
        }
    }
}

impl<R: BufRead> Rows<R> {
    /// Looks at the first line to tell what the file is.
    pub(super) fn new(mut input: R, settings: &ManifestSettings) -> Result<Self, SnapshotError> {
        let first = input.fill_buf().map_err(|source| SnapshotError::File {
            path: "the manifest".to_owned(),
            source,
        })?;
        if first.starts_with(GZIP) {
            let message = "the manifest is compressed: unpack it with gunzip first";
            return Err(SnapshotError::Invalid(message.to_owned()));
        }
        if first.starts_with(BYTE_ORDER_MARK.as_bytes()) {
            input.consume(BYTE_ORDER_MARK.len());
        }
        let mut rows = Self {
            records: Records::new(input),
            columns: None,
            percent_encoded: settings.percent_encoded,
            pending: false,
            row: Row::default(),
        };
        match &settings.columns {
            Some(names) => rows.columns = Some(named(names)?),
            None => rows.look_at_first()?,
        }
        Ok(rows)
    }

    /// The next row; `None` at the end.
    pub(super) fn next_row(&mut self) -> Result<Option<&Row>, SnapshotError> {
        let there = match self.columns {
            _ if mem::take(&mut self.pending) => true,
            Some(_) => self.records.next_record()?,
            None => self.records.next_text()?,
        };
        if !there {
            return Ok(None);
        }
        let mut row = mem::take(&mut self.row);
        self.read(&mut row)?;
        self.row = row;
        Ok(Some(&self.row))
    }

    fn look_at_first(&mut self) -> Result<(), SnapshotError> {
        if !self.records.next_text()? {
            return Ok(());
        }
        let first = self.records.raw()?;
        self.columns = Columns::of(first.split(','));
        self.pending = self.columns.is_none();
        if self.pending && first.starts_with('"') {
            return Err(self.records.wrong(
                "looks like CSV, but no column is named `key`: name the columns in a first line or in the options",
            ));
        }
        Ok(())
    }

    fn read(&mut self, row: &mut Row) -> Result<(), SnapshotError> {
        let records = &self.records;
        row.line = records.line();
        match &self.columns {
            Some(columns) => read_fields(records, columns, row)?,
            None => records.raw()?.clone_into(&mut row.key),
        }
        let encoded = self.columns.is_some_and(|columns| columns.encoded);
        if encoded || self.percent_encoded {
            let decoded = percent_decoded(&row.key);
            row.key =
                decoded.ok_or_else(|| records.wrong("has a key that is not percent-encoded"))?;
        }
        match row.key.len() {
            0 => Err(records.wrong("has no key")),
            length if length > SPOOLED_KEY_MAX => {
                Err(records.wrong("has a key that is longer than any store allows"))
            }
            _ => Ok(()),
        }
    }
}

fn named(names: &str) -> Result<Columns, SnapshotError> {
    Columns::of(names.split(',')).ok_or_else(|| {
        SnapshotError::Invalid(format!(
            "the columns `{names}` of the manifest must have one `key`"
        ))
    })
}

fn read_fields<R: BufRead>(
    records: &Records<R>,
    columns: &Columns,
    row: &mut Row,
) -> Result<(), SnapshotError> {
    let field = |column: Option<usize>| match column {
        Some(column) => records.field(column).map(str::trim),
        None => Ok(""),
    };
    if records.fields() <= columns.key {
        return Err(records.wrong("has too few fields"));
    }
    records.field(columns.key)?.clone_into(&mut row.key);
    let size = field(columns.size)?;
    row.size = match size {
        "" => None,
        digits => {
            let number = digits.parse().ok().filter(|size| *size != SIZE_UNKNOWN);
            let wrong =
                || records.wrong(&format!("has the size `{digits:.40}`, which is no number"));
            Some(number.ok_or_else(wrong)?)
        }
    };
    let modified = field(columns.modified)?;
    let wrong = || records.wrong(&format!("has the time `{modified:.40}`, which is none"));
    row.modified = time(modified).ok_or_else(wrong)?;
    row.etag.clear();
    row.etag.push_str(field(columns.etag)?.trim_matches('"'));
    let is = |column, value: &str| field(column).map(|text| text.eq_ignore_ascii_case(value));
    row.is_old = is(columns.latest, "false")? || is(columns.delete_marker, "true")?;
    Ok(())
}

/// RFC 3339 in UTC, or seconds since 1970; nothing is 1970.
fn time(text: &str) -> Option<Timestamp> {
    if text.is_empty() {
        return Some(Timestamp::default());
    }
    if let Some(time) = parse_time(text) {
        let time = FlatTime::from(time);
        return Some(Timestamp {
            seconds: time.seconds,
            nanoseconds: time.nanoseconds,
        });
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(fraction) || !is_number(whole) {
        return None;
    }
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    Some(Timestamp {
        seconds: whole.parse().ok()?,
        nanoseconds: digits.parse().ok()?,
    })
}

/// Takes percent-encoding off; `+` is a space, as forms and inventories have it.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}
