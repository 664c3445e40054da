//! A fileset at several mount points of one machine: one process, one cache, each with flags and an end of its own.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::{fs::FileExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use penstock_base::DirectoryLock;
use penstock_devserver::{Fault, FaultRule, Operation};
use support::{Background, Ended, Foreground, Scratch, is_mounted, run, succeed, wait_until};

const SOURCE: &str = "fileset://home";

/// A fileset, and directories to mount it on.
struct Bed {
    scratch: Scratch,
    one: PathBuf,
    two: PathBuf,
}

impl Bed {
    /// None where nobody may make bind mounts.
    fn new() -> Option<Self> {
        if run(Command::new("unshare").args(["-m", "true"])).code != Some(0) {
            penstock_skips::skipped("only root may make bind mounts");
            return None;
        }
        let scratch = Scratch::new();
        let (one, two) = (scratch.folder("one"), scratch.folder("two"));
        let bed = Self { scratch, one, two };
        let bucket = format!("file://{}", bed.scratch.folder("bucket").display());
        succeed(&mut bed.penstock(&["fileset", "create", "home", "--store", &bucket]));
        Some(bed)
    }

    /// The same, mounted on both.
    fn shared() -> Option<Self> {
        let bed = Self::new()?;
        succeed(&mut bed.mounting(&bed.one, &[]));
        bed.share(&bed.two, &[]);
        Some(bed)
    }

    fn penstock(&self, arguments: &[&str]) -> Command {
        let mut command = self.scratch.penstock();
        command
            .args(arguments)
            .env("PENSTOCK_FILESET_DIR", self.scratch.path("filesets"));
        command
    }

    fn mounting(&self, place: &Path, options: &[&str]) -> Command {
        let mut command = self.penstock(&["mount", SOURCE]);
        command.arg(place).args(options);
        command
    }

    /// Mounts it on another place, which is told.
    #[track_caller]
    fn share(&self, place: &Path, options: &[&str]) {
        let ended = run(&mut self.mounting(place, options));
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        let told = ended.err.contains("shares the mount on");
        assert!(told && ended.err.lines().count() == 1, "{}", ended.err);
    }

    fn umount(&self, place: &Path) -> Ended {
        run(self.penstock(&["umount"]).arg(place))
    }

    /// Unmounts one of several.
    #[track_caller]
    fn part(&self, place: &Path) {
        let ended = self.umount(place);
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert!(ended.err.contains("goes on at"), "{}", ended.err);
        assert!(!is_mounted(place));
    }

    /// Unmounts the last one; then the process is gone and the fileset is free.
    #[track_caller]
    fn end(&self, place: &Path) {
        let process = self.process(place);
        let ended = self.umount(place);
        assert_eq!((ended.code, &*ended.err), (Some(0), ""));
        assert!(!runs(process) && !is_mounted(place));
        succeed(&mut self.penstock(&["fileset", "check", "home"]));
    }

    /// The process that answers for a mount point.
    #[track_caller]
    fn process(&self, place: &Path) -> u64 {
        let status = succeed(self.penstock(&["stats", "--json"]).arg(place));
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        assert_eq!(status["source"], SOURCE);
        status["pid"].as_u64().expect("a number")
    }

    #[track_caller]
    fn refused(&self, place: &Path, options: &[&str], words: &[&str]) {
        let ended = run(&mut self.mounting(place, options));
        assert!(ended.code != Some(0), "{options:?}: {ended:#?}");
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
        for word in words {
            assert!(ended.err.contains(word), "{word}: {}", ended.err);
        }
        assert!(!is_mounted(place));
    }
}

/// Whether a process runs; one that only its parent has not looked after yet does not.
fn runs(process: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    !stat.is_empty() && !state.starts_with('Z')
}

fn signal(process: u64, name: &str) {
    succeed(Command::new("kill").args(["-s", name, &process.to_string()]));
}

