//! What every volume that can be changed must do for those who write. Volumes that cannot pass over all of it.

use std::time::{Duration, SystemTime};

use penstock_base::{FileName, FsError};
use penstock_vfs::{
    AttributeChanges, CallId, Dentry, Exclusivity, FileKind, Identity, Inode, Lookup, New, NewKind,
    OpenOptions, Position, RemoveKind, RenameMode, Seek, TimeChange, WritePlace, XattrMode,
};

use crate::{
    Bed,
    bed::{name, new},
};

const ROOT: Inode = Inode::ROOT;

fn size(size: u64) -> AttributeChanges {
    AttributeChanges {
        size: Some(size),
        ..AttributeChanges::default()
    }
}

fn taken() -> New<'static> {
    New {
        exclusivity: Exclusivity::TakeExisting,
        ..new(NewKind::Regular)
    }
}

/// What was written and closed is there, for who opens it, in the size that is shown.
pub async fn what_is_written_is_read(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let made = bed.made(ROOT, "new", new(NewKind::Regular), Some(OpenOptions::WRITE));
    let made = made.await.unwrap();
    assert!(!made.existed);
    let handle = made.opened.unwrap().handle;
    bed.write(handle, WritePlace::At(0), b"some ")
        .await
        .unwrap();
    bed.write(handle, WritePlace::At(5), b"bytes")
        .await
        .unwrap();
    bed.volume().sync(handle, 0..u64::MAX, false).await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.content("new").await.unwrap(), b"some bytes");
    assert_eq!(bed.at("new").await.unwrap().size, 10);
    let listed = bed.list(ROOT, 100).await;
    assert_eq!(listed["new"].attributes.size, 10);
}

/// A name that is not UTF-8 is kept as it is, or refused.
pub async fn names_of_any_bytes_are_kept_or_refused(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let odd = FileName::new(b"odd\xff").unwrap();
    let dentry = Dentry::new(ROOT, &odd);
    let directory = new(NewKind::Directory);
    let made = bed.volume().make(&bed.by, dentry, directory, None).await;
    let found = bed.volume().lookup(&bed.by, dentry).await;
    match made {
        Ok(made) => {
            let inode = made.entry.attributes.inode;
            assert!(matches!(found, Ok(Lookup::Found(entry)) if entry.attributes.inode == inode));
        }
        Err(error) => {
            assert_eq!(error, FsError::NameNotUtf8);
            assert!(matches!(
                found,
                Ok(Lookup::Absent(_)) | Err(FsError::NotFound)
            ));
            let removed = bed
                .volume()
                .remove(&bed.by, dentry, RemoveKind::Directory)
                .await;
            assert_eq!(removed.err(), Some(FsError::NotFound));
        }
    }
}

/// A name is made once.
pub async fn a_new_file_is_new_once(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let made = bed.make(ROOT, "new", new(NewKind::Regular)).await.unwrap();
    assert_eq!((made.kind, made.size), (FileKind::Regular, 0));
    for (text, kind) in [
        ("new", NewKind::Regular),
        ("new", NewKind::Directory),
        ("d", NewKind::Regular),
        ("a", NewKind::Directory),
    ] {
        let again = bed.make(ROOT, text, new(kind)).await;
        assert_eq!(again, Err(FsError::AlreadyExists), "{text} as {kind:?}");
    }
    assert_eq!(bed.content("new").await.unwrap(), b"");
}

/// Who takes what is there gets it as it is.
pub async fn a_file_that_is_there_is_taken(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let made = bed
        .made(ROOT, "a", taken(), Some(OpenOptions::READ))
        .await
        .unwrap();
    assert!(made.existed);
    assert_eq!(
        made.entry.attributes.inode,
        bed.at("a").await.unwrap().inode
    );
    let handle = made.opened.unwrap().handle;
    assert_eq!(bed.read(handle, 0, 100).await.unwrap(), b"the first");
    bed.close(handle).await.unwrap();
}

