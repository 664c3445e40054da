//! How a test says that this machine lacks what it needs.
//!
//! Rust's test harness knows `passed` and `failed` only: a test that returns early has passed, and what
//! it printed is thrown away. So a test that cannot run here calls [`skipped`] before it returns. That
//! leaves a line in the file that [`REGISTER_VARIABLE`] names, from which `make test` counts and names
//! what was skipped and takes it off what passed.
//!
//! Nothing that users run depends on this crate: `cargo xtask tidy` sees to that.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods)]

use std::{
    env,
    fmt::Display,
    fs::OpenOptions,
    io::{self, Write},
    path::Path,
    thread,
};

/// Names the file that takes the lines; without it they go to the process's error output.
pub const REGISTER_VARIABLE: &str = "PENSTOCK_TEST_SKIPS";

/// Says that the test on whose thread this is called does not run, or not all of it, because of what
/// this machine lacks. Without a register the line reaches the terminal: the harness holds back only
/// what `print!` and its like print. With one it does not, where it would tear the harness's own lines.
pub fn skipped(why: impl Display) {
    let program = env::current_exe().unwrap_or_default();
    let thread = thread::current();
    let test = thread.name().unwrap_or("a thread without a name");
    let why = why.to_string().replace('\n', " ");
    let line = format!("{}::{test}: {why}\n", target(&program));
    let said = match env::var_os(REGISTER_VARIABLE) {
        Some(path) => register(Path::new(&path), &line),
        None => io::stderr().write_all(format!("skipped {line}").as_bytes()),
    };
    said.expect("whoever asked for a line can take it");
}

/// Adds a line. One write to a file that is open for appending does not mix with those of others.
fn register(path: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(line.as_bytes())
}

/// The name of a test target: that of its program without the hash that cargo adds.
fn target(program: &Path) -> String {
    let stem = program.file_stem().unwrap_or_default().to_string_lossy();
    match stem.rsplit_once('-') {
        Some((name, _hash)) => name.to_owned(),
        None => stem.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_named_without_its_hash() {
        let name = |program: &str| target(Path::new(program));
        assert_eq!(name("/t/debug/deps/fsx-0123456789abcdef"), "fsx");
        assert_eq!(name("/t/debug/deps/two_words-00"), "two_words");
        assert_eq!(name("fsx"), "fsx");
    }
}
