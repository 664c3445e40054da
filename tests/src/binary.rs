//! Finds the `penstock` binary, building it first so that no test runs against an old one.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Names a binary to test in place of a freshly built one, such as a release build.
const BINARY_VARIABLE: &str = "PENSTOCK_TEST_BINARY";

/// Where the binary lies.
pub fn penstock_path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os(BINARY_VARIABLE) {
        Some(path) => PathBuf::from(path),
        None => build(),
    })
}

/// A command that runs the binary, without the credentials and settings of whoever runs the test but as
/// on a machine with as many processors as they say.
pub fn penstock() -> Command {
    let mut command = Command::new(penstock_path());
    command.env_clear();
    for kept in ["PATH", "HOME", "TMPDIR", "LANG", "PENSTOCK_TEST_PROCESSORS"] {
        if let Some(value) = std::env::var_os(kept) {
            command.env(kept, value);
        }
    }
    command
}

/// Builds with the profile that this test was built with; cargo does nothing when it is fresh.
fn build() -> PathBuf {
    let profile_folder = profile_folder();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "penstock-cli"]);
    cargo.args(["--features", "bench"]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile_folder.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo runs, for it built this test");
    assert!(status.success(), "penstock does not build");
    profile_folder.join("penstock")
}

/// `target/debug` or `target/release`, above the `deps` folder that this test runs from.
fn profile_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    let deps = test.parent().expect("a program lies in a folder");
    deps.parent().expect("deps lies in target").to_path_buf()
}
