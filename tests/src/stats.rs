//! What `penstock stats` says of a mount, or the test fails.

use std::path::Path;

use serde_json::Value;

use crate::{Mount, Patience, penstock, run_within};

const PATIENCE: Patience = Patience::seconds(60);

/// All that it says of what is mounted at `place`.
#[track_caller]
pub fn stats(place: &Path) -> Value {
    let mut stats = penstock();
    stats.args(["stats", "--json"]).arg(place);
    let told = run_within(PATIENCE, &mut stats).expect_success().stdout;
    serde_json::from_str(&told).expect("JSON")
}

/// The sum of the metrics that are called `name` and whose labels contain `label`.
#[track_caller]
pub fn metric(mount: &Mount, name: &str, label: &str) -> u64 {
    metric_at(mount.path(), name, label)
}

/// The same of what is mounted at `place`.
#[track_caller]
pub fn metric_at(place: &Path, name: &str, label: &str) -> u64 {
    let stats = stats(place);
    let metrics = stats["metrics"].as_array().expect("a list");
    let named = metrics
        .iter()
        .filter(|metric| metric["name"] == name && metric["labels"].to_string().contains(label));
    named.filter_map(|metric| metric["value"].as_u64()).sum()
}
