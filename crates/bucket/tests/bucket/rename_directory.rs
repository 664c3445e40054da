//! Renaming directories.

use std::time::Duration;

use penstock_base::{FsError, MIB, clock};
use penstock_bucket::BucketSettings;
use penstock_object::{ErrorKind, Operation};
use penstock_object_testing::MemoryStore;
use penstock_vfs::{FileKind, RenameMode};

use crate::support::{Bed, READ, WRITE, name};

async fn tree() -> Bed {
    let bed = Bed::new();
    for key in ["a/", "a/x", "a/y", "a/sub/z", "other"] {
        bed.put(key, key).await;
    }
    bed
}

const MOVED: [&str; 5] = ["b/", "b/sub/z", "b/x", "b/y", "other"];

#[tokio::test(start_paused = true)]
async fn renaming_a_directory_moves_everything_below_it() {
    let bed = tree().await;
    let (inode, file) = (
        bed.inode("a").await.unwrap(),
        bed.inode("a/sub/z").await.unwrap(),
    );
    assert_eq!(bed.stat("b").await, Err(FsError::NotFound));
    bed.requests();
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.requests(), "copy 4, delete_many 2, list 2");
    assert_eq!(bed.keys().await, MOVED);
    assert_eq!(bed.stat("a").await, Err(FsError::NotFound));
    assert_eq!(bed.inode("b").await, Ok(inode));
    assert_eq!(bed.inode("b/sub/z").await, Ok(file));
    assert_eq!(bed.read_file("b/sub/z").await.unwrap(), b"a/sub/z");
    assert_eq!(bed.ls("b").await.unwrap(), ["sub", "x", "y"]);
}

#[tokio::test(start_paused = true)]
async fn the_marker_is_copied_first_and_deleted_last() {
    let bed = tree().await;
    let held = bed.probe.hold(Operation::Copy);
    let (renamed, ()) = tokio::join!(bed.rename("a", "b"), async {
        held.add_permits(1);
        clock::sleep(Duration::from_secs(1)).await;
        assert_eq!(bed.keys().await[4], "b/");
        held.add_permits(9);
    });
    renamed.unwrap();
    let bed = tree().await;
    let held = bed.probe.hold(Operation::DeleteMany);
    let (renamed, ()) = tokio::join!(bed.rename("a", "b"), async {
        held.add_permits(1);
        clock::sleep(Duration::from_secs(1)).await;
        assert_eq!(bed.keys().await[..2], ["a/", "b/"]);
        held.add_permits(9);
    });
    renamed.unwrap();
}

