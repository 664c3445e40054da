//! The network and the server fail; programs notice nothing, or get an error in time.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use penstock_devserver::{Fault, FaultRule, Faults, Operation};
use penstock_tests::{
    BUCKET, Bucket, Kind, Mount, Patience, Scratch,
    data::{digest, digest_of, noise},
    faults::{cut_body, passing_faults},
    penstock, system,
};

const MIB: usize = 1 << 20;
/// Bytes of a body that arrive before it is reset or cut.
const RESET_AFTER: u64 = 300_000;
/// What the mounts here are told: how long a silent request and a failing operation may last.
const REQUEST_TIMEOUT: &str = "2s";
const RETRY_TIMEOUT: &str = "20s";
/// An operation ends within the retry timeout, plus one request that was under way.
const DEADLINE: Duration = Duration::from_secs(30);
/// The same for failures that never end, which are waited for to the end.
const SHORT_RETRY_TIMEOUT: &str = "5s";
const SHORT_DEADLINE: Duration = Duration::from_secs(15);

const READS: [Operation; 1] = [Operation::GetObject];
const WRITES: [Operation; 4] = [
    Operation::PutObject,
    Operation::CreateUpload,
    Operation::UploadPart,
    Operation::CompleteUpload,
];

fn mount(bucket: &Bucket) -> Mount {
    patient_mount(bucket, RETRY_TIMEOUT)
}

/// A mount that tries failing operations for `retry_timeout`.
fn patient_mount(bucket: &Bucket, retry_timeout: &str) -> Mount {
    let options = bucket
        .options()
        .option("request-timeout", REQUEST_TIMEOUT)
        .option("retry-timeout", retry_timeout);
    bucket.mount_with(&options)
}

fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Runs `work` and fails the test when it lasts longer than anything may.
#[track_caller]
fn within_deadline<T>(what: &str, work: impl FnOnce() -> T) -> T {
    within(DEADLINE, what, work)
}

/// The same for a deadline of one's own.
#[track_caller]
fn within<T>(deadline: Duration, what: &str, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    let took = started.elapsed();
    assert!(took < deadline, "{what} took {took:?}");
    result
}

#[test]
fn reads_ride_out_every_passing_fault() {
    let faults = [passing_faults(RESET_AFTER), vec![cut_body(RESET_AFTER)]].concat();
    for kind in Kind::REMOTE {
        let bucket = Bucket::new(kind);
        let content = noise(1, 48 * MIB);
        bucket.data().put(BUCKET, "big", &content).expect("memory");
        let expected = digest_of(&content);
        for (name, rule) in &faults {
            let mount = mount(&bucket);
            bucket.fail(Faults::rule(rule.clone().on(&READS)));
            let found = within_deadline(name, || digest(&mount.join("big")));
            assert_eq!(found.expect(name), expected, "{kind:?}: {name}");
            bucket.heal();
            mount.unmount();
        }
    }
}

#[test]
fn writes_ride_out_every_passing_fault() {
    // Once in a file: a wire that damages every third part is beyond help.
    let flip = FaultRule::new(Fault::FlipByte { at: 500 }).next(1);
    let faults = [passing_faults(RESET_AFTER), vec![("flipped byte", flip)]].concat();
    for kind in Kind::REMOTE {
        let bucket = Bucket::new(kind);
        let mount = mount(&bucket);
        for (number, (name, rule)) in faults.iter().enumerate() {
            // A store may take minutes to put parts together, so silence then is no fault.
            let operations = match *name {
                "hang" => &WRITES[..3],
                _ => &WRITES,
            };
            for size in [1000, 40 * MIB] {
                let content = noise(number as u64, size);
                let key = format!("{number}-{size}");
                bucket.fail(Faults::rule(rule.clone().on(operations)));
                let written = within_deadline(name, || write_synced(&mount.join(&key), &content));
                written.unwrap_or_else(|error| panic!("{kind:?}: {name}: {error}"));
                let stored = bucket.data().get(BUCKET, &key);
                assert!(
                    stored.is_some_and(|stored| stored == content),
                    "{kind:?}: {name}"
                );
            }
        }
        bucket.heal();
        mount.unmount();
        assert_eq!(
            bucket.data().uploads(BUCKET),
            [],
            "{kind:?}: uploads were left"
        );
    }
}

