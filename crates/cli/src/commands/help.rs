//! `penstock help [COMMAND]`: help, or with `--markdown` the reference page of all options.

use clap::{Arg, ArgMatches, Command};

use crate::{
    command_line,
    environment::Environment,
    failure::{Failure, Outcome},
    generate, output, personality,
};

pub(crate) fn command() -> Command {
    Command::new("help")
        .about("Print help for a command")
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .help("The command, or ossfs, ossfs2 or goofys; without it, the list of commands"),
        )
        .arg(command_line::flag(
            "markdown",
            "Print the reference page of all options instead",
        ))
}

pub(crate) fn run(matches: &ArgMatches, _: &Environment) -> Outcome {
    if matches.get_flag("markdown") {
        return output::print(&generate::markdown());
    }
    let text = match matches.get_one::<String>("command") {
        Some(name) => match personality::find(name) {
            Some(program) => return output::print(&program.help()),
            None => find(name)?
                .bin_name(format!("penstock {name}"))
                .render_long_help(),
        },
        None => super::program().render_help(),
    };
    output::print(&text.to_string())
}

/// The command that is called `name`.
pub(super) fn find(name: &str) -> Outcome<Command> {
    let program = super::program();
    let found = program.find_subcommand(name).cloned();
    found.ok_or_else(|| {
        Failure::usage(
            format!("`{name}` is not a command"),
            "`penstock help` lists the commands",
        )
    })
}
