//! A fileset whose metadata is in a database, from its making to its end.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

#[path = "../../fileset/tests/database/server.rs"]
mod server;
mod support;

use std::{
    fs,
    io::Read,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use server::{PASSWORD, Server};
use support::{Ended, Scratch, run, succeed, wait_until};

/// The bucket of a file system, in a directory.
fn store_in(scratch: &Scratch) -> String {
    format!("file://{}", scratch.folder("bucket").display())
}

/// A database as an engine.
fn engine_of(server: &Server) -> String {
    format!("postgres://penstock@127.0.0.1:{}/postgres", server.port)
}

/// A machine of its own: another place for filesets.
struct Machine<'a> {
    scratch: &'a Scratch,
    filesets: PathBuf,
}

impl<'a> Machine<'a> {
    fn new(scratch: &'a Scratch, name: &str) -> Self {
        Self {
            scratch,
            filesets: scratch.folder(name),
        }
    }

    fn penstock(&self, arguments: &[&str]) -> Command {
        let mut command = self.scratch.penstock();
        command
            .env("PENSTOCK_FILESET_DIR", &self.filesets)
            .args(arguments);
        command
    }

    fn mount(&self) -> PathBuf {
        let name = self.filesets.file_name().unwrap().display();
        let mountpoint = self.scratch.folder(&format!("mnt-{name}"));
        let mut command = self.penstock(&["mount", "fileset://home"]);
        succeed(command.arg(&mountpoint).env("PGPASSWORD", PASSWORD));
        mountpoint
    }

    /// Says something of filesets, with the password.
    fn told(&self, arguments: &[&str]) -> Ended {
        let mut command = self.penstock(&["fileset"]);
        run(command.args(arguments).env("PGPASSWORD", PASSWORD))
    }

    fn sessions(&self) -> Vec<serde_json::Value> {
        let sessions = ["fileset", "sessions", "home", "--json"];
        let told = succeed(self.penstock(&sessions).env("PGPASSWORD", PASSWORD));
        serde_json::from_str(&told).unwrap()
    }

    fn unmount(&self, mountpoint: &Path) {
        succeed(self.penstock(&["umount"]).arg(mountpoint));
    }
}

/// What must not make a fileset on a database.
fn expect_refusals(here: &Machine<'_>, create: &[&str], engine: &str) {
    let spoken = engine.replace("penstock@", &format!("penstock:{PASSWORD}@"));
    let refused = run(here.penstock(create).args(["--engine", &spoken]));
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(!refused.err.contains(PASSWORD), "{refused:?}");
    let refused = run(here.penstock(create).args(["--engine", engine]));
    assert_eq!(refused.code, Some(1), "no password: {refused:?}");
    let local = ["--engine", engine, "--durability", "local"];
    assert_eq!(run(here.penstock(create).args(local)).code, Some(2));
}