#[test]
fn a_flipped_byte_never_reaches_a_program() {
    for kind in Kind::REMOTE {
        let bucket = Bucket::new(kind);
        let mount = mount(&bucket);
        let content = noise(5, 700_000);
        // Written through the mount, so that the store has a checksum to read it with.
        write_synced(&mount.join("file"), &content).expect("a write");
        let rule = FaultRule::new(Fault::FlipByte { at: 5000 })
            .on(&READS)
            .next(1);
        bucket.fail(Faults::rule(rule));
        match fs::read(mount.join("file")) {
            Ok(read) => assert!(read == content, "{kind:?}: damaged data was served"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EIO), "{kind:?}"),
        }
        bucket.heal();
        assert!(fs::read(mount.join("file")).expect("a read") == content);
        mount.unmount();
    }
}

#[test]
fn listings_and_changes_of_names_ride_out_errors() {
    for kind in Kind::REMOTE {
        let bucket = Bucket::new(kind);
        for number in 0..1500 {
            let key = format!("folder/{number:04}");
            bucket.data().put(BUCKET, &key, b"x").expect("memory");
        }
        let mount = mount(&bucket);
        let rule = FaultRule::new(Fault::InternalError).rate(0.3);
        bucket.fail(Faults::rule(rule));
        let names = within_deadline("a listing", || system::list(&mount.join("folder")));
        assert_eq!(names.expect("a listing").len(), 1500);
        within_deadline("names", || {
            fs::create_dir(mount.join("new")).expect("mkdir");
            fs::write(mount.join("new/file"), "content").expect("a write");
            fs::rename(mount.join("new"), mount.join("moved")).expect("rename");
            assert_eq!(
                fs::read(mount.join("moved/file")).expect("a read"),
                b"content"
            );
            fs::remove_file(mount.join("moved/file")).expect("unlink");
            fs::remove_dir(mount.join("moved")).expect("rmdir");
        });
        bucket.heal();
        mount.unmount();
    }
}

#[test]
fn lasting_failures_end_in_an_error_before_the_deadline() {
    for kind in Kind::REMOTE {
        for fault in [
            Fault::InternalError,
            Fault::Reset { after: 0 },
            Fault::Hang {
                duration_ms: 600_000,
            },
        ] {
            let bucket = Bucket::new(kind);
            bucket
                .data()
                .put(BUCKET, "there", &noise(1, MIB))
                .expect("memory");
            let mount = patient_mount(&bucket, SHORT_RETRY_TIMEOUT);
            system::status(&mount.join("there")).expect("a stat while all is well");
            let rule = FaultRule::new(fault.clone());
            bucket.fail(Faults::rule(rule));
            let what = format!("{kind:?}: {fault:?}");
            thread::scope(|scope| {
                scope.spawn(|| {
                    let read = within(SHORT_DEADLINE, &what, || fs::read(mount.join("there")));
                    expect_failure(&what, read.map(drop));
                });
                scope.spawn(|| {
                    let path = mount.join("new");
                    let written = within(SHORT_DEADLINE, &what, || write_synced(&path, b"lost"));
                    expect_failure(&what, written);
                });
            });
            bucket.heal();
            let again = fs::read(mount.join("there"));
            assert!(again.is_ok(), "{what}: it works again: {again:?}");
            write_synced(&mount.join("new"), b"kept").expect("it works again");
            mount.unmount();
            assert_eq!(
                bucket.data().get(BUCKET, "new").as_deref(),
                Some(&b"kept"[..])
            );
        }
    }
}

#[track_caller]
fn expect_failure(what: &str, result: io::Result<()>) {
    let error = result.expect_err(what).raw_os_error();
    assert!(
        matches!(error, Some(libc::EIO | libc::ETIMEDOUT)),
        "{what}: {error:?}"
    );
}

