//! `penstock fileset attach NAME --store URL`.

use std::time::Duration;

use clap::{ArgMatches, Command};
use penstock_base::{ByteSize, Mutex, clock};
use penstock_fileset::{
    Durability, Label, LabelError,
    engine::{Engine, EngineError, Restoring, ShippedEngine, position},
};

use super::{failure, name_argument, named, store_argument, with_store_options};
use crate::{
    command_line,
    commands::listing::{self, Look},
    encryption::{self, KeySource, Known},
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    filesets::{self, Fileset, Record},
    options::{Scope, Values},
    output, stores,
};

/// How often the line that shows how far it is changes.
const TELL_INTERVAL: Duration = Duration::from_millis(200);

pub(super) fn command() -> Command {
    let command = Command::new("attach")
        .about("Bring a file system up on this machine, from its bucket")
        .long_about(
            "Brings a file system whose durability is `store` to this machine, from its bucket \
             alone. Whoever has it elsewhere is shut out, at once and for good: nothing that is \
             written there is acknowledged any more. What an attempt that was interrupted has \
             brought is not fetched again. A machine that was shut out gets the file system back \
             the same way.",
        )
        .arg(name_argument())
        .arg(store_argument());
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
    stores::check_source(url, &values)?;
    listing::block_on(async {
        let look = listing::open(url, &values, environment)?;
        let label = label(&look).await?;
        let look = with_key(&fileset, &label, (&values, look)).await?;
        if let Some(source) = KeySource::given(&values)? {
            source.keep(&mut options);
        }
        check_own(&fileset, &label, &look).await?;
        fileset.make(environment)?;
        fetch(&fileset, &label, &look).await?;
        fileset.write_record(&Record {
            version: label.version,
            identity: label.identity,
            store: url.clone(),
            durability: label.durability,
            encryption: label.encryption,
            options,
        })
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
async fn check_own(fileset: &Fileset, label: &Label, look: &Look) -> Outcome {
    if !fileset.exists() {
        return Ok(());
    }
    if fileset.record()?.identity != label.identity {
        return Err(Failure::usage(
            format!("there is another fileset `{}` already", fileset.name),
            "take another name, or see `penstock fileset list`",
        ));
    }
    let settings = fileset.shipped(&label.identity, super::MEMORY, &look.store)?;
    let is_of_use = match position(&settings).await {
        // What is damaged here, or of another time, the bucket has: it takes its place.
        Err(EngineError::Corrupt(_)) => false,
        position => {
            let position = fileset.opened(position)?;
            position.is_own && position.agrees
        }
    };
    match is_of_use {
        true => Err(Failure::usage(
            format!("fileset `{}` is on this machine already", fileset.name),
            "mount it",
        )),
        false => Ok(()),
    }
}

async fn fetch(fileset: &Fileset, label: &Label, look: &Look) -> Outcome {
    let told = Mutex::new(None);
    let tell = |restoring: Restoring| {
        let mut told = told.lock();
        let now = clock::now();
        if told.is_none_or(|told| now.duration_since(told) >= TELL_INTERVAL) {
            *told = Some(now);
            let Restoring { bytes, total } = restoring;
            let line = format!("{} of {} of metadata", ByteSize(bytes), ByteSize(total));
            output::draw(Some(&line));
        }
    };
    let settings = fileset.shipped(&label.identity, super::MEMORY, &look.store)?;
    let attached = ShippedEngine::attach(&settings, &tell).await;
    output::draw(None);
    let closed = fileset.opened(attached)?.close().await;
    closed.map_err(|error| failure(fileset, &error.into()))
}
