//! `parcp`, `partar` and `parrm`: `penstock cp`, `penstock tar` and `penstock rm`.
//!
//! What the three share: how many threads, a line on the terminal that says how far it is, an orderly end on
//! Ctrl-C, and at the end everything that could not be done.

mod console;
pub(crate) mod cp;
mod direct;
mod pipes;
pub(crate) mod rm;
pub(crate) mod tar;

use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use penstock_tools::{Patterns, THREADS_MAX, Threads};

use crate::failure::{Failure, Outcome};

pub(super) use console::Work;

/// The programs by their own names, with the commands that they are.
const PROGRAMS: [(&str, &str); 3] = [("parcp", "cp"), ("partar", "tar"), ("parrm", "rm")];

/// The command that a program of this name is.
pub(crate) fn find(program: &str) -> Option<&'static str> {
    let found = PROGRAMS.iter().find(|(name, _)| *name == program);
    found.map(|(_, command)| *command)
}

/// Refuses a path that names what is no file of this machine.
fn check_local(path: &Path) -> Outcome {
    let text = path.to_string_lossy();
    let schemes = ["s3://", "oss://", "file://", "fileset://"];
    match schemes.iter().any(|scheme| text.starts_with(scheme)) {
        true => Err(Failure::usage(
            format!("`{text}` is no path of this machine, and this is not done without a mount"),
            "mount it, and name what is below the mount point; a local path that begins so is written with `./`",
        )),
        false => Ok(()),
    }
}

/// `-P N`.
fn threads_argument() -> Arg {
    Arg::new("threads")
        .short('P')
        .long("threads")
        .value_name("N")
        .action(ArgAction::Set)
        .value_parser(value_parser!(u16).range(1..=THREADS_MAX as i64))
        .help("Work with N threads [default: as many as make it faster, up to 64]")
}

fn threads(matches: &ArgMatches) -> Threads {
    match matches.get_one::<u16>("threads") {
        Some(count) => Threads::Fixed(usize::from(*count)),
        None => Threads::Measured,
    }
}

fn json_argument() -> Arg {
    crate::command_line::flag("json", "Print what was done as JSON at the end")
}

/// A flag with a letter.
fn lettered(name: &'static str, letter: char, help: &'static str) -> Arg {
    crate::command_line::flag(name, help).short(letter)
}

/// `--exclude` and `--exclude-from`, of paths that begin at a place with this name.
fn exclude_arguments(begin: &str) -> [Arg; 2] {
    [
        Arg::new("exclude")
            .long("exclude")
            .value_name("PATTERN")
            .action(ArgAction::Append)
            .value_parser(value_parser!(OsString))
            .help(format!(
                "Leave out names and paths, as rsync has them; a leading `/` is {begin}"
            )),
        Arg::new("exclude-from")
            .long("exclude-from")
            .value_name("FILE")
            .action(ArgAction::Append)
            .value_parser(value_parser!(PathBuf))
            .help("Leave out what the lines of FILE say; `+ PATTERN` keeps"),
    ]
}

fn patterns(matches: &ArgMatches) -> Outcome<Patterns> {
    let mut patterns = Patterns::default();
    let failed = |what: String| {
        move |error: std::io::Error| {
            Failure::usage(
                format!("cannot take {what}: {error}"),
                "check --exclude-from",
            )
        }
    };
    for text in matches.get_many::<OsString>("exclude").unwrap_or_default() {
        let added = patterns.add(text.as_bytes());
        added.map_err(failed(format!("`{}`", text.display())))?;
    }
    for path in matches
        .get_many::<PathBuf>("exclude-from")
        .unwrap_or_default()
    {
        let added = patterns.add_file(path);
        added.map_err(failed(format!("the patterns of {}", path.display())))?;
    }
    Ok(patterns)
}