/// Anywhere, or only at the end, as the volume says.
pub async fn files_are_written_where_the_features_say(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let file = bed.at("d/b").await.unwrap().inode;
    let handle = bed.open(file, OpenOptions::READ_WRITE).await.unwrap();
    let written = bed.write(handle, WritePlace::At(3), b"abc").await;
    let holds: &[u8] = if bed.volume().features().random_writes {
        assert_eq!(written, Ok(()));
        b"012abc6789"
    } else {
        assert!(written.is_err());
        b"0123456789"
    };
    // A file of which nothing was written may be closed well or not.
    let _ = bed.close(handle).await;
    assert_eq!(bed.content("d/b").await.unwrap(), holds);
}

/// The end is where the file ends, whatever the writer believes.
pub async fn what_is_appended_is_at_the_end(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let options = OpenOptions {
        append: true,
        ..OpenOptions::WRITE
    };
    let file = bed.at("d/b").await.unwrap().inode;
    let handle = bed.open(file, options).await.unwrap();
    bed.write(handle, WritePlace::End(10), b"ab").await.unwrap();
    bed.write(handle, WritePlace::End(12), b"cd").await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.content("d/b").await.unwrap(), b"0123456789abcd");
}

/// By its name, and when it is opened.
pub async fn a_file_is_emptied(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let file = bed.at("d/b").await.unwrap().inode;
    assert_eq!(bed.change(file, size(0)).await.unwrap().size, 0);
    assert_eq!(bed.content("d/b").await.unwrap(), b"");
    let options = OpenOptions {
        truncate: true,
        ..OpenOptions::WRITE
    };
    let file = bed.at("a").await.unwrap().inode;
    let handle = bed.open(file, options).await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.content("a").await.unwrap(), b"");
}

/// A directory is empty in the beginning and gone in the end.
pub async fn directories_are_made_and_removed(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let directory = bed
        .make(ROOT, "new", new(NewKind::Directory))
        .await
        .unwrap();
    assert_eq!(directory.kind, FileKind::Directory);
    assert!(bed.list(directory.inode, 100).await.is_empty());
    bed.remove(ROOT, "new", RemoveKind::Directory)
        .await
        .unwrap();
    assert_eq!(bed.at("new").await, Err(FsError::NotFound));
    let again = bed.remove(ROOT, "new", RemoveKind::Directory).await;
    assert_eq!(again, Err(FsError::NotFound));
}

/// Nothing takes files along.
pub async fn a_directory_with_entries_stays(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let removed = bed.remove(ROOT, "d", RemoveKind::Directory).await;
    assert_eq!(removed, Err(FsError::DirectoryNotEmpty));
    assert_eq!(bed.content("d/c").await.unwrap(), b"x");
}

/// `unlink` is not `rmdir`.
pub async fn files_and_directories_are_removed_apart(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let removed = bed.remove(ROOT, "a", RemoveKind::Directory).await;
    assert_eq!(removed, Err(FsError::NotADirectory));
    let removed = bed.remove(ROOT, "d", RemoveKind::File).await;
    assert_eq!(removed, Err(FsError::IsADirectory));
    bed.remove(ROOT, "a", RemoveKind::File).await.unwrap();
    assert_eq!(bed.at("a").await, Err(FsError::NotFound));
    assert!(!bed.list(ROOT, 100).await.contains_key("a"));
}

/// A file keeps its number when it is moved, and a directory what is in it.
pub async fn names_are_moved(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let file = bed.at("a").await.unwrap().inode;
    bed.rename(ROOT, ("a", "moved"), RenameMode::Replace)
        .await
        .unwrap();
    assert_eq!(bed.at("moved").await.unwrap().inode, file);
    assert_eq!(bed.at("a").await, Err(FsError::NotFound));
    assert_eq!(bed.content("moved").await.unwrap(), b"the first");
    bed.rename(ROOT, ("d", "other"), RenameMode::Replace)
        .await
        .unwrap();
    assert_eq!(bed.content("other/e/f").await.unwrap(), b"deep");
    assert_eq!(bed.at("d").await, Err(FsError::NotFound));
    let absent = bed.rename(ROOT, ("gone", "x"), RenameMode::Replace).await;
    assert_eq!(absent, Err(FsError::NotFound));
}