#[tokio::test(start_paused = true)]
async fn copies_run_at_the_same_time_within_a_limit() {
    let bed = Bed::new();
    for number in 0..300 {
        bed.put(&format!("a/{number:03}"), "").await;
    }
    let held = bed.probe.hold(Operation::Copy);
    let (renamed, ()) = tokio::join!(bed.rename("a", "b"), async {
        clock::sleep(Duration::from_secs(1)).await;
        assert_eq!(bed.probe.waiting(), 128);
        held.add_permits(300);
    });
    renamed.unwrap();
    assert_eq!(bed.keys().await.len(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_directory_with_too_many_objects_is_refused_untouched() {
    let settings = BucketSettings {
        rename_dir_limit: 1500,
        ..BucketSettings::default()
    };
    let bed = Bed::with(settings);
    for number in 0..1501 {
        bed.put(&format!("a/{number:04}"), "").await;
    }
    bed.stat("a").await.unwrap();
    assert!(bed.stat("b").await.is_err());
    bed.requests();
    assert!(matches!(
        bed.rename("a", "b").await,
        Err(FsError::LimitReached(_))
    ));
    assert_eq!(bed.requests(), "list 2");
    bed.unlink("a/0000").await.unwrap();
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.keys().await.len(), 1500);
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_does_not_fit_into_memory_is_refused_untouched() {
    let bed = Bed::with_memory(MemoryStore::new(), BucketSettings::default(), 64 << 10);
    for number in 0..1000 {
        bed.put(&format!("a/{number:04}"), "").await;
    }
    assert_eq!(bed.rename("a", "b").await, Err(FsError::OutOfMemory));
    assert_eq!(bed.keys().await.len(), 1000);
    assert_eq!(bed.budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_directory_is_renamed_when_memory_that_others_had_is_free() {
    let bed = tree().await;
    let everything = bed.budget.try_reserve(bed.budget.available());
    let (renamed, ()) = tokio::join!(bed.rename("a", "b"), async {
        clock::sleep(Duration::from_secs(5)).await;
        assert_eq!(bed.keys().await[0], "a/");
        drop(everything);
    });
    renamed.unwrap();
    assert_eq!(bed.keys().await, MOVED);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_not_empty_is_refused() {
    let bed = tree().await;
    bed.put("b/theirs", "").await;
    assert_eq!(bed.rename("a", "b").await, Err(FsError::DirectoryNotEmpty));
    bed.mkdir("c").await.unwrap();
    let unsaved = bed.create("c/unsaved").await.unwrap();
    assert_eq!(bed.rename("a", "c").await, Err(FsError::DirectoryNotEmpty));
    bed.close(unsaved).await.unwrap();
    assert_eq!(bed.object("a/x").await.unwrap(), b"a/x");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_empty_is_replaced() {
    let bed = tree().await;
    bed.mkdir("b").await.unwrap();
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.keys().await, MOVED);
}

#[tokio::test(start_paused = true)]
async fn noreplace_refuses_any_target() {
    let bed = tree().await;
    bed.mkdir("b").await.unwrap();
    let renamed = bed.rename_as("a", "b", RenameMode::NoReplace).await;
    assert_eq!(renamed, Err(FsError::AlreadyExists));
    bed.rename_as("a", "c", RenameMode::NoReplace)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_directory_cannot_be_moved_into_itself() {
    let bed = tree().await;
    assert!(matches!(
        bed.rename("a", "a/sub/b").await,
        Err(FsError::InvalidArgument(_))
    ));
    assert!(matches!(
        bed.rename("a", "a/b").await,
        Err(FsError::InvalidArgument(_))
    ));
    assert_eq!(bed.object("a/x").await.unwrap(), b"a/x");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_would_become_too_long_is_refused_untouched() {
    let bed = Bed::new();
    let long = "y".repeat(200);
    bed.put(&format!("a/{long}/{long}/{long}/{long}"), "").await;
    let target = format!("{long}b");
    assert_eq!(bed.rename("a", &target).await, Ok(()));
    assert_eq!(
        bed.rename(&target, &"z".repeat(255)).await,
        Err(FsError::NameTooLong)
    );
    assert_eq!(bed.keys().await.len(), 1);
    assert!(bed.keys().await[0].starts_with(&target));
}

#[tokio::test(start_paused = true)]
async fn a_failed_copy_is_undone() {
    let bed = tree().await;
    for skip in 0..4 {
        bed.probe
            .fail_after(skip, Operation::Copy, ErrorKind::PermissionDenied, 1);
        assert_eq!(
            bed.rename("a", "b").await,
            Err(FsError::PermissionDenied),
            "{skip}"
        );
        assert_eq!(
            bed.keys().await,
            ["a/", "a/sub/z", "a/x", "a/y", "other"],
            "{skip}"
        );
    }
    bed.probe.fail_late(Operation::Copy, ErrorKind::Timeout);
    assert!(matches!(
        bed.rename("a", "b").await,
        Err(FsError::TimedOut(_))
    ));
    assert_eq!(bed.keys().await, ["a/", "a/sub/z", "a/x", "a/y", "other"]);
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.keys().await, MOVED);
}

#[tokio::test(start_paused = true)]
async fn undoing_spares_what_another_client_put_there() {
    let bed = tree().await;
    let held = bed.probe.hold(Operation::Copy);
    let (renamed, ()) = tokio::join!(bed.rename("a", "b"), async {
        clock::sleep(Duration::from_secs(1)).await;
        bed.put("b/x", "theirs").await;
        held.add_permits(9);
    });
    assert_eq!(renamed, Err(FsError::AlreadyExists));
    assert_eq!(
        bed.keys().await,
        ["a/", "a/sub/z", "a/x", "a/y", "b/x", "other"]
    );
    assert_eq!(bed.object("b/x").await.unwrap(), b"theirs");
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_is_resumed_when_repeated() {
    let bed = tree().await;
    bed.probe
        .fail(Operation::DeleteMany, ErrorKind::Unavailable, 1);
    assert!(matches!(bed.rename("a", "b").await, Err(FsError::Io(_))));
    assert_eq!(bed.keys().await.len(), 9);
    // The target is whole, and shown.
    assert_eq!(bed.read_file("b/sub/z").await.unwrap(), b"a/sub/z");
    bed.requests();
    bed.rename("a", "b").await.unwrap();
    // Nobody knows what was deleted of the source: it is looked for.
    assert_eq!(bed.requests(), "delete_many 2, head 1, list 4");
    assert_eq!(bed.keys().await, MOVED);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_rename_copies_what_changed_since() {
    let bed = tree().await;
    bed.probe
        .fail(Operation::DeleteMany, ErrorKind::Unavailable, 1);
    assert!(matches!(bed.rename("a", "b").await, Err(FsError::Io(_))));
    bed.put("a/x", "changed").await;
    bed.put("a/new", "new").await;
    bed.rename("a", "b").await.unwrap();
    assert_eq!(
        bed.keys().await,
        ["b/", "b/new", "b/sub/z", "b/x", "b/y", "other"]
    );
    assert_eq!(bed.object("b/x").await.unwrap(), b"changed");
}

#[tokio::test(start_paused = true)]
async fn unsaved_files_are_saved_first_and_follow() {
    let bed = tree().await;
    let unsaved = bed.create("a/unsaved").await.unwrap();
    bed.write(unsaved, 0, "one ").await.unwrap();
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.object("b/unsaved").await.unwrap(), b"one ");
    bed.write(unsaved, 4, "two").await.unwrap();
    bed.close(unsaved).await.unwrap();
    assert_eq!(bed.object("b/unsaved").await.unwrap(), b"one two");
    assert!(bed.object("a/unsaved").await.is_none());
}

/// A copy has a tag of its own, and is a normal object whatever it was copied from.
#[tokio::test(start_paused = true)]
async fn writers_go_on_after_a_copy_of_another_tag_and_kind() {
    let appendable = BucketSettings {
        appendable: true,
        ..BucketSettings::default()
    };
    let large = "x".repeat(20 * MIB as usize);
    for (settings, first) in [
        (appendable, "one "),
        (BucketSettings::default(), large.as_str()),
    ] {
        let bed = Bed::over(MemoryStore::like_oss(), settings);
        bed.mkdir("a").await.unwrap();
        let file = bed.create("a/file").await.unwrap();
        bed.write(file, 0, first).await.unwrap();
        bed.rename("a", "b").await.unwrap();
        bed.write(file, first.len() as u64, "two").await.unwrap();
        bed.close(file).await.unwrap();
        let content = bed.object("b/file").await.unwrap();
        assert!(content == format!("{first}two").as_bytes());
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_wrote_into_an_open_file_moves_and_is_not_mixed() {
    let bed = Bed::new();
    bed.put("a/file", "old content").await;
    let reader = bed.open("a/file", READ).await.unwrap();
    let writer = bed.open("a/file", WRITE).await.unwrap();
    assert_eq!(bed.read(reader, 0, 3).await.unwrap(), b"old");
    bed.put("a/file", "new content").await;
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.object("b/file").await.unwrap(), b"new content");
    // Its pages are of the old content.
    assert_eq!(bed.write(writer, 11, ", more").await, Err(FsError::Stale));
    bed.close(writer).await.unwrap();
    assert_eq!(bed.object("b/file").await.unwrap(), b"new content");
    let writer = bed.open("b/file", WRITE).await.unwrap();
    bed.put("b/file", "newest content").await;
    bed.write(writer, 14, ", more").await.unwrap();
    bed.close(writer).await.unwrap();
    assert_eq!(bed.object("b/file").await.unwrap(), b"newest content, more");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_saved_keeps_the_directory_where_it_is() {
    let bed = tree().await;
    let unsaved = bed.create("a/unsaved").await.unwrap();
    bed.write(unsaved, 0, "x").await.unwrap();
    bed.probe.fail(Operation::Put, ErrorKind::NoSpace, 1);
    assert_eq!(bed.rename("a", "b").await, Err(FsError::NoSpace));
    assert_eq!(bed.keys().await, ["a/", "a/sub/z", "a/x", "a/y", "other"]);
}

#[tokio::test(start_paused = true)]
async fn open_readers_follow_a_renamed_directory() {
    let bed = Bed::new();
    bed.put("a/sub/large", vec![3; 3 * MIB as usize]).await;
    let handle = bed.open("a/sub/large", READ).await.unwrap();
    assert_eq!(bed.read(handle, 0, 1).await.unwrap(), [3]);
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.read(handle, 2 * MIB, 1).await.unwrap(), [3]);
}

#[tokio::test(start_paused = true)]
async fn changes_below_wait_while_a_directory_is_renamed() {
    let bed = tree().await;
    let (directory, unsaved) = (
        bed.inode("a").await.unwrap(),
        bed.create("a/unsaved").await.unwrap(),
    );
    bed.write(unsaved, 0, "x").await.unwrap();
    let held = bed.probe.hold(Operation::DeleteMany);
    let name = name("late");
    let late = async {
        clock::sleep(Duration::from_secs(1)).await;
        let made = bed.make_directory(directory, &name, 0).await;
        made.map(|_| clock::now())
    };
    let written = async {
        clock::sleep(Duration::from_secs(1)).await;
        bed.write(unsaved, 1, "y").await
    };
    let begun = clock::now();
    let (renamed, late, written, ()) = tokio::join!(bed.rename("a", "b"), late, written, async {
        clock::sleep(Duration::from_secs(5)).await;
        held.add_permits(9);
    });
    renamed.unwrap();
    written.unwrap();
    assert!(late.unwrap() - begun >= Duration::from_secs(5));
    bed.close(unsaved).await.unwrap();
    assert_eq!(bed.object("b/unsaved").await.unwrap(), b"xy");
    assert!(bed.keys().await.contains(&"b/late/".to_owned()));
    assert!(bed.keys().await.iter().all(|key| !key.starts_with("a/")));
}

#[tokio::test(start_paused = true)]
async fn changes_below_a_long_rename_are_busy_in_the_end() {
    let bed = tree().await;
    let (directory, open) = (bed.inode("a").await.unwrap(), bed.open("a/x", WRITE).await);
    let open = open.unwrap();
    let held = bed.probe.hold(Operation::Copy);
    let names: Vec<_> = (0..1100).map(|number| name(&number.to_string())).collect();
    let changes = async {
        clock::sleep(Duration::from_secs(1)).await;
        let begun = clock::now();
        let made = names.iter().map(async |name| {
            let made = bed.make_directory(directory, name, 0).await;
            (made.map(drop), begun.elapsed())
        });
        let refused = futures_util::future::join_all(made).await;
        let written = bed.write(open, 3, "y").await;
        held.add_permits(9);
        (refused, written)
    };
    let (renamed, (refused, written)) = tokio::join!(bed.rename("a", "b"), changes);
    renamed.unwrap();
    let waits: Vec<u64> = refused
        .into_iter()
        .map(|(made, waited)| {
            assert!(matches!(made, Err(FsError::Busy(_))), "{made:?}");
            waited.as_secs()
        })
        .collect();
    // As many as may wait do so, for half a minute; the rest is told at once.
    let at_once = waits.iter().filter(|waited| **waited == 0).count();
    let late = waits.iter().filter(|waited| **waited == 30).count();
    assert_eq!((at_once, late), (76, 1024));
    assert!(matches!(written, Err(FsError::Busy(_))), "{written:?}");
    // Nothing was changed, and all goes on.
    bed.write(open, 3, "y").await.unwrap();
    bed.close(open).await.unwrap();
    assert_eq!(bed.object("b/x").await.unwrap(), b"a/xy");
}

#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_for_the_rename_of_a_directory_above() {
    let bed = tree().await;
    let unsaved = bed.create("a/unsaved").await.unwrap();
    bed.write(unsaved, 0, "x").await.unwrap();
    let held = bed.probe.hold(Operation::Copy);
    let (renamed, closed) = tokio::join!(bed.rename("a", "b"), async {
        clock::sleep(Duration::from_secs(1)).await;
        let closed = clock::deadline(Duration::from_secs(1), bed.close(unsaved)).await;
        held.add_permits(9);
        closed
    });
    renamed.unwrap();
    assert_eq!(closed, Ok(Ok(())));
    assert_eq!(bed.object("b/unsaved").await.unwrap(), b"x");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_directory_rename_goes_on() {
    let bed = tree().await;
    let held = bed.probe.hold(Operation::Copy);
    let renamed = clock::deadline(Duration::from_secs(1), bed.rename("a", "b"));
    assert!(renamed.await.is_err());
    held.add_permits(9);
    clock::sleep(Duration::from_secs(1)).await;
    assert_eq!(bed.keys().await, MOVED);
    assert_eq!(bed.stat("b").await.unwrap().kind, FileKind::Directory);
}

#[tokio::test(start_paused = true)]
async fn renaming_a_large_directory_deletes_in_thousands() {
    let bed = Bed::new();
    for number in 0..2500 {
        bed.put(&format!("a/{number:04}"), "").await;
    }
    bed.stat("a").await.unwrap();
    assert!(bed.stat("b").await.is_err());
    bed.requests();
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.requests(), "copy 2500, delete_many 3, list 6");
    assert_eq!(bed.keys().await.len(), 2500);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_under_way_survives_the_rename_of_its_directory() {
    let bed = tree().await;
    let directory = bed.inode("a").await.unwrap();
    // The answers about `a/x` are held back until it has moved, and say that it is not there.
    let held = bed.probe.hold(Operation::Head);
    let lookup = bed.lookup(directory, "x");
    let rename = async {
        while bed.probe.waiting() < 1 {
            tokio::task::yield_now().await;
        }
        bed.probe.release_all();
        bed.rename("a", "b").await.unwrap();
        held.add_permits(1);
    };
    let (found, ()) = tokio::join!(lookup, rename);
    let found = found.unwrap().attributes;
    assert_eq!(found.size, 3);
    assert_eq!(bed.inode("b/x").await, Ok(found.inode));
    assert_eq!(bed.read_file("b/x").await.unwrap(), b"a/x");
}

#[tokio::test(start_paused = true)]
async fn what_others_change_before_it_is_copied_moves_as_it_is() {
    let bed = tree().await;
    let held = bed.probe.hold(Operation::Copy);
    let (renamed, ()) = tokio::join!(bed.rename("a", "b"), async {
        clock::sleep(Duration::from_secs(1)).await;
        bed.put("a/x", "changed and longer").await;
        bed.delete("a/y").await;
        held.add_permits(9);
    });
    renamed.unwrap();
    assert_eq!(bed.keys().await, ["b/", "b/sub/z", "b/x", "other"]);
    assert_eq!(bed.object("b/x").await.unwrap(), b"changed and longer");
    assert_eq!(bed.read_file("b/x").await.unwrap(), b"changed and longer");
}

#[tokio::test(start_paused = true)]
async fn what_others_change_after_it_was_copied_is_copied_again() {
    let bed = tree().await;
    bed.inode("a").await.unwrap();
    assert_eq!(bed.stat("b").await, Err(FsError::NotFound));
    // The first listing is of what is copied, the second of what is deleted.
    let held = bed.probe.hold(Operation::List);
    held.add_permits(1);
    let (renamed, ()) = tokio::join!(bed.rename("a", "b"), async {
        clock::sleep(Duration::from_secs(1)).await;
        assert_eq!(bed.object("b/x").await.unwrap(), b"a/x");
        bed.put("a/x", "changed and longer").await;
        bed.put("a/new", "stays").await;
        held.add_permits(9);
    });
    renamed.unwrap();
    assert_eq!(bed.object("b/x").await.unwrap(), b"changed and longer");
    let keys = ["a/new", "b/", "b/sub/z", "b/x", "b/y", "other"];
    assert_eq!(bed.keys().await, keys);
}

#[tokio::test(start_paused = true)]
async fn what_others_change_all_the_time_is_not_deleted() {
    let bed = tree().await;
    bed.inode("a").await.unwrap();
    assert_eq!(bed.stat("b").await, Err(FsError::NotFound));
    let held = bed.probe.hold(Operation::List);
    let (renamed, ()) = tokio::join!(bed.rename("a", "b"), async {
        for version in 0..20 {
            clock::sleep(Duration::from_secs(1)).await;
            bed.put("a/x", format!("version {version}")).await;
            held.add_permits(1);
        }
    });
    assert!(matches!(renamed, Err(FsError::Busy(_))), "{renamed:?}");
    assert_eq!(bed.object("a/x").await.unwrap(), b"version 19");
    bed.probe.release_all();
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.keys().await, MOVED);
    assert_eq!(bed.object("b/x").await.unwrap(), b"version 19");
}

#[tokio::test(start_paused = true)]
async fn readers_of_a_version_that_others_replaced_do_not_follow() {
    let bed = Bed::new();
    for path in ["a/file", "file"] {
        bed.put(path, vec![3; 3 * MIB as usize]).await;
        let handle = bed.open(path, READ).await.unwrap();
        assert_eq!(bed.read(handle, 0, 1).await.unwrap(), [3]);
        bed.put(path, vec![4; 4 * MIB as usize]).await;
        match path {
            "file" => bed.rename("file", "moved").await.unwrap(),
            _ => bed.rename("a", "b").await.unwrap(),
        }
        let read = bed.read(handle, 2 * MIB, 1).await;
        assert_eq!(read, Err(FsError::Stale), "{path}");
    }
    assert_eq!(bed.stat("b/file").await.unwrap().size, 4 * MIB);
    assert_eq!(bed.stat("moved").await.unwrap().size, 4 * MIB);
}

#[tokio::test(start_paused = true)]
async fn a_store_without_order_cannot_rename_directories() {
    let bed = tree().await;
    bed.inode("a").await.unwrap();
    bed.probe.disorder();
    let renamed = bed.rename("a", "b").await;
    assert!(
        matches!(renamed, Err(FsError::Unsupported(_))),
        "{renamed:?}"
    );
    assert_eq!(bed.keys().await, ["a/", "a/sub/z", "a/x", "a/y", "other"]);
}

#[tokio::test(start_paused = true)]
async fn a_rename_is_not_resumed_when_its_copies_are_gone() {
    let bed = tree().await;
    bed.probe
        .fail(Operation::DeleteMany, ErrorKind::Unavailable, 1);
    assert!(matches!(bed.rename("a", "b").await, Err(FsError::Io(_))));
    // Somebody clears up and tries again.
    for key in ["b/x", "b/y", "b/sub/z", "b/"] {
        bed.delete(key).await;
    }
    clock::sleep(Duration::from_secs(100)).await;
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.keys().await, MOVED);
    assert_eq!(bed.object("b/x").await.unwrap(), b"a/x");
}

#[tokio::test(start_paused = true)]
async fn a_rename_is_not_resumed_over_what_others_put_there() {
    let bed = tree().await;
    bed.probe
        .fail(Operation::DeleteMany, ErrorKind::Unavailable, 1);
    assert!(matches!(bed.rename("a", "b").await, Err(FsError::Io(_))));
    bed.put("b/x", "theirs").await;
    assert_eq!(bed.rename("a", "b").await, Err(FsError::DirectoryNotEmpty));
    assert_eq!(bed.object("b/x").await.unwrap(), b"theirs");
    assert_eq!(bed.object("a/x").await.unwrap(), b"a/x");
}

#[tokio::test(start_paused = true)]
async fn a_rename_can_be_resumed_after_resuming_failed() {
    let bed = tree().await;
    let failed = |operation| bed.probe.fail(operation, ErrorKind::Unavailable, 1);
    failed(Operation::DeleteMany);
    assert!(bed.rename("a", "b").await.is_err());
    for operation in [Operation::List, Operation::Copy, Operation::DeleteMany] {
        bed.put("a/x", "changed").await;
        bed.inode("a").await.unwrap();
        bed.inode("b").await.unwrap();
        failed(operation);
        assert!(bed.rename("a", "b").await.is_err(), "{operation:?}");
        bed.probe.mend();
    }
    bed.rename("a", "b").await.unwrap();
    assert_eq!(bed.keys().await, MOVED);
    assert_eq!(bed.object("b/x").await.unwrap(), b"changed");
}
