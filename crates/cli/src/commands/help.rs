//! `penstock help [COMMAND]`: help, or with `--markdown` a reference page.

use clap::{Arg, ArgMatches, Command, builder::EnumValueParser};

use crate::{
    environment::Environment,
    failure::{Failure, Outcome},
    generate::Page,
    output, personality,
};

pub(crate) fn command() -> Command {
    Command::new("help")
        .about("Print help for a command")
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .help("The command, or ossfs, ossfs2 or goofys; without it, the list of commands"),
        )
        .arg(
            Arg::new("markdown")
                .long("markdown")
                .value_name("PAGE")
                .value_parser(EnumValueParser::<Page>::new())
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("options")
                .help(
                    "Print a reference page instead: of all options, of those of other programs, or \
                     of metrics",
                ),
        )
}

pub(crate) fn run(matches: &ArgMatches, _: &Environment) -> Outcome {
    if let Some(page) = matches.get_one::<Page>("markdown") {
        return output::print(&page.markdown());
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
