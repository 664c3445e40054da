//! `--save=behind` on real mounts: a close is answered by the journal, and nothing is lost by that.

#![allow(clippy::disallowed_methods)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, Permissions},
    io::Write,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant, UNIX_EPOCH},
};

use penstock_devserver::{Fault, FaultRule, Faults, Operation, Server};
use penstock_tests::{
    BUCKET, Bucket, Kind, Mount, MountOptions, Patience, Scratch, data::noise, penstock,
    run_within, soak::Chance, stats::metric,
};

const PATIENCE: Patience = Patience::seconds(60);
const LATENCY: Duration = Duration::from_millis(50);

/// A bucket and a staging directory, mounted as often as a test likes.
struct Bed {
    bucket: Bucket,
    scratch: Scratch,
}

impl Bed {
    fn new(kind: Kind) -> Self {
        Self {
            bucket: Bucket::new(kind),
            scratch: Scratch::new(),
        }
    }

    fn staging(&self) -> PathBuf {
        self.scratch.path().join("staging")
    }

    fn options(&self) -> MountOptions {
        let options = self.bucket.staged_options(&self.staging());
        options
            .option("save", "behind")
            .option("posix-metadata", "on")
            .option("memory", "64MiB")
    }

    /// A mount that saves nothing by itself in the time of a test.
    #[track_caller]
    fn mount_idle(&self) -> Mount {
        let options = self.options().option("save-after", "1h");
        self.bucket.mount_with(&options.option("unsaved-age", "1h"))
    }

    #[track_caller]
    fn mount_after(&self, after: &str) -> Mount {
        self.bucket
            .mount_with(&self.options().option("save-after", after))
    }

    fn stored(&self, name: &str) -> Option<Vec<u8>> {
        self.bucket.data().get(BUCKET, name)
    }

    fn files(&self, folder: &str) -> Vec<PathBuf> {
        let files = fs::read_dir(self.staging().join(folder)).expect("a staging directory");
        files.flatten().map(|file| file.path()).collect()
    }

    /// Returns when the store has nothing to do any more, and had not for a while.
    fn wait_for_what_is_under_way(&self) {
        let mut quiet = Instant::now();
        while quiet.elapsed() < 2 * LATENCY {
            thread::sleep(LATENCY / 10);
            if self.bucket.server(|server| server.counters().in_flight) > 0 {
                quiet = Instant::now();
            }
        }
    }

    fn requests(&self, operation: Operation) -> u64 {
        self.bucket
            .server(|server| server.counters().operation(operation))
    }

    fn all_requests(&self) -> u64 {
        self.bucket.server(|server| server.counters().total())
    }

    fn reset(&self) {
        self.bucket.server(Server::reset_counters);
    }
}

/// Refuses what is to be stored.
fn refused() -> FaultRule {
    let fault = Fault::Status {
        status: 403,
        code: "AccessDenied".to_owned(),
    };
    FaultRule::new(fault).on(&[Operation::PutObject])
}

/// What rsync and editors do.
fn replace(folder: &Path, name: &str, content: &[u8]) {
    let temporary = folder.join(format!(".{name}.tmp"));
    fs::write(&temporary, content).expect("a write");
    let file = File::options().write(true).open(&temporary).expect("there");
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000);
    file.set_modified(time).expect("its time");
    drop(file);
    fs::set_permissions(&temporary, Permissions::from_mode(0o640)).expect("its mode");
    fs::rename(&temporary, folder.join(name)).expect("a rename");
}

