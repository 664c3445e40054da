//! `penstock serve SOURCE --listen ADDRESS`: an NFS mount target.

use std::{net::SocketAddr, path::PathBuf};

use clap::{ArgMatches, Command};

use super::mount::{kind_of, source_argument, start_logging};
use crate::{
    command_line,
    daemon::{self, Announcer, Plan},
    doors::DoorKind,
    environment::Environment,
    failure::{Failure, Outcome},
    filesets,
    logging::LogFile,
    mount_point::{self, Own},
    options::{Scope, Values, table},
    places, stores,
    volumes::VolumeSpec,
};

/// What stands for the mount point of a mount target, with its address behind it.
const PLACE: &str = "/nfs";

const AFTER_HELP: &str = "\
Examples:
  penstock serve file:///srv/bucket --listen 127.0.0.1:12049
  penstock serve fileset://home --listen 10.0.0.5:2049 --clients 10.0.0.0/8
  mount -t nfs -o vers=3,tcp,port=12049,mountport=12049,nolock 127.0.0.1:/ /mnt/data
  penstock serve fileset://home --listen 10.0.0.5:2049 --portmap 10.0.0.5:111
  mount -t nfs -o vers=3 10.0.0.5:/ /mnt/home

The command stays in the foreground until SIGTERM or SIGINT, and saves everything then. Every option
may also stand in the environment (PENSTOCK_LISTEN for --listen) or in the file that --config names.

Clients say who their users are, and nothing is encrypted: keep the address where only clients that
you trust reach it, with --clients and a firewall. Without --portmap mount with `nolock`.";

pub(crate) fn command() -> Command {
    Command::new("serve")
        .about("Serve a bucket or a fileset to NFS clients")
        .long_about(
            "Makes a bucket, a prefix of one, or a fileset an NFS version 3 mount target, which any NFS \
             client finds at the address, with nothing to install there.",
        )
        .arg(source_argument().help(
            "s3://BUCKET[/PREFIX], oss://BUCKET[/PREFIX], file:///DIRECTORY or fileset://NAME",
        ))
        .args(command_line::option_arguments(Scope::Serve))
        .after_long_help(AFTER_HELP)
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let values = command_line::values_without_words(matches, Scope::Serve, environment)?;
    let source = matches
        .get_one::<String>("source")
        .expect("required")
        .clone();
    let address = values.address(&table::LISTEN).ok_or_else(|| {
        Failure::usage(
            "no address to listen on is given",
            "name one with --listen, such as 127.0.0.1:12049",
        )
    })?;
    let store = filesets::place_of(&source, environment)?.store;
    stores::check_source(&store, &values)?;
    check_apart(&store, &values)?;
    let log = values
        .path(&table::LOG_FILE)
        .map(LogFile::open)
        .transpose()?;
    let plan = Plan {
        volume: VolumeSpec {
            kind: kind_of(&source),
            source,
            mountpoint: place_of(address),
            values,
            environment: environment.clone(),
        },
        door: DoorKind::Nfs(address),
        log,
        place: places::sockets(environment),
        line: None,
        guardian: None,
    };
    start_logging(&plan);
    daemon::run(&plan, Announcer::Foreground)
}

/// What a mount target is called where mounts are called by their mount points.
fn place_of(address: SocketAddr) -> PathBuf {
    PathBuf::from(PLACE).join(address.to_string())
}

/// Refuses a cache among the objects of a local directory.
fn check_apart(store: &str, values: &Values) -> Outcome {
    match (
        stores::local_directory(store),
        values.path(&table::CACHE_DIR),
    ) {
        (Some(directory), Some(cache)) => {
            mount_point::check_own_apart(Own::Cache, cache, &directory)
        }
        _ => Ok(()),
    }
}