/// The flags of the mount on `place`.
fn flags(place: &Path) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("there");
    let place = place.to_str().expect("plain");
    let mut lines = table.lines().map(|line| line.split(' '));
    let found = lines.find_map(|mut fields| (fields.nth(4)? == place).then(|| fields.next()));
    found.flatten().expect("mounted").to_owned()
}

/// A file that this process has mapped.
struct Mapped(*mut libc::c_void);

#[allow(unsafe_code)]
impl Mapped {
    const SIZE: usize = 4096;

    fn new(path: &Path) -> Self {
        use std::os::fd::AsRawFd;
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.expect("there");
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file, at a place that the kernel chooses.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                Self::SIZE,
                rights,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at)
    }

    fn read(&self) -> u8 {
        // SAFETY: the mapping lives as long as `self`, and the file is as long.
        unsafe { self.0.cast::<u8>().read_volatile() }
    }

    fn write(&self, byte: u8) {
        // SAFETY: as above, and it was mapped to be written.
        unsafe { self.0.cast::<u8>().write_volatile(byte) }
    }
}

impl Drop for Mapped {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: nothing of it is used any more.
        unsafe { libc::munmap(self.0, Self::SIZE) };
    }
}

#[test]
fn what_is_written_at_one_mount_point_is_seen_at_the_other_at_once() {
    let Some(bed) = Bed::shared() else { return };
    let (one, two) = (bed.one.join("file"), bed.two.join("file"));
    let mut writer = File::create(&one).expect("writable");
    let reader = File::open(&two).expect("it is there");
    for round in 1..=100 {
        writer.write_all(&[round; 41]).expect("room");
        let size = 41 * u64::from(round);
        assert_eq!(fs::metadata(&two).expect("there").len(), size);
        let mut last = [0; 41];
        reader.read_exact_at(&mut last, size - 41).expect("written");
        assert_eq!(last, [round; 41]);
    }

    writer.set_len(Mapped::SIZE as u64).expect("ours");
    let (here, there) = (Mapped::new(&one), Mapped::new(&two));
    for round in 0..100 {
        here.write(round);
        assert_eq!(there.read(), round);
        reader.read_exact_at(&mut [0], 0).expect("there");
        let write = OpenOptions::new().write(true).open(&two).expect("there");
        write.write_all_at(&[round + 1], 0).expect("room");
        assert_eq!(here.read(), round + 1);
    }
    drop((here, there));

    fs::rename(&two, bed.two.join("renamed")).expect("there");
    assert!(!one.exists() && bed.one.join("renamed").exists());
    fs::remove_file(bed.one.join("renamed")).expect("there");
    assert_eq!(fs::read_dir(&bed.two).expect("there").count(), 0);
    let mut unlinked = Vec::new();
    let read = File::read_to_end(&mut { reader }, &mut unlinked).expect("open");
    assert_eq!(read, Mapped::SIZE);
    drop(writer);
    bed.part(&bed.two);
    bed.end(&bed.one);
}

#[test]
fn a_further_mount_point_has_flags_of_its_own() {
    let Some(bed) = Bed::new() else { return };
    succeed(&mut bed.mounting(&bed.one, &["--memory=256MiB"]));
    fs::write(bed.one.join("script"), "#!/bin/sh\n").expect("writable");
    succeed(Command::new("chmod").arg("755").arg(bed.one.join("script")));
    let same = ["--read-only", "--noexec", "--memory=256MiB"];
    bed.share(&bed.two, &same);
    let refused = fs::write(bed.two.join("x"), "").expect_err("it is read-only");
    assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    let started = Command::new(bed.two.join("script")).status();
    let refused = started.expect_err("nothing is executed there");
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    succeed(&mut Command::new(bed.one.join("script")));
    fs::write(bed.one.join("y"), "seen").expect("this one is not");
    assert_eq!(fs::read(bed.two.join("y")).expect("there"), b"seen");
    let flagged = flags(&bed.two);
    assert!(flagged.contains("nosuid") && flagged.contains("nodev"));

    let three = bed.scratch.folder("three");
    bed.share(&three, &["--suid", "-o", "dev=on"]);
    let flagged = flags(&three);
    for word in ["nosuid", "nodev", "noexec", "ro"] {
        assert!(!flagged.split(',').any(|flag| flag == word), "{flagged}");
    }
    let listed = succeed(&mut bed.penstock(&["stats"]));
    let paths = [&bed.one, &three, &bed.two].map(|place| place.display().to_string());
    assert!(listed.contains(&paths.join(", ")), "{listed}");
    bed.part(&bed.two);
    bed.part(&three);
    bed.end(&bed.one);
}

