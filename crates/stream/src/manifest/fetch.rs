//! A manifest that is an object, brought here.

use std::{io::Write, path::PathBuf, sync::Arc};

use penstock_object::{GetOptions, HeadOptions, Key, Store};

use crate::{SnapshotError, Spool, private, spool::file_error};

/// Bytes of the object that are read at once.
const PIECE: u64 = 8 << 20;

/// Name of the copy.
const COPY: &str = "manifest";

/// Copies the object, one version of it, into the spool's directory.
pub(super) async fn fetch(
    store: &Arc<dyn Store>,
    key: &Key,
    spool: &Spool,
) -> Result<PathBuf, SnapshotError> {
    let path = spool.scratch(COPY);
    let failed = |error| file_error(&path, error);
    let mut file = private::create(&path).map_err(failed)?;
    let info = store.head(key, HeadOptions::default()).await?;
    let mut at = 0;
    while at < info.size {
        let options = GetOptions {
            range: Some(at..info.size.min(at + PIECE)),
            if_match: Some(info.etag.clone()),
            ..GetOptions::default()
        };
        let mut piece = Vec::new();
        store.get(key, options, &mut piece).await?;
        if piece.is_empty() {
            let message = format!("the manifest `{key}` ended early: try again");
            return Err(SnapshotError::Invalid(message));
        }
        file.write_all(&piece).map_err(failed)?;
        at += piece.len() as u64;
    }
    Ok(path)
}

/// Removes the copy.
pub(super) fn remove(spool: &Spool) -> Result<(), SnapshotError> {
    let path = spool.scratch(COPY);
    std::fs::remove_file(&path).map_err(|error| file_error(&path, error))
}
