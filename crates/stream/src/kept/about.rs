//! What is written down about a kept image, for people and for the next mount.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use penstock_base::{clock, random};
use serde::{Deserialize, Serialize};

use super::folder;
use crate::private;

pub(super) const ABOUT: &str = "about.json";

/// What an image shows, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AboutImage {
    /// The path that was listed.
    pub source: String,
    /// What else the image depends on.
    pub variant: String,
    /// The digest of the listing.
    pub listing: String,
    /// When the bucket was last found to be like this, in seconds since 1970.
    pub listed_at: u64,
}

impl AboutImage {
    /// Time since the bucket was found to be like this.
    pub fn age(&self) -> Duration {
        let now = seconds(clock::wall_time());
        Duration::from_secs(now.saturating_sub(self.listed_at))
    }

    pub(super) fn is_in(folder: &Path) -> bool {
        folder.join(ABOUT).exists()
    }

    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let text = fs::read(folder.join(ABOUT))?;
        serde_json::from_slice(&text).map_err(io::Error::other)
    }

    /// Replaces what is written in `folder`, whole and durably.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        let new = folder.join(format!(".about-{:016x}", random::number()));
        let mut file = private::create_new(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, folder.join(ABOUT))?;
        folder::sync(folder)
    }
}

pub(super) fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map(|since| since.as_secs()).unwrap_or_default()
}
