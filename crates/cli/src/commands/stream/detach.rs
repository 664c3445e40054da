//! `penstock stream detach`: removes what volumes left behind.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_block::Cleaned;

use crate::{
    commands::{listing, umount},
    control::client,
    doors::block,
    environment::Environment,
    failure::{Exit, Failure, Outcome},
    output, places,
};

pub(super) fn command() -> Command {
    Command::new("detach")
        .about("Remove what volumes left behind whose program was killed")
        .long_about(
            "Removes the mounts and block devices of volumes whose program was killed. Who has \
             files open there keeps errors. The next `penstock stream` does the same before it \
             mounts. With a mount point, does this only for the volume there, and unmounts it when \
             it is alive.",
        )
        .arg(
            Arg::new("mountpoint")
                .value_name("MOUNTPOINT")
                .value_parser(value_parser!(PathBuf))
                .help("Remove or unmount the volume that is mounted here, and no other"),
        )
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let mountpoint = matches.get_one::<PathBuf>("mountpoint");
    let cleaned = match mountpoint {
        Some(path) => clean_at(&absolute(path), environment)?,
        None => clean(environment)?,
    };
    for volume in &cleaned {
        let (source, place) = (&volume.record.source, volume.record.mount_point.display());
        output::print_line(&match volume.complete {
            true => format!("removed what was left of {source} on {place}"),
            false => format!("files of {source} on {place} are still open"),
        })?;
    }
    if let Some(path) = mountpoint.filter(|_| cleaned.is_empty()) {
        return umount::unmount(path, environment);
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

/// The mount point as it was written down when the volume was mounted, as far as it can be found.
fn absolute(path: &Path) -> PathBuf {
    let found = umount::resolve(path).or_else(|_| std::path::absolute(path));
    found.unwrap_or_else(|_| path.to_owned())
}

/// Removes what a volume on `mountpoint` left behind whose program was killed.
pub(crate) fn clean_at(mountpoint: &Path, environment: &Environment) -> Outcome<Vec<Cleaned>> {
    let state = block::state_directory(environment);
    let cleaned =
        listing::block_on(async { Ok(penstock_block::clean_at(&state, mountpoint).await) })?;
    remove_sockets(&cleaned, environment);
    Ok(cleaned)
}

/// Removes what volumes left behind whose program was killed.
pub(crate) fn clean(environment: &Environment) -> Outcome<Vec<Cleaned>> {
    let state = block::state_directory(environment);
    let cleaned = listing::block_on(async { Ok(penstock_block::clean(&state).await) })?;
    remove_sockets(&cleaned, environment);
    Ok(cleaned)
}

fn remove_sockets(cleaned: &[Cleaned], environment: &Environment) {
    let place = places::sockets(environment);
    for volume in cleaned {
        client::remove_dead(&place, &volume.record.mount_point);
    }
}
