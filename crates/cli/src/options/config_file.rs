//! Options in a TOML file: one key per option at the top level.
//!
//! Values may be strings, or plain numbers and booleans where that is what they are. Every
//! message names the file and the line.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use toml::de::{DeTable, DeValue};

use super::{Accepts, Given, OptionSpec, Origin, table};
use crate::failure::{Failure, Outcome};

/// Bytes in the largest file that is read: far more than all options take.
const FILE_SIZE_MAX: u64 = 1 << 20;

/// Permission bits that let others than the owner read a file.
const READABLE_BY_OTHERS: u32 = 0o044;

/// Permission bits that let others than the owner write a file.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Reads the options of `path`.
pub(crate) fn read(path: &Path) -> Outcome<Vec<Given>> {
    let text = read_text(path)?;
    let given = parse(path, &text)?;
    check_secrecy(path, &given)?;
    Ok(given)
}

/// Reads a small text file that the user named.
pub(crate) fn read_text(path: &Path) -> Outcome<String> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| {
        Failure::usage(
            format!("cannot read the configuration file `{shown}`: {error}"),
            "check the path and its permissions",
        )
    };
    let metadata = fs::metadata(path).map_err(unreadable)?;
    let (size, mode) = (metadata.len(), metadata.mode());
    // Who writes options has the credentials sent to wherever he likes.
    if metadata.is_file() && mode & WRITABLE_BY_OTHERS != 0 {
        return Err(Failure::usage(
            format!(
                "other users may write the configuration file `{shown}` (mode {:04o})",
                mode & 0o7777
            ),
            format!("run `chmod go-w {shown}`"),
        ));
    }
    if size > FILE_SIZE_MAX {
        return Err(Failure::usage(
            format!("the configuration file `{shown}` has {size} bytes"),
            format!("it may have at most {FILE_SIZE_MAX}; is it the right file?"),
        ));
    }
    fs::read_to_string(path).map_err(unreadable)
}

/// Reads the options of `text`, which came from `path`.
pub(crate) fn parse(path: &Path, text: &str) -> Outcome<Vec<Given>> {
    let document = DeTable::parse(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        malformed(path, line_at(text, start), error.message())
    })?;
    let mut given = Vec::new();
    for (key, value) in document.get_ref() {
        let line = line_at(text, key.span().start);
        let spec = option_of(path, line, key.get_ref())?;
        let text = text_of(value.get_ref()).ok_or_else(|| {
            malformed(
                path,
                line,
                &format!("`{}` must be one value", key.get_ref()),
            )
        })?;
        given.push(Given {
            spec,
            spelling: key.get_ref().to_string(),
            text,
            origin: Origin::File {
                path: PathBuf::from(path),
                line,
            },
        });
    }
    Ok(given)
}

fn option_of(path: &Path, line: usize, key: &str) -> Outcome<&'static OptionSpec> {
    let known = table::find(key).filter(|spec| spec.accepts != Accepts::NotInFile);
    known.ok_or_else(|| {
        let hint = table::nearest(key, table::ALL.into_iter())
            .map_or(String::new(), |near| format!(", but `{near}` is"));
        malformed(path, line, &format!("`{key}` is not an option{hint}"))
    })
}

fn malformed(path: &Path, line: usize, message: &str) -> Failure {
    Failure::usage(
        format!("{}:{line}: {message}", path.display()),
        "docs/options.md and `penstock mount --help` list the keys and their values",
    )
}

/// The text of a plain value; none for lists and tables.
fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// The number of the line that byte `offset` is on, from 1.
pub(crate) fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// Refuses a file that holds a secret and that others may read.
pub(crate) fn check_secrecy(path: &Path, given: &[Given]) -> Outcome {
    let secret = given
        .iter()
        .find(|given| given.spec.accepts == Accepts::Privately);
    let Some(secret) = secret else {
        return Ok(());
    };
    let mode = fs::metadata(path).map_or(0, |metadata| metadata.mode());
    if mode & READABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    let shown = path.display();
    Err(Failure::usage(
        format!(
            "`{shown}` holds `{}` and other users may read it (mode {:04o})",
            secret.spelling,
            mode & 0o7777
        ),
        format!("run `chmod 600 {shown}`"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_text(text: &str) -> Outcome<Vec<Given>> {
        parse(Path::new("/etc/p.toml"), text)
    }

    #[test]
    fn keys_are_options_and_know_their_line() {
        let given =
            parse_text("# note\nmemory = \"1GiB\"\nfsync = false\nuid = 7\n").expect("valid");
        let mut found: Vec<_> = given
            .iter()
            .map(|given| {
                (
                    given.origin.to_string(),
                    given.spec.name,
                    given.text.as_str(),
                )
            })
            .collect();
        found.sort();
        assert_eq!(
            found,
            [
                ("/etc/p.toml:2".to_owned(), "memory", "1GiB"),
                ("/etc/p.toml:3".to_owned(), "fsync", "false"),
                ("/etc/p.toml:4".to_owned(), "uid", "7"),
            ]
        );
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, message) in [
            ("a = 1\n", "/etc/p.toml:1: `a` is not an option"),
            (
                "\nmemry = 1\n",
                "/etc/p.toml:2: `memry` is not an option, but `memory` is",
            ),
            ("\n\nuid = [1]\n", "/etc/p.toml:3: `uid` must be one value"),
            ("uid = 1\nuid = 2\n", "/etc/p.toml:2: "),
            ("fsync = \n", "/etc/p.toml:1: "),
            ("config = \"x\"", "/etc/p.toml:1: `config` is not an option"),
        ] {
            let failure = parse_text(text).expect_err(text).to_string();
            assert!(failure.starts_with(message), "{failure}");
        }
    }

    #[test]
    fn a_file_with_a_secret_must_be_private() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("p.toml");
        fs::write(&path, "access-key-secret = \"hunter2\"\n").expect("written");
        for (mode, fine) in [(0o600, true), (0o644, false), (0o640, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
            let outcome = read(&path);
            assert_eq!(outcome.is_ok(), fine, "{mode:o}");
            let text = outcome
                .err()
                .map_or(String::new(), |failure| failure.to_string());
            assert!(!text.contains("hunter2"));
        }
    }

    #[test]
    fn a_file_that_others_may_write_is_not_believed() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("p.toml");
        fs::write(&path, "endpoint = \"http://127.0.0.1\"\n").expect("written");
        for (mode, fine) in [(0o644, true), (0o664, false), (0o646, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
            assert_eq!(read(&path).is_ok(), fine, "{mode:o}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text: String) {
            let _ = parse_text(&text);
        }
    }
}