#[test]
fn unsaved_names_what_waits_and_why_it_could_not_be_saved() {
    let bed = Bed::new(Kind::S3);
    bed.bucket.put_outside("old", b"to be removed");
    let unsaved = |mount: &Mount| -> Vec<serde_json::Value> {
        let mut command = penstock();
        command.arg("unsaved").arg("--json").arg(mount.path());
        let told = run_within(PATIENCE, &mut command).expect_success().stdout;
        serde_json::from_str(&told).expect("JSON")
    };
    let mount = bed.mount_idle();
    assert_eq!(unsaved(&mount), Vec::<serde_json::Value>::new());
    fs::create_dir(mount.join("made")).expect("mkdir");
    fs::write(mount.join("made/file"), noise(1, 4500)).expect("a write");
    fs::remove_file(mount.join("old")).expect("a removal");
    let mut told: Vec<_> = unsaved(&mount)
        .iter()
        .map(|item| {
            assert!(item["age"].is_u64() && item["reason"].is_null(), "{item}");
            let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
            (text("path"), text("kind"), item["bytes"].as_u64())
        })
        .collect();
    told.sort();
    let expected = |path: &str, kind: &str, bytes| (path.to_owned(), kind.to_owned(), Some(bytes));
    let all = [
        expected("made/", "name", 0),
        expected("made/file", "file", 4500),
        expected("old", "removal", 0),
    ];
    assert_eq!(told, all);
    bed.bucket.fail(Faults::rule(refused()));
    let synced = File::open(mount.join("made/file")).and_then(|file| file.sync_all());
    synced.expect_err("it is refused");
    let reasons = unsaved(&mount);
    let file = reasons.iter().find(|item| item["path"] == "made/file");
    let reason = file.and_then(|item| item["reason"].as_str());
    assert!(
        reason.is_some_and(|reason| reason.contains("permission denied")),
        "{reasons:?}"
    );
    bed.bucket.heal();
    mount.unmount();
}

#[test]
fn a_temporary_file_that_is_renamed_is_one_put_under_its_last_name() {
    const FILES: u64 = 60;
    for kind in Kind::REMOTE {
        let bed = Bed::new(kind);
        bed.bucket.put_outside("there", b"another client's");
        let mount = bed.mount_idle();
        // The first is sent twice to an imitation of S3, which is not asked whether a name is free from then on.
        File::create(mount.join("first"))
            .and_then(|file| file.sync_all())
            .expect("a sync");
        fs::create_dir(mount.join("new")).expect("mkdir");
        for folder in ["", "new"] {
            let folder = mount.join(folder);
            bed.reset();
            for number in 0..FILES {
                replace(&folder, &format!("{number}"), &noise(number, 4500));
            }
            let asked = bed.all_requests();
            assert!(asked <= FILES / 5, "{kind:?}: {asked} requests");
            for number in 0..FILES {
                let found = fs::metadata(folder.join(format!("{number}"))).expect("there");
                assert_eq!(found.permissions().mode() & 0o777, 0o640);
            }
            assert_eq!(
                bed.all_requests(),
                asked,
                "what was made here is known here"
            );
        }
        bed.reset();
        mount.unmount();
        // One is that of the folder.
        let puts = 2 * FILES + 1;
        assert_eq!(bed.requests(Operation::PutObject), puts);
        let asked = bed.all_requests() - puts;
        assert!(asked <= FILES / 5, "{kind:?}: {asked} more requests");
        for number in 0..FILES {
            for folder in ["", "new/"] {
                let stored = bed.stored(&format!("{folder}{number}"));
                assert!(stored == Some(noise(number, 4500)), "{folder}{number}");
                assert_eq!(bed.stored(&format!("{folder}.{number}.tmp")), None);
            }
        }
        assert_eq!(bed.files("files"), Vec::<PathBuf>::new());
    }
}

#[test]
fn closes_do_not_wait_for_a_distant_store() {
    const FILES: u64 = 100;
    let bed = Bed::new(Kind::S3);
    let mount = bed.mount_after("5s");
    fs::create_dir(mount.join("new")).expect("mkdir");
    bed.bucket.fail(Faults::latency(LATENCY));
    bed.reset();
    for number in 0..FILES {
        fs::write(mount.join(format!("new/{number}")), noise(number, 4500)).expect("a write");
    }
    let early = bed.requests(Operation::PutObject);
    assert!(early <= 1, "{early} though no file is due yet");
    let waiting = metric(&mount, "bucket_unsaved_files", "");
    assert!((FILES..=FILES + 1).contains(&waiting), "{waiting} wait");
    PATIENCE.until("everything to be saved", || {
        metric(&mount, "bucket_unsaved_files", "") == 0
    });
    let puts = bed.requests(Operation::PutObject);
    assert_eq!(
        puts,
        FILES + 2,
        "the folder's, and the first file is sent twice"
    );
    mount.unmount();
}