#[test]
fn a_fileset_on_a_database_lives_moves_and_ends_without_a_word_of_the_password() {
    let Some(server) = Server::start() else {
        return;
    };
    let scratch = Scratch::new();
    let store = store_in(&scratch);
    let password = scratch.file("password", &format!("{PASSWORD}\n"));
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    let password = password.display().to_string();
    let engine = engine_of(&server);
    let here = Machine::new(&scratch, "here");
    let create = ["fileset", "create", "home", "--store", &store];

    expect_refusals(&here, &create, &engine);
    let with_file = ["--engine", &engine, "--engine-password-file", &password];
    succeed(here.penstock(&create).args(with_file));

    let mountpoint = here.mount();
    fs::create_dir(mountpoint.join("directory")).unwrap();
    fs::write(mountpoint.join("directory/file"), "content").unwrap();
    here.unmount(&mountpoint);
    succeed(&mut here.penstock(&["fileset", "check", "home", "--data"]));
    succeed(&mut here.penstock(&["fileset", "gc", "home"]));
    let info = succeed(&mut here.penstock(&["fileset", "info", "home", "--json"]));
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!(
        (&info["engine"], &info["files"]),
        (&engine.clone().into(), &3.into())
    );
    for file in ["here/home/fileset.json", "bucket/fileset.json"] {
        let text = fs::read_to_string(scratch.path(file)).unwrap();
        assert!(text.contains(&engine) && !text.contains(PASSWORD), "{text}");
    }

    let there = Machine::new(&scratch, "there");
    let attach = ["fileset", "attach", "home", "--store", &store];
    // Who writes the bucket chooses what its label says, and must not be sent the password.
    let led = run(there.penstock(&attach).env("PGPASSWORD", PASSWORD));
    assert!(
        led.code == Some(2) && led.err.contains("--engine"),
        "{led:?}"
    );
    let named = ["--engine", &engine];
    succeed(
        there
            .penstock(&attach)
            .args(named)
            .env("PGPASSWORD", PASSWORD),
    );
    let again = run(there.penstock(&attach).env("PGPASSWORD", PASSWORD));
    assert_eq!(again.code, Some(2), "it is there: {again:?}");
    let mounted_there = there.mount();
    for exclusive in [&["check", "home"][..], &["destroy", "home", "--yes"]] {
        let refused = run(here.penstock(&["fileset"]).args(exclusive));
        assert!(refused.err.contains("another machine"), "{refused:?}");
    }
    let text = fs::read_to_string(mounted_there.join("directory/file")).unwrap();
    assert_eq!(text, "content");
    let busy = run(&mut there.penstock(&["fileset", "info", "home"]));
    assert!(busy.err.contains("in use by process"), "{busy:?}");
    there.unmount(&mounted_there);

    succeed(&mut here.penstock(&["fileset", "destroy", "home", "--yes"]));
    let left =
        "SELECT count(*) FROM information_schema.schemata WHERE schema_name LIKE 'penstock_%'";
    assert_eq!(server.sql(left), "0");
    let objects = fs::read_dir(scratch.path("bucket")).unwrap().flatten();
    let objects: Vec<_> = objects.filter(|entry| entry.path().is_file()).collect();
    assert!(objects.is_empty(), "{objects:?}");
}

/// Two machines that have mounted one file system, and where.
struct Pair<'a> {
    here: Machine<'a>,
    there: Machine<'a>,
    one: PathBuf,
    other: PathBuf,
}

impl<'a> Pair<'a> {
    fn mounted(scratch: &'a Scratch, server: &Server) -> Self {
        let store = store_in(scratch);
        let engine = engine_of(server);
        let place = ["home", "--store", &store, "--engine", &engine];
        let (here, there) = (
            Machine::new(scratch, "here"),
            Machine::new(scratch, "there"),
        );
        for (machine, verb) in [(&here, "create"), (&there, "attach")] {
            let mut command = machine.penstock(&["fileset", verb]);
            succeed(command.args(place).env("PGPASSWORD", PASSWORD));
        }
        let (one, other) = (here.mount(), there.mount());
        Self {
            here,
            there,
            one,
            other,
        }
    }

    fn end(&self) {
        self.here.unmount(&self.one);
        self.there.unmount(&self.other);
        let mut check = self.here.penstock(&["fileset", "check", "home", "--data"]);
        succeed(check.env("PGPASSWORD", PASSWORD));
    }
}

/// What one machine closed another one opens, under a name that was missing there just before too.
fn expect_close_to_open(one: &Path, other: &Path) {
    for round in 0..50 {
        let name = format!("made {round:02}");
        assert!(!other.join(&name).exists());
        fs::write(one.join(&name), &name).unwrap();
        assert_eq!(fs::read_to_string(other.join(&name)).unwrap(), name);
    }
    for round in 0..20 {
        let text = format!("round {round:02}");
        fs::write(one.join("file"), &text).unwrap();
        assert_eq!(fs::read_to_string(other.join("file")).unwrap(), text);
        let back = format!("back {round:02}");
        fs::write(other.join("file"), &back).unwrap();
        assert_eq!(fs::read_to_string(one.join("file")).unwrap(), back);
    }
}