#[test]
fn transfers_resume_when_the_server_comes_back() {
    const PAUSE: Duration = Duration::from_secs(2);
    for kind in Kind::REMOTE {
        let bucket = Bucket::new(kind);
        let content = noise(3, 96 * MIB);
        bucket.data().put(BUCKET, "read", &content).expect("memory");
        let mount = mount(&bucket);
        // Slow enough that the crash comes in the middle.
        bucket.fail(Faults {
            bandwidth_total: Some(40 * MIB as u64),
            ..Faults::default()
        });
        thread::scope(|scope| {
            let reading = scope.spawn(|| digest(&mount.join("read")));
            let writing = scope.spawn(|| write_synced(&mount.join("written"), &content));
            thread::sleep(PAUSE);
            bucket.without_server(|| thread::sleep(PAUSE));
            bucket.heal();
            let digest = reading.join().expect("no panic").expect("the read resumes");
            assert_eq!(digest, digest_of(&content), "{kind:?}");
            writing
                .join()
                .expect("no panic")
                .expect("the write resumes");
        });
        assert!(
            bucket
                .data()
                .get(BUCKET, "written")
                .is_some_and(|found| found == content)
        );
        mount.unmount();
    }
}

#[test]
fn an_object_that_is_replaced_while_it_is_read_is_never_mixed() {
    for kind in Kind::REMOTE {
        let bucket = Bucket::new(kind);
        let old = noise(1, 64 * MIB);
        bucket.data().put(BUCKET, "file", &old).expect("memory");
        let mount = mount(&bucket);
        let mut file = File::open(mount.join("file")).expect("an open");
        let mut read = vec![0; MIB];
        file.read_exact(&mut read).expect("a read");
        bucket
            .data()
            .put(BUCKET, "file", &noise(2, 64 * MIB))
            .expect("memory");
        let outcome = file.read_to_end(&mut read);
        match outcome {
            Ok(_) => assert!(read == old, "{kind:?}: two versions were mixed"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{kind:?}"),
        }
        drop(file);
        assert!(old.starts_with(&read), "{kind:?}: two versions were mixed");
        mount.unmount();
    }
}

#[test]
fn a_slow_server_slows_down_and_nothing_else() {
    for kind in Kind::REMOTE {
        let bucket = Bucket::new(kind);
        let content = noise(4, 8 * MIB);
        bucket.data().put(BUCKET, "file", &content).expect("memory");
        let mount = mount(&bucket);
        bucket.fail(Faults {
            latency_ms: 200,
            bandwidth: Some(4 * MIB as u64),
            ..Faults::default()
        });
        Patience::seconds(30)
            .find(|| fs::read(mount.join("file")).ok())
            .filter(|read| *read == content)
            .expect("a slow read");
        write_synced(&mount.join("new"), &content).expect("a slow write");
        bucket.heal();
        mount.unmount();
    }
}

#[test]
fn the_tools_tell_what_could_not_be_saved_when_a_file_was_closed() {
    let denied = Fault::Status {
        status: 403,
        code: "AccessDenied".to_owned(),
    };
    let scratch = Scratch::new();
    let content = noise(3, 100_000);
    fs::write(scratch.path().join("file"), &content).expect("room");
    let bucket = Bucket::new(Kind::S3);
    let mount = mount(&bucket);
    let run = |arguments: &[&str]| {
        let mut command = penstock();
        let output = command.args(arguments).current_dir(scratch.path()).output();
        output.expect("it runs").status.code()
    };
    let path = |name| mount.join(name).display().to_string();
    let archived = run(&["tar", "-c", "-f", "a.tar", "file"]);
    assert_eq!(archived, Some(0));
    let (directory, copy, archive) = (path(""), path("copy"), path("a.tar"));
    let cases = [
        (["cp", "file", &copy].to_vec(), 1),
        (["tar", "-c", "-f", &archive, "file"].to_vec(), 2),
        (["tar", "-x", "-f", "a.tar", "-C", &directory].to_vec(), 2),
    ];
    for (arguments, expected) in &cases {
        bucket.fail(Faults::rule(FaultRule::new(denied.clone()).on(&WRITES)));
        assert_eq!(run(arguments), Some(*expected), "{arguments:?}");
        bucket.heal();
        assert_eq!(run(arguments), Some(0), "{arguments:?}");
    }
    mount.unmount();
    for name in ["copy", "file"] {
        assert_eq!(
            bucket.data().get(BUCKET, name).as_deref(),
            Some(&content[..])
        );
    }
}
