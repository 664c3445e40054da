//! Files that another client replaces while programs have them open: a program reads the version that
//! it began with, or hears that it is gone, whatever others do on the same mount.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, PermissionsExt},
    },
    path::Path,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use penstock_tests::{BUCKET, Bucket, Kind, Mount, Scratch, data::noise};

const MIB: usize = 1 << 20;
const SIZE: usize = 8 * MIB;

/// Sizes of the version that replaces the first.
const LATER: [usize; 3] = [SIZE, 4 * MIB + 99, SIZE + 4 * MIB + 99];

/// Asks the store at each look and each open.
const BELIEVE_NOTHING: (&str, &str) = ("attr-timeout", "0s");

/// One streaming and one staged mount of its own bucket, with this option.
fn mounts(scratch: &Scratch, (name, value): (&str, &str)) -> [(Bucket, Mount); 2] {
    [false, true].map(|staged| {
        let bucket = Bucket::new(Kind::S3);
        let options = if staged {
            bucket.staged_options(&scratch.path().join("staging"))
        } else {
            bucket.options()
        };
        let mount = bucket.mount_with(&options.option(name, value));
        (bucket, mount)
    })
}

/// A version of this many bytes and a later one with so many more or less.
fn versions(size: usize, more: isize) -> [Vec<u8>; 2] {
    let later = size.checked_add_signed(more).expect("a size");
    [noise(1, size), noise(2, later)]
}

/// Every combination of a size, of what is done, and of how much longer or shorter the later version is.
fn cases<T: Copy, const N: usize>(
    sizes: [usize; 2],
    done: [T; N],
) -> impl Iterator<Item = (usize, T, isize)> {
    let sizes = sizes.into_iter();
    let both = sizes.flat_map(move |size| done.map(|done| (size, done)));
    both.flat_map(|(size, done)| [5000, -5000].map(|more| (size, done, more)))
}

