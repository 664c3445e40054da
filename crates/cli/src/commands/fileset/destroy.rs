//! `penstock fileset destroy NAME`.

use std::sync::Arc;

use clap::{ArgMatches, Command};
use penstock_fileset::{
    Durability, Label, LabelError,
    check::destroy,
    engine::{Engine, EngineError, ShippedEngine, remove_shipped},
};
use penstock_object::Store;

use super::{failure, fileset_values, name_argument, named, readable, with_store_options};
use crate::{
    command_line,
    commands::listing,
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    filesets::{Fileset, Record},
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
        if record.durability == Durability::Store {
            let bucket = readable(&fileset, &record, (&values, &look)).await?;
            shut_out_others(&fileset, &record, &bucket).await?;
        }
        let _engine = fileset.local_engine(super::MEMORY)?;
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
        let deleted = deleted + shipped;
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

/// Claims the log in the bucket. Fails if another machine has the file system: it may be in use there.
async fn shut_out_others(fileset: &Fileset, record: &Record, store: &Arc<dyn Store>) -> Outcome {
    let settings = fileset.shipped(&record.identity, super::MEMORY, store)?;
    match ShippedEngine::open(&settings).await {
        Ok(engine) => fileset.opened(engine.close().await),
        Err(EngineError::Fenced(_)) => Err(Failure::new(
            format!("another machine has attached `{}`", fileset.name),
            "destroy it there; --local-only removes what this machine has of it",
        )),
        Err(EngineError::InUse { pid }) => fileset.opened(Err(EngineError::InUse { pid })),
        Err(error) => {
            // An attempt before this one may have come as far as the log, and what is damaged can be destroyed, too.
            tracing::info!(%error, "the log in the bucket cannot be opened");
            Ok(())
        }
    }
}
