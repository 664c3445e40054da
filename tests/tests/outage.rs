//! The store goes away while little memory is full of readers and writers, and comes back: each
//! call ends in time, and nothing has to be restarted.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use penstock_devserver::{Fault, FaultRule, Faults};
use penstock_tests::{
    BUCKET, Bucket, Kind, Mount, Patience, Scratch,
    data::{digest, digest_of, noise},
    penstock, run_within,
};

const MIB: usize = 1 << 20;
/// Readers, and as many writers, all of whose files together are more than the memory.
const CROWD: usize = 10;
const FILE: usize = 7 * MIB + 321;
/// What the mounts here are told: how long a silent request and a failing operation may last.
const REQUEST_TIMEOUT: &str = "1s";
const RETRY_TIMEOUT: &str = "2s";
/// How long the store is away: longer than operations are retried.
const OUTAGE: Duration = Duration::from_secs(5);
/// How long one call may take: it may wait for memory that others hold until they fail.
const DEADLINE: Duration = Duration::from_secs(45);
const PATIENCE: Patience = Patience(DEADLINE);
/// How long leaving may take: up to three attempts to save each file, and the removal of uploads.
const LEAVING: Patience = Patience::seconds(120);

#[derive(Debug, Clone, Copy)]
enum Outage {
    /// Connections are accepted, and nothing is ever answered.
    Hang,
    /// Connections are refused.
    Away,
    /// The store answers that it is overloaded.
    Overloaded,
}

const OUTAGES: [Outage; 3] = [Outage::Hang, Outage::Away, Outage::Overloaded];

/// Runs `meanwhile` while the store is out.
fn during<T>(bucket: &Bucket, outage: Outage, meanwhile: impl FnOnce() -> T) -> T {
    let fault = match outage {
        Outage::Hang => Fault::Hang {
            duration_ms: 3_600_000,
        },
        Outage::Overloaded => Fault::SlowDown { retry_after: None },
        Outage::Away => {
            let mut result = None;
            bucket.without_server(|| result = Some(meanwhile()));
            return result.expect("it was run");
        }
    };
    bucket.fail(Faults::rule(FaultRule::new(fault)));
    let result = meanwhile();
    bucket.heal();
    result
}

/// A mount with little memory; a staged one if it is given a directory for that.
fn mount(bucket: &Bucket, staging: Option<&Path>) -> Mount {
    patient_mount(bucket, staging, RETRY_TIMEOUT)
}

/// The same, that tries failing operations for `retry_timeout`.
fn patient_mount(bucket: &Bucket, staging: Option<&Path>, retry_timeout: &str) -> Mount {
    let options = match staging {
        Some(staging) => bucket.staged_options(staging),
        None => bucket.options(),
    };
    let options = options
        .option("memory", "64MiB")
        .option("attr-timeout", "0s")
        .option("request-timeout", REQUEST_TIMEOUT)
        .option("retry-timeout", retry_timeout);
    bucket.mount_with(&options)
}

/// Runs `work` for streaming mode and for staged mode.
fn in_each_mode(work: impl Fn(Option<&Path>)) {
    work(None);
    let scratch = Scratch::new();
    work(Some(&scratch.folder("staging")));
}

fn seed_of(number: usize) -> u64 {
    number as u64 + 1
}

/// A bucket with a file for each reader.
fn filled() -> Bucket {
    let bucket = Bucket::new(Kind::S3);
    for number in 0..CROWD {
        let content = noise(seed_of(number), FILE);
        bucket.put_outside(&format!("there/{number}"), &content);
    }
    bucket
}

/// What `call` returns; fails the test when that is late, or no error that a store may cause.
#[track_caller]
fn in_time<T>(what: &str, call: impl FnOnce() -> io::Result<T>) -> Option<T> {
    let started = Instant::now();
    let result = call();
    let took = started.elapsed();
    assert!(took < DEADLINE, "{what} took {took:?}");
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let errno = error.raw_os_error();
            // EBUSY: the last attempt to write the file has not ended.
            let expected = matches!(errno, Some(libc::EIO | libc::ETIMEDOUT | libc::EBUSY));
            assert!(expected, "{what}: {error}");
            None
        }
    }
}

/// A listing begins with entries that no store is asked for, and fails all the same when its time is up.
#[test]
fn a_directory_is_not_waited_for_twice() {
    let bucket = filled();
    let mount = patient_mount(&bucket, None, "8s");
    bucket.without_server(|| {
        let started = Instant::now();
        assert!(!list(mount.path()), "nobody answers");
        let took = started.elapsed();
        assert!(took < Duration::from_secs(15), "{took:?}");
    });
}