#[test]
fn each_mount_point_goes_alone_and_the_last_one_ends_the_mount() {
    let Some(bed) = Bed::new() else { return };
    for first_goes_first in [true, false] {
        succeed(&mut bed.mounting(&bed.one, &[]));
        bed.share(&bed.two, &[]);
        let process = bed.process(&bed.one);
        assert_eq!(bed.process(&bed.two), process);
        let (first, last) = match first_goes_first {
            true => (&bed.one, &bed.two),
            false => (&bed.two, &bed.one),
        };
        fs::write(first.join("file"), "kept").expect("writable");
        let open = File::open(last.join("file")).expect("there");
        bed.part(first);
        drop(open);
        assert_eq!(bed.process(last), process);
        assert_eq!(fs::read(last.join("file")).expect("there"), b"kept");
        for command in ["sync", "unsaved"] {
            succeed(bed.penstock(&[command]).arg(last));
        }
        succeed(&mut bed.penstock(&["fileset", "snapshot", "list", "home"]));
        let again = bed.umount(first);
        assert!(again.err.contains("nothing is mounted"), "{again:#?}");
        bed.share(first, &[]);
        bed.part(first);
        bed.end(last);
    }
}

#[test]
fn a_mount_point_that_is_in_use_stays_unless_it_is_taken_out_of_sight() {
    let Some(bed) = Bed::shared() else { return };
    let mut file = File::create(bed.two.join("file")).expect("writable");
    file.write_all(b"before ").expect("room");
    let refused = bed.umount(&bed.two);
    assert!(refused.err.contains("in use"), "{refused:#?}");
    assert!(is_mounted(&bed.two));
    let lazy = run(bed.penstock(&["umount", "--lazy"]).arg(&bed.two));
    assert_eq!(lazy.code, Some(0), "{lazy:#?}");
    assert!(!is_mounted(&bed.two));
    file.write_all(b"and after").expect("it goes on");
    drop(file);
    assert_eq!(
        fs::read(bed.one.join("file")).expect("there"),
        b"before and after"
    );
    bed.end(&bed.one);
}

#[test]
fn a_mount_point_that_was_left_is_mounted_on_by_another() {
    let Some(bed) = Bed::shared() else { return };
    let process = bed.process(&bed.one);
    // The program is told nothing of it.
    support::umount(&bed.one);
    let other = format!("file://{}", bed.scratch.folder("other").display());
    succeed(bed.penstock(&["mount", &other]).arg(&bed.one));
    let status = succeed(bed.penstock(&["stats"]).arg(&bed.one));
    assert!(status.contains(&other), "{status}");
    assert_eq!(bed.process(&bed.two), process);
    let ended = bed.umount(&bed.one);
    assert_eq!((ended.code, &*ended.err), (Some(0), ""));
    bed.share(&bed.one, &[]);
    assert_eq!(bed.process(&bed.one), process);
    bed.part(&bed.two);
    bed.end(&bed.one);
}

/// The process that had left the mount point answered for what another program had mounted there since: all was well, and
/// nothing was unmounted.
#[test]
fn what_another_program_mounted_where_a_mount_left_is_not_said_to_be_unmounted() {
    let Some(bed) = Bed::shared() else { return };
    bed.part(&bed.one);
    let tmpfs = ["-t", "tmpfs", "tmpfs"];
    succeed(Command::new("mount").args(tmpfs).arg(&bed.one));
    let ended = bed.umount(&bed.one);
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.err.contains("tmpfs"), "{}", ended.err);
    support::umount(&bed.one);
    bed.end(&bed.two);
}