#[test]
fn what_is_removed_before_it_was_saved_costs_nothing() {
    let bed = Bed::new(Kind::S3);
    let mount = bed.mount_idle();
    let folder = mount.join("new");
    fs::create_dir(&folder).expect("mkdir");
    bed.reset();
    for number in 0..50 {
        fs::write(folder.join(format!("{number}")), noise(number, 4500)).expect("a write");
    }
    for number in 0..50 {
        fs::remove_file(folder.join(format!("{number}"))).expect("a removal");
    }
    assert_eq!(bed.all_requests(), 0);
    fs::remove_dir(&folder).expect("it is empty");
    mount.unmount();
    assert_eq!(bed.requests(Operation::PutObject), 0);
}

#[test]
fn fsync_of_files_and_directories_means_in_the_store() {
    for kind in Kind::REMOTE {
        let bed = Bed::new(kind);
        let mount = bed.mount_idle();
        let file = File::create(mount.join("file")).expect("new");
        fs::write(mount.join("file"), b"content").expect("a write");
        assert_eq!(bed.stored("file"), None);
        file.sync_all().expect("a sync");
        assert_eq!(bed.stored("file").as_deref(), Some(&b"content"[..]));
        fs::create_dir(mount.join("folder")).expect("mkdir");
        replace(&mount.join("folder"), "name", b"renamed");
        assert_eq!(bed.stored("folder/name"), None);
        let folder = File::open(mount.join("folder")).expect("a directory");
        folder.sync_all().expect("a sync of the directory");
        assert_eq!(bed.stored("folder/name").as_deref(), Some(&b"renamed"[..]));
        let rule = refused();
        bed.bucket.fail(Faults::rule(rule));
        fs::write(mount.join("folder/other"), b"other").expect("the journal has it");
        folder.sync_all().expect_err("the store does not have it");
        bed.bucket.heal();
        folder.sync_all().expect("it has it now");
        drop((file, folder));
        mount.unmount();
    }
}

#[test]
fn the_command_sync_means_in_the_store_and_tells_what_is_not() {
    let bed = Bed::new(Kind::S3);
    let mount = bed.mount_idle();
    bed.bucket.put_outside("gone", b"to be removed");
    let folder = mount.join("folder");
    fs::create_dir(&folder).expect("mkdir");
    fs::write(folder.join("file"), b"content").expect("a write");
    fs::remove_file(mount.join("gone")).expect("a removal");
    assert_eq!(bed.stored("folder/file"), None);
    let sync = |path: &Path| run_within(PATIENCE, penstock().arg("sync").arg(path));
    sync(&folder).expect_success();
    assert_eq!(bed.stored("folder/file").expect("stored"), b"content");
    assert!(bed.stored("gone").is_some());
    sync(mount.path()).expect_success();
    assert_eq!(bed.stored("gone"), None);
    let failed = sync(&mount.join("nothing"));
    assert_eq!(failed.code, Some(1), "{failed:?}");
    mount.unmount();
}

#[test]
fn fsync_to_the_journal_needs_no_store_and_outlives_a_kill() {
    let bed = Bed::new(Kind::S3);
    let options = bed.options().option("save-after", "1h");
    let options = options
        .option("unsaved-age", "1h")
        .option("fsync", "journal");
    let mount = bed.bucket.mount_with(&options);
    let told = mount.log();
    let promise = "fsync waits for the disk of the staging directory, `penstock sync` and unmounting for the store";
    assert!(told.contains(promise), "{told}");
    let folder = mount.join("folder");
    fs::create_dir(&folder).expect("mkdir");
    let content = noise(1, 4500);
    bed.bucket.without_server(|| {
        let mut file = File::create(folder.join("file")).expect("new");
        file.write_all(&content).expect("a write");
        file.sync_all().expect("the disk has it");
        file.sync_data().expect("the disk has it");
        let mut options = File::options();
        let options = options
            .write(true)
            .create_new(true)
            .custom_flags(libc::O_SYNC);
        let mut each = options.open(folder.join("each")).expect("new");
        each.write_all(&content).expect("the disk has it");
        let folder = File::open(&folder).expect("a directory");
        folder.sync_all().expect("the disk has all");
    });
    assert_eq!(bed.stored("folder/file"), None);
    mount.kill_and_unmount();
    let mount = bed.bucket.mount_with(&options);
    PATIENCE.until("the files to be saved", || {
        let has = |name| bed.stored(name).as_ref() == Some(&content);
        has("folder/file") && has("folder/each")
    });
    mount.unmount();
}