/// What is in the way is replaced, unless that was not wanted.
pub async fn a_move_replaces_or_refuses(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let refused = bed.rename(ROOT, ("a", "z"), RenameMode::NoReplace).await;
    assert_eq!(refused, Err(FsError::AlreadyExists));
    bed.rename(ROOT, ("a", "z"), RenameMode::Replace)
        .await
        .unwrap();
    assert_eq!(bed.content("z").await.unwrap(), b"the first");
    assert_eq!(bed.at("a").await, Err(FsError::NotFound));
    let refused = bed.rename(ROOT, ("z", "d"), RenameMode::Replace).await;
    assert_eq!(refused, Err(FsError::IsADirectory));
    let refused = bed.rename(ROOT, ("d", "z"), RenameMode::Replace).await;
    assert_eq!(refused, Err(FsError::NotADirectory));
}

/// The number of a file that is gone is not that of the next one with its name.
pub async fn numbers_of_removed_files_lead_nowhere(bed: &Bed) {
    if !bed.is_writable() || !bed.volume().features().persistent_ids {
        return;
    }
    let number = async || {
        let made = bed.make(ROOT, "gone", new(NewKind::Regular)).await;
        let inode = made.unwrap().inode;
        let number = bed.volume().node_id(inode).unwrap();
        bed.volume().forget(inode, 1);
        number
    };
    let first = number().await;
    bed.remove(ROOT, "gone", RemoveKind::File).await.unwrap();
    assert_ne!(number().await, first);
    let found = bed.volume().resolve(&bed.by, &first).await;
    assert_eq!(found.err(), Some(FsError::Stale));
}

/// A second name for a file, where there is such a thing.
pub async fn hard_links_are_made_or_refused(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let file = bed.at("a").await.unwrap().inode;
    let link = async |text: &str| {
        let name = name(text);
        let linked = bed.volume().link(&bed.by, file, Dentry::new(ROOT, &name));
        linked.await.map(|made| made.entry.attributes)
    };
    if bed.volume().features().links_max == 1 {
        assert!(matches!(
            link("second").await,
            Err(FsError::NotPermitted(_))
        ));
        return;
    }
    let linked = link("second").await.unwrap();
    assert_eq!((linked.inode, linked.links), (file, 2));
    assert_eq!(link("z").await.err(), Some(FsError::AlreadyExists));
    bed.remove(ROOT, "a", RemoveKind::File).await.unwrap();
    assert_eq!(bed.content("second").await.unwrap(), b"the first");
    assert_eq!(bed.at("second").await.unwrap().links, 1);
}

/// Who looked at another state of the file changes nothing.
pub async fn a_change_that_comes_too_late_is_refused(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let file = bed.at("a").await.unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let guarded = |time| AttributeChanges {
        only_if_changed_at: Some(time),
        ..size(0)
    };
    let late = bed.change(file.inode, guarded(long_ago)).await;
    assert_eq!(late, Err(FsError::NotSynchronized));
    assert_eq!(bed.content("a").await.unwrap(), b"the first");
    let file = bed.at("a").await.unwrap();
    bed.change(file.inode, guarded(file.changed)).await.unwrap();
    assert_eq!(bed.content("a").await.unwrap(), b"");
}

