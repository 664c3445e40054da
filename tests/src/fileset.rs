//! A file system of our own on a bucket of its own.

use std::{
    path::PathBuf,
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
};

use penstock_devserver::{Counters, Faults, Server};

use crate::{Bucket, Finished, Kind, Mount, MountOptions, Patience, penstock, run_within};

const PATIENCE: Patience = Patience::seconds(60);

/// A fileset. It is destroyed with this, also when a test fails.
pub struct Fileset {
    name: String,
    bucket: Bucket,
}

impl Fileset {
    /// An empty one whose name says `what` it is for.
    #[track_caller]
    pub fn new(what: &str) -> Self {
        Self::made_with(what, &[])
    }

    /// The same, made with more options.
    #[track_caller]
    pub fn made_with(what: &str, more: &[&str]) -> Self {
        // Tests that run at the same time may want the same.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-{what}-{}-{number}", process::id());
        let bucket = Bucket::new(Kind::S3);
        let fileset = Self { name, bucket };
        let source = fileset.store();
        let mut arguments = vec!["--store", &source];
        arguments.extend(more);
        fileset.run("create", &arguments).expect_success();
        fileset
    }

    /// Where its data lies.
    fn store(&self) -> String {
        format!("{}/below", self.bucket.source())
    }

    /// Brings it up from its bucket alone, under its own name or that of another machine's.
    #[track_caller]
    pub fn attach(&self, name: &str) {
        let mut command = self.bucket.command_on("fileset", "attach");
        command.args([name, "--store", &self.store()]);
        run_within(PATIENCE, &mut command).expect_success();
    }

    /// Brings it up from the latest dump in its bucket.
    #[track_caller]
    pub fn load_latest(&self) {
        let mut command = self.bucket.command_on("fileset", "load");
        command.args([&self.name, "--store", &self.store(), "--from", "latest"]);
        run_within(PATIENCE, &mut command).expect_success();
    }

    /// Another file system takes its place in the bucket.
    pub fn replace_label(&self) {
        let label = r#"{"version":1,"identity":"0000000000000000","name":"another"}"#;
        self.bucket
            .put_outside("below/fileset.json", label.as_bytes());
    }

    /// Stops the server of its bucket as a crash would, runs `meanwhile`, and starts it again.
    pub fn without_store(&self, meanwhile: impl FnOnce()) {
        self.bucket.without_server(meanwhile);
    }

    /// What the server of its bucket has been asked so far.
    pub fn counters(&self) -> Counters {
        self.bucket.server(Server::counters)
    }

    /// Lets the server of its bucket do these wrong from now on.
    pub fn fail(&self, faults: Faults) {
        self.bucket.fail(faults);
    }

    /// Lets it do everything right again.
    pub fn heal(&self) {
        self.bucket.heal();
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory in which this machine keeps what it has of a fileset, as root.
    pub fn state(name: &str) -> PathBuf {
        PathBuf::from("/var/lib/penstock/fileset").join(name)
    }

    /// Mounts it with credentials alone: how its bucket is reached was kept with it.
    #[track_caller]
    pub fn mount_as_kept(&self) -> Mount {
        self.mount_with(&self.bucket.signing_options())
    }

    /// Mounts what was attached as `name`.
    #[track_caller]
    pub fn mount_as(&self, name: &str) -> Mount {
        Mount::new(&format!("fileset://{name}"), &self.options())
    }

    /// `penstock fileset VERB` of it, with the options that lead to its bucket.
    pub fn run(&self, verb: &str, more: &[&str]) -> Finished {
        let mut command = self.bucket.command_on("fileset", verb);
        run_within(PATIENCE, command.arg(&self.name).args(more))
    }

    /// `penstock fileset snapshot VERB` of it.
    pub fn snapshots(&self, verb: &str, more: &[&str]) -> Finished {
        self.nested("snapshot", (verb, &self.name), more)
    }

    /// `penstock fileset quota VERB` of it.
    pub fn quota(&self, verb: &str, more: &[&str]) -> Finished {
        self.nested("quota", (verb, &self.name), more)
    }

    /// `penstock fileset trash VERB` of it.
    pub fn trash(&self, verb: &str, more: &[&str]) -> Finished {
        self.nested("trash", (verb, &self.name), more)
    }

    /// The same of one snapshot.
    pub fn snapshot(&self, verb: &str, name: &str) -> Finished {
        self.nested("snapshot", (verb, &self.at(name)), &[])
    }

    /// How the command line names a snapshot of it.
    pub fn at(&self, snapshot: &str) -> String {
        format!("{}@{snapshot}", self.name)
    }

    fn nested(&self, what: &str, (verb, which): (&str, &str), more: &[&str]) -> Finished {
        let mut command = penstock();
        command.args(["fileset", what, verb, which]).args(more);
        self.options().apply(&mut command);
        run_within(PATIENCE, &mut command)
    }

    /// Whether `penstock fileset info` shows it, which needs no store.
    pub fn is_shown(&self) -> bool {
        let mut command = penstock();
        run_within(PATIENCE, command.args(["fileset", "info", &self.name])).succeeded()
    }

    /// The options of a mount of it.
    pub fn options(&self) -> MountOptions {
        self.bucket.options()
    }

    /// `penstock COMMAND SOURCE` with the options that lead to its bucket.
    pub fn command(&self, name: &str) -> Command {
        self.bucket.command_on(name, &self.source())
    }

    fn source(&self) -> String {
        format!("fileset://{}", self.name)
    }

    /// Mounts it with `options`, which begin with [`Fileset::options`].
    #[track_caller]
    pub fn mount_with(&self, options: &MountOptions) -> Mount {
        Mount::new(&self.source(), options)
    }

    /// Mounts it with defaults.
    #[track_caller]
    pub fn mount(&self) -> Mount {
        self.mount_with(&self.options())
    }
}

impl Drop for Fileset {
    fn drop(&mut self) {
        self.run("destroy", &["--yes"]);
    }
}
