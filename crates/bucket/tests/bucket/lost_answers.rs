//! Staged mode: saves that the store has, and whose answer nobody heard.

use penstock_bucket::BucketSettings;
use penstock_object::{ErrorKind, Operation};
use penstock_vfs::{AttributeChanges, HandleId, Inode, OpenOptions, Volume};

use crate::support::{Bed, CALLER, READ_WRITE};

const TRUNCATE: OpenOptions = OpenOptions {
    truncate: true,
    ..READ_WRITE
};

fn nothing(_staging: &std::path::Path) {}

/// What a program does after a save whose answer was lost, and what becomes of its file.
type Later = (&'static [(u64, &'static str)], Option<u64>, &'static str);

const LATER: [Later; 4] = [
    (&[], None, "snapshot"),
    (&[(8, " and more")], None, "snapshot and more"),
    (&[(0, "SNAP")], None, "SNAPshot"),
    (&[(8, "???"), (0, "S")], Some(4), "Snap"),
];

async fn change_later(bed: &Bed, handle: HandleId, inode: Inode, (writes, size, _): Later) {
    for (at, text) in writes {
        bed.write(handle, *at, text).await.unwrap();
    }
    if size.is_some() {
        let changes = AttributeChanges {
            size,
            handle: Some(handle),
            ..AttributeChanges::default()
        };
        bed.volume
            .set_attributes(&CALLER, inode, changes)
            .await
            .unwrap();
    }
}

/// A file whose save reached the store, which nobody was told, and what was done to it later.
async fn with_a_lost_answer(existing: bool, later: Later) -> (Bed, HandleId) {
    let bed = Bed::staged();
    if existing {
        bed.put("file", "the version before").await;
    }
    let handle = match existing {
        true => bed.open("file", TRUNCATE).await.unwrap(),
        false => bed.create("file").await.unwrap(),
    };
    let inode = bed.stat("file").await.unwrap().inode;
    if existing {
        // So that the changes are relative to a version.
        bed.write(handle, 0, "the base").await.unwrap();
        bed.sync(handle).await.unwrap();
    }
    bed.write(handle, 0, "snapshot").await.unwrap();
    bed.probe.fail_late(Operation::Put, ErrorKind::Unavailable);
    assert!(bed.sync(handle).await.is_err());
    assert_eq!(bed.object("file").await.unwrap(), b"snapshot");
    change_later(&bed, handle, inode, later).await;
    (bed, handle)
}

#[tokio::test]
async fn a_kill_between_a_save_and_its_journal_takes_nobody_for_another_client() {
    for existing in [false, true] {
        for later in LATER {
            let (bed, _) = with_a_lost_answer(existing, later).await;
            let bed = bed.killed(BucketSettings::default(), nothing).await;
            let stored = bed.object("file").await.unwrap();
            assert_eq!(String::from_utf8_lossy(&stored), later.2, "{existing}");
            assert_eq!(bed.staging_files("kept"), [""; 0]);
            assert_eq!(bed.journals(), [""; 0]);
        }
    }
}

#[tokio::test]
async fn what_is_written_after_a_save_whose_answer_was_lost_is_saved_by_the_next() {
    for existing in [false, true] {
        for later in LATER {
            let (bed, handle) = with_a_lost_answer(existing, later).await;
            bed.sync(handle).await.unwrap();
            let stored = bed.object("file").await.unwrap();
            assert_eq!(String::from_utf8_lossy(&stored), later.2, "{existing}");
            assert_eq!(bed.staging_files("files").len(), 1, "no journal");
        }
    }
}

#[tokio::test]
async fn several_saves_without_an_answer_are_known_again() {
    let (bed, handle) = with_a_lost_answer(true, LATER[1]).await;
    // None of these reaches the store, and who asks does not know.
    for text in ["one", "two", "three", "four", "five", "six"] {
        bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 1);
        bed.write(handle, 17, text).await.unwrap();
        assert!(bed.sync(handle).await.is_err());
    }
    let bed = bed.killed(BucketSettings::default(), nothing).await;
    assert_eq!(bed.object("file").await.unwrap(), b"snapshot and moresixee");
    assert_eq!(bed.staging_files("kept"), [""; 0]);
}

#[tokio::test]
async fn another_clients_version_of_the_same_size_is_not_taken_for_a_save() {
    for later in LATER {
        let (bed, _) = with_a_lost_answer(true, later).await;
        bed.put("file", "SNAPSHOT").await;
        let bed = bed.killed(BucketSettings::default(), nothing).await;
        assert_eq!(bed.object("file").await.unwrap(), b"SNAPSHOT");
        assert_eq!(bed.staging_files("kept").len(), 2);
    }
}

#[tokio::test]
async fn a_large_save_whose_answer_was_lost_is_known_again() {
    let bed = Bed::staged();
    let mut content: Vec<u8> = (0..40 << 20).map(|at: u32| (at % 251) as u8).collect();
    bed.put("large", &content).await;
    let handle = bed.open("large", READ_WRITE).await.unwrap();
    bed.write(handle, 20 << 20, "changed").await.unwrap();
    let operation = Operation::CompleteUpload;
    bed.probe.fail_late(operation, ErrorKind::Unavailable);
    assert!(bed.sync(handle).await.is_err());
    bed.write(handle, 20 << 20, "CHANGED").await.unwrap();
    bed.write(handle, 30 << 20, "and this").await.unwrap();
    let bed = bed.killed(BucketSettings::default(), nothing).await;
    content[20 << 20..][..7].copy_from_slice(b"CHANGED");
    content[30 << 20..][..8].copy_from_slice(b"and this");
    assert!(bed.object("large").await.unwrap() == content);
    assert_eq!(bed.staging_files("kept"), [""; 0]);
}

