//! `penstock stream detach`: removes what volumes left behind.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_block::Cleaned;

use crate::{
    commands::{listing, umount},
    environment::Environment,
    failure::{Exit, Failure, Outcome},
    output, stream,
};

pub(super) fn command() -> Command {
    Command::new("detach")
        .about("Remove what volumes left behind whose program was killed")
        .long_about(
            "Removes the mounts and block devices of volumes whose program was killed. Who has \
             files open there keeps errors. The next `penstock stream` does the same before it \
             mounts. With a mount point, also unmounts the volume there when it is alive.",
        )
        .arg(
            Arg::new("mountpoint")
                .value_name("MOUNTPOINT")
                .value_parser(value_parser!(PathBuf))
                .help("Unmount the volume that is mounted here"),
        )
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let cleaned = clean(environment)?;
    for volume in &cleaned {
        let (source, place) = (&volume.record.source, volume.record.mount_point.display());
        output::print_line(&match volume.complete {
            true => format!("removed what was left of {source} on {place}"),
            false => format!("files of {source} on {place} are still open"),
        })?;
    }
    if let Some(path) = matches.get_one::<PathBuf>("mountpoint") {
        let mountpoint = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let is_done = |volume: &Cleaned| volume.record.mount_point == mountpoint;
        if !cleaned.iter().any(is_done) {
            return umount::unmount(path, environment);
        }
    }
    match cleaned.iter().all(|volume| volume.complete) {
        true => Ok(()),
        false => Err(Failure::new(
            "some devices are still in use",
            "close the files (`fuser -m` shows who has them) and run it again",
        )
        .with_exit(Exit::Failed)),
    }
}

/// Removes what volumes left behind whose program was killed.
pub(crate) fn clean(environment: &Environment) -> Outcome<Vec<Cleaned>> {
    let state = stream::state_directory(environment);
    listing::block_on(async { Ok(penstock_block::clean(&state).await) })
}
