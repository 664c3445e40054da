//! A fileset that is encrypted in its bucket.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use penstock_tests::{Finished, Mount, MountOptions, Patience, Scratch, penstock, run_within};

const PATIENCE: Patience = Patience::seconds(60);
const MARKER: &[u8] = b"a text that nobody else would write";

/// A bucket in a directory, and machines that have keys.
struct Ground {
    scratch: Scratch,
}

/// What one machine has of filesets.
struct Machine<'a> {
    ground: &'a Ground,
    filesets: PathBuf,
}

impl Ground {
    fn new() -> Self {
        let scratch = Scratch::new();
        scratch.folder("bucket");
        Self { scratch }
    }

    fn bucket(&self) -> PathBuf {
        self.scratch.path().join("bucket")
    }

    fn machine(&self, name: &str) -> Machine<'_> {
        let filesets = self.scratch.folder(name);
        Machine {
            ground: self,
            filesets,
        }
    }

    /// A file with a key of this byte.
    fn key(&self, byte: u8) -> String {
        let path = self.scratch.path().join(format!("key-{byte}"));
        fs::write(&path, format!("{byte:02x}").repeat(32)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    }

    /// What is in each file of the bucket.
    fn objects(&self) -> Vec<Vec<u8>> {
        let (mut objects, mut folders) = (Vec::new(), vec![self.bucket()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => objects.push(fs::read(path).unwrap()),
                }
            }
        }
        objects
    }

    fn holds_marker(&self) -> bool {
        let holds = |bytes: &[u8]| bytes.windows(MARKER.len()).any(|found| found == MARKER);
        self.objects().iter().any(|bytes| holds(bytes))
    }
}

impl Machine<'_> {
    fn run(&self, verb: &str, more: &[&str]) -> Finished {
        let mut command = penstock();
        command.env("PENSTOCK_FILESET_DIR", &self.filesets);
        run_within(PATIENCE, command.args(["fileset", verb, "home"]).args(more))
    }

    /// `create` or `attach`, with what leads to the bucket.
    fn bring(&self, verb: &str, more: &[&str]) -> Finished {
        let store = format!("file://{}", self.ground.bucket().display());
        self.run(verb, &[&["--store", &store], more].concat())
    }

    fn mount(&self) -> Mount {
        let place = self.filesets.display().to_string();
        let options = MountOptions::new().variable("PENSTOCK_FILESET_DIR", &place);
        Mount::new("fileset://home", &options)
    }

    /// What a mount complains about that is not to come.
    fn refused(&self, more: &[&str]) -> String {
        let mut command = penstock();
        command.env("PENSTOCK_FILESET_DIR", &self.filesets);
        let point = self.ground.scratch.folder("refused");
        command
            .args(["mount", "fileset://home"])
            .arg(point)
            .args(more);
        let finished = run_within(PATIENCE, &mut command);
        assert!(!finished.succeeded());
        finished.stderr
    }
}

