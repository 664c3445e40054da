//! Writing files from front to end.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use penstock_base::{FsError, MIB, clock};
use penstock_bucket::BucketSettings;
use penstock_object::Operation;
use penstock_object_testing::MemoryStore;
use penstock_vfs::{Access, AttributeChanges, OpenOptions, Volume, WritePlace};
use tokio::time::advance;

use crate::support::{Bed, CALLER, READ, READ_WRITE, WRITE};

const TRUNCATE: OpenOptions = OpenOptions {
    truncate: true,
    ..WRITE
};

#[tokio::test(start_paused = true)]
async fn a_file_is_visible_in_the_store_only_when_closed() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    assert_eq!(bed.requests(), "head 1, list 1");
    bed.write(handle, 0, "hello ").await.unwrap();
    bed.write(handle, 6, "world").await.unwrap();
    assert!(bed.keys().await.is_empty());
    assert_eq!(bed.requests(), "");
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"hello world");
    assert_eq!(bed.requests(), "put 1");
    assert_eq!(bed.read_file("file").await.unwrap(), b"hello world");
}

#[tokio::test(start_paused = true)]
async fn a_created_file_is_found_on_this_mount_at_once() {
    let bed = Bed::new();
    let created = bed.created("file", WRITE).await.unwrap();
    bed.requests();
    let stat = bed.stat("file").await.unwrap();
    assert_eq!((stat.inode, stat.size), (created.entry.attributes.inode, 0));
    assert_eq!(bed.requests(), "");
    bed.write(created.opened.handle, 0, "12345").await.unwrap();
    assert_eq!(bed.stat("file").await.unwrap().size, 5);
}

#[tokio::test(start_paused = true)]
async fn creating_after_a_lookup_costs_nothing_more() {
    let bed = Bed::with(BucketSettings {
        negative_timeout: Duration::ZERO,
        ..BucketSettings::default()
    });
    assert_eq!(bed.stat("file").await, Err(FsError::NotFound));
    bed.requests();
    bed.create("file").await.unwrap();
    assert_eq!(bed.requests(), "");
}

#[tokio::test(start_paused = true)]
async fn an_empty_file_is_stored_when_closed() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    bed.requests();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.requests(), "put 1");
    assert_eq!(bed.object("file").await.unwrap(), b"");
}

#[tokio::test(start_paused = true)]
async fn exclusive_creation_of_an_existing_file_fails() {
    let bed = Bed::new();
    bed.put("file", "there").await;
    bed.put("d/x", "").await;
    assert_eq!(
        bed.created_new("file", WRITE).await.err(),
        Some(FsError::AlreadyExists)
    );
    assert_eq!(
        bed.created_new("d", WRITE).await.err(),
        Some(FsError::AlreadyExists)
    );
    assert_eq!(
        bed.created("d", WRITE).await.err(),
        Some(FsError::IsADirectory)
    );
    // A file that is only being written counts as well.
    bed.create("unsaved").await.unwrap();
    assert_eq!(
        bed.created_new("unsaved", WRITE).await.err(),
        Some(FsError::AlreadyExists)
    );
}

#[tokio::test(start_paused = true)]
async fn creation_of_an_existing_file_opens_it() {
    let bed = Bed::new();
    bed.put("file", "there").await;
    let created = bed.created("file", READ_WRITE).await.unwrap();
    assert_eq!(created.entry.attributes.size, 5);
    assert_eq!(
        bed.read(created.opened.handle, 0, 9).await.unwrap(),
        b"there"
    );
    bed.close(created.opened.handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"there");
}

#[tokio::test(start_paused = true)]
async fn size_and_time_follow_the_writer() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    let before = bed.stat("file").await.unwrap().modified;
    for number in 0..10 {
        bed.write(handle, number * 100, [0; 100]).await.unwrap();
        assert_eq!(bed.stat("file").await.unwrap().size, (number + 1) * 100);
    }
    assert!(bed.stat("file").await.unwrap().modified > before);
    assert_eq!(bed.metric("bucket_unsaved_files"), 1);
    assert_eq!(bed.metric("bucket_unsaved_bytes"), 1000);
    bed.requests();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.metric("bucket_unsaved_files"), 0);
    assert_eq!(bed.stat("file").await.unwrap().size, 1000);
    assert_eq!(bed.requests(), "put 1");
}

