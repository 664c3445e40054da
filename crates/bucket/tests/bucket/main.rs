//! What a bucket volume does, seen through the `Volume` trait, over a bucket in memory.
//!
//! Requests are counted exactly: what an operation costs is part of its meaning. The clock is
//! tokio's and paused, so expiry is tested without waiting.

#![allow(clippy::unwrap_used)]

mod support;

mod appending;
mod attributes;
mod behind;
mod described_behind;
mod fsync_journal;
mod learning;
mod listing;
mod listing_ranges;
mod lookup;
mod lost_answers;
mod metadata;
mod model;
mod names;
mod names_behind;
mod overlapping;
mod pressure;
mod reading;
mod recovery;
mod rename_directory;
mod rename_file;
mod rename_refused;
mod saving;
mod staged;
mod stress;
mod symlinks;
mod two_clients_behind;
mod volume;
mod writing;
