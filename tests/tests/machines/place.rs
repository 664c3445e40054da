//! What a machine has of a fileset whose metadata is in a database.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::{path::PathBuf, process::Command};

use penstock_tests::{
    Bucket, Finished, Mount, MountOptions, Patience, Scratch, penstock, run_within,
};

use crate::server::{PASSWORD, Server};

/// What the fileset is called everywhere.
const NAME: &str = "home";
const PATIENCE: Patience = Patience::seconds(90);

/// A machine's own directory, and its way to the database.
pub(crate) struct Place {
    filesets: PathBuf,
    port: u16,
}

impl Place {
    pub(crate) fn new(filesets: PathBuf, port: u16) -> Self {
        Self { filesets, port }
    }

    pub(crate) fn variables(&self, options: MountOptions) -> MountOptions {
        options
            .variable("PENSTOCK_FILESET_DIR", &self.filesets.display().to_string())
            .variable("PGPASSWORD", PASSWORD)
    }

    fn penstock(&self, bucket: &Bucket, verb: &str) -> Command {
        let mut command = penstock();
        command.args(["fileset", verb, NAME]);
        let options = self.variables(bucket.signing_options());
        options.apply(&mut command);
        command
    }

    /// `penstock fileset VERB` there.
    pub(crate) fn command(&self, bucket: &Bucket, verb: &str, more: &[&str]) -> Finished {
        run_within(PATIENCE, self.penstock(bucket, verb).args(more))
    }

    /// The first machine makes the file system, the others join.
    pub(crate) fn introduce(&self, bucket: &Bucket, is_first: bool) {
        let verb = if is_first { "create" } else { "attach" };
        let store = format!("{}/below", bucket.source());
        let engine = format!("postgres://penstock@127.0.0.1:{}/postgres", self.port);
        let mut command = self.penstock(bucket, verb);
        command.args(["--store", &store, "--engine", &engine]);
        bucket.options().apply(&mut command);
        run_within(PATIENCE, &mut command).expect_success();
    }

    pub(crate) fn mount(&self, options: MountOptions) -> Mount {
        Mount::new(&format!("fileset://{NAME}"), &self.variables(options))
    }
}

/// Two machines: what one has to do with the other is asked each time.
pub(crate) struct Pair {
    bucket: Bucket,
    places: [Place; 2],
    other: Option<Mount>,
    _scratch: Scratch,
    _server: Server,
}

impl Pair {
    /// `None` where there is no database.
    pub(crate) fn new(bucket: Bucket) -> Option<Self> {
        let (server, scratch) = (Server::start()?, Scratch::new());
        let place = |name| Place::new(scratch.folder(name), server.port);
        let places = [place("one"), place("other")];
        places[0].introduce(&bucket, true);
        places[1].introduce(&bucket, false);
        Some(Self {
            bucket,
            places,
            other: None,
            _scratch: scratch,
            _server: server,
        })
    }

    /// Mounts it on both, and returns the mount of one.
    pub(crate) fn mount(&mut self, with: impl Fn(MountOptions) -> MountOptions) -> Mount {
        let options = || with(self.bucket.signing_options());
        let [one, other] = &self.places;
        let mount = one.mount(options());
        self.other = Some(other.mount(options()));
        mount
    }

    /// Unmounts it on the other one, and looks at all that there is.
    pub(crate) fn end(mut self) {
        self.other.take().expect("it is mounted").unmount();
        let checked = self.places[0].command(&self.bucket, "check", &["--data"]);
        checked.expect_success();
    }
}
