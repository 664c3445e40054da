//! `penstock fileset info NAME`.

use clap::{ArgMatches, Command};
use penstock_base::ByteSize;
use penstock_fileset::{Durability, engine::position, usage};
use serde::Serialize;

use super::{failure, fileset_values, name_argument, named, with_store_options};
use crate::{
    command_line,
    commands::listing,
    environment::Environment,
    failure::Outcome,
    filesets::{Fileset, Record},
    output,
};

pub(super) fn command() -> Command {
    let command = Command::new("info")
        .about("Show where a file system lies and how much is in it")
        .long_about(
            "Looks at the metadata, which must not be in use, and where it is in the bucket too \
             also there: the epoch, which each opening begins anew, and how many operations the \
             log in the bucket lacks.",
        )
        .arg(name_argument())
        .arg(command_line::flag("json", "Print JSON"));
    with_store_options(command)
}

#[derive(Serialize)]
struct Info {
    name: String,
    store: String,
    identity: String,
    format: u32,
    durability: Durability,
    files: u64,
    bytes: u64,
    log: Option<Log>,
}

/// The log in the bucket.
#[derive(Serialize)]
struct Log {
    epoch: u64,
    operations: u64,
    behind: u64,
    taken_over: bool,
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    let record = fileset.record()?;
    let values = fileset_values(matches, environment)?;
    let info = listing::block_on(async {
        let log = match record.durability {
            Durability::Local => None,
            Durability::Store => {
                let look = listing::open(&record.store, &values, environment)?;
                Some(log(&fileset, &record, &look).await?)
            }
        };
        let engine = fileset.local_engine(super::MEMORY)?;
        let usage = usage(&engine).await;
        let usage = usage.map_err(|error| failure(&fileset, &error))?;
        Ok(Info {
            name: fileset.name.clone(),
            store: record.store.clone(),
            identity: record.identity.clone(),
            format: record.version,
            durability: record.durability,
            files: usage.files,
            bytes: usage.bytes,
            log,
        })
    })?;
    match matches.get_flag("json") {
        true => output::print_json(&info),
        false => output::print(&text(&info)),
    }
}

async fn log(fileset: &Fileset, record: &Record, look: &listing::Look) -> Outcome<Log> {
    let settings = fileset.shipped(&record.identity, super::MEMORY, &look.store)?;
    let position = fileset.opened(position(&settings).await)?;
    Ok(Log {
        epoch: position.epoch,
        operations: position.last,
        behind: position.behind,
        taken_over: !position.is_own,
    })
}

fn text(info: &Info) -> String {
    let mut text = format!(
        "name        {}\nstore       {}\nidentity    {}\nformat      {}\ndurability  {}\n\
         files       {}\nbytes       {} ({})\n",
        info.name,
        info.store,
        info.identity,
        info.format,
        info.durability,
        info.files,
        info.bytes,
        ByteSize(info.bytes),
    );
    if let Some(log) = &info.log {
        let behind = match (log.taken_over, log.behind) {
            (true, _) => "another machine has it".to_owned(),
            (false, 0) => "has all".to_owned(),
            (false, behind) => format!("lacks {behind} operations, which the next mount sends"),
        };
        text += &format!(
            "epoch       {}\nlog         {} operations, {behind}\n",
            log.epoch, log.operations
        );
    }
    text
}
