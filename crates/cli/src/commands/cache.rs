//! `penstock cache show|warm|drop`: the disk cache from outside.

mod drop;
mod show;
mod warm;

use clap::{ArgMatches, Command};

use crate::{
    environment::Environment,
    failure::{Failure, Outcome},
};

pub(crate) fn command() -> Command {
    Command::new("cache")
        .about("Show, fill or empty the disk cache of a mount")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(show::command())
        .subcommand(warm::command())
        .subcommand(drop::command())
}

pub(crate) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    match matches.subcommand() {
        Some(("show", matches)) => show::run(matches),
        Some(("warm", matches)) => warm::run(matches, environment),
        Some(("drop", matches)) => drop::run(matches, environment),
        _ => Err(Failure::usage(
            "`penstock cache` does nothing by itself",
            "see `penstock cache --help`",
        )),
    }
}