#[tokio::test]
async fn what_is_taken_back_after_a_save_whose_answer_was_lost_is_taken_back_in_the_store() {
    for killed in [false, true] {
        let bed = Bed::staged();
        bed.put("file", "base").await;
        let handle = bed.open("file", READ_WRITE).await.unwrap();
        let inode = bed.stat("file").await.unwrap().inode;
        bed.write(handle, 4, "more").await.unwrap();
        bed.probe.fail_late(Operation::Put, ErrorKind::Unavailable);
        assert!(bed.sync(handle).await.is_err());
        change_later(&bed, handle, inode, (&[], Some(4), "")).await;
        let bed = if killed {
            bed.killed(BucketSettings::default(), nothing).await
        } else {
            bed.sync(handle).await.unwrap();
            bed
        };
        assert_eq!(bed.object("file").await.unwrap(), b"base", "{killed}");
        assert_eq!(bed.staging_files("kept"), [""; 0]);
    }
}

/// The layer below tried again after a lost answer, met what the first attempt had made, and could not
/// tell whose that is.
#[tokio::test]
async fn a_save_that_meets_its_own_version_is_no_conflict() {
    for (operation, size) in [(Operation::Put, 100), (Operation::CompleteUpload, 40 << 20)] {
        let bed = Bed::staged();
        let mut content: Vec<u8> = (0..size).map(|at: u32| (at % 251) as u8).collect();
        bed.put("file", &content).await;
        let handle = bed.open("file", READ_WRITE).await.unwrap();
        bed.write(handle, 50, "changed").await.unwrap();
        bed.probe
            .fail_late(operation, ErrorKind::PreconditionFailed);
        bed.sync(handle).await.unwrap();
        content[50..57].copy_from_slice(b"changed");
        assert!(bed.object("file").await.unwrap() == content);
        bed.write(handle, 60, "again").await.unwrap();
        bed.sync(handle).await.unwrap();
        content[60..65].copy_from_slice(b"again");
        assert!(bed.object("file").await.unwrap() == content);
    }
}

/// Nothing of a file that was only made shorter is sent: the store copies what stays.
#[tokio::test]
async fn a_truncation_whose_answer_was_lost_is_known_again_and_no_other_object_is_taken_for_it() {
    const SHORTER: u64 = 35 << 20;
    let content: Vec<u8> = (0..40 << 20).map(|at: u32| (at % 251) as u8).collect();
    let cut = async |lost: bool| {
        let bed = Bed::staged();
        bed.put("file", &content).await;
        let handle = bed.open("file", READ_WRITE).await.unwrap();
        let inode = bed.stat("file").await.unwrap().inode;
        change_later(&bed, handle, inode, (&[], Some(SHORTER), "")).await;
        if lost {
            let operation = Operation::CompleteUpload;
            bed.probe.fail_late(operation, ErrorKind::Unavailable);
            assert!(bed.sync(handle).await.is_err());
        }
        (bed, handle)
    };
    let (bed, _) = cut(true).await;
    let bed = bed.killed(BucketSettings::default(), nothing).await;
    assert!(bed.object("file").await.unwrap() == content[..SHORTER as usize]);
    assert_eq!(bed.staging_files("kept"), [""; 0]);
    let theirs = vec![0; SHORTER as usize];
    let (bed, handle) = cut(false).await;
    bed.put("file", &theirs).await;
    assert!(bed.sync(handle).await.is_err(), "no conflict");
    assert!(bed.object("file").await.unwrap() == theirs);
}

#[tokio::test]
async fn whichever_of_many_saves_without_an_answer_was_stored_is_known_again() {
    for (refused, killed) in [(3, false), (4, false), (9, false), (3, true), (5, true)] {
        let bed = Bed::staged();
        bed.put("file", "the base").await;
        let handle = bed.open("file", READ_WRITE).await.unwrap();
        for number in 0..refused {
            bed.write(handle, 0, format!("{number:03}")).await.unwrap();
            bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 1);
            assert!(bed.sync(handle).await.is_err());
        }
        bed.write(handle, 0, "THE").await.unwrap();
        bed.probe.fail_late(Operation::Put, ErrorKind::Unavailable);
        assert!(bed.sync(handle).await.is_err());
        assert_eq!(bed.object("file").await.unwrap(), b"THE base", "{refused}");
        bed.write(handle, 4, "BASE").await.unwrap();
        let bed = if killed {
            bed.killed(BucketSettings::default(), nothing).await
        } else {
            bed.sync(handle).await.unwrap();
            bed
        };
        assert_eq!(bed.object("file").await.unwrap(), b"THE BASE", "{refused}");
        assert_eq!(bed.staging_files("kept"), [""; 0]);
    }
}

#[tokio::test]
async fn who_asks_what_became_of_many_saves_finds_another_clients_version() {
    let bed = Bed::staged();
    bed.put("file", "the base").await;
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    for number in 0..9 {
        bed.write(handle, 0, format!("{number:03}")).await.unwrap();
        bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 1);
        assert!(bed.sync(handle).await.is_err());
    }
    bed.put("file", "of other").await;
    assert!(bed.sync(handle).await.is_err(), "no conflict");
    assert_eq!(bed.object("file").await.unwrap(), b"of other");
}
