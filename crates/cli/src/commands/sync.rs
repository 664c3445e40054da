//! `penstock sync PATH...`: waits until the store has what programs wrote.

use std::{
    fs::OpenOptions,
    io,
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use clap::{Arg, ArgMatches, Command, value_parser};
use rustix::fs::OFlags;

use crate::{
    environment::Environment,
    failure::{Failure, Outcome},
};

pub(crate) fn command() -> Command {
    Command::new("sync")
        .about("Wait until the store has what was written to a file or below a directory")
        .long_about(
            "Returns when the store has what programs wrote to the files and below the directories, and what \
             they made and removed there: fsync of each, and with fsync=journal or off the store as well. A mount \
             point stands for all of its mount. `sync` without a path, and syncfs, cannot do that: the kernel tells \
             a mount nothing of them. Of a mount with save=close and fsync=off nothing is waited for.",
        )
        .arg(
            Arg::new("path")
                .value_name("PATH")
                .required(true)
                .num_args(1..)
                .value_parser(value_parser!(PathBuf))
                .help("A file or a directory of a mount"),
        )
}

pub(crate) fn run(matches: &ArgMatches, _environment: &Environment) -> Outcome {
    let paths = matches.get_many::<PathBuf>("path").expect("required");
    sync_all(paths)
}

/// Waits for each, whatever became of those before it.
fn sync_all<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Outcome {
    let failed: Vec<String> = paths
        .filter_map(|path| Some((path, sync(path).err()?)))
        .map(|(path, error)| format!("`{}` is not in the store: {error}", path.display()))
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        failed.join(", "),
        "the mount's log says why, and `penstock unsaved` lists what is tried again",
    ))
}

fn sync(path: &Path) -> io::Result<()> {
    // A pipe that nobody writes to would be waited for.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    file.sync_all()?;
    penstock_fuse::save(file.as_fd())
}
