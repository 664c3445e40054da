//! `penstock stream build SOURCE`: the index of a path without a mount.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::listed_source;
use crate::{
    command_line,
    environment::Environment,
    failure::{Failure, Outcome},
    options::Scope,
};

pub(super) fn command() -> Command {
    Command::new("build")
        .about("Build the index of a path without mounting it")
        .arg(listed_source())
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("IMAGE")
                .value_parser(value_parser!(PathBuf))
                .help("Write the image here and the map of its objects to IMAGE.objects"),
        )
        .args(
            command_line::option_arguments(Scope::Stream)
                .into_iter()
                .filter(|argument| {
                    // `-o` names the image here.
                    argument.get_short() != Some('o')
                }),
        )
}

pub(super) fn run(_matches: &ArgMatches, _environment: &Environment) -> Outcome {
    Err(Failure::new("not yet", "wait"))
}
