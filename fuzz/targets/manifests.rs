//! Manifests as somebody may write them: whatever the bytes, they become objects in the order of
//! their keys, or an error that says what to do.

#![no_main]

use std::{fs, path::Path, sync::Arc};

use libfuzzer_sys::fuzz_target;
use penstock_object::Store;
use penstock_object_testing::MemoryStore;
use penstock_stream::{
    ListingProgress, ManifestLocation, ManifestSettings, MissingSizes, ObjectSource, SnapshotError,
    Spool, SpoolSettings, load_manifest,
};

/// Bytes of rows that are sorted at once: few, so that fuzzing reaches the merging of runs, too.
const MEMORY: u64 = 300;

fuzz_target!(|bytes: &[u8]| {
    let Some((form, text)) = bytes.split_first() else {
        return;
    };
    let settings = ManifestSettings {
        prefix: if form & 1 == 0 { "" } else { "a/" }.to_owned(),
        columns: (form & 2 != 0).then(|| "size,key,mtime,etag".to_owned()),
        percent_encoded: form & 4 != 0,
        missing_sizes: match form & 8 {
            0 => MissingSizes::Refuse,
            _ => MissingSizes::Ask(4),
        },
        memory: MEMORY,
    };
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    match runtime.block_on(load(folder.path(), text, &settings)) {
        Ok(()) | Err(SnapshotError::Store(_)) => {}
        Err(error) => assert!(error.to_string().contains(' '), "{error}"),
    }
});

async fn load(folder: &Path, text: &[u8], settings: &ManifestSettings) -> Result<(), SnapshotError> {
    let path = folder.join("manifest");
    fs::write(&path, text).expect("written");
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let spool = Spool::open(&SpoolSettings::new(folder.join("spool"), "fuzz"))?;
    let progress = Arc::new(ListingProgress::default());
    let location = ManifestLocation::File(path);
    let (mut source, summary) =
        load_manifest(&store, &location, spool, settings, &progress).await?;
    let (mut last, mut objects) = (Vec::new(), 0);
    while let Some(object) = source.next_object()? {
        assert!(object.key > last.as_slice() && !object.key.is_empty());
        last = object.key.to_vec();
        objects += 1;
    }
    let others = summary.left_out + summary.repeated + summary.gone;
    assert_eq!(summary.rows, objects + others);
    Ok(())
}
