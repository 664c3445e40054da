//! `penstock fileset create NAME --store URL`.

use std::sync::Arc;

use clap::{Arg, ArgMatches, Command};
use penstock_base::random;
use penstock_fileset::{
    Durability, FilesetVolume, Format, Label, LabelError,
    engine::{Engine, EngineError, ShippedEngine, remove_shipped},
};
use penstock_object::Store;
use penstock_vfs::Identity;

use super::{failure, name_argument, named, store_argument, with_store_options};
use crate::{
    command_line,
    commands::listing,
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    filesets::{self, Fileset, Record},
    options::{Scope, Values},
    output, stores,
};

pub(super) fn command() -> Command {
    let command = Command::new("create")
        .about("Make an empty file system")
        .long_about(
            "Makes an empty file system whose data lies at URL, which must not hold another one. Its \
             root directory belongs to whoever makes it.",
        )
        .arg(name_argument())
        .arg(store_argument())
        .arg(
            Arg::new("durability")
                .long("durability")
                .value_name("WHERE")
                .value_parser(["local", "store"])
                .default_value("local")
                .help("Where a file is when fsync returns: on this machine's disk, or in the bucket, with its metadata"),
        );
    with_store_options(command)
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    let url = matches.get_one::<String>("store").expect("required");
    let given = command_line::given_by_name(matches, Scope::Store);
    let given = command_line::gathered(given, None, environment)?;
    let options = filesets::to_be_kept(given.clone());
    let values = Values::resolve(given)?;
    listing::start_logging(&values);
    let durability = match matches.get_one::<String>("durability").map(String::as_str) {
        Some("store") => Durability::Store,
        _ => Durability::Local,
    };
    stores::check_source(url, &values)?;
    if fileset.exists() {
        return Err(Failure::usage(
            format!("there is a fileset `{}` already", fileset.name),
            "take another name, or see `penstock fileset list`",
        ));
    }
    listing::block_on(async {
        let look = listing::open(url, &values, environment)?;
        let format = Format::new(random::number());
        let label = Label::new(&fileset.name, &format, durability);
        fileset.make(environment)?;
        // Whoever has this name is told before the bucket hears of it.
        drop(fileset.local_engine(super::MEMORY)?);
        label
            .write(&*look.store)
            .await
            .map_err(|error| match error {
                LabelError::Store(error) => explain::store_error(url, &error),
                error => Failure::usage(
                    format!("{url}: {error}"),
                    "take another prefix of the bucket",
                ),
            })?;
        let engine = engine(&fileset, &label, &look.store).await?;
        let by = Identity::trusted(penstock_base::user_id(), penstock_base::group_id());
        let made = FilesetVolume::format(&*engine, &by, format).await;
        made.map_err(|error| failure(&fileset, &error))?;
        engine
            .close()
            .await
            .map_err(|error| failure(&fileset, &error.into()))?;
        fileset.write_record(&Record {
            version: label.version,
            identity: label.identity,
            store: url.clone(),
            durability,
            options,
        })
    })?;
    output::print_line(&format!(
        "fileset {} is made: mount it with `penstock mount fileset://{} MOUNTPOINT`",
        fileset.name, fileset.name
    ))
}

/// The engine of a file system that is being made.
async fn engine(
    fileset: &Fileset,
    label: &Label,
    store: &Arc<dyn Store>,
) -> Outcome<Arc<dyn Engine>> {
    if label.durability == Durability::Local {
        return Ok(Arc::new(fileset.local_engine(super::MEMORY)?));
    }
    let settings = fileset.shipped(&label.identity, super::MEMORY, store)?;
    let created = ShippedEngine::create(&settings).await;
    if let Err(error) = &created {
        // What is there would keep the next attempt from the place. A log that was there before is nobody's to delete.
        if !matches!(error, EngineError::Fenced(_)) {
            let _ = remove_shipped(Arc::clone(store)).await;
        }
        let _ = Label::remove(&**store).await;
    }
    Ok(Arc::new(fileset.opened(created)?))
}
