//! What a volume shows of its state whenever an exporter asks.

use std::sync::Arc;

use penstock_base::metrics::Registry;

use crate::{files::Files, inode::Tree, staged::StagedMode};

/// Registers the gauges of a volume, which show nothing once it is gone.
pub(crate) fn register(registry: &Registry, files: &Arc<Files>) {
    let gauge = |name, help, value: fn(&Files) -> u64| {
        let files = Arc::downgrade(files);
        registry.observe(name, help, move || {
            files.upgrade().map_or(0, |files| value(&files))
        });
    };
    gauge(
        "bucket_inodes",
        "Files and directories that somebody holds.",
        |files| of_tree(files, Tree::len),
    );
    gauge(
        "bucket_idle_directories",
        "Directories that nobody holds and that stay for what they remember.",
        |files| of_tree(files, Tree::idle),
    );
    gauge(
        "bucket_remembered_names",
        "Names remembered though nobody holds them.",
        |files| of_tree(files, Tree::remembered),
    );
    gauge(
        "bucket_unsaved_files",
        "Open files whose content is not in the store yet.",
        |files| files.unsaved().files,
    );
    gauge(
        "bucket_unsaved_bytes",
        "Bytes of open files whose content is not in the store yet.",
        |files| files.unsaved().bytes,
    );
    gauge(
        "bucket_open_handles",
        "Open files and directories.",
        |files| files.ids.open() as u64,
    );
    gauge(
        "bucket_staged_bytes",
        "Bytes in the staging directory.",
        |files| of_mode(files, |mode| mode.staging().used()),
    );
    gauge(
        "bucket_recovering_files",
        "Files that an earlier mount left unsaved and that are not saved yet.",
        |files| of_mode(files, |mode| mode.left().files),
    );
    gauge(
        "bucket_recovering_bytes",
        "Bytes of these files that the store lacks.",
        |files| of_mode(files, |mode| mode.left().bytes),
    );
    gauge(
        "bucket_recovered_files",
        "Files that an earlier mount left unsaved and this one saved.",
        |files| of_mode(files, StagedMode::recovered),
    );
}

fn of_tree(files: &Files, count: fn(&Tree) -> usize) -> u64 {
    count(&files.mount.namespace.lock()) as u64
}

fn of_mode(files: &Files, value: fn(&StagedMode) -> u64) -> u64 {
    let mode = files.mount.mode.staged();
    mode.map_or(0, |mode| value(mode))
}
