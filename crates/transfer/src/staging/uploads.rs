//! Uploads that must not stay behind when this process is killed.
//!
//! Before a save in parts begins, a small file beside the journals notes which object it is of; when
//! the store has named the upload, the name is added, and when it ended, the note is removed. The
//! next mount removes what the notes that it finds tell of. Where the kill came before the name, the
//! uploads of that very object are listed, and those removed that were begun about then. Nothing tells
//! them from those of another client that uploads the same object in these minutes.
//!
//! Saves do not wait for that. An upload of the same object that is under way here is known by its name.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use penstock_base::{clock, run_blocking};
use penstock_object::{Key, ObjectResult, Store, UploadId};

use crate::{
    lock::lock,
    staging::{
        folder::{FileId, Folder},
        journal::{join_texts, split_texts},
    },
    writer::UploadNote,
};

/// How much later than the note, or earlier by another clock, the store may have begun an upload.
const BEGUN_WITHIN: Duration = Duration::from_secs(180);
/// How long to wait before what could not be removed is tried again.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// How long the end of a mount waits until uploads that were cut off are removed.
const LAST_WAIT: Duration = Duration::from_secs(10);
/// How long the end of a mount pauses between two attempts.
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// Uploads of a staged volume.
#[derive(Debug)]
pub struct Uploads {
    folder: Folder,
    /// What tells the store and its bucket from every other.
    volume: String,
    /// Those of this mount that are under way, as many as saves are.
    own: Mutex<Vec<Weak<Note>>>,
    /// Those of an earlier mount that are to be removed.
    cut: tokio::sync::Mutex<Vec<Cut>>,
}

impl Uploads {
    /// Noted in `folder` as those of `volume`.
    pub(super) fn new(folder: &Folder, volume: &str) -> Arc<Self> {
        Arc::new(Self {
            folder: folder.clone(),
            volume: volume.to_owned(),
            own: Mutex::default(),
            cut: tokio::sync::Mutex::default(),
        })
    }

    /// Notes that an upload of `key` is about to begin. A directory that takes no note holds up no save,
    /// which makes room in it.
    pub(super) fn note(&self, key: &Key) -> Option<Arc<dyn UploadNote>> {
        match run_blocking(|| self.begin_note(key)) {
            Ok(note) => Some(note),
            Err(error) => {
                tracing::debug!(%error, "an upload could not be noted");
                None
            }
        }
    }

    fn begin_note(&self, key: &Key) -> io::Result<Arc<Note>> {
        let begun = clock::wall_time().duration_since(UNIX_EPOCH);
        let begun = begun.unwrap_or_default().as_secs().to_string();
        let path = self.folder.upload(&FileId::new());
        let mut file = Folder::create(&path)?;
        file.write_all(&join_texts(&[&self.volume, key.as_str(), &begun]))?;
        let note = Arc::new(Note {
            path,
            key: key.clone(),
            name: OnceLock::new(),
        });
        self.add(&note);
        Ok(note)
    }

    fn add(&self, note: &Arc<Note>) {
        let mut notes = lock(&self.own);
        notes.retain(|note| note.strong_count() > 0);
        notes.push(Arc::downgrade(note));
    }

    /// The names of those of `key` that are under way; `None` while one has no name yet.
    fn names(&self, key: &Key) -> Option<Vec<UploadId>> {
        let notes = lock(&self.own);
        let of_key = notes.iter().filter_map(Weak::upgrade);
        let of_key = of_key.filter(|note| note.key == *key);
        of_key.map(|note| note.name.get().cloned()).collect()
    }
}

/// An upload of an earlier mount that was cut off.
#[derive(Debug)]
struct Cut {
    note: PathBuf,
    key: Key,
    begun: SystemTime,
    /// `None` if the store's answer did not arrive.
    upload: Option<UploadId>,
}

/// The note of an upload under way.
#[derive(Debug)]
struct Note {
    path: PathBuf,
    key: Key,
    name: OnceLock<UploadId>,
}

impl Note {
    fn add(&self, upload: &UploadId) -> io::Result<()> {
        let mut file = fs::File::options().append(true).open(&self.path)?;
        file.write_all(&join_texts(&[upload.as_str()]))
    }
}

impl UploadNote for Note {
    fn named(&self, upload: &UploadId) {
        self.name.get_or_init(|| upload.clone());
        if let Err(error) = run_blocking(|| self.add(upload)) {
            tracing::debug!(%error, "the name of an upload could not be noted");
        }
    }

