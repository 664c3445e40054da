//! Changes that are begun while the file is opened.

use penstock_base::{FsError, FsResult, MIB, MemoryBudget};
use penstock_object::{ETag, Key};

use super::{
    area::{Staging, StagingSettings},
    content::Content,
    file::{Engagement, StagedFile},
    journal::Record,
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
    let key = Key::new("file").expect("valid");
    let version = ObjectVersion {
        key: key.clone(),
        etag: ETag::new(etag),
        size: 10,
    };
    staged.engage(Content::of(version), key, |_| ());
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
