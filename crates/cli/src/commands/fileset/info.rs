//! `penstock fileset info NAME`.

use std::sync::Arc;

use clap::{ArgMatches, Command};
use penstock_base::{ByteSize, FsResult};
use penstock_fileset::{
    Durability, Usage,
    compression::{self, Compression},
    engine::{Engine, position},
    format_of, snapshots, trash, usage,
};
use penstock_object::Store;
use serde::Serialize;

use super::{failure, fileset_values, name_argument, named, readable, with_store_options};
use crate::{
    command_line,
    commands::listing,
    environment::Environment,
    failure::Outcome,
    filesets::{Company, Fileset, OpenedFileset, Record},
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
    /// How what is in the bucket is encrypted, if it is.
    encryption: Option<String>,
    /// The database that has its metadata.
    engine: Option<String>,
    /// How what is saved is compressed.
    compression: String,
    files: u64,
    bytes: u64,
    /// Of the bytes, those that the bucket lacks since they are compressed.
    spared: u64,
    /// How many bytes there are to one that is stored of them.
    ratio: f64,
    snapshots: u64,
    /// Bytes in the bucket that only snapshots need.
    held: u64,
    /// Files in the trash, which are among the others.
    trash: trash::State,
    /// Of the bytes, those that are on this disk and not in the bucket yet.
    waiting: u64,
    log: Option<Log>,
}

/// The log in the bucket.
#[derive(Serialize)]
struct Log {
    epoch: u64,
    operations: u64,
    behind: u64,
    taken_over: bool,
    /// Whether what is here and what is in the bucket are of one history.
    agrees: bool,
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    let record = fileset.record()?;
    let values = fileset_values(matches, environment)?;
    let info = listing::block_on(async {
        let look = listing::open(&record.store, &values, environment)?;
        let is_shipped = record.durability == Durability::Store && record.engine.is_none();
        let log = match is_shipped {
            true => {
                let bucket = readable(&fileset, &record, (&values, &look)).await?;
                Some(log(&fileset, &record, &bucket).await?)
            }
            false => None,
        };
        let (waiting, usage) = match is_shipped {
            true => (0, all_usage(&fileset.local_engine(super::MEMORY)?).await),
            false => opened_usage(&fileset, &record, look.store).await?,
        };
        let (usage, kept) = usage.map_err(|error| failure(&fileset, &error))?;
        Ok(Info {
            name: fileset.name.clone(),
            store: record.store.clone(),
            identity: record.identity.clone(),
            format: kept.format,
            durability: record.durability,
            encryption: record.encryption.as_ref().map(ToString::to_string),
            engine: record.engine.clone(),
            compression: kept.compression.to_string(),
            files: usage.files,
            bytes: usage.bytes,
            spared: usage.spared,
            ratio: ratio(&usage),
            snapshots: kept.snapshots,
            held: kept.held,
            trash: kept.trash,
            waiting,
            log,
        })
    })?;
    match matches.get_flag("json") {
        true => output::print_json(&info),
        false => output::print(&text(&info)),
    }
}

/// How much there is, and how much of it waits for the bucket on this disk.
async fn opened_usage(
    fileset: &Fileset,
    record: &Record,
    store: Arc<dyn Store>,
) -> Outcome<(u64, FsResult<(Usage, Kept)>)> {
    let with = (super::MEMORY, Company::Others);
    let opened = fileset.open(record, with, (&store, store.clone()));
    let OpenedFileset { engine, ahead, .. } = opened.await?;
    let waiting = ahead.map_or(0, |ahead| ahead.waiting().0);
    let usage = all_usage(&*engine).await;
    fileset.opened(engine.close().await)?;
    Ok((waiting, usage))
}

/// What snapshots and the trash keep, how what is saved is compressed, and which versions of penstock can read that.
struct Kept {
    format: u32,
    trash: trash::State,
    snapshots: u64,
    held: u64,
    compression: Compression,
}

/// Bytes of files to one in the bucket, to the hundredth.
fn ratio(usage: &Usage) -> f64 {
    match usage.bytes.saturating_sub(usage.spared) {
        0 => 1.0,
        stored => (usage.bytes as f64 / stored as f64 * 100.0).round() / 100.0,
    }
}

async fn all_usage(engine: &dyn Engine) -> FsResult<(Usage, Kept)> {
    let kept = Kept {
        format: format_of(engine).await?.version,
        trash: trash::state(engine).await?,
        snapshots: snapshots::list(engine).await?.len() as u64,
        held: snapshots::holding(engine).await?.total.bytes,
        compression: compression::get(engine).await?,
    };
    Ok((usage(engine).await?, kept))
}

async fn log(fileset: &Fileset, record: &Record, bucket: &Arc<dyn Store>) -> Outcome<Log> {
    let settings = fileset.shipped(&record.identity, super::MEMORY, bucket)?;
    let position = fileset.opened(position(&settings).await)?;
    Ok(Log {
        epoch: position.epoch,
        operations: position.last,
        behind: position.behind,
        taken_over: !position.is_own,
        agrees: position.agrees,
    })
}

fn text(info: &Info) -> String {
    let encryption = info.encryption.as_deref();
    let mut text = format!(
        "name        {}\nstore       {}\nidentity    {}\nformat      {}\ndurability  {}\n\
         encryption  {}\nfiles       {}\nbytes       {} ({})\n",
        info.name,
        info.store,
        info.identity,
        info.format,
        info.durability,
        encryption.unwrap_or("none: whoever reads the bucket reads the files"),
        info.files,
        info.bytes,
        ByteSize(info.bytes),
    );
    if info.spared > 0 || info.compression != "none" {
        let (setting, spared, ratio) = (&info.compression, ByteSize(info.spared), info.ratio);
        text +=
            &format!("compression {setting}, which spares {spared} of these: {ratio:.2} to 1\n");
    }
    if let Some(engine) = &info.engine {
        text += &format!("engine      {engine}\n");
    }
    if info.snapshots > 0 {
        let held = ByteSize(info.held);
        let snapshots = info.snapshots;
        text += &format!("snapshots   {snapshots}, and {held} in the bucket that no file needs\n");
    }
    if info.trash != trash::State::default() {
        let trash = super::trash::text(&info.trash);
        text += &format!("trash       {trash}\n");
    }
    if info.waiting > 0 {
        let waiting = ByteSize(info.waiting);
        text += &format!("waiting     {waiting} on this disk alone, which the next mount sends\n");
    }
    if let Some(log) = &info.log {
        let behind = match log.behind {
            _ if log.taken_over => "another machine has it".to_owned(),
            _ if !log.agrees => "and what is here is of another time: attach it".to_owned(),
            0 => "has all".to_owned(),
            behind => format!("lacks {behind} operations, which the next mount sends"),
        };
        text += &format!(
            "epoch       {}\nlog         {} operations, {behind}\n",
            log.epoch, log.operations
        );
    }
    text
}