fn store(path: &Path, content: &[u8]) {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(content).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn what_is_written_can_be_read_with_the_key_and_with_it_alone() {
    let ground = Ground::new();
    let (key, other) = (ground.key(1), ground.key(2));
    let first = ground.machine("first");
    let file = ["--encryption-key-file", &key];
    let made = first.bring("create", &[&["--durability", "store"], &file[..]].concat());
    made.expect_success();
    let large: Vec<u8> = (0..5_000_000_u32).map(|at| (at / 239) as u8).collect();
    let mount = first.mount();
    store(&mount.join("small"), MARKER);
    store(&mount.join("many"), &MARKER.repeat(50_000));
    store(&mount.join("large"), &large);
    let name = String::from_utf8(MARKER.to_vec()).unwrap();
    fs::create_dir(mount.join(name)).unwrap();
    mount.unmount();
    assert!(ground.objects().len() > 4 && !ground.holds_marker());
    first.run("check", &["--data"]).expect_success();
    let info = first.run("info", &[]);
    assert!(
        info.stdout.contains("encryption  aes-256"),
        "{}",
        info.stdout
    );

    let second = ground.machine("second");
    let none = second.bring("attach", &[]);
    assert!(none.stderr.contains("is encrypted"), "{}", none.stderr);
    let wrong = second.bring("attach", &["--encryption-key-file", &other]);
    let told = "this is not the key of fileset `home`";
    assert!(wrong.stderr.contains(told), "{}", wrong.stderr);
    let command = format!("/bin/cat {key}");
    let attached = second.bring("attach", &["--encryption-key-command", &command]);
    attached.expect_success();
    let mount = second.mount();
    assert_eq!(fs::read(mount.join("small")).unwrap(), MARKER);
    assert!(fs::read(mount.join("many")).unwrap() == MARKER.repeat(50_000));
    assert!(fs::read(mount.join("large")).unwrap() == large);
    mount.unmount();
    let refused = second.refused(&["--encryption-key-file", &other]);
    assert!(refused.contains(told), "{refused}");
    second.run("destroy", &["--yes"]).expect_success();
}

#[test]
fn what_waits_on_the_disk_is_encrypted_when_it_is_uploaded() {
    let ground = Ground::new();
    let machine = ground.machine("machine");
    let made = machine.bring("create", &["--encryption-key-file", &ground.key(1)]);
    made.expect_success();
    let mount = machine.mount();
    for number in 0..50 {
        fs::write(mount.join(format!("file-{number}")), MARKER).unwrap();
    }
    mount.unmount();
    assert!(ground.objects().len() > 1 && !ground.holds_marker());
    machine.run("check", &["--data"]).expect_success();
    let mount = machine.mount();
    assert_eq!(fs::read(mount.join("file-7")).unwrap(), MARKER);
    mount.unmount();
    machine.run("destroy", &["--yes"]).expect_success();
}

#[test]
fn a_key_that_was_changed_takes_the_place_of_the_old_one() {
    let ground = Ground::new();
    let (old, new) = (ground.key(1), ground.key(2));
    let machine = ground.machine("machine");
    let made = machine.bring("create", &["--encryption-key-file", &old]);
    made.expect_success();
    let mount = machine.mount();
    fs::write(mount.join("file"), MARKER).unwrap();
    let rekeyed = machine.run("rekey", &["--encryption-key-file", &new]);
    rekeyed.expect_success();
    mount.unmount();
    fs::remove_file(&old).unwrap();
    let mount = machine.mount();
    assert_eq!(fs::read(mount.join("file")).unwrap(), MARKER);
    mount.unmount();
    // As when the power went between the label and the record.
    let again = machine.run("rekey", &["--encryption-key-file", &new]);
    again.expect_success();
    let refused = machine.refused(&["--encryption-key-file", &ground.key(1)]);
    assert!(refused.contains("this is not the key"), "{refused}");
    machine.run("destroy", &["--yes"]).expect_success();
}

/// It would be believed to be plain, and the next file would be written in the open.
#[test]
fn a_label_that_does_not_say_any_more_that_it_is_encrypted_is_not_believed() {
    let ground = Ground::new();
    let machine = ground.machine("machine");
    let made = machine.bring("create", &["--encryption-key-file", &ground.key(1)]);
    made.expect_success();
    let path = ground.bucket().join("fileset.json");
    let label = fs::read_to_string(&path).unwrap();
    let (plain, _) = label.split_once(r#","encryption""#).unwrap();
    fs::write(&path, format!("{plain}}}")).unwrap();
    let refused = machine.refused(&[]);
    assert!(refused.contains("does not say so any more"), "{refused}");
}

#[test]
fn a_key_is_refused_that_is_none_or_open_to_others_or_of_no_use() {
    let ground = Ground::new();
    let machine = ground.machine("machine");
    let (key, path) = (ground.key(1), ground.scratch.path().join("short"));
    fs::write(&path, b"secret").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let short = path.display().to_string();
    let refused = machine.bring("create", &["--encryption-key-file", &short]);
    assert!(
        refused.stderr.contains("32 random bytes"),
        "{}",
        refused.stderr
    );
    assert!(!refused.stderr.contains("secret"), "{}", refused.stderr);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let refused = machine.bring("create", &["--encryption-key-file", &key]);
    assert!(
        refused.stderr.contains("open to others"),
        "{}",
        refused.stderr
    );
    assert!(ground.objects().is_empty());
    machine.bring("create", &[]).expect_success();
    let refused = machine.refused(&["--encryption-key-file", &ground.key(1)]);
    assert!(refused.contains("is not encrypted"), "{refused}");
    machine.run("destroy", &["--yes"]).expect_success();
}