#[test]
fn the_command_sync_means_in_the_store_with_fsync_to_the_journal_too() {
    let bed = Bed::new(Kind::S3);
    let options = bed.options().option("save-after", "1h");
    let options = options
        .option("unsaved-age", "1h")
        .option("fsync", "journal");
    let mount = bed.bucket.mount_with(&options);
    let sync = |path: &Path| run_within(PATIENCE, penstock().arg("sync").arg(path));
    fs::create_dir(mount.join("folder")).expect("mkdir");
    for name in ["file", "folder/file"] {
        fs::write(mount.join(name), b"content").expect("a write");
    }
    sync(&mount.join("file")).expect_success();
    assert_eq!(bed.stored("file").as_deref(), Some(&b"content"[..]));
    assert_eq!(bed.stored("folder/file"), None);
    bed.bucket.fail(Faults::rule(refused()));
    assert_eq!(sync(&mount.join("folder")).code, Some(1));
    bed.bucket.heal();
    sync(mount.path()).expect_success();
    assert_eq!(bed.stored("folder/file").as_deref(), Some(&b"content"[..]));
    mount.unmount();
}

#[test]
fn what_cannot_be_saved_is_told_by_the_end_and_saved_by_the_next_mount() {
    let bed = Bed::new(Kind::S3);
    let mount = bed.mount_idle();
    fs::write(mount.join("file"), b"content").expect("a write");
    let rule = refused();
    bed.bucket.fail(Faults::rule(rule));
    let ended = run_within(PATIENCE, penstock().arg("umount").arg(mount.path()));
    assert_eq!(ended.code, Some(3), "{ended:?}");
    drop(mount);
    bed.bucket.heal();
    bed.mount_idle().unmount();
    assert_eq!(bed.stored("file").as_deref(), Some(&b"content"[..]));
}

#[test]
fn another_clients_version_stays_and_so_does_ours() {
    let bed = Bed::new(Kind::S3);
    let mount = bed.mount_after("1s");
    fs::write(mount.join("file"), b"ours").expect("a write");
    bed.bucket.put_outside("file", b"theirs");
    PATIENCE.until("ours to be put aside", || bed.files("kept").len() == 2);
    assert_eq!(bed.stored("file").as_deref(), Some(&b"theirs"[..]));
    PATIENCE.until("theirs to be seen", || {
        fs::read(mount.join("file")).is_ok_and(|found| found == b"theirs")
    });
    let ended = run_within(PATIENCE, penstock().arg("umount").arg(mount.path()));
    assert_eq!(ended.code, Some(3), "{ended:?}");
}

/// A folder in which one thread makes, replaces, renames and removes files, directories and links.
struct Shadow {
    folder: String,
    files: BTreeMap<String, Vec<u8>>,
    /// What the operation that was cut off would have made of it.
    cut: Option<BTreeMap<String, Vec<u8>>>,
    chance: Chance,
}

impl Shadow {
    fn new(number: u64, seed: u64) -> Self {
        Self {
            folder: format!("folder-{number}"),
            files: BTreeMap::new(),
            cut: None,
            chance: Chance::new(seed * 31 + number),
        }
    }

    fn name(&mut self) -> String {
        format!("{}", self.chance.below(8))
    }

    /// Does one thing. Fails when the mount is gone.
    fn step(&mut self, folder: &Path) -> std::io::Result<()> {
        match self.chance.below(3) {
            0 => self.step_names(folder),
            _ => self.step_files(folder),
        }
    }

