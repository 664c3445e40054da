//! `penstock fileset create|attach|list|info|check|gc|snapshot|quota|compression|trash|schedule|sessions|dump|load|move|rekey|destroy`: the life of a file system.

mod attach;
mod check;
pub(crate) mod compression;
mod create;
mod destroy;
pub(crate) mod dump;
mod gc;
mod info;
mod list;
mod load;
mod moving;
pub(crate) mod quota;
mod rekey;
pub(crate) mod schedule;
mod sessions;
pub(crate) mod snapshot;
pub(crate) mod trash;

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_base::{FsError, FsResult};
use penstock_fileset::{Label, engine::Engine};
use penstock_object::Store;

use crate::{
    command_line,
    commands::listing::{self, Look},
    control::{
        Refusal,
        client::{self, Found},
    },
    encryption::{self, Known},
    environment::Environment,
    failure::{Failure, Outcome},
    filesets::{self, Company, Fileset, OpenedFileset, Record},
    options::{Scope, Values},
    places,
};

/// Bytes of memory that a command's engine may use.
const MEMORY: u64 = 64 << 20;

pub(crate) fn command() -> Command {
    Command::new("fileset")
        .about("Make, show, check and remove file systems that live in a bucket")
        .long_about(
            "A fileset is a whole POSIX file system: its data lies in a bucket, its metadata in a \
             directory of this machine and, with --durability=store, in the bucket too, from which \
             `attach` brings it up on another machine, or, with --engine, in a database of yours, \
             which any number of machines attach and mount at the same time; else \
             that directory is to be backed up, for without it the data is of no use. `penstock mount fileset://NAME MOUNTPOINT` mounts it. \
             Options that lead to the store, such as --region and --endpoint, are kept with it; \
             credentials and --proxy are not. With --encryption-key-file or --encryption-key-command \
             what lies in the bucket is encrypted: without the key it is lost.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(create::command())
        .subcommand(attach::command())
        .subcommand(list::command())
        .subcommand(info::command())
        .subcommand(check::command())
        .subcommand(gc::command())
        .subcommand(snapshot::command())
        .subcommand(quota::command())
        .subcommand(trash::command())
        .subcommand(compression::command())
        .subcommand(schedule::command())
        .subcommand(sessions::command())
        .subcommand(dump::command())
        .subcommand(load::command())
        .subcommand(moving::command())
        .subcommand(rekey::command())
        .subcommand(destroy::command())
}

pub(crate) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    match matches.subcommand() {
        Some(("create", matches)) => create::run(matches, environment),
        Some(("attach", matches)) => attach::run(matches, environment),
        Some(("list", matches)) => list::run(matches, environment),
        Some(("info", matches)) => info::run(matches, environment),
        Some(("check", matches)) => check::run(matches, environment),
        Some(("gc", matches)) => gc::run(matches, environment),
        Some(("snapshot", matches)) => snapshot::run(matches, environment),
        Some(("quota", matches)) => quota::run(matches, environment),
        Some(("trash", matches)) => trash::run(matches, environment),
        Some(("compression", matches)) => compression::run(matches, environment),
        Some(("schedule", matches)) => schedule::run(matches, environment),
        Some(("sessions", matches)) => sessions::run(matches, environment),
        Some(("dump", matches)) => dump::run(matches, environment),
        Some(("load", matches)) => load::run(matches, environment),
        Some(("move", matches)) => moving::run(matches, environment),
        Some(("rekey", matches)) => rekey::run(matches, environment),
        Some(("destroy", matches)) => destroy::run(matches, environment),
        _ => Err(Failure::usage(
            "`penstock fileset` does nothing by itself",
            "see `penstock fileset --help`",
        )),
    }
}

/// The argument that names a fileset.
fn name_argument() -> Arg {
    Arg::new("name")
        .value_name("NAME")
        .required(true)
        .help("What the file system is called on this machine")
}

/// The argument that says where its data lies.
fn store_argument() -> Arg {
    Arg::new("store")
        .long("store")
        .value_name("URL")
        .required(true)
        .help(
            "Where its data lies: s3://BUCKET[/PREFIX], oss://BUCKET[/PREFIX] or file:///DIRECTORY",
        )
}

/// The arguments that say which database has the metadata.
fn engine_arguments() -> [Arg; 2] {
    [
        Arg::new("engine").long("engine").value_name("URL").help(
            "The database that has the metadata. PostgreSQL: postgres://USER@HOST[:PORT]/DATABASE, with \
             ?sslmode=disable, prefer, require, verify-ca or verify-full and &sslrootcert=FILE if wanted. TiKV, where it is \
             built in: tikv://PD1[:PORT],PD2[:PORT]/PREFIX, with ?ca=FILE&cert=FILE&key=FILE or ?tls=off",
        ),
        Arg::new("engine-password-file")
            .long("engine-password-file")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("The file with the password for PostgreSQL; else PGPASSWORD, PGPASSFILE or ~/.pgpass has it"),
    ]
}

/// What this machine has of the file system of this identity, if it has one of this name. Fails where that is another one.
fn recorded(fileset: &Fileset, identity: &str) -> Outcome<Option<Record>> {
    if !fileset.exists() {
        return Ok(None);
    }
    let record = fileset.record()?;
    match record.identity == identity {
        true => Ok(Some(record)),
        false => Err(Failure::usage(
            format!("there is another fileset `{}` already", fileset.name),
            "take another name, or see `penstock fileset list`",
        )),
    }
}