/// One that had something mounted over it kept the others from being unmounted, and they were dead when the process had ended.
#[test]
fn a_mount_point_under_another_mount_keeps_none_from_ending() {
    let Some(bed) = Bed::shared() else { return };
    let process = bed.process(&bed.two);
    let third = bed.scratch.folder("a-third");
    bed.share(&third, &[]);
    succeed(
        Command::new("mount")
            .args(["-t", "tmpfs", "tmpfs"])
            .arg(&third),
    );
    signal(process, "TERM");
    wait_until("the others are gone", || {
        !is_mounted(&bed.one) && !is_mounted(&bed.two)
    });
    succeed(Command::new("umount").arg(&third));
    wait_until("it has ended", || !runs(process));
}

#[test]
fn of_a_killed_mount_each_mount_point_is_cleared_away_as_of_any() {
    let Some(bed) = Bed::shared() else { return };
    for place in [&bed.one, &bed.two] {
        fs::write(place.join("file"), "closed").expect("writable");
        signal(bed.process(place), "KILL");
        for dead in [&bed.one, &bed.two] {
            wait_until("it is dead", || {
                let error = fs::metadata(dead).err();
                error.and_then(|error| error.raw_os_error()) == Some(libc::ENOTCONN)
            });
        }
        // One is removed, and upon the other it is mounted anew.
        let ended = bed.umount(place);
        assert_eq!((ended.code, &*ended.err), (Some(0), ""));
        let (left, gone) = match *place == bed.one {
            true => (&bed.two, &bed.one),
            false => (&bed.one, &bed.two),
        };
        let ended = run(&mut bed.mounting(left, &[]));
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert!(ended.err.contains("removed the dead mount"), "{ended:#?}");
        assert_eq!(fs::read(left.join("file")).expect("there"), b"closed");
        bed.share(gone, &[]);
    }
    bed.part(&bed.one);
    bed.end(&bed.two);
}

#[test]
fn a_signal_ends_all_mount_points() {
    let Some(bed) = Bed::shared() else { return };
    let process = bed.process(&bed.two);
    fs::write(bed.two.join("file"), "kept").expect("writable");
    bed.part(&bed.one);
    bed.share(&bed.one, &[]);
    signal(process, "TERM");
    wait_until("it has ended", || !runs(process));
    assert!(!is_mounted(&bed.one) && !is_mounted(&bed.two));
    succeed(&mut bed.mounting(&bed.two, &[]));
    assert_eq!(fs::read(bed.two.join("file")).expect("there"), b"kept");
    bed.end(&bed.two);
}

#[test]
fn what_a_further_mount_point_cannot_have_is_refused() {
    let Some(bed) = Bed::new() else { return };
    let options = ["--memory=256MiB", "--read-only"];
    succeed(&mut bed.mounting(&bed.one, &options));
    let first = bed.one.to_str().expect("plain");
    let cache = format!("--cache-dir={}", bed.scratch.path("cache").display());
    for (options, words) in [
        (&["-f", "-o", "ro"][..], &["leave -f out"][..]),
        (&["-o", "ro", &cache], &["--cache-dir", first, "unmount"]),
        (
            &["-o", "ro,allow_other,memory=1GiB"],
            &["--memory", "--allow-other"],
        ),
        (&[], &["read-only", "give --read-only"]),
    ] {
        bed.refused(&bed.two, options, words);
    }
    fs::write(bed.two.join("hidden"), "").expect("ours");
    bed.refused(&bed.two, &options, &["not empty"]);
    bed.share(&bed.two, &[&options[..], &["--nonempty"]].concat());
    let busy = run(&mut bed.mounting(&bed.two, &options));
    assert!(busy.err.contains("is busy"), "{busy:#?}");
    bed.part(&bed.two);

    // Where this process does not see what is mounted there.
    let mut apart = Command::new("unshare");
    let mounting = bed.mounting(&bed.two, &["--nonempty", "--read-only"]);
    apart
        .args(["-m", "env"])
        .args(
            mounting.get_envs().filter_map(|(name, value)| {
                Some(format!("{}={}", name.to_str()?, value?.to_str()?))
            }),
        )
        .arg(mounting.get_program())
        .args(mounting.get_args());
    let apart = run(&mut apart);
    assert!(apart.err.contains("mount namespace"), "{apart:#?}");
    bed.end(&bed.one);
}

