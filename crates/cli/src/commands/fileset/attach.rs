//! `penstock fileset attach NAME --store URL`.

use clap::{ArgMatches, Command};
use penstock_base::ByteSize;
use penstock_fileset::{
    Durability, Label, LabelError,
    engine::{DatabaseEngine, Engine, EngineError, Restoring, ShippedEngine, position},
};

use super::{
    dump::progress, engine_arguments, failure, name_argument, named, password_file, recorded,
    store_argument, with_store_options,
};
use crate::{
    command_line,
    commands::listing::{self, Look},
    databases,
    encryption::{self, KeySource, Known},
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    filesets::{self, Company, Database, Fileset, Record},
    options::{Scope, Values},
    output, stores,
};

pub(super) fn command() -> Command {
    let command = Command::new("attach")
        .about("Bring a file system up on this machine, from its bucket")
        .long_about(
            "Brings a file system whose durability is `store` to this machine, from its bucket \
             alone. Whoever has it elsewhere is shut out, at once and for good: nothing that is \
             written there is acknowledged any more. What an attempt that was interrupted has \
             brought is not fetched again. A machine that was shut out gets the file system back \
             the same way. A file system whose metadata is in a database, the one that --engine names, is \
             brought to this machine, too, and stays on the others: any number of them mount it at the same time.",
        )
        .arg(name_argument())
        .arg(store_argument())
        .args(engine_arguments());
    with_store_options(command)
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    let url = matches.get_one::<String>("store").expect("required");
    let given = command_line::given_by_name(matches, Scope::Fileset);
    let given = command_line::gathered(given, None, environment)?;
    let mut options = filesets::to_be_kept(given.clone());
    let values = Values::resolve(given)?;
    listing::start_logging(&values);
    let engine_password_file = password_file(matches)?;
    stores::check_source(url, &values)?;
    listing::block_on(async {
        let look = listing::open(url, &values, environment)?;
        let label = label(&look).await?;
        let look = with_key(&fileset, &label, (&values, look)).await?;
        if let Some(source) = KeySource::given(&values)? {
            source.keep(&mut options);
        }
        let record = Record {
            engine: engine(matches, (&fileset, &label))?,
            engine_password_file,
            ..Record::of(&label, url, options)
        };
        check_own(&fileset, &record, &look).await?;
        let fileset = fileset.at(label.generation);
        fileset.make(environment)?;
        match record.database() {
            Some(database) => join(&fileset, &record, database).await?,
            None => fetch(&fileset, &label, &look).await?,
        }
        fileset.write_record(&record)
    })?;
    output::print_line(&format!(
        "fileset {} is here: mount it with `penstock mount fileset://{} MOUNTPOINT`",
        fileset.name, fileset.name
    ))
}

/// What lies in the bucket, if it can be attached.
async fn label(look: &Look) -> Outcome<Label> {
    let label = Label::read(&*look.store).await;
    let label = label.map_err(|error| match error {
        LabelError::Store(error) => explain::store_error(&look.source, &error),
        error => Failure::usage(
            format!("{}: {error}", look.source),
            "see --store: it is the URL that the fileset was made with",
        ),
    })?;
    match label.durability {
        Durability::Store => Ok(label),
        Durability::Local => Err(Failure::new(
            format!("the metadata of `{}` is not in the bucket", label.name),
            "bring its directory from the machine that it was made on: docs/operations.md",
        )),
    }
}

/// The same place as whoever has the key sees it.
async fn with_key(
    fileset: &Fileset,
    label: &Label,
    (values, look): (&Values, Look),
) -> Outcome<Look> {
    let before = fileset.record().ok();
    let before = before.filter(|before| before.identity == label.identity);
    let known = Known {
        identity: &label.identity,
        label: Some(label),
        recorded: before
            .as_ref()
            .and_then(|before| before.encryption.as_ref()),
    };
    let key = encryption::data_key(&fileset.name, &known, values).await?;
    Ok(Look {
        store: encryption::sealed(look.store, key.as_ref(), super::MEMORY),
        ..look
    })
}

/// Refuses to put a file system in the place of another one, or of itself where this machine has it.
async fn check_own(fileset: &Fileset, record: &Record, look: &Look) -> Outcome {
    let Some(before) = recorded(fileset, &record.identity)? else {
        return Ok(());
    };
    let is_of_use = match record.database() {
        _ if before.generation != record.generation => false,
        Some(_) => before.engine == record.engine,
        None => is_whole_here(fileset, record, look).await?,
    };
    match is_of_use {
        true => Err(Failure::usage(
            format!("fileset `{}` is on this machine already", fileset.name),
            "mount it",
        )),
        false => Ok(()),
    }
}

/// The address of the database that has the metadata, if one has: as it is said here, or as this machine has it. Who
/// writes the bucket chooses what the label says: he must not choose who gets the password, and the names of all files.
fn engine(matches: &ArgMatches, (fileset, label): (&Fileset, &Label)) -> Outcome<Option<String>> {
    let said = matches.get_one::<String>("engine").cloned();
    if said.is_some() && label.engine.is_none() {
        return Err(Failure::usage(
            format!("the metadata of `{}` is in no database", label.name),
            "leave --engine out",
        ));
    }
    let before = fileset.record().ok();
    let before = before.filter(|before| before.identity == label.identity);
    let engine = said.or_else(|| before?.engine);
    match (&engine, &label.engine) {
        (Some(engine), _) => databases::address(engine).map(drop)?,
        (None, Some(told)) => {
            return Err(Failure::usage(
                format!("fileset.json says that the metadata is at {told}, and is not believed"),
                "say the address that you know with --engine",
            ));
        }
        (None, None) => {}
    }
    Ok(engine)
}

/// Becomes one of the machines that have the file system of a database.
async fn join(fileset: &Fileset, record: &Record, database: Database<'_>) -> Outcome {
    let settings =
        fileset.on_database(&record.identity, (super::MEMORY, Company::Others), database)?;
    let engine = fileset.opened(DatabaseEngine::open(&*settings).await)?;
    fileset.opened(engine.close().await)
}

/// Whether what this machine has of a file system is what the bucket goes on with.
async fn is_whole_here(fileset: &Fileset, record: &Record, look: &Look) -> Outcome<bool> {
    let settings = fileset.shipped(&record.identity, super::MEMORY, &look.store)?;
    match position(&settings).await {
        // What is damaged here, or of another time, the bucket has: it takes its place.
        Err(EngineError::Corrupt(_)) => Ok(false),
        position => {
            let position = fileset.opened(position)?;
            Ok(position.is_own && position.agrees)
        }
    }
}

async fn fetch(fileset: &Fileset, label: &Label, look: &Look) -> Outcome {
    let tell = progress(|Restoring { bytes, total }| {
        format!("{} of {} of metadata", ByteSize(bytes), ByteSize(total))
    });
    let settings = fileset.shipped(&label.identity, super::MEMORY, &look.store)?;
    let attached = ShippedEngine::attach(&settings, &tell).await;
    output::draw(None);
    let closed = fileset.opened(attached)?.close().await;
    closed.map_err(|error| failure(fileset, &error.into()))
}