/// Names and attributes that the kernel was told go soon after another machine changed them.
fn expect_names_to_follow(one: &Path, other: &Path) {
    assert!(!other.join("new").exists());
    fs::create_dir(one.join("new")).unwrap();
    wait_until("a name that was not there is seen", || {
        other.join("new").is_dir()
    });
    fs::write(one.join("new/a"), "a").unwrap();
    wait_until("the file is seen", || other.join("new/a").exists());
    fs::set_permissions(one.join("new/a"), fs::Permissions::from_mode(0o600)).unwrap();
    let mode = || {
        fs::metadata(other.join("new/a"))
            .unwrap()
            .permissions()
            .mode()
    };
    wait_until("the mode is seen", || mode() & 0o777 == 0o600);
    fs::rename(one.join("new/a"), one.join("new/b")).unwrap();
    wait_until("the file has its new name only", || {
        !other.join("new/a").exists() && other.join("new/b").exists()
    });
    fs::remove_dir_all(one.join("new")).unwrap();
    wait_until("the directory is gone", || !other.join("new").exists());
}

fn expect_locks_to_hold(one: &Path, other: &Path) {
    let (mine, theirs) = (one.join("file"), other.join("file"));
    let (mine, theirs) = (
        fs::File::open(mine).unwrap(),
        fs::File::open(theirs).unwrap(),
    );
    mine.lock().unwrap();
    assert!(theirs.try_lock().is_err());
    let waits = std::thread::spawn(move || theirs.lock().map(|()| theirs));
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(!waits.is_finished());
    mine.unlock().unwrap();
    waits.join().unwrap().unwrap();
}

/// A file that one machine has open is not taken from it when another one removes its name.
fn expect_open_files_to_stay(one: &Path, other: &Path) {
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(one.join("gone"), &bytes).unwrap();
    let mut open = fs::File::open(other.join("gone")).unwrap();
    fs::remove_file(one.join("gone")).unwrap();
    wait_until("the name is gone", || !other.join("gone").exists());
    std::thread::sleep(std::time::Duration::from_secs(1));
    let mut read = Vec::new();
    open.read_to_end(&mut read).unwrap();
    assert_eq!(read, bytes);
}