#[tokio::test(start_paused = true)]
async fn a_large_file_is_uploaded_in_parts() {
    let bed = Bed::over(MemoryStore::like_s3(), BucketSettings::default());
    let handle = bed.create("file").await.unwrap();
    let mut expected = Vec::new();
    for number in 0..20 {
        let block = vec![number as u8; MIB as usize];
        bed.write(handle, number * MIB, &block).await.unwrap();
        expected.extend(block);
        assert!(bed.keys().await.is_empty());
    }
    bed.close(handle).await.unwrap();
    assert!(bed.object("file").await.unwrap() == expected);
    let requests = bed.requests();
    assert!(
        requests.contains("complete_upload 1, create_upload 1"),
        "{requests}"
    );
    assert!(!requests.contains("put"), "{requests}");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_overwrites_is_refused() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "hello").await.unwrap();
    let refused = bed.write(handle, 0, "J").await;
    assert!(matches!(refused, Err(FsError::InvalidArgument(_))));
    assert_eq!(bed.metric("bucket_refused_writes_total"), 1);
    // What was written is not lost.
    bed.write(handle, 5, " world").await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"hello world");
}

#[tokio::test(start_paused = true)]
async fn overwriting_an_existing_file_without_truncation_is_refused() {
    let bed = Bed::new();
    bed.put("file", "there").await;
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    assert!(matches!(
        bed.write(handle, 0, "x").await,
        Err(FsError::InvalidArgument(_))
    ));
    // The file is as it was, and nobody's.
    assert_eq!(bed.read(handle, 0, 9).await.unwrap(), b"there");
    bed.requests();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.requests(), "");
    assert_eq!(bed.object("file").await.unwrap(), b"there");
}

#[tokio::test(start_paused = true)]
async fn a_write_behind_a_gap_waits_until_it_is_filled() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    let (third, second, first) = tokio::join!(
        bed.write(handle, 6, "ghi"),
        bed.write(handle, 3, "def"),
        async {
            advance(Duration::from_millis(900)).await;
            bed.write(handle, 0, "abc").await
        }
    );
    assert_eq!((first, second, third), (Ok(()), Ok(()), Ok(())));
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"abcdefghi");
}

#[tokio::test(start_paused = true)]
async fn a_write_behind_a_gap_that_stays_is_refused() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "abc").await.unwrap();
    let begun = clock::now();
    let refused = bed.write(handle, 1000, "x").await;
    assert!(matches!(refused, Err(FsError::InvalidArgument(_))));
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    assert_eq!(bed.metric("bucket_refused_writes_total"), 1);
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"abc");
}

#[tokio::test(start_paused = true)]
async fn writes_behind_a_gap_are_bounded_in_number() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    let writes: Vec<_> = (1..=300)
        .map(|number| {
            let volume = Arc::clone(&bed.volume);
            let data = Bytes::from_static(b"x");
            tokio::spawn(async move {
                let begun = clock::now();
                let written = volume
                    .write(&CALLER, handle, WritePlace::At(number), data)
                    .await;
                (written.is_err(), begun.elapsed())
            })
        })
        .collect();
    let mut at_once = 0;
    for write in writes {
        let (refused, after) = write.await.unwrap();
        assert!(refused);
        at_once += usize::from(after < Duration::from_secs(1));
    }
    assert_eq!(at_once, 300 - 256);
}

#[tokio::test(start_paused = true)]
async fn writes_behind_a_gap_are_bounded_in_bytes() {
    let bed = Bed::with_memory(MemoryStore::new(), BucketSettings::default(), 16 * MIB);
    let handle = bed.create("file").await.unwrap();
    let begun = clock::now();
    // A quarter of the budget may wait.
    assert!(
        bed.write(handle, 1, vec![0; 4 * MIB as usize + 1])
            .await
            .is_err()
    );
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(
        bed.write(handle, 1, vec![0; 4 * MIB as usize])
            .await
            .is_err()
    );
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn many_pieces_in_any_order_become_one_file() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    let mut order: Vec<u64> = (0..64).collect();
    // A fixed shuffle: multiplication by an odd number permutes a power of two.
    order.sort_by_key(|number| number * 37 % 64);
    let writes: Vec<_> = order
        .into_iter()
        .map(|number| {
            let volume = Arc::clone(&bed.volume);
            let data = Bytes::from(vec![number as u8; 1000]);
            tokio::spawn(async move {
                let place = WritePlace::At(number * 1000);
                volume.write(&CALLER, handle, place, data).await
            })
        })
        .collect();
    for write in writes {
        write.await.unwrap().unwrap();
    }
    bed.close(handle).await.unwrap();
    let expected: Vec<u8> = (0..64).flat_map(|number| vec![number; 1000]).collect();
    assert!(bed.object("file").await.unwrap() == expected);
}

