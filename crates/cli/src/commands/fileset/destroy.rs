//! `penstock fileset destroy NAME`.

use std::sync::Arc;

use clap::{ArgMatches, Command};
use penstock_base::FsResult;
use penstock_fileset::{
    Durability, Label, LabelError,
    check::destroy,
    dumps,
    engine::{
        DatabaseEngine, Engine, EngineError, EngineResult, ShippedEngine, has_database,
        remove_database, remove_shipped,
    },
};
use penstock_object::Store;

use super::{failure, fileset_values, name_argument, named, readable, with_store_options};
use crate::{
    command_line,
    commands::listing::{self, Look},
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    filesets::{Company, Fileset, Record},
    options::Values,
    output,
};

pub(super) fn command() -> Command {
    let command = Command::new("destroy")
        .about("Remove a file system with all that is in it")
        .long_about(
            "Deletes the objects of a file system from the bucket and its metadata from this \
             machine. Nothing of it can be had back. It must not be in use, and no other machine \
             may have attached it.",
        )
        .arg(name_argument())
        .arg(command_line::flag(
            "yes",
            "Do it: without this nothing is removed",
        ))
        .arg(command_line::flag(
            "local-only",
            "Remove only what this machine has of it, and nothing in the bucket",
        ));
    with_store_options(command)
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    let record = fileset.record()?;
    let values = fileset_values(matches, environment)?;
    if !matches.get_flag("yes") {
        return Err(Failure::usage(
            format!(
                "all files of `{}` in {} would be gone",
                fileset.name, record.store
            ),
            "say --yes if that is meant",
        ));
    }
    if matches.get_flag("local-only") {
        fileset.remove()?;
        return output::print_line(&format!("{} is untouched", record.store));
    }
    let deleted = listing::block_on(async {
        let look = listing::open(&record.store, &values, environment)?;
        shut_out_others(&fileset, &record, (&values, &look)).await?;
        let _engine = match record.database() {
            Some(_) => None,
            None => Some(fileset.local_engine(super::MEMORY)?),
        };
        let label = Label::read(&*look.store).await;
        let is_ours = match &label {
            Ok(label) => label.identity == record.identity,
            // An attempt before this one came as far as this.
            Err(LabelError::Absent) => true,
            Err(LabelError::Store(error)) => {
                return Err(explain::store_error(&record.store, error));
            }
            Err(LabelError::Taken(_) | LabelError::Unknown(_) | LabelError::Replaced) => false,
        };
        if !is_ours {
            return Err(Failure::new(
                format!(
                    "{} holds another file system than `{}`",
                    record.store, fileset.name
                ),
                "see what lies there; nothing was deleted",
            ));
        }
        let deleted = destroy(&*look.store).await;
        let deleted = deleted.map_err(|error| failure(&fileset, &error))?;
        let shipped = fileset.opened(remove_shipped(Arc::clone(&look.store)).await)?;
        let dumped = drop_dumps(&*look.store).await;
        let deleted = deleted + shipped + dumped.map_err(|error| failure(&fileset, &error))?;
        if let Some(database) = record.database() {
            let alone = (super::MEMORY, Company::Nobody);
            let settings = fileset.on_database(&record.identity, alone, database)?;
            fileset.opened(remove_database(&*settings).await)?;
        }
        match Label::remove(&*look.store).await {
            Err(LabelError::Store(error)) => Err(explain::store_error(&record.store, &error)),
            _ => Ok(deleted),
        }
    })?;
    fileset.remove()?;
    output::print_line(&format!(
        "fileset {} is gone, with {deleted} objects",
        fileset.name
    ))
}

/// Removes all dumps; returns how many there were.
async fn drop_dumps(store: &dyn Store) -> FsResult<u64> {
    let dumps = dumps::list(store).await?;
    for dump in &dumps {
        dumps::remove(store, &dump.name).await?;
    }
    Ok(dumps.len() as u64)
}

/// Claims the log in the bucket, or the tables in the database, if there are any. Fails if another machine has the file system: it may be in use there.
async fn shut_out_others(fileset: &Fileset, record: &Record, way: (&Values, &Look)) -> Outcome {
    if record.durability == Durability::Local {
        return Ok(());
    }
    if let Some(database) = record.database() {
        let alone = (super::MEMORY, Company::Nobody);
        let settings = fileset.on_database(&record.identity, alone, database)?;
        // An attempt before this one may have come that far.
        return match fileset.opened(has_database(&*settings).await)? {
            true => ended(fileset, DatabaseEngine::open(&*settings).await).await,
            false => Ok(()),
        };
    }
    let store = &readable(fileset, record, way).await?;
    let settings = fileset.shipped(&record.identity, super::MEMORY, store)?;
    match ShippedEngine::open(&settings).await {
        Ok(engine) => fileset.opened(engine.close().await),
        Err(EngineError::Fenced(_)) => Err(elsewhere(fileset)),
        Err(EngineError::InUse { pid }) => fileset.opened(Err(EngineError::InUse { pid })),
        Err(error) => {
            // An attempt before this one may have come as far as the log, and what is damaged can be destroyed, too.
            tracing::info!(%error, "the log in the bucket cannot be opened");
            Ok(())
        }
    }
}

/// Fails unless this machine has what was opened.
async fn ended(fileset: &Fileset, opened: EngineResult<DatabaseEngine>) -> Outcome {
    match opened {
        Err(EngineError::Fenced(_)) => Err(elsewhere(fileset)),
        opened => fileset.opened(fileset.opened(opened)?.close().await),
    }
}

fn elsewhere(fileset: &Fileset) -> Failure {
    Failure::new(
        format!("another machine has attached `{}`", fileset.name),
        "destroy it there; --local-only removes what this machine has of it",
    )
}
