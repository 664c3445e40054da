//! What an earlier mount left in the staging directory.
//!
//! A mount that was killed leaves a journal beside each file that had something unsaved. Each of them is read
//! once, before anything is served, and becomes a staged file that is engaged as it was. What a journal tells
//! that cannot be believed is put aside for people, and never removed.

use std::{
    io::{self, ErrorKind::NotFound},
    path::PathBuf,
    sync::Arc,
    time::SystemTime,
};

use penstock_base::{FsError, FsResult};
use penstock_object::{Description, Key};

use crate::{
    lock::lock,
    staging::{
        area::Staging,
        content::Content,
        disk::DiskFile,
        file::StagedFile,
        folder::{FileId, Folder},
        journal::{self, Doubt, Journal, Told},
    },
};

/// A file as its journal tells.
#[derive(Debug)]
pub struct RecoveredFile {
    /// What it holds; engaged, with something unsaved.
    pub staged: StagedFile,
    /// The object that it is of.
    pub key: Key,
    /// How the object is to be described, where the journal tells that.
    pub description: Option<Description>,
    /// When the staging file was written last.
    pub written: Option<SystemTime>,
    /// The unsaved file whose name it took: if that was found as well, it is to be abandoned.
    pub replaces: Option<FileId>,
}

impl Staging {
    /// Files that have a journal. Content without one is removed. Blocks.
    pub fn left_behind(&self) -> io::Result<Vec<FileId>> {
        self.folder().orphans()
    }

    /// Where the journal of a file is, for messages to people.
    pub fn journal_path(&self, id: &FileId) -> PathBuf {
        self.folder().journal(id)
    }

    /// Makes a file of what its journal tells; `None` if it tells of nothing unsaved, or of what cannot be
    /// believed, which is put aside. Fails where the file must stay for the next mount. Blocks.
    pub fn recover(self: &Arc<Self>, id: &FileId) -> FsResult<Option<RecoveredFile>> {
        let path = self.folder().journal(id);
        let told = journal::read(&path, self.boot()).map_err(|error| disk_error(&error))?;
        let told = match told.and_then(|told| self.check_content(id, told)) {
            Ok(told) => told,
            Err(doubt) => return self.put_aside(id, &doubt).map(|()| None),
        };
        if self.folder().kept_data(id).exists() {
            let doubt = Doubt {
                key: Some(told.header.key),
                reason: "the last mount broke off while it put this aside".to_owned(),
            };
            return self.put_aside(id, &doubt).map(|()| None);
        }
        if told.header.volume != self.volume() {
            let text = format!("it is of {}", told.header.volume);
            return Err(FsError::Io(text));
        }
        let key = Key::new(&told.header.key).map_err(|error| FsError::Io(error.to_string()))?;
        let (description, replaces) = (told.description.clone(), told.replaces.clone());
        let staged = StagedFile::recovered(self, id.clone(), told, key.clone());
        let staged = staged.map_err(|error| disk_error(&error))?;
        if !staged.look(Content::is_dirty)? {
            staged.abandon();
            return Ok(None);
        }
        let written = staged.disk_if_any().and_then(|disk| disk.written().ok());
        Ok(Some(RecoveredFile {
            staged,
            key,
            description,
            written,
            replaces,
        }))
    }

    /// Compares what a journal tells with the staging file: what is missing there would read as zeros.
    fn check_content(&self, id: &FileId, told: Told) -> Result<Told, Doubt> {
        let found = std::fs::metadata(self.folder().data(id)).map_or(0, |data| data.len());
        let backed = told.content.extents().iter();
        let backed = backed.filter(|(_, held)| held.is_backed());
        let needed = backed.map(|(range, _)| range.end).max().unwrap_or(0);
        let is_aside = self.folder().kept_data(id).exists();
        if found >= needed || is_aside {
            return Ok(told);
        }
        Err(Doubt {
            key: Some(told.header.key),
            reason: format!(
                "its journal tells of {needed} bytes, of which the staging file has {found}"
            ),
        })
    }

    /// Puts a file aside of which it is not certain what it is.
    fn put_aside(&self, id: &FileId, doubt: &Doubt) -> FsResult<()> {
        let kept = self.folder().keep(id).map_err(|error| disk_error(&error))?;
        let file = match &doubt.key {
            Some(key) => format!("`{key}`"),
            None => "a file whose name is lost".to_owned(),
        };
        tracing::error!(
            "{file}: what was written before the last mount broke off is not saved: {}; it is kept in {}: \
             compare it with the object, and remove it",
            doubt.reason,
            kept.display()
        );
        Ok(())
    }
}

impl StagedFile {
    /// A file as its journal tells.
    fn recovered(staging: &Arc<Staging>, id: FileId, told: Told, key: Key) -> io::Result<Self> {
        let disk = open_content(staging.folder(), &id, &told)?;
        let journal = Journal::reopen(&staging.folder().journal(&id), &told)?;
        let staged = Self::with_id(staging, id);
        if let Some(disk) = disk {
            staged.adopt_disk(disk);
        }
        *lock(&staged.journal) = Some(journal);
        staged.engage(told.content, key, |_| ());
        if let Some(state) = staged.state().as_mut() {
            state.description = told.description;
        }
        // The last mount may have saved it and not heard so.
        staged.note_outcome(true);
        Ok(staged)
    }
}

/// The staging file. None where nothing was written.
fn open_content(folder: &Folder, id: &FileId, told: &Told) -> io::Result<Option<DiskFile>> {
    match Folder::open(&folder.data(id)) {
        Ok(file) => Ok(Some(DiskFile::new(file))),
        Err(error) if error.kind() == NotFound && told.content.extents().backed() == 0 => Ok(None),
        Err(error) => Err(error),
    }
}

fn disk_error(error: &io::Error) -> FsError {
    FsError::Io(error.to_string())
}
