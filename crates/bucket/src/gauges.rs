//! What a volume shows of its state whenever an exporter asks.

use std::sync::Arc;

use penstock_base::metrics::{Definition, Registry, table};

use crate::{files::Files, inode::Tree, staged::StagedMode};

/// Registers the gauges of a volume, which show nothing once it is gone.
pub(crate) fn register(registry: &Registry, files: &Arc<Files>) {
    let gauge = |metric: &'static Definition, value: fn(&Files) -> u64| {
        let files = Arc::downgrade(files);
        registry.observe(metric, move || {
            files.upgrade().map_or(0, |files| value(&files))
        });
    };
    gauge(&table::BUCKET_INODES, |files| of_tree(files, Tree::len));
    gauge(&table::BUCKET_IDLE_DIRECTORIES, |files| {
        of_tree(files, Tree::idle)
    });
    gauge(&table::BUCKET_REMEMBERED_NAMES, |files| {
        of_tree(files, Tree::remembered)
    });
    gauge(&table::BUCKET_UNSAVED_FILES, |files| files.unsaved().files);
    gauge(&table::BUCKET_UNSAVED_BYTES, |files| files.unsaved().bytes);
    gauge(&table::BUCKET_OPEN_HANDLES, |files| files.ids.open() as u64);
    gauge(&table::BUCKET_STAGED_BYTES, |files| {
        of_mode(files, |mode| mode.staging().used())
    });
    gauge(&table::BUCKET_RECOVERING_FILES, |files| {
        of_mode(files, |mode| mode.left().files)
    });
    gauge(&table::BUCKET_RECOVERING_BYTES, |files| {
        of_mode(files, |mode| mode.left().bytes)
    });
    gauge(&table::BUCKET_RECOVERED_FILES, |files| {
        of_mode(files, StagedMode::recovered)
    });
}

fn of_tree(files: &Files, count: fn(&Tree) -> usize) -> u64 {
    count(&files.mount.namespace.lock()) as u64
}

fn of_mode(files: &Files, value: fn(&StagedMode) -> u64) -> u64 {
    let mode = files.mount.mode.staged();
    mode.map_or(0, |mode| value(mode))
}