/// A mode is changed and shown, or passed over and not shown; it is never half of it. Times that are set are shown.
pub async fn attributes_are_kept_or_passed_over(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let file = bed.at("a").await.unwrap();
    let mode = AttributeChanges {
        permissions: Some(0o604),
        ..AttributeChanges::default()
    };
    let changed = bed.change(file.inode, mode).await.unwrap();
    assert!([0o604, file.permissions].contains(&changed.permissions));
    assert_eq!(bed.at("a").await.unwrap().permissions, changed.permissions);
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let touched = AttributeChanges {
        modified: Some(TimeChange::To(time)),
        ..AttributeChanges::default()
    };
    assert_eq!(
        bed.change(file.inode, touched).await.unwrap().modified,
        time
    );
    assert_eq!(bed.at("a").await.unwrap().modified, time);
}

/// Extended attributes, where files have them.
pub async fn extended_attributes_are_kept_or_refused(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let file = bed.at("a").await.unwrap().inode;
    let set = async |value: &[u8], mode| {
        let set = bed
            .volume()
            .set_xattr(&bed.by, file, b"user.x", value, mode);
        set.await
    };
    if !bed.volume().features().xattrs {
        assert!(matches!(
            set(b"1", XattrMode::Set).await,
            Err(FsError::Unsupported(_))
        ));
        return;
    }
    assert_eq!(
        set(b"1", XattrMode::Replace).await,
        Err(FsError::NoAttribute)
    );
    set(b"1", XattrMode::Create).await.unwrap();
    assert_eq!(
        set(b"2", XattrMode::Create).await,
        Err(FsError::AlreadyExists)
    );
    set(b"\0\xff", XattrMode::Replace).await.unwrap();
    let value = bed.volume().xattr(&bed.by, file, b"user.x").await.unwrap();
    assert_eq!(&value[..], b"\0\xff");
    assert_eq!(
        bed.volume().xattrs(&bed.by, file).await.unwrap(),
        ["user.x"]
    );
    bed.volume()
        .remove_xattr(&bed.by, file, b"user.x")
        .await
        .unwrap();
    let gone = bed.volume().xattr(&bed.by, file, b"user.x").await;
    assert_eq!(gone, Err(FsError::NoAttribute));
}

/// Holes of a file, where the volume knows of them.
pub async fn holes_are_found_or_refused(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let file = bed.at("a").await.unwrap().inode;
    let handle = bed.open(file, OpenOptions::READ).await.unwrap();
    let seek = async |offset, wanted| {
        let sought = bed.volume().seek(Position { handle, offset }, wanted);
        sought.await
    };
    if bed.volume().features().finds_holes {
        assert_eq!(seek(2, Seek::Data).await, Ok(2));
        assert_eq!(seek(2, Seek::Hole).await, Ok(9));
        assert_eq!(seek(9, Seek::Data).await, Err(FsError::NoSuchPlace));
    } else {
        assert!(matches!(
            seek(0, Seek::Data).await,
            Err(FsError::Unsupported(_))
        ));
    }
    bed.close(handle).await.unwrap();
}

/// Copies within the volume, where it makes them.
pub async fn ranges_are_copied_or_refused(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let source = bed
        .open(bed.at("d/b").await.unwrap().inode, OpenOptions::READ)
        .await
        .unwrap();
    let made = bed.made(
        ROOT,
        "copy",
        new(NewKind::Regular),
        Some(OpenOptions::WRITE),
    );
    let target = made.await.unwrap().opened.unwrap().handle;
    let from = Position {
        handle: source,
        offset: 2,
    };
    let to = Position {
        handle: target,
        offset: 0,
    };
    let copied = bed.volume().copy_range(&bed.by, from, to, 100).await;
    bed.close(source).await.unwrap();
    bed.close(target).await.unwrap();
    if bed.volume().features().copies_ranges {
        assert_eq!(copied, Ok(8));
        assert_eq!(bed.content("copy").await.unwrap(), b"23456789");
        is_not_copied_over_itself(bed).await;
    } else {
        assert!(matches!(copied, Err(FsError::Unsupported(_))));
    }
}

