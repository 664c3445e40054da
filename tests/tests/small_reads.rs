//! What small reads cost, and what a handle that may read and write keeps.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use penstock_devserver::Operation;
use penstock_tests::{Bucket, Kind, data::noise};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const SIZE: usize = 24 * MIB;
const PIECE: usize = 16 * KIB;

/// GETs for one pass from front to end: parts of 1 MiB that double up to 8 MiB, each size as long as
/// the file was read up to it, and a few more when reads of the kernel overtake each other. Each piece
/// for itself would be 1,536.
const PASS_MAX: u64 = 16;

/// Memory that O_DIRECT may read into.
#[repr(align(4096))]
struct Aligned([u8; PIECE]);

fn bucket_with(content: &[u8]) -> Bucket {
    let bucket = Bucket::new(Kind::S3);
    bucket.put_outside("file", content);
    bucket
}

fn open_both_ways(path: &Path, flags: i32) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags);
    options.open(path).expect("a file opens for both")
}

fn read_in_pieces(file: &File, content: &[u8]) {
    let mut piece = Box::new(Aligned([0; PIECE]));
    for (index, expected) in content.chunks(PIECE).enumerate() {
        let offset = (index * PIECE) as u64;
        file.read_exact_at(&mut piece.0, offset).expect("a read");
        assert!(piece.0 == expected, "wrong bytes at {offset}");
    }
}

fn gets(bucket: &Bucket) -> u64 {
    bucket.server(|server| server.counters().operation(Operation::GetObject))
}

#[test]
fn a_reader_that_may_write_costs_a_get_for_each_part() {
    let content = noise(1, SIZE);
    let bucket = bucket_with(&content);
    let mount = bucket.mount();
    let file = open_both_ways(&mount.join("file"), 0);
    read_in_pieces(&file, &content);
    let first = gets(&bucket);
    assert!(first <= PASS_MAX, "{first}");
    read_in_pieces(&file, &content);
    let again = gets(&bucket) - first;
    assert!(again <= first, "{again} more than {first}");
    drop(file);
    mount.unmount();
}

#[test]
fn small_reads_past_the_cache_cost_a_get_for_each_part_every_time() {
    let content = noise(2, SIZE);
    let bucket = bucket_with(&content);
    let mount = bucket.mount();
    let file = open_both_ways(&mount.join("file"), libc::O_DIRECT);
    for pass in 1..4 {
        read_in_pieces(&file, &content);
        let gets = gets(&bucket);
        assert!(gets <= pass * PASS_MAX, "{gets} after {pass} passes");
    }
    drop(file);
    mount.unmount();
}

#[test]
fn what_is_refused_in_the_middle_is_not_read_afterwards() {
    let content = noise(3, SIZE);
    let bucket = bucket_with(&content);
    let mount = bucket.mount();
    let file = open_both_ways(&mount.join("file"), 0);
    read_in_pieces(&file, &content);
    for offset in [0, 5 * MIB as u64, 5 * MIB as u64 + 77] {
        let refused = file.write_at(&[0; PIECE], offset).expect_err("refused");
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL), "{refused}");
    }
    read_in_pieces(&file, &content);
    drop(file);
    read_in_pieces(&open_both_ways(&mount.join("file"), 0), &content);
    mount.unmount();
}

#[test]
fn what_is_added_through_a_handle_that_reads_is_never_shown_wrong() {
    let content = noise(4, 3 * MIB + 1234);
    let (old, added) = content.split_at(2 * MIB + 77);
    let bucket = bucket_with(old);
    let mount = bucket.mount();
    let file = open_both_ways(&mount.join("file"), 0);
    let mut head = vec![0; MIB];
    file.read_exact_at(&mut head, 0).expect("a read");
    file.write_all_at(added, old.len() as u64).expect("a write");
    let mut read = vec![0; content.len()];
    match file.read_exact_at(&mut read, 0) {
        Ok(()) => assert!(read == content, "wrong bytes while it is written"),
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EBUSY), "{error}"),
    }
    file.sync_all().expect("an fsync");
    file.read_exact_at(&mut read, 0).expect("a read");
    assert!(read == content, "wrong bytes after fsync");
    drop(file);
    let stored = std::fs::read(mount.join("file")).expect("a read");
    assert!(stored == content, "wrong bytes after close");
    mount.unmount();
}
