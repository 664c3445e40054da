//! Counters that tell of something cut short, given up or done again: what became of the bytes?
//!
//! Other counters of the kind are asked about where their cause is: those of the disk cache in
//! `disk_cache.rs`, those of stream volumes in `stream_faults.rs`, writes that are shortened in the tests
//! of `penstock-fuse`.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    thread,
    time::Duration,
};

use penstock_devserver::{Fault, FaultRule, Faults, Operation};
use penstock_tests::{
    BUCKET, Bucket, Kind, Mount, Scratch,
    data::{digest, digest_of, noise},
    shortage::{self, Mode},
    stats::metric,
};

const MIB: usize = 1 << 20;

fn short(bucket: &Bucket) -> Mount {
    let scratch = Scratch::new();
    bucket.mount_with(&shortage::options(bucket, Mode::Streaming, scratch.path()))
}

fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[track_caller]
fn expect_counted(mount: &Mount, counter: &str) {
    assert!(metric(mount, counter, "") > 0, "{counter}: it never was so");
}

#[test]
fn what_writers_that_waited_for_memory_wrote_is_whole() {
    const WRITERS: u64 = 12;
    let bucket = Bucket::new(Kind::S3);
    let mount = short(&bucket);
    bucket.fail(Faults::latency(Duration::from_millis(500)));
    let content = |number| noise(number, 16 * MIB + number as usize);
    thread::scope(|scope| {
        for number in 0..WRITERS {
            let path = mount.join(format!("file-{number}"));
            scope.spawn(move || write_synced(&path, &content(number)).expect("all is well"));
        }
    });
    expect_counted(&mount, "transfer_memory_waits_total");
    for number in 0..WRITERS {
        let stored = bucket.data().get(BUCKET, &format!("file-{number}"));
        assert!(stored == Some(content(number)), "file-{number} differs");
    }
    mount.unmount();
}

#[test]
fn requests_that_were_repeated_store_and_bring_the_same_bytes() {
    for kind in Kind::REMOTE {
        let bucket = Bucket::new(kind);
        let mount = bucket.mount();
        bucket.fail(Faults::rule(FaultRule::new(Fault::InternalError).rate(0.3)));
        for (number, size) in [1000, MIB, 30 * MIB].into_iter().enumerate() {
            let (name, content) = (format!("file-{number}"), noise(number as u64, size));
            write_synced(&mount.join(&name), &content).expect("they pass");
            assert!(bucket.data().get(BUCKET, &name).as_ref() == Some(&content));
            let read = fs::read(mount.join(&name)).expect("they pass");
            assert!(read == content, "{kind:?}: {name}");
        }
        expect_counted(&mount, "object_retries_total");
        bucket.heal();
        mount.unmount();
    }
}

#[test]
fn reads_that_were_resumed_bring_the_same_bytes() {
    for kind in Kind::REMOTE {
        let bucket = Bucket::new(kind);
        let content = noise(1, 40 * MIB);
        bucket.put_outside("file", &content);
        let mount = bucket.mount();
        let cut = FaultRule::new(Fault::CutBody { after: 100_000 });
        bucket.fail(Faults::rule(cut.rate(0.5).on(&[Operation::GetObject])));
        let found = digest(&mount.join("file")).expect("each brings some more");
        assert_eq!(found, digest_of(&content), "{kind:?}");
        expect_counted(&mount, "object_resumed_reads_total");
        bucket.heal();
        mount.unmount();
    }
}

/// Reads 4 MiB at each of `starts`, front to end: more is asked for behind each.
fn read_some_at(file: &mut File, content: &[u8], starts: impl Iterator<Item = usize>) {
    for start in starts {
        file.seek(SeekFrom::Start(start as u64)).expect("a seek");
        let mut found = vec![0; 4 * MIB];
        file.read_exact(&mut found).expect("a read");
        assert!(found == content[start..start + 4 * MIB], "at {start}");
    }
}

/// A file is read at more places than are read ahead of, so that the first are given up.
#[test]
fn bytes_that_were_dropped_before_anybody_read_them_are_fetched_again() {
    const PLACES: usize = 24;
    const APART: usize = 12 * MIB;
    let bucket = Bucket::new(Kind::S3);
    let content = noise(1, PLACES * APART);
    bucket.put_outside("file", &content);
    let mount = bucket.mount();
    let mut file = File::open(mount.join("file")).expect("an open");
    let places = || (0..PLACES).map(|place| place * APART);
    read_some_at(&mut file, &content, places());
    expect_counted(&mount, "transfer_prefetch_dropped_bytes_total");
    read_some_at(&mut file, &content, places().map(|start| start + 4 * MIB));
    drop(file);
    mount.unmount();
}

#[test]
fn an_upload_that_was_given_up_is_told_and_the_store_keeps_what_it_had() {
    for (kind, size) in [(Kind::S3, 1000), (Kind::Oss, 1000), (Kind::S3, 30 * MIB)] {
        let bucket = Bucket::new(kind);
        bucket.put_outside("file", b"before");
        let mount = bucket.mount_with(&bucket.options().option("retry-timeout", "1s"));
        let writes = [Operation::PutObject, Operation::CompleteUpload];
        let away = FaultRule::new(Fault::InternalError).on(&writes);
        bucket.fail(Faults::rule(away));
        assert!(write_synced(&mount.join("file"), &noise(1, size)).is_err());
        expect_counted(&mount, "bucket_failed_uploads_total");
        assert!(bucket.data().get(BUCKET, "file").as_deref() == Some(b"before"));
        bucket.heal();
        write_synced(&mount.join("file"), &noise(2, size)).expect("all is well again");
        assert!(bucket.data().get(BUCKET, "file") == Some(noise(2, size)));
        mount.unmount();
    }
}
