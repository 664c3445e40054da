//! `penstock completions SHELL`: a script that completes commands and options.

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use crate::{environment::Environment, failure::Outcome, generate, output};

pub(crate) fn command() -> Command {
    Command::new("completions")
        .about("Print a script that completes commands and options in a shell")
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(value_parser!(Shell))
                .help("The shell"),
        )
        .after_help("Example: penstock completions bash > /etc/bash_completion.d/penstock")
}

pub(crate) fn run(matches: &ArgMatches, _: &Environment) -> Outcome {
    let shell = *matches.get_one::<Shell>("shell").expect("required");
    output::print(&generate::completions(super::program(), shell))
}