/// Reads a file call by call; says whether all of it came.
fn read(path: &Path) -> bool {
    let what = format!("reading {}", path.display());
    let Some(mut file) = in_time(&what, || File::open(path)) else {
        return false;
    };
    let mut buffer = vec![0; MIB];
    loop {
        match in_time(&what, || file.read(&mut buffer)) {
            Some(0) => return true,
            Some(_) => {}
            None => return false,
        }
    }
}

/// Writes a file call by call; says whether fsync promised it.
fn write(path: &Path, content: &[u8]) -> bool {
    let what = format!("writing {}", path.display());
    let Some(mut file) = in_time(&what, || File::create(path)) else {
        return false;
    };
    let mut pieces = content.chunks(MIB);
    pieces.all(|piece| in_time(&what, || file.write_all(piece)).is_some())
        && in_time(&what, || file.sync_all()).is_some()
}

fn list(path: &Path) -> bool {
    in_time("a listing", || {
        fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()
    })
    .is_some()
}

/// Readers, writers and who lists, again and again for as long as `until` says.
fn crowd(mount: &Mount, until: Instant) {
    let again = |work: &dyn Fn() -> bool| {
        while Instant::now() < until {
            work();
        }
    };
    thread::scope(|scope| {
        for number in 0..CROWD {
            let (source, target) = (
                mount.join(format!("there/{number}")),
                mount.join(format!("written-{number}")),
            );
            scope.spawn(move || again(&|| read(&source)));
            let content = noise(seed_of(number), FILE);
            scope.spawn(move || again(&|| write(&target, &content)));
        }
        let root = mount.path().to_owned();
        scope.spawn(move || again(&|| list(&root)));
    });
}

/// Everything works, at once.
#[track_caller]
fn check_all_is_well(bucket: &Bucket, mount: &Mount, what: &str) {
    for number in 0..CROWD {
        let expected = digest_of(&noise(seed_of(number), FILE));
        let found = digest(&mount.join(format!("there/{number}"))).expect(what);
        assert!(found == expected, "{what}: {number}");
        let content = noise(seed_of(number), FILE);
        let name = format!("written-{number}");
        assert!(write(&mount.join(&name), &content), "{what}: {name}");
        let stored = bucket.data().get(BUCKET, &name);
        assert!(
            stored.is_some_and(|stored| stored == content),
            "{what}: {name}"
        );
    }
    assert!(list(mount.path()), "{what}");
}

#[test]
fn after_an_outage_everything_works_without_a_remount() {
    in_each_mode(|staging| {
        for outage in OUTAGES {
            let what = format!("{outage:?}, staged: {}", staging.is_some());
            let bucket = filled();
            let mount = mount(&bucket, staging);
            let end = Instant::now() + OUTAGE + Duration::from_secs(2);
            thread::scope(|scope| {
                scope.spawn(|| crowd(&mount, end));
                thread::sleep(Duration::from_secs(1));
                during(&bucket, outage, || thread::sleep(OUTAGE));
            });
            check_all_is_well(&bucket, &mount, &what);
            mount.unmount();
            // The answer to the creation of one may have been on its way when the store went away.
            assert_eq!(bucket.data().named_uploads(BUCKET), [], "{what}");
        }
    });
}

fn umount(mount: &Mount) -> Command {
    let mut umount = penstock();
    umount.arg("umount").arg(mount.path());
    umount
}

/// Programs that have written files which the store lacks, and have them open.
struct Writers {
    programs: Vec<Child>,
    content: Vec<u8>,
    _scratch: Scratch,
}

impl Writers {
    fn new(mount: &Mount) -> Self {
        let scratch = Scratch::new();
        let source = scratch.path().join("content");
        let content = noise(77, FILE);
        fs::write(&source, &content).expect("scratch is writable");
        let start = |number| {
            let target = mount.join(format!("unsaved-{number}"));
            let done = scratch.path().join(format!("done-{number}"));
            let script = "import sys, time; file = open(sys.argv[2], 'wb', buffering=0); \
                 file.write(open(sys.argv[1], 'rb').read()); \
                 open(sys.argv[3], 'w'); time.sleep(3600)";
            let mut writer = Command::new("python3");
            writer.args(["-c", script]).args([&source, &target, &done]);
            let program = writer.spawn().expect("python");
            PATIENCE.until("a file to be written", || done.exists());
            program
        };
        Self {
            programs: (0..3).map(start).collect(),
            content,
            _scratch: scratch,
        }
    }

