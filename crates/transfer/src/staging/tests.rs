//! Changes that are begun while the file is opened.

use penstock_base::{FsError, FsResult, MIB, MemoryBudget};
use penstock_object::{ETag, Key};

use super::{
    area::{Staging, StagingSettings},
    content::Content,
    file::{Engagement, StagedFile},
    journal::{Record, read},
};
use crate::{ObjectVersion, lock::lock};

/// A staged file in a directory.
fn staged() -> (StagedFile, tempfile::TempDir) {
    let scratch = tempfile::tempdir().expect("a directory");
    let settings = StagingSettings::new(scratch.path(), "volume");
    let staging = Staging::open(settings, &MemoryBudget::new(MIB)).expect("a staging area");
    (StagedFile::new(&staging), scratch)
}

fn engage(staged: &StagedFile, etag: &str) {
    let version = version(etag);
    let key = version.key.clone();
    staged.engage(Content::of(version), key, |_| ());
}

fn version(etag: &str) -> ObjectVersion {
    ObjectVersion {
        key: Key::new("file").expect("valid"),
        etag: ETag::new(etag),
        size: 10,
    }
}

fn write(staged: &StagedFile, engagement: Engagement) -> FsResult<()> {
    let record = Record::Dirty(0..5);
    staged.change_in(
        engagement,
        &record,
        |content: &mut Content| content.write(0..5),
        |_| (),
    )
}

#[test]
fn a_change_that_was_begun_on_one_version_is_not_made_on_another() {
    let (staged, _scratch) = staged();
    engage(&staged, "ours");
    let (begun, _) = staged.engaged_now().expect("engaged");
    staged.disengage_if(|| true);
    assert_eq!(write(&staged, begun), Err(FsError::Stale));
    engage(&staged, "theirs");
    assert_eq!(write(&staged, begun), Err(FsError::Stale));
    assert_eq!(staged.look(Content::is_dirty), Ok(false));
    assert!(lock(&staged.journal).is_none());
    let (now, _) = staged.engaged_now().expect("engaged");
    assert_eq!(write(&staged, now), Ok(()));
    assert_eq!(staged.look(Content::is_dirty), Ok(true));
}

#[test]
fn a_file_is_not_left_to_the_store_while_a_change_is_noted() {
    let (staged, _scratch) = staged();
    engage(&staged, "ours");
    if let Some(state) = staged.state().as_mut() {
        state.noting = true;
    }
    staged.disengage_if(|| panic!("nobody asks"));
    assert!(staged.is_engaged());
    let (now, _) = staged.engaged_now().expect("engaged");
    assert_eq!(write(&staged, now), Ok(()));
    staged.disengage_if(|| true);
    assert!(!staged.is_engaged());
}

/// Forces everything to the disk, and what becomes of the journal in between is up to `meanwhile`.
fn force(staged: &StagedFile, meanwhile: impl FnOnce(&StagedFile)) -> bool {
    let forced = staged.force().expect("a disk").expect("something unsaved");
    staged.staging().force_names().expect("a directory");
    meanwhile(staged);
    staged.note_forced(&forced).expect("a disk")
}

#[test]
fn what_was_forced_to_the_disk_is_believed_after_another_start_of_the_system() {
    let (staged, _scratch) = staged();
    engage(&staged, "ours");
    let (engagement, _) = staged.engaged_now().expect("engaged");
    write(&staged, engagement).expect("noted");
    let journal = staged.staging().folder().journal(staged.id());
    let told = || read(&journal, "another start").expect("readable");
    assert!(told().is_err(), "nothing was forced");
    assert!(force(&staged, |_| ()));
    assert!(told().is_ok_and(|told| told.content.is_dirty()));
    assert!(staged.force().expect("a disk").is_none(), "all is there");
}

#[test]
fn a_journal_that_is_written_anew_while_it_is_forced_is_to_be_forced_again() {
    let (staged, _scratch) = staged();
    engage(&staged, "ours");
    let (engagement, _) = staged.engaged_now().expect("engaged");
    write(&staged, engagement).expect("noted");
    assert!(!force(&staged, StagedFile::trim_journal));
    assert!(force(&staged, |_| ()));
}

#[test]
fn a_file_that_could_not_be_forced_once_stays_so_until_nothing_is_unsaved() {
    let (staged, _scratch) = staged();
    engage(&staged, "ours");
    let (engagement, _) = staged.engaged_now().expect("engaged");
    write(&staged, engagement).expect("noted");
    staged.note_unsynced();
    staged.force().expect_err("the kernel tells once");
    assert!(staged.is_unsynced());
    staged.with_state(|state| state.expect("engaged").content = Content::of(version("saved")));
    staged.trim_journal();
    assert!(!staged.is_unsynced());
}