#[test]
fn who_serves_a_fileset_to_others_does_not_share_it() {
    let Some(bed) = Bed::new() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    drop(listener);
    let serving = bed
        .penstock(&["serve", SOURCE, "--listen", &address])
        .stderr(Stdio::null())
        .spawn();
    let _serving = Background(serving.expect("it was just built"));
    wait_until("it listens", || {
        std::net::TcpStream::connect(&address).is_ok()
    });
    bed.refused(
        &bed.two,
        &[],
        &["in use by process", &address, "mount -t nfs"],
    );
}

#[test]
fn mounts_that_start_at_once_share_one() {
    let Some(bed) = Bed::new() else { return };
    let places: Vec<_> = (0..4)
        .map(|n| bed.scratch.folder(&format!("at-{n}")))
        .collect();
    let start = |place: &PathBuf| {
        let mut command = bed.mounting(place, &[]);
        let child = command.stderr(Stdio::piped()).spawn();
        child.expect("it was just built")
    };
    let started: Vec<Child> = places.iter().map(start).collect();
    for (place, child) in places.iter().zip(started) {
        let mut child = Background(child);
        let mut said = String::new();
        let stderr = child.0.stderr.as_mut().expect("piped");
        stderr.read_to_string(&mut said).expect("text");
        let code = child.0.wait().expect("our own child").code();
        assert!(code == Some(0) && is_mounted(place), "{code:?}: {said}");
    }
    let (last, others) = places.split_last().expect("four");
    for place in others {
        bed.part(place);
    }
    bed.end(last);
}

/// Whatever else is mounted or served may have the fileset, and whoever waits asks whether it has.
#[test]
fn mounts_that_start_at_once_beside_a_mount_target_share_one() {
    let Some(bed) = Bed::new() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    drop(listener);
    let source = format!("file://{}", bed.scratch.folder("other").display());
    let serving = bed
        .penstock(&["serve", &source, "--listen", &address])
        .stderr(Stdio::null())
        .spawn();
    let _serving = Background(serving.expect("it was just built"));
    wait_until("it listens", || {
        std::net::TcpStream::connect(&address).is_ok()
    });
    let places = ["a", "b", "c", "d"].map(|name| bed.scratch.folder(name));
    for round in 0..12 {
        let begun = places.each_ref().map(|place| {
            let mut command = bed.mounting(place, &[]);
            let child = command.stderr(Stdio::piped()).spawn();
            Background(child.expect("it was just built"))
        });
        for mut child in begun {
            let mut said = String::new();
            let stderr = child.0.stderr.as_mut().expect("piped");
            stderr.read_to_string(&mut said).expect("text");
            let code = child.0.wait().expect("our own child").code();
            assert_eq!(code, Some(0), "{round}: {said}");
        }
        let [last, others @ ..] = &places;
        others.iter().for_each(|place| bed.part(place));
        bed.end(last);
    }
}

/// As two units of an init system may be, of which one keeps its process in the foreground.
#[test]
fn a_mount_that_starts_at_once_with_one_in_the_foreground_is_not_refused() {
    let Some(bed) = Bed::new() else { return };
    for round in 0..40 {
        let mut held = bed.mounting(&bed.one, &["-f"]);
        let held = held.stderr(Stdio::piped()).stdout(Stdio::null()).spawn();
        let mut held = Background(held.expect("it was just built"));
        // At another moment of its start each time.
        std::thread::sleep(Duration::from_millis(round % 8));
        let other = run(&mut bed.mounting(&bed.two, &[]));
        assert_eq!(other.code, Some(0), "{round}: {other:#?}");
        let has_ended = |held: &mut Background| {
            let ended = held.0.try_wait();
            ended.expect("our own child").is_some()
        };
        wait_until("one of them is there", || {
            has_ended(&mut held) || is_mounted(&bed.one)
        });
        if has_ended(&mut held) {
            // The other one came first.
            let mut said = String::new();
            let stderr = held.0.stderr.as_mut().expect("piped");
            stderr.read_to_string(&mut said).expect("text");
            assert!(said.contains("leave -f out"), "{round}: {said}");
        } else {
            bed.part(&bed.one);
        }
        bed.end(&bed.two);
    }
}

