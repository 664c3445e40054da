//! Files that another client replaces while programs have them open: a program reads the version that
//! it began with, or hears that it is gone, whatever others do on the same mount.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use penstock_tests::{Bucket, Kind, Mount, Scratch, data::noise};

const MIB: usize = 1 << 20;
const SIZE: usize = 8 * MIB;

/// Sizes of the version that replaces the first.
const LATER: [usize; 3] = [SIZE, 4 * MIB + 99, SIZE + 4 * MIB + 99];

/// One streaming and one staged mount of its own bucket, which ask the store at each open.
fn mounts(scratch: &Scratch) -> [(Bucket, Mount); 2] {
    [false, true].map(|staged| {
        let bucket = Bucket::new(Kind::S3);
        let options = if staged {
            bucket.staged_options(&scratch.path().join("staging"))
        } else {
            bucket.options()
        };
        let mount = bucket.mount_with(&options.option("attr-timeout", "0s"));
        (bucket, mount)
    })
}

/// Reads on behind `at`, which is all of `first` or ends with `ESTALE`.
#[track_caller]
fn read_on(reader: &File, first: &[u8], mut at: usize) {
    let mut buffer = vec![0; 64 << 10];
    while at < first.len() {
        match reader.read_at(&mut buffer, at as u64) {
            Ok(count) => {
                assert!(count > 0, "an end at {at} of {} bytes", first.len());
                let expected = first.get(at..at + count);
                assert!(
                    expected == Some(&buffer[..count]),
                    "another version at {at}"
                );
                at += count;
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{error}");
                return;
            }
        }
    }
    assert!(
        matches!(reader.read_at(&mut buffer, at as u64), Ok(0) | Err(_)),
        "longer"
    );
}

/// Replaces a file of which one MiB was read, lets others do `meanwhile` with what replaced it, and
/// reads on.
#[track_caller]
fn read_beside(meanwhile: impl Fn(&Path, &[u8]) -> io::Result<()>) {
    let scratch = Scratch::new();
    for (bucket, mount) in mounts(&scratch) {
        let path = mount.join("file");
        for (round, size) in LATER.into_iter().enumerate() {
            let [first, later] = [(1, SIZE), (2, size)].map(|(seed, size)| noise(seed, size));
            bucket.put_outside("file", &first);
            let reader = File::open(&path).expect("an open");
            let mut begun = vec![0; MIB];
            reader.read_exact_at(&mut begun, 0).expect("a read");
            assert!(begun == first[..MIB], "round {round}");
            bucket.put_outside("file", &later);
            meanwhile(&path, &later).expect("the others");
            read_on(&reader, &first, 5 * MIB);
            read_on(&reader, &first, 0);
        }
        mount.unmount();
    }
}

#[test]
fn who_reads_hears_that_his_version_is_gone_whoever_looks_at_the_next() {
    read_beside(|path, later| {
        assert_eq!(fs::metadata(path)?.size(), later.len() as u64);
        Ok(())
    });
}

#[test]
fn who_reads_is_given_nothing_of_what_others_open_and_read() {
    read_beside(|path, later| {
        assert!(fs::read(path)? == later);
        Ok(())
    });
}

#[test]
fn who_reads_is_given_nothing_of_what_others_append_to_the_next_version() {
    read_beside(|path, later| {
        let mut appender = OpenOptions::new().append(true).open(path)?;
        appender.write_all(b"more")?;
        drop(appender);
        let read = fs::read(path)?;
        assert!(read.strip_suffix(b"more") == Some(later));
        Ok(())
    });
}

/// Who began to read what he changes hears that somebody else replaced it, and does not write over it.
#[test]
fn who_has_read_an_old_version_does_not_write_to_the_next() {
    let scratch = Scratch::new();
    for (bucket, mount) in mounts(&scratch) {
        let path = mount.join("file");
        let [first, later] = [1, 2].map(|seed| noise(seed, SIZE));
        bucket.put_outside("file", &first);
        let handle = OpenOptions::new().read(true).append(true).open(&path);
        let mut handle = handle.expect("an open");
        let mut begun = vec![0; MIB];
        handle.read_exact_at(&mut begun, 0).expect("a read");
        bucket.put_outside("file", &later);
        let written = handle.write_all(b"more").and_then(|()| handle.sync_all());
        let error = written.expect_err("of another version").raw_os_error();
        assert_eq!(error, Some(libc::ESTALE));
        read_on(&handle, &first, MIB);
        drop(handle);
        assert!(fs::read(&path).expect("their version") == later);
        mount.unmount();
    }
}
