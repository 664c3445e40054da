//! `penstock fileset info NAME`.

use clap::{ArgMatches, Command};
use penstock_base::ByteSize;
use penstock_fileset::usage;
use serde::Serialize;

use super::{failure, name_argument, named};
use crate::{command_line, commands::listing, environment::Environment, failure::Outcome, output};

pub(super) fn command() -> Command {
    Command::new("info")
        .about("Show where a file system lies and how much is in it")
        .long_about("Looks at the metadata alone, which must not be in use.")
        .arg(name_argument())
        .arg(command_line::flag("json", "Print JSON"))
}

#[derive(Serialize)]
struct Info {
    name: String,
    store: String,
    identity: String,
    format: u32,
    files: u64,
    bytes: u64,
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    let record = fileset.record()?;
    let engine = fileset.engine(super::MEMORY)?;
    let usage = listing::block_on(async {
        usage(&engine)
            .await
            .map_err(|error| failure(&fileset, &error))
    })?;
    let info = Info {
        name: fileset.name,
        store: record.store,
        identity: record.identity,
        format: record.version,
        files: usage.files,
        bytes: usage.bytes,
    };
    if matches.get_flag("json") {
        return output::print_json(&info);
    }
    output::print(&format!(
        "name      {}\nstore     {}\nidentity  {}\nformat    {}\nfiles     {}\nbytes     {} ({})\n",
        info.name,
        info.store,
        info.identity,
        info.format,
        info.files,
        info.bytes,
        ByteSize(info.bytes),
    ))
}
