//! `penstock cache drop DIR`: empties a cache, also under a mount.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Arg, ArgMatches, Command};
use penstock_base::clock;
use penstock_transfer::{CacheContents, CacheError};

use super::show::directory_argument;
use crate::{
    control::{
        Reply, Request,
        client::{self, Connection},
        protocol::Dropped,
    },
    environment::Environment,
    failure::{Failure, Outcome},
    output, places, text_table,
    volumes::cache,
};

/// How long a mount may take to remove what may be millions of files.
const DEADLINE: Duration = Duration::from_secs(600);

pub(super) fn command() -> Command {
    Command::new("drop")
        .about("Remove objects from a cache; a mount that uses it goes on")
        .arg(directory_argument())
        .arg(
            Arg::new("key")
                .long("key")
                .value_name("PREFIX")
                .default_value("")
                .hide_default_value(true)
                .help("Only objects whose keys, below what is mounted, start with this"),
        )
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let directory = matches.get_one::<PathBuf>("directory").expect("required");
    let prefix = matches.get_one::<String>("key").expect("it has a default");
    let Dropped { objects, bytes } = match CacheContents::remove(directory, prefix) {
        Ok(removed) => Dropped {
            objects: removed.objects,
            bytes: removed.bytes,
        },
        Err(CacheError::InUse { pid, .. }) => ask(pid, directory, prefix, environment)?,
        Err(error) => return Err(cache::failure(&error)),
    };
    let bytes = text_table::bytes(bytes);
    output::print_line(&format!("{objects} objects dropped, {bytes}"))
}

/// Has the mount of process `pid` do it.
fn ask(pid: u32, directory: &Path, prefix: &str, environment: &Environment) -> Outcome<Dropped> {
    let silent = || {
        let shown = directory.display();
        Failure::new(
            format!("process {pid}, which uses the cache in `{shown}`, does not answer"),
            "run this as the user who mounted, or unmount first",
        )
    };
    let place = places::sockets(environment);
    let mount = client::of_process(&place, pid).ok_or_else(silent)?;
    let prefix = prefix.to_owned();
    let connection = Connection::open(&mount.socket, &Request::DropCache { prefix });
    let mut connection = connection.map_err(|_| silent())?;
    let begun = clock::now();
    while begun.elapsed() < DEADLINE {
        match connection.next_reply() {
            Ok(Some(Reply::CacheDropped(dropped))) => return Ok(dropped),
            Ok(Some(Reply::Refused(refusal))) => return Err(refusal.into()),
            Err(error) if client::is_silence(&error) => {}
            Ok(_) | Err(_) => break,
        }
    }
    Err(silent())
}