/// It waited a minute at most, in silence, and what it said then was about a mount that ends.
#[test]
fn who_takes_a_mount_point_away_waits_for_the_store_as_long_as_was_asked() {
    let Some(bed) = Bed::new() else { return };
    let server = support::strict_server();
    let penstock = |arguments: &[&str]| support::penstock(&bed.scratch, &server, arguments);
    let bucket = format!("s3://{}", support::BUCKET);
    let kept = ["--durability", "store", "--store", &bucket];
    succeed(penstock(&["fileset", "create", "slow"]).args(kept));
    for place in [&bed.one, &bed.two] {
        succeed(penstock(&["mount", "fileset://slow"]).arg(place));
    }
    let mut file = File::create(bed.one.join("file")).expect("writable");
    file.write_all(&[7; 1 << 20]).expect("room");
    let saves = [Operation::PutObject, Operation::UploadPart];
    let hang = Fault::Hang { duration_ms: 4500 };
    server.faults().add(FaultRule::new(hang).on(&saves));
    let timeout = ["--timeout=1s"];
    let ended = run(penstock(&["umount"]).args(timeout).arg(&bed.two));
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    assert!(ended.took < Duration::from_secs(4), "{ended:#?}");
    let told = ended.err.contains("not durable within 1s") && ended.err.contains("goes on at");
    assert!(told && !is_mounted(&bed.two), "{}", ended.err);
    server.faults().clear();
    drop(file);
    assert_eq!(bed.umount(&bed.one).code, Some(0));
}

/// Another command was let in before this one could be asked, and one of the two was refused with "in use by process".
#[test]
fn a_mount_in_the_foreground_keeps_its_turn_until_it_is_there() {
    let Some(bed) = Bed::new() else { return };
    let server = support::strict_server();
    let penstock = |arguments: &[&str]| support::penstock(&bed.scratch, &server, arguments);
    let bucket = format!("s3://{}", support::BUCKET);
    let kept = ["--durability", "store", "--store", &bucket];
    succeed(penstock(&["fileset", "create", "slow"]).args(kept));
    let hang = Fault::Hang { duration_ms: 2000 };
    server.faults().add(FaultRule::new(hang).next(1));
    let mounting = |place: &Path, options: &[&str]| {
        let mut command = penstock(&["mount", "fileset://slow"]);
        command.arg(place).args(options).stderr(Stdio::piped());
        command
    };
    let mut first = Foreground(mounting(&bed.one, &["-f"]).spawn().expect("just built"));
    wait_until("it starts", || {
        succeed(&mut bed.penstock(&["stats"])).contains("starting")
    });
    let turn = bed.scratch.path("filesets").join("slow");
    assert_eq!(DirectoryLock::holder(&turn), Some(first.0.id()));

    let in_front = run(&mut mounting(&bed.two, &["-f"]));
    assert!(in_front.err.contains("leave -f out"), "{in_front:#?}");
    assert_eq!(DirectoryLock::holder(&turn), None);
    let behind = run(&mut mounting(&bed.two, &[]));
    assert!(behind.err.contains("shares the mount on"), "{behind:#?}");
    bed.part(&bed.one);
    assert_eq!(bed.umount(&bed.two).code, Some(0));
    assert_eq!(first.end().0, Some(0));
}