/// Stores the first version, reads it so many times, and puts the later one in its place.
#[track_caller]
fn replace_after(reads: usize, (bucket, path): (&Bucket, &Path), [first, later]: &[Vec<u8>; 2]) {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.expect("a name");
    bucket.put_outside(name, first);
    assert_eq!(
        fs::metadata(path).expect("a look").size(),
        first.len() as u64
    );
    for _ in 0..reads {
        assert!(fs::read(path).expect("a read") == *first);
    }
    bucket.put_outside(name, later);
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
    for (bucket, mount) in mounts(&scratch, BELIEVE_NOTHING) {
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
    for (bucket, mount) in mounts(&scratch, BELIEVE_NOTHING) {
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

#[test]
fn who_has_read_all_of_a_version_comes_to_its_end() {
    let scratch = Scratch::new();
    for (bucket, mount) in mounts(&scratch, BELIEVE_NOTHING) {
        let path = mount.join("file");
        let [first, later] = versions(8000, 1000);
        for opens in [0, 2] {
            bucket.put_outside("file", &first);
            for _ in 0..opens {
                assert!(fs::read(&path).expect("a read") == first);
            }
            let reader = File::open(&path).expect("an open");
            let mut buffer = vec![0; 9000];
            let read = reader.read_at(&mut buffer, 0).expect("a read");
            assert!(buffer[..read] == first);
            bucket.put_outside("file", &later);
            let expect_end = || {
                let read = reader.read_at(&mut vec![0; 9000], 8000);
                assert_eq!(read.expect("an end"), 0);
                assert_eq!(reader.metadata().expect("a size").size(), 8000);
            };
            expect_end();
            assert_eq!(fs::metadata(&path).expect("a look").size(), 9000);
            expect_end();
            assert!(fs::read(&path).expect("a read") == later);
            expect_end();
        }
        mount.unmount();
    }
}

/// The kernel knows the size of the version before, and has pages of it.
#[test]
fn who_opens_with_close_to_open_reads_all_of_the_version_that_is_there() {
    let scratch = Scratch::new();
    for (bucket, mount) in mounts(&scratch, ("close-to-open", "on")) {
        for (round, (size, opens, more)) in cases([8000, 3 * MIB], [0, 1, 3]).enumerate() {
            let path = mount.join(format!("file{round}"));
            let versions = versions(size, more);
            replace_after(opens, (&bucket, &path), &versions);
            let [_, later] = versions;
            let read = fs::read(&path).expect("a read");
            assert!(read == later, "{} bytes of {}", read.len(), later.len());
        }
        mount.unmount();
    }
}

/// The attributes of the version before are still believed.
#[test]
fn an_append_to_the_next_version_of_a_file_that_nobody_had_open_stands_at_its_end() {
    let scratch = Scratch::new();
    for (bucket, mount) in mounts(&scratch, ("attr-timeout", "60s")) {
        for (round, (size, reads, more)) in cases([8000, 3 * MIB / 2], [true, false]).enumerate() {
            let path = mount.join(format!("file{round}"));
            let versions = versions(size, more);
            replace_after(2, (&bucket, &path), &versions);
            let [_, later] = versions;
            let opened = OpenOptions::new().read(reads).append(true).open(&path);
            let mut appender = opened.expect("an open");
            if reads {
                let mut begun = [0; 10];
                appender.read_exact_at(&mut begun, 0).expect("a read");
                assert_eq!(begun, later[..10]);
            }
            appender.write_all(&[b'w'; 100]).expect("a write");
            appender.sync_all().expect("a save");
            drop(appender);
            for _ in 0..3 {
                let read = fs::read(&path).expect("a read");
                assert_eq!(read.len(), later.len() + 100, "{size} {reads} {more}");
                assert!(read.strip_suffix(&[b'w'; 100]) == Some(&later[..]));
            }
        }
        mount.unmount();
    }
}

/// The first of them makes the kernel drop its pages, which takes a moment.
#[test]
fn many_who_open_the_next_version_at_once_read_all_of_it() {
    const MANY: usize = 12;
    let scratch = Scratch::new();
    for (bucket, mount) in mounts(&scratch, BELIEVE_NOTHING) {
        for round in 0..60 {
            let path = mount.join(format!("file{round}"));
            let versions = versions([64 << 10, 3 * MIB / 2][round % 2], 9000);
            replace_after(3, (&bucket, &path), &versions);
            let [_, later] = versions;
            let start = Barrier::new(MANY);
            thread::scope(|scope| {
                for _ in 0..MANY {
                    scope.spawn(|| {
                        start.wait();
                        let read = fs::read(&path).expect("a read");
                        assert!(read == later, "round {round}: {} bytes", read.len());
                    });
                }
            });
        }
        mount.unmount();
    }
}

/// The attributes of the version before are still believed: the kernel hears that they are of another file, and
/// looks for it.
#[test]
fn a_mode_is_changed_of_the_version_that_is_there() {
    let scratch = Scratch::new();
    for (bucket, mount) in mounts(&scratch, ("posix-metadata", "on")) {
        let path = mount.join("file");
        let versions = versions(8000, 5000);
        replace_after(2, (&bucket, &path), &versions);
        let [_, later] = versions;
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a change");
        let shown = fs::metadata(&path).expect("a look");
        assert_eq!((shown.mode() & 0o777, shown.size()), (0o600, 13_000));
        for _ in 0..2 {
            assert!(fs::read(&path).expect("a read") == later);
        }
        mount.unmount();
    }
}

/// Each look that a `stat` or an open begins with has asked: the next version is for the next one.
#[test]
fn who_looks_at_and_opens_what_others_replace_again_and_again_hears_no_error() {
    let scratch = Scratch::new();
    for (bucket, mount) in mounts(&scratch, BELIEVE_NOTHING) {
        let path = mount.join("file");
        bucket.put_outside("file", &noise(0, 8000));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for seed in 1.. {
                    bucket.put_outside("file", &noise(seed, 8000));
                    if done.load(Relaxed) {
                        return;
                    }
                }
            });
            let used = (0..100).try_for_each(|_| {
                fs::metadata(&path)?;
                for writes in [false, true] {
                    OpenOptions::new().read(true).write(writes).open(&path)?;
                }
                io::Result::Ok(())
            });
            done.store(true, Relaxed);
            used.expect("no error");
        });
        mount.unmount();
    }
}

