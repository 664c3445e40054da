//! The objects of a path from a file that lists them.
//!
//! Where there is an inventory nobody needs to list. A manifest is a local file or an object, in one
//! of two forms:
//!
//! - **Text**: one key a line, as it is. Sizes are then unknown.
//! - **CSV**: commas between fields, double quotes around those that need them. The first line names
//!   the columns, or [`ManifestSettings::columns`] does: `key` (or `encoded_key`, percent-encoded),
//!   `size`, `mtime` (RFC 3339 in UTC, or seconds since 1970) and `etag`, in any order and under the
//!   names that inventories use; `is_latest` and `is_delete_marker` tell old versions; other columns
//!   are ignored. A file is taken for CSV when its first line has a column `key`.
//!
//! Keys may come in any order. Rows are gathered up to a bound, sorted ([`sorter`]) and written as
//! runs of the [`Spool`]; runs that follow one another are the result as they are, others
//! are merged ([`merge`]). The same row twice is one object; two different rows for one key are
//! an error, as is everything that cannot be understood: the message names the line.
//!
//! The volume needs sizes. For rows without one the store is asked, many at once ([`sizes`]), or the
//! manifest is refused. Rows without a tag give objects that are not pinned to a version.

mod columns;
mod csv;
mod fetch;
mod merge;
mod rows;
mod sizes;
mod sorter;
#[cfg(test)]
mod tests;

use std::{fs::File, io::BufReader, path::PathBuf, sync::Arc};

use penstock_base::MIB;
use penstock_object::{Key, Store};

use crate::{ListingProgress, SnapshotError, Spool, SpoolSource, spool::file_error};
use rows::Rows;
use sorter::Sorter;

/// HEAD requests under way at once if nobody says.
pub const HEAD_CONCURRENCY_DEFAULT: usize = 64;

/// The size of a row that has none; no object is that large.
const SIZE_UNKNOWN: u64 = u64::MAX;

/// Bytes that are read from the file at once.
const READ_SIZE: usize = 256 << 10;

/// Where a manifest is.
#[derive(Debug, Clone)]
pub enum ManifestLocation {
    /// A local file.
    File(PathBuf),
    /// An object, of whatever store.
    Object {
        /// Who has it.
        store: Arc<dyn Store>,
        /// Its key there.
        key: Key,
    },
}

/// What to do about rows without a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingSizes {
    /// Refuse the manifest.
    Refuse,
    /// Ask the store, with so many requests at once. Objects that are gone are left out.
    Ask(usize),
}

/// How to read a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestSettings {
    /// What keys of the manifest have before the keys of the volume; others are left out.
    pub prefix: String,
    /// The columns, with commas between them, of a CSV file that does not name them.
    pub columns: Option<String>,
    /// Whether all keys are percent-encoded, as in inventories of S3.
    pub percent_encoded: bool,
    /// What to do about rows without a size.
    pub missing_sizes: MissingSizes,
    /// Bytes of rows that are sorted at once.
    pub memory: u64,
}

impl Default for ManifestSettings {
    fn default() -> Self {
        Self {
            prefix: String::new(),
            columns: None,
            percent_encoded: false,
            missing_sizes: MissingSizes::Ask(HEAD_CONCURRENCY_DEFAULT),
            memory: 64 * MIB,
        }
    }
}

/// What a manifest came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ManifestSummary {
    /// Rows, without empty lines and the names of columns.
    pub rows: u64,
    /// Rows of other paths, of old versions and of deleted objects.
    pub left_out: u64,
    /// Rows that repeat another one.
    pub repeated: u64,
    /// Objects that the store was asked about and does not have.
    pub gone: u64,
}

/// Reads the manifest into `spool`, whatever was there before, and returns its objects in order.
/// `progress` counts them.
///
/// Fails when the manifest cannot be read or understood, when it names an object twice with
/// different descriptions, when the store refuses, and when the spool's disk fails.
pub async fn load_manifest(
    store: &Arc<dyn Store>,
    location: &ManifestLocation,
    spool: Spool,
    settings: &ManifestSettings,
    progress: &Arc<ListingProgress>,
) -> Result<(SpoolSource, ManifestSummary), SnapshotError> {
    progress.begin(0);
    spool.forget()?;
    let path = match location {
        ManifestLocation::File(path) => path.clone(),
        ManifestLocation::Object { store, key } => fetch::fetch(store, key, &spool).await?,
    };
    let file = File::open(&path).map_err(|error| file_error(&path, error))?;
    let rows = Rows::new(BufReader::with_capacity(READ_SIZE, file), settings)?;
    let mut loading = Loading {
        sorter: Sorter::new(&spool, settings.memory),
        summary: ManifestSummary::default(),
        outside: 0,
        unknown_sizes: false,
    };
    loading.read(rows, settings, progress).await?;
    loading.check_prefix(&settings.prefix)?;
    let Loading {
        sorter,
        mut summary,
        unknown_sizes,
        ..
    } = loading;
    let (runs, repeated) = sorter.finish()?;
    summary.repeated += repeated;
    match settings.missing_sizes {
        MissingSizes::Ask(concurrency) if unknown_sizes => {
            let asking = sizes::Asking::new(store, concurrency);
            merge::merge_asking(&spool, &runs, asking, &mut summary).await?;
        }
        _ => merge::merge(&spool, runs, &mut summary)?,
    }
    if matches!(location, ManifestLocation::Object { .. }) {
        fetch::remove(&spool)?;
    }
    Ok((spool.into_source()?, summary))
}

/// Rows on their way to being sorted.
struct Loading<'a> {
    sorter: Sorter<'a>,
    summary: ManifestSummary,
    /// Rows of other paths.
    outside: u64,
    unknown_sizes: bool,
}

impl Loading<'_> {
    /// Fails when all rows are of other paths, which is a mistake rather than an empty volume.
    fn check_prefix(&self, prefix: &str) -> Result<(), SnapshotError> {
        if self.outside == 0 || self.outside < self.summary.rows {
            return Ok(());
        }
        Err(SnapshotError::Invalid(format!(
            "none of the {} keys of the manifest begins with `{prefix}`: write them as they are in the bucket, or mount another path",
            self.summary.rows
        )))
    }

    async fn read(
        &mut self,
        mut rows: Rows<BufReader<File>>,
        settings: &ManifestSettings,
        progress: &ListingProgress,
    ) -> Result<(), SnapshotError> {
        /// Rows after which others get a turn, and a dropped future is noticed.
        const TURN: u64 = 10_000;
        while let Some(row) = rows.next_row()? {
            self.summary.rows += 1;
            if self.summary.rows.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
            let key = row.key.strip_prefix(settings.prefix.as_str());
            self.outside += u64::from(key.is_none());
            let Some(key) = key.filter(|key| !key.is_empty() && !row.is_old) else {
                self.summary.left_out += 1;
                continue;
            };
            if row.size.is_none() {
                self.unknown_sizes = true;
                if settings.missing_sizes == MissingSizes::Refuse {
                    return Err(SnapshotError::Invalid(format!(
                        "line {} of the manifest has no size: add a column `size`, or allow the store to be asked",
                        row.line
                    )));
                }
            }
            self.sorter.add(&row.object(key))?;
            progress.add_keys(1);
        }
        Ok(())
    }
}
