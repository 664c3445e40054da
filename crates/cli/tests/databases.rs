//! A fileset whose metadata is in a database, from its making to its end.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

#[path = "../../fileset/tests/database/server.rs"]
mod server;
mod support;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use server::{PASSWORD, Server};
use support::{Scratch, run, succeed};

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
        let mountpoint = self.scratch.folder("mnt");
        let mut command = self.penstock(&["mount", "fileset://home"]);
        succeed(command.arg(&mountpoint));
        mountpoint
    }

    fn mount_with(&self, password: &str) -> PathBuf {
        let mountpoint = self.scratch.folder("mnt-there");
        let mut command = self.penstock(&["mount", "fileset://home"]);
        succeed(command.arg(&mountpoint).env("PGPASSWORD", password));
        mountpoint
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

/// Neither machine has it for good, and only one at a time.
fn mount_where_it_is_free(here: &Machine<'_>, there: &Machine<'_>) -> PathBuf {
    succeed(&mut here.penstock(&["fileset", "check", "home"]));
    let mounted_there = there.mount_with(PASSWORD);
    let late = run(&mut here.penstock(&["fileset", "check", "home"]));
    assert!(late.err.contains("another machine has it"), "{late:?}");
    let refused = run(&mut here.penstock(&["fileset", "destroy", "home", "--yes"]));
    assert!(refused.err.contains("another machine"), "{refused:?}");
    mounted_there
}

#[test]
fn a_fileset_on_a_database_lives_moves_and_ends_without_a_word_of_the_password() {
    let Some(server) = Server::start() else {
        return;
    };
    let scratch = Scratch::new();
    let store = format!("file://{}", scratch.folder("bucket").display());
    let password = scratch.file("password", &format!("{PASSWORD}\n"));
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    let password = password.display().to_string();
    let engine = format!("postgres://penstock@127.0.0.1:{}/postgres", server.port);
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
    let mounted_there = mount_where_it_is_free(&here, &there);
    succeed(
        here.penstock(&attach)
            .args(["--engine-password-file", &password]),
    );
    let shut_out = fs::write(mounted_there.join("late"), "x");
    assert!(shut_out.is_err());
    there.unmount(&mounted_there);
    let mountpoint = here.mount();
    let text = fs::read_to_string(mountpoint.join("directory/file")).unwrap();
    assert_eq!(text, "content");
    let busy = run(&mut here.penstock(&["fileset", "info", "home"]));
    assert!(busy.err.contains("in use by process"), "{busy:?}");
    here.unmount(&mountpoint);

    succeed(&mut here.penstock(&["fileset", "destroy", "home", "--yes"]));
    let left =
        "SELECT count(*) FROM information_schema.schemata WHERE schema_name LIKE 'penstock_%'";
    assert_eq!(server.sql(left), "0");
    let objects = fs::read_dir(scratch.path("bucket")).unwrap().flatten();
    let objects: Vec<_> = objects.filter(|entry| entry.path().is_file()).collect();
    assert!(objects.is_empty(), "{objects:?}");
}