/// The name of a file is lost.
#[test]
fn a_damaged_fileset_is_whole_once_it_was_repaired_and_has_its_bytes() {
    let Some(server) = Server::start() else {
        return;
    };
    let scratch = Scratch::new();
    let pair = Pair::mounted(&scratch, &server);
    fs::write(pair.one.join("file"), "content").unwrap();
    fs::write(pair.one.join("other"), "another").unwrap();
    let inode = fs::metadata(pair.one.join("file")).unwrap().ino();
    pair.there.unmount(&pair.other);
    let busy = pair.here.told(&["check", "home", "--repair"]);
    assert!(busy.err.contains("in use"), "{busy:?}");
    pair.here.unmount(&pair.one);
    let schema =
        "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'penstock_%'";
    let schema = server.sql(schema);
    server.sql(&format!(
        "DELETE FROM {schema}.kv WHERE get_byte(key, 0) = ascii('D') AND position('file'::bytea IN key) > 0"
    ));

    let check = |more: &[&str]| {
        let arguments = [&["check", "home", "--data"], more].concat();
        pair.here.told(&arguments)
    };
    let found = check(&[]);
    assert_eq!(found.code, Some(1), "{found:?}");
    for _ in 0..2 {
        let planned = check(&["--repair", "--dry-run"]);
        assert_eq!(planned.code, Some(1), "{planned:?}");
        assert!(planned.out.contains("would be repaired: "), "{planned:?}");
        assert!(planned.out.contains("lost+found"), "{planned:?}");
    }
    let repaired = check(&["--repair"]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    assert!(repaired.out.contains("repaired: "), "{repaired:?}");
    let again = check(&["--repair"]);
    assert!(
        again.code == Some(0) && !again.out.contains("repaired"),
        "{again:?}"
    );

    let mountpoint = pair.here.mount();
    let found = mountpoint.join(format!("lost+found/#{inode}"));
    assert_eq!(fs::read_to_string(found).unwrap(), "content");
    assert_eq!(
        fs::read_to_string(mountpoint.join("other")).unwrap(),
        "another"
    );
    pair.here.unmount(&mountpoint);
}

#[test]
fn two_machines_that_have_mounted_a_fileset_see_what_the_other_one_does() {
    let Some(server) = Server::start() else {
        return;
    };
    let scratch = Scratch::new();
    let pair = Pair::mounted(&scratch, &server);
    expect_close_to_open(&pair.one, &pair.other);
    expect_names_to_follow(&pair.one, &pair.other);
    expect_names_to_follow(&pair.other, &pair.one);
    expect_locks_to_hold(&pair.one, &pair.other);
    expect_open_files_to_stay(&pair.one, &pair.other);
    pair.end();
}

#[test]
fn a_machine_whose_session_was_ended_shows_and_takes_nothing_any_more() {
    let Some(server) = Server::start() else {
        return;
    };
    let scratch = Scratch::new();
    let pair = Pair::mounted(&scratch, &server);
    fs::write(pair.one.join("file"), "whole").unwrap();
    assert_eq!(
        fs::read_to_string(pair.other.join("file")).unwrap(),
        "whole"
    );
    let sessions = pair.here.sessions();
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    let last = sessions[1]["session"].to_string();
    let evict = ["fileset", "sessions", "home", "--evict", &last];
    succeed(pair.here.penstock(&evict).env("PGPASSWORD", PASSWORD));
    assert!(fs::write(pair.other.join("late"), "x").is_err());
    wait_until("it shows nothing", || fs::read_dir(&pair.other).is_err());
    fs::write(pair.one.join("file"), "still").unwrap();
    assert_eq!(pair.here.sessions().len(), 1);
    let again = run(pair.here.penstock(&evict).env("PGPASSWORD", PASSWORD));
    assert_eq!(again.code, Some(1), "{again:?}");
    let left = run(pair.there.penstock(&["umount"]).arg(&pair.other));
    assert!(!left.err.contains("panicked"), "{left:?}");
    let other = pair.there.mount();
    assert_eq!(fs::read_to_string(other.join("file")).unwrap(), "still");
    pair.end();
}

/// One file system after the other in engines of both kinds, with the same bytes in each.
#[test]
fn a_fileset_moves_between_engines_and_comes_back_whole_after_kills() {
    let Some(server) = Server::start() else {
        return;
    };
    let scratch = Scratch::new();
    let store = store_in(&scratch);
    let engine = engine_of(&server);
    let here = Machine::new(&scratch, "here");
    let told = |arguments: &[&str]| here.told(arguments);
    assert_eq!(told(&["create", "home", "--store", &store]).code, Some(0));
    let mountpoint = here.mount();
    for number in 0..300 {
        fs::write(
            mountpoint.join(format!("file {number}")),
            format!("{number}"),
        )
        .unwrap();
    }
    let busy = told(&["move", "home", "--engine", &engine]);
    assert!(busy.err.contains("in use"), "{busy:?}");
    here.unmount(&mountpoint);
    let expect_whole = || {
        let checked = told(&["check", "home", "--data"]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
        let mountpoint = here.mount();
        for number in 0..300 {
            let text = fs::read_to_string(mountpoint.join(format!("file {number}"))).unwrap();
            assert_eq!(text, number.to_string());
        }
        here.unmount(&mountpoint);
    };
    for target in [&engine[..], "embedded", &engine] {
        // Killed sooner and later, as far as it comes.
        for wait in [30, 100, 200, 300, 400, 600] {
            let mut command = here.penstock(&["fileset", "move", "home", "--engine", target]);
            let mut child = command.env("PGPASSWORD", PASSWORD).spawn().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(wait));
            let _ = child.kill();
            child.wait().unwrap();
        }
        let mut moved = told(&["move", "home", "--engine", target]);
        wait_until("it is moved", || {
            // A session that was killed lives for its lease.
            let is_done = moved.code == Some(0) || moved.err.contains("moved before");
            if !is_done {
                moved = told(&["move", "home", "--engine", target]);
            }
            is_done
        });
        expect_whole();
        let dropped = told(&["move", "home", "--drop-old"]);
        assert_eq!(dropped.code, Some(0), "{dropped:?}");
        expect_whole();
    }
    let other = Machine::new(&scratch, "other");
    let attach = [
        "fileset", "attach", "home", "--store", &store, "--engine", &engine,
    ];
    succeed(other.penstock(&attach).env("PGPASSWORD", PASSWORD));
    let mountpoint = other.mount();
    assert!(mountpoint.join("file 299").exists());
    other.unmount(&mountpoint);
}

/// Loads that are killed sooner and later: what is visible is whole.
fn kill_loads(there: &Machine<'_>, store: &str) {
    let place = ["--store", store];
    for wait in [2, 5, 8, 11, 14, 17, 20, 25, 30, 60] {
        let mut load = there.penstock(&["fileset", "load", "home", "--from", "latest"]);
        let mut child = load.args(place).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(wait));
        let _ = child.kill();
        child.wait().unwrap();
        if run(&mut there.penstock(&["fileset", "info", "home"])).code == Some(0) {
            succeed(&mut there.penstock(&["fileset", "check", "home", "--data"]));
            succeed(&mut there.penstock(&["fileset", "destroy", "home", "--yes", "--local-only"]));
        }
    }
}