    /// Makes or removes a directory or a link.
    fn step_names(&mut self, folder: &Path) -> std::io::Result<()> {
        let number = self.name();
        let mut next = self.files.clone();
        let is_link = self.chance.below(2) == 0;
        let name = format!("{}-{number}", if is_link { "link" } else { "folder" });
        let path = folder.join(&name);
        let was_there = next.remove(&name).is_some();
        let target = format!("target-{}", self.chance.below(1 << 30));
        match (is_link, was_there) {
            (true, false) => drop(next.insert(name, target.clone().into())),
            (false, false) => drop(next.insert(name, b"/".to_vec())),
            (_, true) => {}
        }
        self.cut = Some(next.clone());
        match (is_link, was_there) {
            (true, false) => std::os::unix::fs::symlink(target, path)?,
            (false, false) => fs::create_dir(path)?,
            (true, true) => fs::remove_file(path)?,
            (false, true) => fs::remove_dir(path)?,
        }
        (self.files, self.cut) = (next, None);
        Ok(())
    }

    fn step_files(&mut self, folder: &Path) -> std::io::Result<()> {
        let (from, to) = (self.name(), self.name());
        let mut next = self.files.clone();
        match self.chance.below(12) {
            0..5 => {
                let size = self.chance.below(9000);
                let content = noise(self.chance.below(1 << 30) as u64, size);
                let temporary = folder.join(format!("tmp-{to}"));
                // Of a temporary file that a kill leaves nothing is said.
                fs::write(&temporary, &content)?;
                fs::set_permissions(&temporary, Permissions::from_mode(0o644))?;
                next.insert(to.clone(), with_mode(0o644, content));
                self.cut = Some(next.clone());
                fs::rename(&temporary, folder.join(&to))?;
            }
            5..7 if self.files.contains_key(&from) && from != to => {
                let content = next.remove(&from).expect("it is there");
                next.insert(to.clone(), content);
                self.cut = Some(next.clone());
                fs::rename(folder.join(&from), folder.join(&to))?;
            }
            7..9 if self.files.contains_key(&from) => {
                next.remove(&from);
                self.cut = Some(next.clone());
                fs::remove_file(folder.join(&from))?;
            }
            9 if self.files.contains_key(&from) => {
                File::open(folder.join(&from))?.sync_all()?;
            }
            10.. if self.files.contains_key(&from) => {
                let mode = *self.chance.pick(&[0o600, 0o640, 0o644, 0o664]);
                let file = next.get_mut(&from).expect("it is there");
                *file = with_mode(mode, file.split_off(MODE_LENGTH));
                self.cut = Some(next.clone());
                fs::set_permissions(folder.join(&from), Permissions::from_mode(mode))?;
            }
            _ => {}
        }
        (self.files, self.cut) = (next, None);
        Ok(())
    }

    /// Compares what is there with what may be there, and goes on with that.
    #[track_caller]
    fn settle(&mut self, found: BTreeMap<String, Vec<u8>>, place: &str) {
        let cut = self.cut.take();
        let others = |files: &BTreeMap<String, Vec<u8>>| -> Vec<String> {
            let names: BTreeSet<&String> = files.keys().chain(found.keys()).collect();
            let others = names
                .into_iter()
                .filter(|name| files.get(*name) != found.get(*name));
            let shown =
                |content: Option<&Vec<u8>>| content.map_or("nothing".to_owned(), |it| brief(it));
            let told = others.map(|name| {
                let (found, wanted) = (found.get(name), files.get(name));
                format!("{name}: {} in place of {}", shown(found), shown(wanted))
            });
            told.collect()
        };
        // A rename of a saved file is a copy and a removal: a kill may leave both names.
        let both = cut.as_ref().map(|cut| {
            let mut both = self.files.clone();
            both.extend(cut.clone());
            both
        });
        assert!(
            found == self.files || Some(&found) == cut.as_ref() || Some(&found) == both.as_ref(),
            "{} in {place}: {:?}, or {:?}",
            self.folder,
            others(&self.files),
            cut.as_ref().map(others),
        );
        self.files = found;
    }
}