    /// Kills them: their files are saved behind them.
    fn kill(&mut self) {
        for program in &mut self.programs {
            program.kill().expect("our own child");
            program.wait().expect("our own child");
        }
    }

    #[track_caller]
    fn check_all_is_stored(&self, bucket: &Bucket, what: &str) {
        for number in 0..self.programs.len() {
            let stored = bucket.data().get(BUCKET, &format!("unsaved-{number}"));
            let same = stored.is_some_and(|stored| stored == self.content);
            assert!(same, "{what}: {number}");
        }
    }
}

/// The store comes back while `penstock umount` waits: everything is saved.
#[test]
fn an_unmount_that_meets_an_outage_saves_everything_once_it_is_over() {
    in_each_mode(|staging| {
        for outage in OUTAGES {
            let what = format!("{outage:?}, staged: {}", staging.is_some());
            let bucket = Bucket::new(Kind::S3);
            // In streaming mode nothing is left to try again with once that has passed.
            let mount = patient_mount(&bucket, staging, "30s");
            let mut writers = Writers::new(&mount);
            let mut leaving = during(&bucket, outage, || {
                writers.kill();
                let leaving = umount(&mount).spawn().expect("penstock was just built");
                thread::sleep(Duration::from_secs(3));
                leaving
            });
            let ended = LEAVING.find(|| leaving.try_wait().expect("our own child"));
            assert!(ended.expect("it ends").success(), "{what}: {}", mount.log());
            writers.check_all_is_stored(&bucket, &what);
        }
    });
}

/// The store does not come back: the unmount ends and names what is not saved. The next mount saves what
/// is staged.
#[test]
fn an_unmount_in_a_lasting_outage_ends_and_names_what_is_not_saved() {
    const NOT_SAVED: Option<i32> = Some(3);
    in_each_mode(|staging| {
        let what = format!("staged: {}", staging.is_some());
        let bucket = Bucket::new(Kind::S3);
        let mounted = mount(&bucket, staging);
        let mut writers = Writers::new(&mounted);
        during(&bucket, Outage::Hang, || {
            writers.kill();
            let told = run_within(LEAVING, &mut umount(&mounted));
            assert_eq!(told.code, NOT_SAVED, "{what}: {told:?}");
            assert!(told.stderr.contains("unsaved-0"), "{what}: {told:?}");
            let process = mounted.process();
            PATIENCE.until("the process to end", || !process.is_alive());
        });
        if staging.is_some() {
            mount(&bucket, staging).unmount();
            writers.check_all_is_stored(&bucket, &what);
        }
    });
}

/// Programs that wait for a store that never answers, in every call that asks it something.
fn waiting(mount: &Mount, number: usize) -> Vec<Child> {
    let (source, target) = (
        mount.join(format!("there/{}", number % CROWD)),
        mount.join(format!("killed-{number}")),
    );
    let scripts = [
        format!("exec cat {}", source.display()),
        format!(
            "exec dd if=/dev/zero bs=1M count=20 of={}",
            target.display()
        ),
        format!("exec ls -l {}", mount.path().display()),
        format!(
            "exec mkdir {}",
            mount.join(format!("made-{number}")).display()
        ),
    ];
    let start = |script: &String| {
        // Who runs the tests in the background may have them ignore SIGINT.
        let mut shell = Command::new("env");
        let shell = shell.args(["--default-signal=INT", "sh", "-c", script]);
        let silent = shell.stdout(Stdio::null()).stderr(Stdio::null());
        silent.spawn().expect("a shell")
    };
    scripts.iter().map(start).collect()
}

#[test]
fn a_crowd_that_waits_for_a_store_that_hangs_can_be_killed() {
    in_each_mode(|staging| {
        let bucket = filled();
        let mount = mount(&bucket, staging);
        assert!(list(&mount.join("there")));
        let mut crowd = Vec::new();
        during(&bucket, Outage::Hang, || {
            crowd.extend((0..CROWD).flat_map(|number| waiting(&mount, number)));
            thread::sleep(Duration::from_secs(2));
            for (number, signal) in ["-KILL", "-INT"].into_iter().enumerate() {
                let every_other = crowd.iter().skip(number).step_by(2);
                let every_other = every_other.map(|child| child.id().to_string());
                drop(Command::new("kill").arg(signal).args(every_other).status());
            }
            let gone = |child: &mut Child| child.try_wait().expect("our own child").is_some();
            Patience::seconds(60).until("the killed to go", || crowd.iter_mut().all(gone));
        });
        check_all_is_well(&bucket, &mount, "after the killing");
        mount.unmount();
    });
}