#[tokio::test(start_paused = true)]
async fn a_second_writer_is_busy_until_the_first_closes() {
    let bed = Bed::new();
    let first = bed.create("file").await.unwrap();
    let second = bed.open("file", WRITE).await.unwrap();
    bed.write(first, 0, "abc").await.unwrap();
    assert!(matches!(
        bed.write(second, 3, "def").await,
        Err(FsError::Busy(_))
    ));
    assert!(matches!(
        bed.open("file", TRUNCATE).await,
        Err(FsError::Busy(_))
    ));
    bed.close(second).await.unwrap();
    bed.close(first).await.unwrap();
    let third = bed.open("file", WRITE).await.unwrap();
    bed.write(third, 3, "def").await.unwrap();
    bed.close(third).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"abcdef");
}

#[tokio::test(start_paused = true)]
async fn truncation_on_open_reaches_the_store_when_closed() {
    let bed = Bed::new();
    bed.put("file", "there").await;
    let handle = bed.open("file", TRUNCATE).await.unwrap();
    assert_eq!(bed.stat("file").await.unwrap().size, 0);
    assert_eq!(bed.object("file").await.unwrap(), b"there");
    bed.requests();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.requests(), "put 1");
    assert_eq!(bed.object("file").await.unwrap(), b"");
}

#[tokio::test(start_paused = true)]
async fn truncation_on_open_for_reading_empties_the_file() {
    for bed in [Bed::new(), Bed::staged()] {
        bed.put("file", "there").await;
        let options = OpenOptions {
            access: Access::Read,
            ..TRUNCATE
        };
        let handle = bed.open("file", options).await.unwrap();
        assert_eq!(bed.stat("file").await.unwrap().size, 0);
        assert_eq!(bed.read(handle, 0, 9).await.unwrap(), b"");
        bed.close(handle).await.unwrap();
        assert_eq!(bed.object("file").await.unwrap(), b"");
    }
}

#[tokio::test(start_paused = true)]
async fn truncation_of_an_empty_file_writes_nothing() {
    let bed = Bed::new();
    bed.put("file", "").await;
    let handle = bed.open("file", TRUNCATE).await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.requests(), "head 2, list 1");
    // Memory is not trusted when it says that there is nothing to remove.
    bed.put("file", "grown").await;
    let handle = bed.open("file", TRUNCATE).await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"");
}

fn size(size: u64) -> AttributeChanges {
    AttributeChanges {
        size: Some(size),
        ..AttributeChanges::default()
    }
}

#[tokio::test(start_paused = true)]
async fn truncation_by_path_reaches_the_store_at_once() {
    let bed = Bed::new();
    bed.put("file", "there").await;
    let inode = bed.inode("file").await.unwrap();
    bed.requests();
    let entry = bed
        .volume
        .set_attributes(&CALLER, inode, size(0))
        .await
        .unwrap();
    assert_eq!(entry.attributes.size, 0);
    assert_eq!(bed.requests(), "put 1");
    assert_eq!(bed.object("file").await.unwrap(), b"");
    assert_eq!(bed.metric("bucket_open_handles"), 0);
}

#[tokio::test(start_paused = true)]
async fn truncation_through_a_handle_begins_anew() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "draft").await.unwrap();
    let inode = bed.inode("file").await.unwrap();
    let changes = AttributeChanges {
        handle: Some(handle),
        ..size(0)
    };
    bed.volume
        .set_attributes(&CALLER, inode, changes)
        .await
        .unwrap();
    assert_eq!(bed.stat("file").await.unwrap().size, 0);
    bed.write(handle, 0, "final").await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"final");
}

#[tokio::test(start_paused = true)]
async fn truncation_to_another_size_is_unsupported() {
    let bed = Bed::new();
    bed.put("file", "there").await;
    let inode = bed.inode("file").await.unwrap();
    for other in [1, 4, 6] {
        let refused = bed.volume.set_attributes(&CALLER, inode, size(other)).await;
        assert!(matches!(refused, Err(FsError::Unsupported(_))));
    }
    bed.requests();
    bed.volume
        .set_attributes(&CALLER, inode, size(5))
        .await
        .unwrap();
    assert_eq!(bed.requests(), "");
    assert_eq!(bed.object("file").await.unwrap(), b"there");
    bed.put("d/x", "").await;
    let directory = bed.inode("d").await.unwrap();
    let refused = bed.volume.set_attributes(&CALLER, directory, size(0)).await;
    assert_eq!(refused, Err(FsError::IsADirectory));
}

#[tokio::test(start_paused = true)]
async fn truncation_of_a_file_that_another_handle_writes_is_busy() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "abc").await.unwrap();
    let inode = bed.inode("file").await.unwrap();
    let refused = bed.volume.set_attributes(&CALLER, inode, size(0)).await;
    assert!(matches!(refused, Err(FsError::Busy(_))));
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"abc");
}

