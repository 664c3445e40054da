//! `parcp`, `partar` and `parrm`: `penstock cp`, `penstock tar` and `penstock rm`.
//!
//! What the three share: how many threads, a line on the terminal that says how far it is, an orderly end on
//! Ctrl-C, and at the end everything that could not be done.

mod console;
pub(crate) mod rm;

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use penstock_tools::{THREADS_MAX, Threads};

pub(super) use console::{Ending, Work};

/// The programs by their own names, with the commands that they are.
const PROGRAMS: [(&str, &str); 3] = [("parcp", "cp"), ("partar", "tar"), ("parrm", "rm")];

/// The command that a program of this name is.
pub(crate) fn find(program: &str) -> Option<&'static str> {
    let found = PROGRAMS.iter().find(|(name, _)| *name == program);
    found.map(|(_, command)| *command)
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