/// What a file of a shadow is, in short.
fn brief(content: &[u8]) -> String {
    match content.split_first_chunk::<MODE_LENGTH>() {
        Some((mode, content)) if content.len() > 20 => {
            let mode = u32::from_le_bytes(*mode);
            format!("{mode:o} with {} bytes {:x?}", content.len(), &content[..4])
        }
        _ => String::from_utf8_lossy(content).into_owned(),
    }
}

/// Bytes before the content of a file that say its mode.
const MODE_LENGTH: usize = 4;

fn with_mode(mode: u32, content: Vec<u8>) -> Vec<u8> {
    [mode.to_le_bytes().to_vec(), content].concat()
}

fn shown(folder: &Path) -> std::io::Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().into_string().expect("ours");
        let path = folder.join(&name);
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_symlink() {
            let target = fs::read_link(&path)?.into_os_string();
            found.insert(name, target.into_encoded_bytes());
        } else if kind.is_dir() {
            found.insert(name, b"/".to_vec());
        } else if !name.starts_with("tmp-") {
            let mode = fs::metadata(&path)?.permissions().mode() & 0o7777;
            found.insert(name, with_mode(mode, fs::read(&path)?));
        }
    }
    Ok(found)
}

fn kill_again_and_again(kind: Kind, seed: u64, rounds: u64) {
    let bed = Bed::new(kind);
    let mut chance = Chance::new(seed);
    let mut shadows: Vec<Shadow> = (0..4).map(|number| Shadow::new(number, seed)).collect();
    let mount = bed.mount_after("0s");
    for shadow in &shadows {
        fs::create_dir(mount.join(&shadow.folder)).expect("mkdir");
    }
    mount.unmount();
    for round in 0..rounds {
        bed.bucket.fail(Faults::latency(Duration::from_millis(
            *chance.pick(&[0, 0, 10, 50]),
        )));
        let after = chance.pick(&["0s", "100ms", "1s", "1h"]);
        let mount = bed.mount_after(after);
        let killed = AtomicBool::new(false);
        let pause = Duration::from_millis(200 + chance.below(2000) as u64);
        thread::scope(|scope| {
            for shadow in &mut shadows {
                let (folder, killed) = (mount.join(&shadow.folder), &killed);
                scope.spawn(move || {
                    if let Ok(found) = shown(&folder) {
                        shadow.settle(found, "the mount");
                        while let Ok(()) = shadow.step(&folder) {}
                    }
                    assert!(killed.load(Ordering::SeqCst), "{}", shadow.folder);
                });
            }
            thread::sleep(pause);
            killed.store(true, Ordering::SeqCst);
            mount.process().kill();
        });
        mount.kill_and_unmount();
        // What it had sent arrives before anything of the next mount: nobody could tell it from what that removes.
        bed.wait_for_what_is_under_way();
        assert_eq!(bed.files("kept"), Vec::<PathBuf>::new(), "round {round}");
    }
    bed.bucket.heal();
    bed.mount_after("1h").unmount();
    assert_eq!(bed.files("files"), Vec::<PathBuf>::new());
    let options = bed.bucket.options().option("posix-metadata", "on");
    let plain = bed.bucket.mount_with(&options);
    for shadow in &mut shadows {
        let found = shown(&plain.join(&shadow.folder)).expect("readable");
        shadow.settle(found, "the bucket");
    }
    plain.unmount();
}

#[test]
fn kills_lose_nothing_that_was_answered_and_leave_no_name_twice() {
    let given = |variable: &str, default| {
        let text = std::env::var(variable).ok();
        text.map_or(default, |text| text.parse().expect("a whole number"))
    };
    let rounds = given("PENSTOCK_TEST_KILL_ROUNDS", 12);
    let seed = given("PENSTOCK_TEST_KILL_SEED", 1);
    thread::scope(|scope| {
        for kind in Kind::REMOTE {
            scope.spawn(move || kill_again_and_again(kind, seed, rounds / 2));
        }
    });
}