    fn ended(&self) {
        let _ = run_blocking(|| fs::remove_file(&self.path));
    }
}

/// What a note says, if it is one of `volume`. One that was not finished tells of no upload, for it is
/// finished before that begins, and is removed.
fn read(note: &Path, volume: &str) -> Option<Cut> {
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
        key: Key::new(key).ok()?,
        begun,
        upload: named.as_deref().map(UploadId::new),
    };
    (of == volume).then_some(cut)
}

impl Uploads {
    /// Begins to remove the uploads that an earlier mount left.
    pub fn remove_cut(self: &Arc<Self>, store: &Arc<dyn Store>) {
        let notes = run_blocking(|| self.folder.uploads()).unwrap_or_default();
        let cut = notes.iter().filter_map(|note| read(note, &self.volume));
        let Ok(mut known) = self.cut.try_lock() else {
            return;
        };
        known.extend(cut);
        if !known.is_empty() {
            tokio::spawn(remove_all(Arc::downgrade(self), Arc::clone(store)));
        }
    }

    /// Removes what is left of them at the end of a mount, as far as that takes no long time.
    pub async fn finish_removing(&self, store: &dyn Store) {
        let removed = async {
            while self.remove_once(store).await == Outcome::Later {
                clock::sleep(LAST_PAUSE).await;
            }
        };
        // What is left is for the next mount.
        let _ = clock::deadline(LAST_WAIT, removed).await;
    }

    /// Tries to remove each once. What the store refuses for good is left to the next mount.
    async fn remove_once(&self, store: &dyn Store) -> Outcome {
        let mut cut = self.cut.lock().await;
        let (mut left, mut failure) = (Vec::new(), None);
        for upload in std::mem::take(&mut *cut) {
            match self.remove_cut_upload(store, &upload).await {
                Ok(true) => {}
                Ok(false) => left.push(upload),
                Err(error) => {
                    if error.kind.is_transient() {
                        left.push(upload);
                    }
                    failure = Some(error);
                }
            }
        }
        if let Some(error) = failure {
            tracing::warn!(
                "uploads that the last mount left could not be removed yet, and their parts occupy \
                 the bucket: {error}"
            );
        }
        *cut = left;
        match cut.is_empty() {
            true => Outcome::Done,
            false => Outcome::Later,
        }
    }

    /// Removes an upload that was cut off. Says whether it is gone: one without a name waits until
    /// those of the same object that are under way here have one.
    async fn remove_cut_upload(&self, store: &dyn Store, cut: &Cut) -> ObjectResult<bool> {
        let found = names_of(store, cut).await?;
        let Some(ours) = self.names(&cut.key) else {
            return Ok(false);
        };
        for upload in found.iter().filter(|upload| !ours.contains(upload)) {
            store.abort_upload(&cut.key, upload).await?;
        }
        let _ = run_blocking(|| fs::remove_file(&cut.note));
        Ok(true)
    }
}

/// The uploads that a note tells of.
async fn names_of(store: &dyn Store, cut: &Cut) -> ObjectResult<Vec<UploadId>> {
    if let Some(upload) = &cut.upload {
        return Ok(vec![upload.clone()]);
    }
    let (mut names, mut continuation) = (Vec::new(), None);
    loop {
        let page = store.list_uploads(cut.key.as_str(), continuation.as_deref());
        let page = page.await?;
        let about_then = |begun: SystemTime| {
            let earlier = cut.begun.duration_since(begun).unwrap_or_default();
            let later = begun.duration_since(cut.begun).unwrap_or_default();
            earlier.max(later) <= BEGUN_WITHIN
        };
        let ours = page.uploads.into_iter();
        let ours = ours.filter(|upload| upload.key == cut.key && about_then(upload.initiated));
        names.extend(ours.map(|upload| upload.id));
        continuation = page.continuation;
        if continuation.is_none() {
            return Ok(names);
        }
    }
}

/// What an attempt to remove uploads came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// There are none to try again.
    Done,
    Later,
}

/// Removes uploads, or goes on trying as long as the directory is in use.
async fn remove_all(uploads: Weak<Uploads>, store: Arc<dyn Store>) {
    let mut pause = PAUSES[0];
    loop {
        let Some(uploads) = uploads.upgrade() else {
            return;
        };
        if uploads.remove_once(&*store).await == Outcome::Done {
            return;
        }
        drop(uploads);
        clock::sleep(pause).await;
        pause = (pause * 2).min(PAUSES[1]);
    }
}