/// What a database outlives a machine for is in the bucket.
fn not_local() -> Failure {
    Failure::usage(
        "with --engine data is durable in the bucket",
        "leave --durability=local out",
    )
}

/// The file with the password, as every directory finds it.
fn password_file(matches: &ArgMatches) -> Outcome<Option<PathBuf>> {
    let path = matches.get_one::<PathBuf>("engine-password-file");
    let absolute = path.map(std::path::absolute).transpose();
    absolute
        .map_err(|error| Failure::usage(format!("--engine-password-file: {error}"), "name a file"))
}

/// The options of a command about a fileset that is there; starts logging.
fn fileset_values(matches: &ArgMatches, environment: &Environment) -> Outcome<Values> {
    let name = matches.get_one::<String>("name").expect("required");
    // That of a snapshot follows it.
    let name = name.split('@').next().unwrap_or_default();
    let mut given = command_line::gathered(
        command_line::given_by_name(matches, Scope::Fileset),
        None,
        environment,
    )?;
    given.extend(filesets::kept_options(name, environment));
    let values = Values::resolve(given)?;
    listing::start_logging(&values);
    Ok(values)
}

/// The options that its store and its key need. A mount has the key kept with the fileset, so its help leaves that out.
fn with_store_options(command: Command) -> Command {
    let command = command.args(command_line::option_arguments(Scope::Fileset));
    let shown = |argument: Arg| argument.hide_short_help(false).hide_long_help(false);
    let options = encryption::OPTIONS.iter();
    options.fold(command, |command, spec| command.mut_arg(spec.name, shown))
}

/// The store of a fileset as whoever has its key sees it.
async fn readable(
    fileset: &Fileset,
    record: &Record,
    (values, look): (&Values, &Look),
) -> Outcome<Arc<dyn Store>> {
    let label = match &record.encryption {
        // Who wants to know whether it is there asks for it.
        Some(_) => Label::read(&*look.store).await.ok(),
        None => None,
    };
    let known = Known::of(record, label.as_ref());
    let key = encryption::data_key(&fileset.name, &known, values).await?;
    Ok(encryption::sealed(
        Arc::clone(&look.store),
        key.as_ref(),
        MEMORY,
    ))
}

/// A fileset that this machine has not mounted, opened with its key.
async fn opened(
    fileset: &Fileset,
    record: &Record,
    way: (&Values, &Look),
    company: Company,
) -> Outcome<OpenedFileset> {
    let bucket = readable(fileset, record, way).await?;
    let ways = (&bucket, Arc::clone(&bucket));
    fileset.open(record, (MEMORY, company), ways).await
}

/// The mount that has a fileset open, if one has.
fn mount_of(fileset: &Fileset, environment: &Environment) -> Option<Found> {
    let place = places::sockets(environment);
    client::of_process(&place, fileset.user()?)
}

/// What a mount answered to an order, if it was heard of.
fn answered<T>(fileset: &Fileset, answer: io::Result<Result<T, Refusal>>) -> Outcome<T> {
    let silence = |error| {
        Failure::new(
            format!(
                "the mount of fileset `{}` does not answer: {error}",
                fileset.name
            ),
            "see `penstock stats`; what it was asked to do may be done yet",
        )
    };
    answer.map_err(silence)?.map_err(Failure::from)
}

/// Does something with the engine of a fileset that this machine has not mounted.
fn with_engine<T>(
    fileset: &Fileset,
    (matches, environment): (&ArgMatches, &Environment),
    work: impl AsyncFnOnce(&Arc<dyn Engine>) -> FsResult<T>,
    refused: impl FnOnce(&FsError) -> Failure,
) -> Outcome<T> {
    let record = fileset.record()?;
    let values = fileset_values(matches, environment)?;
    listing::block_on(async {
        let look = listing::open(&record.store, &values, environment)?;
        let way = (&values, &look);
        let OpenedFileset { engine, .. } = opened(fileset, &record, way, Company::Others).await?;
        let done = work(&engine).await;
        closed(&*engine, done)
            .await
            .map_err(|error| refused(&error))
    })
}

/// Why an order was not carried out: what is known of that, or what went wrong in the file system.
fn refused(fileset: &Fileset, known: Option<(String, String)>, error: &FsError) -> Failure {
    match known {
        Some((cause, remedy)) => Failure::new(cause, remedy),
        None => failure(fileset, error),
    }
}

/// A time as processes tell it to each other: in seconds of Unix time.
fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// What came of the work with an engine, which ends with it.
async fn closed<T>(engine: &dyn Engine, done: FsResult<T>) -> FsResult<T> {
    let closed = engine.close().await.map_err(FsError::from);
    done.and_then(|done| closed.map(|()| done))
}

/// The fileset that the command line names.
fn named(matches: &ArgMatches, environment: &Environment) -> Outcome<Fileset> {
    let name = matches.get_one::<String>("name").expect("required");
    Fileset::new(name, environment)
}

/// What went wrong in a file system.
fn failure(fileset: &Fileset, error: &penstock_base::FsError) -> Failure {
    let cause = format!("fileset `{}`: {error}", fileset.name);
    Failure::new(cause, "the log says more with --log-level=debug")
}
