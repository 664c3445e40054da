//! A file system of our own on a bucket of its own.

use std::process::Command;

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
        let name = format!("test-{what}-{}", std::process::id());
        let bucket = Bucket::new(Kind::S3);
        let fileset = Self { name, bucket };
        let source = format!("{}/below", fileset.bucket.source());
        fileset
            .run("create", &["--store", &source])
            .expect_success();
        fileset
    }

    /// `penstock fileset VERB` of it, with the options that lead to its bucket.
    pub fn run(&self, verb: &str, more: &[&str]) -> Finished {
        let mut command = self.bucket.command_on("fileset", verb);
        run_within(PATIENCE, command.arg(&self.name).args(more))
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
