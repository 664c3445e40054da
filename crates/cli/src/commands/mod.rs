//! The commands, one module each.

#[cfg(feature = "bench")]
mod bench;
mod cache;
pub(crate) mod check;
mod completions;
pub(crate) mod fileset;
mod help;
pub(crate) mod listing;
mod ls;
mod man;
pub(crate) mod mount;
mod serve;
mod stat;
pub(crate) mod stats;
pub(crate) mod stream;
mod sync;
pub(crate) mod tools;
pub(crate) mod umount;
mod unsaved;
pub(crate) mod uploads;

use clap::{ArgMatches, Command};

use crate::{
    command_line,
    environment::Environment,
    failure::{Failure, Outcome},
};

type Make = fn() -> Command;
type Run = fn(&ArgMatches, &Environment) -> Outcome;

/// Every command: how it is written and what it does.
const COMMANDS: &[(Make, Run)] = &[
    (mount::command, mount::run),
    (stream::command, stream::run),
    (serve::command, serve::run),
    (fileset::command, fileset::run),
    (umount::command, umount::run),
    (stats::command, stats::run),
    (sync::command, sync::run),
    (unsaved::command, unsaved::run),
    (check::command, check::run),
    (ls::command, ls::run),
    (stat::command, stat::run),
    (uploads::command, uploads::run),
    (tools::cp::command, tools::cp::run),
    (tools::rm::command, tools::rm::run),
    (tools::tar::command, tools::tar::run),
    #[cfg(feature = "bench")]
    (bench::command, bench::run),
    (cache::command, cache::run),
    (help::command, help::run),
    (completions::command, completions::run),
    (man::command, man::run),
];

/// What a first look at the program should show.
const EXAMPLES: &str = "\
Examples:
  penstock mount s3://bucket/prefix /mnt/data --region eu-west-1
  penstock mount oss://bucket /mnt/data --endpoint https://oss-cn-hangzhou.aliyuncs.com
  penstock mount file:///srv/bucket /mnt/data
  penstock stream s3://bucket/imagenet /mnt/images --region eu-west-1
  penstock serve file:///srv/bucket --listen 127.0.0.1:12049
  penstock check s3://bucket --region eu-west-1
  penstock umount /mnt/data

Credentials are found where the provider's own tools find them. Every option may also stand in the
environment (PENSTOCK_REGION for --region) or in a file (--config).

Exit status: 0 success, 1 failure, 2 wrong usage or settings, 3 some files could not be saved.";

/// The whole command line.
pub(crate) fn program() -> Command {
    let about = "Makes buckets usable as files";
    let commands = COMMANDS
        .iter()
        .map(|(make, _)| command_line::styled(make()));
    command_line::styled(Command::new("penstock"))
        .about(about)
        .version(env!("CARGO_PKG_VERSION"))
        .disable_version_flag(false)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(commands)
        .after_help(EXAMPLES)
}

/// Runs what `arguments`, the program's name first, ask for.
pub(crate) fn dispatch(arguments: &[std::ffi::OsString], environment: &Environment) -> Outcome {
    let program = command_line::as_asked(program(), arguments);
    let matches = match program.try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => return command_line::explain(&error),
    };
    let Some((name, matches)) = matches.subcommand() else {
        return Err(Failure::usage("no command is given", "see `penstock help`"));
    };
    for (make, run) in COMMANDS {
        if make().get_name() == name {
            return run(matches, environment);
        }
    }
    Err(Failure::usage(
        format!("`{name}` is not a command"),
        "see `penstock help`",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        program().debug_assert();
    }
}