#[test]
#[allow(clippy::print_stdout)]
fn an_archive_is_unpacked_far_sooner_than_it_is_stored() {
    const FILES: u64 = 100;
    let scratch = Scratch::new();
    let tree = scratch.folder("tree");
    for number in 0..FILES {
        fs::write(tree.join(format!("{number}")), noise(number, 4500)).expect("a write");
    }
    let archive = scratch.path().join("tree.tar");
    let mut pack = Command::new("tar");
    pack.arg("-cf").arg(&archive).arg("-C").arg(scratch.path());
    run_within(PATIENCE, pack.arg("tree")).expect_success();
    let [close, behind] = ["close", "behind"].map(|save| {
        let bed = Bed::new(Kind::S3);
        let mount = bed.bucket.mount_with(&bed.options().option("save", save));
        bed.bucket.fail(Faults::latency(LATENCY));
        bed.reset();
        let begun = Instant::now();
        let mut unpack = Command::new("tar");
        unpack.arg("-xf").arg(&archive).arg("-C").arg(mount.path());
        run_within(PATIENCE, &mut unpack).expect_success();
        let ended = begun.elapsed();
        mount.unmount();
        println!(
            "{save}: ended after {ended:?}, stored after {:?}; {} PUTs, {} requests",
            begun.elapsed(),
            bed.requests(Operation::PutObject),
            bed.all_requests()
        );
        for number in 0..FILES {
            let stored = bed.stored(&format!("tree/{number}"));
            assert!(stored == Some(noise(number, 4500)), "{number}");
        }
        ended
    });
    assert!(close > FILES as u32 * LATENCY, "each close waits");
    assert!(behind * 3 < close, "{behind:?}, {close:?}");
}

/// The tree is in the store when a program changes what is said of its files.
#[test]
fn changes_of_a_saved_tree_do_not_wait_for_a_distant_store() {
    const FILES: u64 = 300;
    for kind in Kind::REMOTE {
        let bed = Bed::new(kind);
        let tree = bed.scratch.folder("tree");
        for number in 0..FILES {
            fs::write(tree.join(format!("{number}")), noise(number, 4500)).expect("a write");
        }
        let mount = bed.mount_idle();
        let run = |program: &str, arguments: &[&Path]| {
            let mut command = Command::new(program);
            run_within(PATIENCE, command.args(arguments)).expect_success();
        };
        let [synced, copied] = ["synced/", "copied"].map(|name| mount.join(name));
        // With a slash at its end: what is in it.
        let source = tree.join("");
        fs::create_dir(&synced).expect("mkdir");
        run("rsync", &["-a".as_ref(), &source, &synced]);
        run("cp", &["-r".as_ref(), &tree, &copied]);
        File::open(mount.path())
            .and_then(|root| root.sync_all())
            .expect("a sync");
        bed.bucket.fail(Faults::latency(LATENCY));
        bed.reset();
        run("rsync", &["-a".as_ref(), &source, &synced]);
        for folder in [&synced, &copied] {
            run("chmod", &["-R".as_ref(), "u=rwX,go=".as_ref(), folder]);
        }
        let mut touch = Command::new("touch");
        touch.args(["-d", "@1000"]);
        touch.args((0..FILES).map(|number| copied.join(format!("{number}"))));
        run_within(PATIENCE, &mut touch).expect_success();
        let asked = bed.all_requests();
        assert!(asked <= FILES / 10, "{kind:?}: {asked} requests");
        let found = fs::metadata(copied.join("7")).expect("there");
        assert_eq!(found.permissions().mode() & 0o7777, 0o600);
        bed.bucket.heal();
        mount.unmount();
        let copies = bed.requests(Operation::CopyObject);
        assert_eq!(
            copies,
            2 * FILES,
            "one for each, however often it was changed"
        );
        let options = bed.bucket.options().option("posix-metadata", "on");
        let plain = bed.bucket.mount_with(&options);
        let found = |folder: &str, number| {
            let path = plain.join(folder).join(format!("{number}"));
            fs::metadata(path).expect("there")
        };
        for number in 0..FILES {
            for folder in ["synced", "copied"] {
                let mode = found(folder, number).permissions().mode();
                assert_eq!(mode & 0o7777, 0o600, "{folder}/{number}");
            }
            let modified = found("copied", number).modified().expect("a time");
            assert_eq!(modified, UNIX_EPOCH + Duration::from_secs(1000));
        }
        plain.unmount();
    }
}