#[tokio::test(start_paused = true)]
async fn a_read_only_mount_refuses_every_change() {
    let bed = Bed::with(BucketSettings {
        read_only: true,
        ..BucketSettings::default()
    });
    bed.put("file", "x").await;
    bed.put("d/", "").await;
    let read_only = Some(FsError::ReadOnly);
    assert_eq!(bed.open("file", WRITE).await.err(), read_only);
    assert_eq!(bed.created("new", WRITE).await.err(), read_only);
    assert_eq!(bed.mkdir("e").await.err(), read_only);
    assert_eq!(bed.unlink("file").await.err(), read_only);
    assert_eq!(bed.rmdir("d").await.err(), read_only);
    assert_eq!(bed.rename("file", "other").await.err(), read_only);
    assert_eq!(bed.symlink("file", "link").await.err(), read_only);
    let inode = bed.inode("file").await.unwrap();
    let refused = bed.volume.set_attributes(&CALLER, inode, size(0)).await;
    assert_eq!(refused.err(), read_only);
    let handle = bed.open("file", READ).await.unwrap();
    assert_eq!(bed.read(handle, 0, 1).await.unwrap(), b"x");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_given_up_leaves_the_file_intact() {
    let bed = Bed::new();
    bed.put("file", "there").await;
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    // It waits for its gap and is interrupted.
    let gap = bed.write(handle, 99, "x");
    assert!(
        clock::deadline(Duration::from_millis(10), gap)
            .await
            .is_err()
    );
    assert_eq!(bed.read(handle, 0, 9).await.unwrap(), b"there");
    bed.write(handle, 5, "!").await.unwrap();
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"there!");
}

#[tokio::test(start_paused = true)]
async fn a_file_created_for_reading_is_stored_when_closed() {
    for synced in [false, true] {
        let bed = Bed::new();
        let created = bed.created("file", READ).await.unwrap();
        let handle = created.opened.handle;
        assert!(!created.opened.closes_silently);
        if synced {
            bed.sync(handle).await.unwrap();
            assert_eq!(bed.object("file").await.unwrap(), b"");
        }
        bed.close(handle).await.unwrap();
        assert_eq!(bed.object("file").await.unwrap(), b"");
        assert_eq!(bed.stat("file").await.unwrap().size, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_drops_what_the_kernel_keeps() {
    let bed = Bed::new();
    bed.put("file", vec![1; 2 * MIB as usize]).await;
    for _ in 0..2 {
        bed.opened("file", READ).await.unwrap();
    }
    assert!(bed.opened("file", READ).await.unwrap().is_unchanged);
    // As a page that was changed through a mapping comes back.
    let changed = bed.open("file", READ_WRITE).await.unwrap();
    let refused = bed.write(changed, 0, vec![2; 4096]).await;
    assert!(matches!(refused, Err(FsError::InvalidArgument(_))));
    assert!(!bed.opened("file", READ).await.unwrap().is_unchanged);
}

#[tokio::test(start_paused = true)]
async fn a_first_write_that_was_given_up_leaves_the_file_readable() {
    let bed = Bed::new();
    bed.put("file", "there").await;
    let handle = bed.open("file", WRITE).await.unwrap();
    // It waits for the content that it goes on after, and is interrupted.
    let held = bed.probe.hold(Operation::Get);
    let write = bed.write(handle, 5, "!");
    assert!(
        clock::deadline(Duration::from_secs(1), write)
            .await
            .is_err()
    );
    bed.probe.release_all();
    held.add_permits(1);
    assert_eq!(bed.read_file("file").await.unwrap(), b"there");
    bed.write(handle, 5, "!").await.unwrap();
    assert!(matches!(bed.read_file("file").await, Err(FsError::Busy(_))));
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"there!");
}

/// Where the end is, the writer may believe wrongly, for other clients write, too.
#[tokio::test]
async fn pieces_of_an_append_go_to_the_end_in_order_or_one_fails() {
    const PIECE: u64 = 4096;
    for order in [[0, 1, 2, 3], [0, 2, 1, 3], [3, 2, 1, 0], [1, 2, 3, 0]] {
        for believed in [0, 13, 5000] {
            let bed = Bed::staged();
            bed.put("file", "there already").await;
            let options = OpenOptions {
                append: true,
                ..WRITE
            };
            let handle = bed.open("file", options).await.unwrap();
            let (mut expected, mut fails) = (b"there already".to_vec(), false);
            for piece in order {
                let data = vec![b'a' + piece as u8; PIECE as usize];
                let place = WritePlace::EndInPieces(believed + piece * PIECE);
                let written = bed
                    .volume
                    .write(&CALLER, handle, place, data.clone().into());
                match written.await {
                    Ok(_) => expected.extend(data),
                    Err(_) => fails = true,
                }
            }
            assert_eq!(fails, !order.is_sorted(), "{order:?}");
            bed.close(handle).await.unwrap();
            assert!(bed.object("file").await.unwrap() == expected, "{order:?}");
        }
    }
}