/// Whoever keeps a log open and writes nothing keeps an inode whose size the kernel knows.
#[test]
fn an_append_beside_an_idle_writer_of_the_version_before_stands_at_its_end() {
    let scratch = Scratch::new();
    for option in [
        ("attr-timeout", "60s"),
        ("close-to-open", "on"),
        BELIEVE_NOTHING,
    ] {
        for (bucket, mount) in mounts(&scratch, option) {
            let rounds = [false, true].map(|reads| [5000, -5000].map(|more| (reads, more)));
            for (round, (reads, more)) in rounds.into_iter().flatten().enumerate() {
                let path = mount.join(format!("log{round}"));
                let [first, later] = versions(8000, more);
                bucket.put_outside(&format!("log{round}"), &first);
                for _ in 0..2 {
                    assert!(fs::read(&path).expect("a read") == first);
                }
                let idle = OpenOptions::new().append(true).open(&path);
                let idle = idle.expect("an open");
                bucket.put_outside(&format!("log{round}"), &later);
                let opened = OpenOptions::new().read(reads).append(true).open(&path);
                let mut appender = opened.expect("an open");
                let added = vec![b'w'; 40_960];
                appender.write_all(&added).expect("a write");
                appender.sync_all().expect("a save");
                drop((appender, idle));
                let expected = [later, added].concat();
                let stored = bucket.data().get(BUCKET, &format!("log{round}"));
                assert!(
                    stored.is_some_and(|stored| stored == expected),
                    "{option:?} {round}"
                );
                for _ in 0..3 {
                    let read = fs::read(&path).expect("a read");
                    assert!(read == expected, "{option:?} {round}: {} bytes", read.len());
                }
            }
            mount.unmount();
        }
    }
}

/// A look at what is open shows that; a change by the path is of what is there.
#[test]
fn a_mode_is_changed_of_the_version_that_is_there_while_somebody_reads_the_one_before() {
    // More than is read ahead of the first bytes, however late the second version comes.
    const READ: usize = 8 * SIZE;
    let scratch = Scratch::new();
    for (bucket, mount) in mounts(&scratch, ("posix-metadata", "on")) {
        let path = mount.join("file");
        let [first, later] = [(1, READ), (2, SIZE)].map(|(seed, size)| noise(seed, size));
        bucket.put_outside("file", &first);
        let reader = File::open(&path).expect("an open");
        let mut begun = vec![0; MIB];
        reader.read_exact_at(&mut begun, 0).expect("a read");
        bucket.put_outside("file", &later);
        let mut left = vec![0; READ - MIB];
        let gone = reader.read_exact_at(&mut left, MIB as u64);
        assert_eq!(
            gone.map_err(|error| error.raw_os_error()),
            Err(Some(libc::ESTALE))
        );
        fs::metadata(&path).expect("a look");
        reader.metadata().expect("another");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a change");
        let changed = reader.set_permissions(Permissions::from_mode(0o640));
        let error = changed.expect_err("of another version").raw_os_error();
        assert_eq!(error, Some(libc::ESTALE));
        drop(reader);
        let shown = fs::metadata(&path).expect("a look");
        assert_eq!(
            (shown.mode() & 0o777, shown.size()),
            (0o600, later.len() as u64)
        );
        assert!(fs::read(&path).expect("their version") == later);
        mount.unmount();
    }
}

#[test]
fn a_file_that_is_made_where_an_open_one_was_removed_is_not_shown_as_removed() {
    let bucket = Bucket::new(Kind::S3);
    let mount = bucket.mount();
    let path = mount.join("file");
    for round in 0..50 {
        fs::write(&path, "one").unwrap();
        let removed = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let made = File::create(&path).unwrap();
        thread::sleep(Duration::from_millis(2));
        let link = format!("/proc/self/fd/{}", made.as_raw_fd());
        assert_eq!(fs::read_link(link).unwrap(), path, "round {round}");
        drop((made, removed));
    }
    mount.unmount();
}