#[test]
fn mount_points_that_go_at_once_end_the_mount() {
    let Some(bed) = Bed::new() else { return };
    for _ in 0..5 {
        succeed(&mut bed.mounting(&bed.one, &[]));
        bed.share(&bed.two, &[]);
        let process = bed.process(&bed.two);
        let (one, two) = std::thread::scope(|scope| {
            let [one, two] = [&bed.one, &bed.two].map(|place| scope.spawn(|| bed.umount(place)));
            (one.join().expect("no panic"), two.join().expect("no panic"))
        });
        assert_eq!(
            (one.code, two.code),
            (Some(0), Some(0)),
            "{one:#?} {two:#?}"
        );
        assert!(!runs(process));
        succeed(&mut bed.penstock(&["fileset", "check", "home"]));
    }
}

#[test]
fn what_is_mounted_while_the_other_mount_point_goes_stays() {
    let Some(bed) = Bed::new() else { return };
    succeed(&mut bed.mounting(&bed.one, &[]));
    let (mut old, mut new) = (&bed.one, &bed.two);
    for round in 0..10_u8 {
        fs::write(old.join("file"), [round]).expect("writable");
        let (unmounted, mounted) = std::thread::scope(|scope| {
            let unmounted = scope.spawn(|| bed.umount(old));
            let mounted = run(&mut bed.mounting(new, &[]));
            (unmounted.join().expect("no panic"), mounted)
        });
        assert_eq!(unmounted.code, Some(0), "{unmounted:#?}");
        assert_eq!(mounted.code, Some(0), "{mounted:#?}");
        assert!(!is_mounted(old));
        assert_eq!(fs::read(new.join("file")).expect("there"), [round]);
        (old, new) = (new, old);
    }
    bed.end(old);
}

#[test]
fn a_mount_in_the_foreground_is_shared_and_ends_with_the_last_mount_point() {
    let Some(bed) = Bed::new() else { return };
    let mut mounting = bed.mounting(&bed.one, &["-f"]);
    let mut foreground = Foreground::start(&mut mounting, &bed.one);
    wait_until("it answers", || {
        let stats = run(bed.penstock(&["stats"]).arg(&bed.one));
        stats.out.contains("mounted")
    });
    // As mount(8) does for a line of fstab.
    let mut helper = bed.scratch.called("mount.penstock");
    helper
        .env("PENSTOCK_FILESET_DIR", bed.scratch.path("filesets"))
        .arg(SOURCE)
        .arg(&bed.two)
        .args(["-n", "-o", "ro,_netdev,nofail"]);
    succeed(&mut helper);
    assert!(fs::write(bed.two.join("x"), "").is_err());
    bed.part(&bed.one);
    bed.end(&bed.two);
    assert_eq!(foreground.end().0, Some(0));
}

#[test]
fn who_is_not_root_is_told_that_only_root_makes_bind_mounts() {
    let Some(bed) = Bed::new() else { return };
    bed.scratch.folder("run");
    succeed(
        Command::new("chown")
            .arg("-R")
            .arg("65534:65534")
            .arg(bed.scratch.path(".")),
    );
    let program = bed.scratch.path("program");
    // Written by this process it could be busy: a program that another test starts has what is open here for a moment.
    let mut copy = Command::new("cp");
    succeed(copy.arg(env!("CARGO_BIN_EXE_penstock")).arg(&program));
    let mount = |place: &Path| {
        let mounting = bed.mounting(place, &[]);
        let envs = mounting.get_envs();
        let envs = envs.filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        let mut command = Command::new(&program);
        command
            .env_clear()
            .envs(envs)
            .env("XDG_RUNTIME_DIR", bed.scratch.path("run"))
            .args(mounting.get_args());
        run(command.uid(65534).gid(65534))
    };
    let first = mount(&bed.one);
    if first.code != Some(0) {
        return penstock_skips::skipped(format!("nobody cannot mount: {}", first.err));
    }
    let refused = mount(&bed.two);
    assert!(refused.err.contains("only root may make"), "{refused:#?}");
    assert!(refused.err.contains("mount --bind"), "{refused:#?}");
}
