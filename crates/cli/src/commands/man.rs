//! `penstock man [COMMAND]`: a manual page, for packages to install.

use clap::{Arg, ArgMatches, Command};

use crate::{environment::Environment, failure::Outcome, generate, output};

pub(crate) fn command() -> Command {
    Command::new("man")
        .about("Print a manual page")
        .hide(true)
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .help("The command; without it, the program"),
        )
}

pub(crate) fn run(matches: &ArgMatches, _: &Environment) -> Outcome {
    let page = match matches.get_one::<String>("command") {
        Some(name) => super::help::find(name)?.name(format!("penstock-{name}")),
        None => super::program(),
    };
    output::print(&generate::man(page)?)
}