#[test]
fn a_dump_of_a_mounted_fileset_is_loaded_into_an_engine_of_another_kind() {
    let Some(server) = Server::start() else {
        return;
    };
    let scratch = Scratch::new();
    let store = store_in(&scratch);
    let engine = engine_of(&server);
    let here = Machine::new(&scratch, "here");
    let place = ["--store", &store];
    let made = here.told(&["create", "home", "--store", &store, "--engine", &engine]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let other = Machine::new(&scratch, "other");
    let attached = other.told(&["attach", "home", "--store", &store, "--engine", &engine]);
    assert_eq!(attached.code, Some(0), "{attached:?}");
    let mountpoint = here.mount();
    fs::write(mountpoint.join("kept"), "kept").unwrap();
    // Another machine makes dumps of what is mounted here.
    for _ in 0..3 {
        let dumped = other.told(&["dump", "home", "--keep", "2", "--json"]);
        assert_eq!(dumped.code, Some(0), "{dumped:?}");
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
    let listed = other.told(&["dump", "home", "--list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    // What is removed afterwards is there after the dump is loaded.
    fs::remove_file(mountpoint.join("kept")).unwrap();
    here.unmount(&mountpoint);
    let gone = here.told(&["gc", "home"]);
    assert_eq!(gone.code, Some(0), "{gone:?}");
    let there = Machine::new(&scratch, "there");
    let again = there.told(
        &[
            &["load", "home", "--from", "latest", "--engine", &engine],
            &place[..],
        ]
        .concat(),
    );
    assert!(again.err.contains("already"), "not empty: {again:?}");
    kill_loads(&there, &store);
    let loaded =
        there.told(&[&["load", "home", "--from", "latest", "--data"], &place[..]].concat());
    assert_eq!(loaded.code, Some(0), "{loaded:?}");
    let mountpoint = there.mount();
    assert_eq!(fs::read_to_string(mountpoint.join("kept")).unwrap(), "kept");
    there.unmount(&mountpoint);
    let mut old = here.penstock(&["mount", "fileset://home"]);
    let old = run(old
        .arg(scratch.folder("mnt-old"))
        .env("PGPASSWORD", PASSWORD));
    assert!(old.code != Some(0) && old.err.contains("attach"), "{old:?}");
}

#[test]
fn a_start_of_mount_targets_that_fails_leaves_no_session_behind() {
    let Some(server) = Server::start() else {
        return;
    };
    let scratch = Scratch::new();
    let store = store_in(&scratch);
    let engine = engine_of(&server);
    let here = Machine::new(&scratch, "here");
    let made = here.told(&["create", "home", "--store", &store, "--engine", &engine]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap();
    let other = scratch.folder("other");
    let state = scratch.path("state");
    let text = |cache: &str| {
        format!(
            "state-dir = \"{}\"\n[volume.a]\nsource = \"fileset://home\"\n\
             [volume.b]\nsource = \"file://{}\"\n{cache}[target.t]\nlisten = \"{taken}\"\n\
             [[export]]\npath = \"/a\"\nvolume = \"a\"\n[[export]]\npath = \"/b\"\nvolume = \"b\"\n",
            state.display(),
            other.display()
        )
    };
    for (cache, told) in [
        ("cache-dir = \"/dev/null/cache\"\n", "/dev/null/cache"),
        ("", "cannot listen"),
    ] {
        let file = scratch.file("serve.toml", &text(cache));
        let mut serve = here.penstock(&["serve", "--config"]);
        let ended = run(serve.arg(file).env("PGPASSWORD", PASSWORD));
        assert!(
            ended.code == Some(1) && ended.err.contains(told),
            "{ended:?}"
        );
        assert_eq!(here.sessions(), Vec::<serde_json::Value>::new(), "{told}");
    }
    // Nor does a mount that the kernel refuses.
    let mut mount = here.penstock(&["mount", "fileset://home", "--nonempty"]);
    let place = scratch.file("no-directory", "");
    let ended = run(mount.arg(place).env("PGPASSWORD", PASSWORD));
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert_eq!(here.sessions(), Vec::<serde_json::Value>::new());
}

/// What one machine removes another one lists, brings back and purges, whether it has the fileset mounted or not.
#[test]
fn the_trash_of_a_fileset_on_a_database_is_ordered_from_any_machine() {
    let Some(server) = Server::start() else {
        return;
    };
    let scratch = Scratch::new();
    let pair = Pair::mounted(&scratch, &server);
    let (here, there) = (&pair.here, &pair.there);
    let trash = |machine: &Machine<'_>, arguments: &[&str]| {
        let told = machine.told(&[&["trash"], arguments].concat());
        assert_eq!(told.code, Some(0), "{arguments:?}: {told:?}");
        told.out
    };
    let entries = |machine: &Machine<'_>| {
        let listed = trash(machine, &["list", "home", "--json"]);
        let listed: Vec<serde_json::Value> = serde_json::from_str(&listed).unwrap();
        let text = |item: &serde_json::Value, name: &str| item[name].as_str().unwrap().to_owned();
        let entries = listed
            .iter()
            .map(|item| (text(item, "path"), text(item, "entry")));
        entries.collect::<std::collections::BTreeMap<_, _>>()
    };
    trash(here, &["set", "home", "--days", "7"]);
    for name in ["a", "b", "c", "d"] {
        fs::write(pair.one.join(name), name).unwrap();
        wait_until("the file is seen", || pair.other.join(name).exists());
        fs::remove_file(pair.other.join(name)).unwrap();
        wait_until("its name is gone", || !pair.one.join(name).exists());
    }
    wait_until("all are listed", || entries(here).len() == 4);
    let listed = entries(here);
    assert_eq!(entries(there), listed);
    assert_eq!(trash(here, &["restore", "home", &listed["/a"]]), "/a\n");
    wait_until("it is back", || pair.other.join("a").exists());
    assert_eq!(fs::read_to_string(pair.other.join("a")).unwrap(), "a");

    // One that has it not mounted, beside one that has.
    there.unmount(&pair.other);
    assert_eq!(
        trash(there, &["restore", "home", &listed["/b"], "/back"]),
        "/back\n"
    );
    wait_until("it is back", || pair.one.join("back").exists());
    assert_eq!(fs::read_to_string(pair.one.join("back")).unwrap(), "b");
    assert_eq!(
        trash(there, &["purge", "home", "--older-than", "1d"]),
        "0 files were removed\n"
    );
    assert_eq!(trash(there, &["purge", "home"]), "2 files were removed\n");
    wait_until("nothing is listed", || entries(here).is_empty());
    fs::remove_file(pair.one.join("back")).unwrap();

    // And the same where nobody has.
    here.unmount(&pair.one);
    assert_eq!(entries(there).keys().collect::<Vec<_>>(), ["/back"]);
    assert_eq!(trash(there, &["purge", "home"]), "1 files were removed\n");
    assert!(trash(here, &["show", "home"]).starts_with("0 files"));
    let gc = here.told(&["gc", "home"]);
    assert_eq!(gc.code, Some(0), "{gc:?}");
    let places = fs::read_dir(scratch.path("bucket/data")).unwrap();
    let objects = places.map(|place| fs::read_dir(place.unwrap().path()).unwrap().count());
    assert_eq!(objects.sum::<usize>(), 1, "only `a` is left");
    let check = here.told(&["check", "home", "--data"]);
    assert_eq!(check.code, Some(0), "{check:?}");
}