async fn is_not_copied_over_itself(bed: &Bed) {
    let file = bed.at("copy").await.unwrap().inode;
    let handle = bed.open(file, OpenOptions::READ_WRITE).await.unwrap();
    let at = |offset| Position { handle, offset };
    let over = bed.volume().copy_range(&bed.by, at(0), at(3), 4).await;
    assert!(matches!(over, Err(FsError::InvalidArgument(_))), "{over:?}");
    let beside = bed.volume().copy_range(&bed.by, at(0), at(3), 3).await;
    assert_eq!(beside, Ok(3));
    bed.close(handle).await.unwrap();
    assert_eq!(bed.content("copy").await.unwrap(), b"23423489");
}

/// A change of names that is asked for again in the same call is not made again, whatever was made of the name since.
pub async fn what_is_changed_in_a_call_is_changed_once(bed: &Bed) {
    let volume = bed.volume();
    if !volume.features().remembers_calls {
        return;
    }
    let by = |number| Identity {
        call: Some(CallId {
            client: *b"one of our tests",
            number,
            sum: 7,
        }),
        ..bed.by.clone()
    };
    let (one, two) = (name("one"), name("two"));
    let (one, two) = (Dentry::new(ROOT, &one), Dentry::new(ROOT, &two));
    let make = async |number, dentry| {
        let (by, directory) = (by(number), new(NewKind::Directory));
        let made = volume.make(&by, dentry, directory, None);
        made.await.map(|made| made.entry.attributes.inode)
    };
    assert!(!volume.knows_call(&by(1).call.unwrap()).await.unwrap());
    let inode = make(1, one).await.unwrap();
    assert!(volume.knows_call(&by(1).call.unwrap()).await.unwrap());
    assert_eq!(make(1, one).await, Ok(inode));
    assert_eq!(make(2, one).await, Err(FsError::AlreadyExists));
    assert!(!volume.knows_call(&by(2).call.unwrap()).await.unwrap());

    let rename = async || volume.rename(&by(3), one, two, RenameMode::Replace).await;
    rename().await.unwrap();
    let other = make(4, one).await.unwrap();
    rename().await.unwrap();
    assert_eq!(bed.at("one").await.unwrap().inode, other);
    assert_eq!(bed.at("two").await.unwrap().inode, inode);

    let remove = async || volume.remove(&by(5), two, RemoveKind::Directory).await;
    remove().await.unwrap();
    make(6, two).await.unwrap();
    remove().await.unwrap();
    assert!(bed.at("two").await.is_ok());

    let (three, four) = (name("three"), name("four"));
    let (three, four) = (Dentry::new(ROOT, &three), Dentry::new(ROOT, &four));
    let file = volume.make(&bed.by, three, new(NewKind::Regular), None);
    let file = file.await.unwrap().entry.attributes.inode;
    let link = async || volume.link(&by(7), file, four).await;
    link().await.unwrap();
    link().await.unwrap();
    assert_eq!(bed.at("four").await.unwrap().links, 2);

    // Nothing was changed, so there is nothing to know.
    let by = by(8);
    let found = volume.make(&by, four, taken(), None).await.unwrap();
    assert!(found.existed && !volume.knows_call(&by.call.unwrap()).await.unwrap());
}

/// What a door left open is saved in the end, and nothing is unsaved then.
pub async fn what_is_shut_down_is_saved(bed: &Bed) {
    if !bed.is_writable() {
        return;
    }
    let made = bed.made(ROOT, "new", new(NewKind::Regular), Some(OpenOptions::WRITE));
    let handle = made.await.unwrap().opened.unwrap().handle;
    bed.write(handle, WritePlace::At(0), b"left open")
        .await
        .unwrap();
    assert_eq!(bed.volume().shut_down().await, []);
    assert_eq!(bed.volume().unsaved(), penstock_vfs::Unsaved::default());
}
