//! Uploads that must not stay behind when this process is killed.
//!
//! Before a save in parts begins, a small file beside the journals notes which object it is of; when
//! the store has named the upload, the name is added, and when it ended, the note is removed. The
//! next mount removes what the notes that it finds tell of. Where the kill came before the name, the
//! uploads of that very object are listed, and those removed that were begun about then.
//!
//! A save of the same object waits for that: it could not be told from what is to be removed.

use std::{
    collections::HashMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use penstock_base::{FsResult, clock, run_blocking};
use penstock_object::{Key, ObjectResult, UploadId};
use penstock_transfer::UploadNote;

use crate::{
    core::Core,
    errors::for_writing,
    staged::{
        folder::{FileId, Folder},
        journal::{join_texts, split_texts},
        staging::Staging,
    },
};

/// How much later than the note, or earlier by another clock, the store may have begun an upload.
const BEGUN_WITHIN: Duration = Duration::from_secs(180);
/// How long to wait before what could not be removed is tried again.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Uploads of earlier mounts that are to be removed.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    cut: tokio::sync::Mutex<HashMap<Key, Vec<Cut>>>,
}

/// An upload that was cut off.
#[derive(Debug, Clone)]
struct Cut {
    note: PathBuf,
    begun: SystemTime,
    /// `None` if the store's answer did not arrive.
    upload: Option<UploadId>,
}

/// The note of an upload under way.
#[derive(Debug)]
struct Note(PathBuf);

impl Note {
    fn begin(staging: &Staging, key: &Key) -> io::Result<Self> {
        let begun = clock::wall_time().duration_since(UNIX_EPOCH);
        let begun = begun.unwrap_or_default().as_secs().to_string();
        let path = staging.folder().upload(&FileId::new());
        let mut file = Folder::create(&path)?;
        file.write_all(&join_texts(&[staging.volume(), key.as_str(), &begun]))?;
        Ok(Self(path))
    }

    fn add(&self, upload: &UploadId) -> io::Result<()> {
        let mut file = fs::File::options().append(true).open(&self.0)?;
        file.write_all(&join_texts(&[upload.as_str()]))
    }
}

impl UploadNote for Note {
    fn named(&self, upload: &UploadId) {
        if let Err(error) = run_blocking(|| self.add(upload)) {
            tracing::debug!(%error, "the name of an upload could not be noted");
        }
    }

    fn ended(&self) {
        let _ = run_blocking(|| fs::remove_file(&self.0));
    }
}

/// What a note says, if it is one of `volume`. One that was not finished tells of no upload, for it is
/// finished before that begins, and is removed.
fn read(note: &Path, volume: &str) -> Option<(Key, Cut)> {
    let bytes = fs::read(note).ok()?;
    let Some((texts, rest)) = split_texts(&bytes) else {
        let _ = fs::remove_file(note);
        return None;
    };
    let [of, key, begun] = texts.try_into().ok()?;
    let begun = UNIX_EPOCH + Duration::from_secs(begun.parse().ok()?);
    let named = split_texts(rest).and_then(|(texts, _)| texts.into_iter().next());
    let cut = Cut {
        note: note.to_owned(),
        begun,
        upload: named.as_deref().map(UploadId::new),
    };
    (of == volume).then_some((Key::new(key).ok()?, cut))
}

impl Core {
    /// Notes that an upload of `key` is about to begin, once what an earlier mount left of such is
    /// removed. A directory that takes no note holds up no save, which makes room in it.
    pub(super) async fn note_upload(
        &self,
        staging: &Staging,
        key: &Key,
    ) -> FsResult<Option<Arc<dyn UploadNote>>> {
        for_writing(self.remove_cut_uploads_of(staging, key).await)?;
        match run_blocking(|| Note::begin(staging, key)) {
            Ok(note) => Ok(Some(Arc::new(note))),
            Err(error) => {
                tracing::debug!(%error, "an upload could not be noted");
                Ok(None)
            }
        }
    }

    /// Begins to remove the uploads that an earlier mount left.
    pub(super) fn remove_cut_uploads(self: &Arc<Self>, staging: &Staging) {
        let notes = run_blocking(|| staging.folder().uploads()).unwrap_or_default();
        let Ok(mut uploads) = staging.uploads.cut.try_lock() else {
            return;
        };
        for (key, cut) in notes.iter().filter_map(|note| read(note, staging.volume())) {
            uploads.entry(key).or_default().push(cut);
        }
        if !uploads.is_empty() {
            tokio::spawn(remove_all(Arc::downgrade(self)));
        }
    }

    /// Removes the uploads of one object.
    async fn remove_cut_uploads_of(&self, staging: &Staging, key: &Key) -> ObjectResult<()> {
        let mut uploads = staging.uploads.cut.lock().await;
        let Some(found) = uploads.get(key) else {
            return Ok(());
        };
        for cut in found {
            for upload in self.names_of(key, cut).await? {
                self.store().abort_upload(key, &upload).await?;
            }
        }
        for cut in uploads.remove(key).unwrap_or_default() {
            let _ = run_blocking(|| fs::remove_file(&cut.note));
        }
        Ok(())
    }

    /// The uploads that a note tells of.
    async fn names_of(&self, key: &Key, cut: &Cut) -> ObjectResult<Vec<UploadId>> {
        if let Some(upload) = &cut.upload {
            return Ok(vec![upload.clone()]);
        }
        let (mut names, mut continuation) = (Vec::new(), None);
        loop {
            let page = self
                .store()
                .list_uploads(key.as_str(), continuation.as_deref());
            let page = page.await?;
            let about_then = |begun: SystemTime| {
                let earlier = cut.begun.duration_since(begun).unwrap_or_default();
                let later = begun.duration_since(cut.begun).unwrap_or_default();
                earlier.max(later) <= BEGUN_WITHIN
            };
            let ours = page.uploads.into_iter();
            let ours = ours.filter(|upload| upload.key == *key && about_then(upload.initiated));
            names.extend(ours.map(|upload| upload.id));
            continuation = page.continuation;
            if continuation.is_none() {
                return Ok(names);
            }
        }
    }
}

/// Removes the uploads of all objects, or goes on trying as long as the volume lives.
async fn remove_all(core: Weak<Core>) {
    let mut pause = PAUSES[0];
    loop {
        let Some(core) = core.upgrade() else { return };
        let Some(staging) = &core.staging else { return };
        let keys: Vec<Key> = staging.uploads.cut.lock().await.keys().cloned().collect();
        let mut failure = None;
        for key in keys {
            failure = core
                .remove_cut_uploads_of(staging, &key)
                .await
                .err()
                .or(failure);
        }
        let Some(error) = failure else { return };
        tracing::warn!("uploads that the last mount left could not be removed yet: {error}");
        drop(core);
        clock::sleep(pause).await;
        pause = (pause * 2).min(PAUSES[1]);
    }
}
