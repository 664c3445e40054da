//! What is said of the trash of a fileset.

use serde::{Deserialize, Serialize};

/// What is to be done with the trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum TrashOrder {
    /// It is told how it is: [`TrashAnswer::State`].
    Show,
    /// Removed files stay for so many days, or with 0 do not come there; then as above.
    Set {
        /// Days.
        days: u32,
    },
    /// Some files are told: [`TrashAnswer::Items`].
    List {
        /// Those behind this [`TrashItem::entry`].
        after: Option<String>,
    },
    /// A file is brought back: [`TrashAnswer::Restored`].
    Restore {
        /// Its [`TrashItem::entry`].
        entry: String,
        /// Where it goes, if not where it was.
        target: Option<String>,
    },
    /// Some files are removed for good: [`TrashAnswer::Purged`].
    Purge {
        /// Only those that came there in hours that were over so many seconds ago.
        older: Option<u64>,
    },
}

/// What is told of the trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum TrashAnswer {
    /// How it is.
    State {
        /// For how many days files stay; 0 if none come there.
        days: u32,
        /// Files in it.
        files: u64,
        /// Bytes that they occupy.
        bytes: u64,
    },
    /// Some files; none if there are no more.
    Items {
        /// These.
        items: Vec<TrashItem>,
    },
    /// The file is back.
    Restored {
        /// Where.
        path: String,
    },
    /// Files were removed.
    Purged {
        /// How many.
        files: u64,
        /// There are more to be removed.
        more: bool,
    },
}

/// A file in the trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrashItem {
    /// Where it lies below the trash.
    pub entry: String,
    /// Where it was, if its directory is still there.
    pub path: Option<String>,
    /// When it was removed, in seconds of Unix time.
    pub removed: u64,
    /// Its size.
    pub bytes: u64,
}
