//! `penstock fileset create NAME --store URL`.

use std::{collections::BTreeMap, sync::Arc};

use clap::{Arg, ArgMatches, Command, parser::ValueSource};
use penstock_base::random;
use penstock_fileset::{
    Durability, Encryption, FilesetVolume, Format, Label, LabelError,
    compression::{self, Compression},
    engine::{DatabaseEngine, Engine, EngineError, ShippedEngine, remove_shipped},
};
use penstock_object::{
    Store,
    sealed::{DataKey, NoRandom},
};
use penstock_vfs::Identity;

use super::{
    compression::setting_argument, engine_arguments, failure, name_argument, named, not_local,
    password_file, store_argument, trash, with_store_options,
};
use crate::{
    command_line,
    commands::listing,
    databases,
    encryption::{self, KeySource},
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    filesets::{self, Company, Fileset, Record},
    options::{Scope, Values},
    output, stores,
};

pub(super) fn command() -> Command {
    let command = Command::new("create")
        .about("Make an empty file system")
        .long_about(
            "Makes an empty file system whose data lies at URL, which must not hold another one. Its \
             root directory belongs to whoever makes it. With a key all that is written to URL is \
             encrypted, but not what is on this machine's disk. Keep a copy of the key elsewhere: without \
             it nobody can ever read the file system.",
        )
        .arg(name_argument())
        .arg(store_argument())
        .args(engine_arguments())
        .arg(
            Arg::new("durability")
                .long("durability")
                .value_name("WHERE")
                .value_parser(["local", "store"])
                .default_value("local")
                .help("Where a file is when fsync returns: on this machine's disk, or in the bucket, with its metadata"),
        )
        .arg(trash::days_argument("trash"))
        .arg(
            setting_argument(Arg::new("compression").long("compression").value_name("SETTING"))
                .default_value("none")
                .help("How what is saved is compressed: none, lz4 or zstd[:LEVEL]. `penstock fileset compression` changes it"),
        );
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
    let address = matches.get_one::<String>("engine");
    let password_file = password_file(matches)?;
    let durability = durability(matches, address.is_some())?;
    if let Some(address) = address {
        databases::address(address)?;
    }
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
        let mut label = Label {
            engine: address.cloned(),
            ..Label::new(&fileset.name, &format, durability)
        };
        let key = encrypt(&mut label, &mut options, &values).await?;
        let record = Record {
            engine_password_file: password_file,
            ..Record::of(&label, url, options)
        };
        fileset.make(environment)?;
        if address.is_none() {
            // Whoever has this name is told before the bucket hears of it.
            drop(fileset.local_engine(super::MEMORY)?);
        }
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
        let bucket = encryption::sealed(look.store, key.as_ref(), super::MEMORY);
        let engine = engine(&fileset, &record, &bucket).await?;
        let by = Identity::trusted(penstock_base::user_id(), penstock_base::group_id());
        let made = FilesetVolume::format(&*engine, &by, format).await;
        made.map_err(|error| failure(&fileset, &error))?;
        if let Some(days) = matches.get_one::<u32>("trash") {
            let set = penstock_fileset::trash::set(&*engine, *days).await;
            set.map_err(|error| failure(&fileset, &error))?;
        }
        let compression = *matches.get_one("compression").expect("it has a default");
        if compression != Compression::None {
            let set = compression::set(&*engine, compression).await;
            set.map_err(|error| failure(&fileset, &error))?;
        }
        engine
            .close()
            .await
            .map_err(|error| failure(&fileset, &error.into()))?;
        fileset.write_record(&record)
    })?;
    output::print_line(&format!(
        "fileset {} is made: mount it with `penstock mount fileset://{} MOUNTPOINT`",
        fileset.name, fileset.name
    ))
}

/// Has the label say how a file system is encrypted, if a key is given. Returns the key of its data.
async fn encrypt(
    label: &mut Label,
    options: &mut BTreeMap<String, String>,
    values: &Values,
) -> Outcome<Option<DataKey>> {
    let Some(source) = KeySource::given(values)? else {
        return Ok(None);
    };
    let user = source.read().await?;
    let random = |error: NoRandom| Failure::new(error.to_string(), "try again");
    let data = DataKey::random().map_err(random)?;
    let made = Encryption::new(&label.identity, &data, &user).map_err(random)?;
    label.encryption = Some(made);
    source.keep(options);
    Ok(Some(data))
}

/// What is durable when: with a database what is in the bucket, for that is what the database outlives a machine for.
fn durability(matches: &ArgMatches, has_database: bool) -> Outcome<Durability> {
    let said = matches.value_source("durability") == Some(ValueSource::CommandLine);
    let word = matches.get_one::<String>("durability").map(String::as_str);
    match word {
        Some("store") => Ok(Durability::Store),
        _ if !has_database => Ok(Durability::Local),
        _ if !said => Ok(Durability::Store),
        _ => Err(not_local()),
    }
}

async fn on_database(fileset: &Fileset, record: &Record) -> Outcome<DatabaseEngine> {
    let database = record.database().expect("one was named");
    let settings =
        fileset.on_database(&record.identity, (super::MEMORY, Company::Others), database)?;
    fileset.opened(DatabaseEngine::create(&*settings).await)
}

/// The engine of a file system that is being made.
async fn engine(
    fileset: &Fileset,
    record: &Record,
    store: &Arc<dyn Store>,
) -> Outcome<Arc<dyn Engine>> {
    if record.engine.is_some() {
        let made = on_database(fileset, record).await;
        if made.is_err() {
            let _ = Label::remove(&**store).await;
        }
        return Ok(Arc::new(made?));
    }
    if record.durability == Durability::Local {
        return Ok(Arc::new(fileset.local_engine(super::MEMORY)?));
    }
    let settings = fileset.shipped(&record.identity, super::MEMORY, store)?;
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
