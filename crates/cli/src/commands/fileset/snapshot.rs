//! `penstock fileset snapshot create|list|remove`: of a file system that is mounted, its process is asked.

use std::time::{Duration, UNIX_EPOCH};

use clap::{Arg, ArgMatches, Command};
use penstock_base::{FileName, FsError, FsResult, clock};
use penstock_fileset::{
    engine::Engine,
    snapshots::{self, Holding, Snapshot},
};
use serde::Serialize;

use super::{answered, mount_of, refused, seconds, with_engine, with_store_options};
use crate::{
    command_line,
    control::{SnapshotItem, SnapshotOrder, client},
    environment::Environment,
    failure::{Failure, Outcome},
    filesets::Fileset,
    output, text_table,
};

/// How long a mount may take, which saves what is pending first.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn command() -> Command {
    Command::new("snapshot")
        .about("Take, list and remove snapshots of a file system")
        .long_about(
            "A snapshot is the file system as it was when it was taken, read-only, at .snapshot/NAME \
             below the mount point, which no listing of the root shows. To take one takes no longer \
             for many files than for few. What is removed or changed afterwards stays in the bucket \
             for as long as a snapshot has it. The file system may be mounted or not. In a mount \
             `mkdir .snapshot/NAME` and `rmdir .snapshot/NAME` do the same, for root and for who owns \
             the root directory.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(create_command())
        .subcommand(list_command())
        .subcommand(remove_command())
}

fn create_command() -> Command {
    let command = Command::new("create")
        .about("Take a snapshot")
        .long_about(
            "Takes a snapshot of all that programs wrote by now (through a mapping: what they synced); what of it a mount has in memory \
             is saved first, for up to a minute. It is durable when the command returns. Prints its \
             name.",
        )
        .arg(snapshot_argument(
            "NAME[@SNAPSHOT]",
            "The file system, and what the snapshot is called: by default the time, such as \
             2026-11-24T15-04-05Z",
        ));
    with_store_options(command)
}

fn list_command() -> Command {
    let command = Command::new("list")
        .about("List the snapshots of a file system")
        .long_about(
            "Shows snapshots with when they were taken and how much of the bucket goes when just \
             that one is removed: what several have counts for none of them.",
        )
        .arg(super::name_argument())
        .arg(command_line::flag("json", "Print JSON"));
    with_store_options(command)
}

fn remove_command() -> Command {
    let command = Command::new("remove")
        .about("Remove a snapshot")
        .long_about(
            "Removes a snapshot: it is not seen any more when the command returns. What only it had \
             is cleared away by the mount behind it or, if there is none, before the command returns; \
             its objects are deleted by the mount or by the next one, or by `penstock fileset gc`.",
        )
        .arg(snapshot_argument(
            "NAME@SNAPSHOT",
            "The file system and the snapshot",
        ));
    with_store_options(command)
}

fn snapshot_argument(shown: &'static str, help: &'static str) -> Arg {
    Arg::new("name").value_name(shown).required(true).help(help)
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    match matches.subcommand() {
        Some(("create", matches)) => create(matches, environment),
        Some(("list", matches)) => list(matches, environment),
        Some(("remove", matches)) => remove(matches, environment),
        _ => Err(Failure::usage(
            "`penstock fileset snapshot` does nothing by itself",
            "see `penstock fileset snapshot --help`",
        )),
    }
}

/// The names of the file system and of the snapshot, if one is given.
fn names(matches: &ArgMatches) -> (&str, Option<&str>) {
    let given = matches.get_one::<String>("name").expect("required");
    match given.split_once('@') {
        Some((name, snapshot)) => (name, Some(snapshot)),
        None => (given, None),
    }
}

fn create(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let (name, snapshot) = names(matches);
    let name_now = || text_table::timestamp(clock::wall_time()).replace(':', "-");
    let order = SnapshotOrder::Create {
        name: snapshot.map_or_else(name_now, str::to_owned),
    };
    for taken in carry_out(name, order, matches, environment)? {
        output::print_line(&format!("{name}@{}", taken.name))?;
    }
    Ok(())
}

fn remove(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let (name, snapshot) = names(matches);
    let snapshot = snapshot.ok_or_else(|| {
        Failure::usage(
            "it does not say which snapshot",
            format!("`penstock fileset snapshot list {name}` shows those that are there"),
        )
    })?;
    let order = SnapshotOrder::Remove {
        name: snapshot.to_owned(),
    };
    carry_out(name, order, matches, environment).map(drop)
}

/// A snapshot as it is printed.
#[derive(Serialize)]
struct Listed {
    name: String,
    taken: String,
    bytes: u64,
    state: &'static str,
}

fn list(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let (name, _) = names(matches);
    let items = carry_out(name, SnapshotOrder::List, matches, environment)?;
    let listed = items.into_iter().map(|item| Listed {
        name: item.name,
        taken: text_table::timestamp(UNIX_EPOCH + Duration::from_secs(item.taken)),
        bytes: item.bytes,
        state: match item.removing {
            true => "removing",
            false => "ready",
        },
    });
    let listed: Vec<_> = listed.collect();
    if matches.get_flag("json") {
        return output::print_json(&listed);
    }
    if listed.is_empty() {
        return output::print_line("there are no snapshots");
    }
    let head = ["NAME", "TAKEN", "ONLY HERE", "STATE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(listed.into_iter().map(|one| {
        let bytes = text_table::bytes(one.bytes);
        vec![one.name, one.taken, bytes, one.state.to_owned()]
    }));
    output::print(&text_table::columns(&rows))
}

/// Carries an order out, in the process that has the file system open or here.
fn carry_out(
    name: &str,
    order: SnapshotOrder,
    matches: &ArgMatches,
    environment: &Environment,
) -> Outcome<Vec<SnapshotItem>> {
    let fileset = Fileset::new(name, environment)?;
    fileset.record()?;
    if let Some(mount) = mount_of(&fileset, environment) {
        let answer = client::snapshots((&mount.socket, name), order, PATIENCE);
        return answered(&fileset, answer);
    }
    with_engine(
        &fileset,
        (matches, environment),
        async |engine| ordered(&**engine, &order).await,
        |error| refused(&fileset, refusal(&order, error), error),
    )
}

async fn ordered(engine: &dyn Engine, order: &SnapshotOrder) -> FsResult<Vec<SnapshotItem>> {
    match order {
        SnapshotOrder::List => {
            let listed = snapshots::list(engine).await?;
            Ok(items(listed, &snapshots::holding(engine).await?))
        }
        SnapshotOrder::Create { name } => {
            let taken = snapshots::take(engine, &file_name(name)?).await?;
            Ok(items(vec![taken], &Holding::default()))
        }
        SnapshotOrder::Remove { name } => {
            snapshots::remove(engine, &file_name(name)?).await?;
            snapshots::clear(engine).await?;
            Ok(Vec::new())
        }
    }
}

/// What a snapshot can be called.
pub(crate) fn file_name(text: &str) -> FsResult<FileName> {
    let name = FileName::new(text.as_bytes());
    name.map_err(|_| FsError::InvalidArgument("this is no name for a snapshot"))
}

/// Snapshots as they are told.
pub(crate) fn items(listed: Vec<Snapshot>, holding: &Holding) -> Vec<SnapshotItem> {
    let items = listed.into_iter().map(|one| SnapshotItem {
        taken: seconds(one.taken),
        bytes: holding
            .alone
            .get(&one.number)
            .map_or(0, |count| count.bytes),
        removing: one.is_removed,
        name: one.name,
    });
    items.collect()
}

/// Why an order was not carried out.
pub(crate) fn refusal(order: &SnapshotOrder, error: &FsError) -> Option<(String, String)> {
    let (name, text) = match (order, error) {
        (SnapshotOrder::Create { name }, FsError::AlreadyExists) => (name, "is there already"),
        (SnapshotOrder::Remove { name }, FsError::NotFound) => (name, "is not there"),
        _ => return None,
    };
    let remedy = "`penstock fileset snapshot list` shows those that are there";
    Some((format!("snapshot `{name}` {text}"), remedy.to_owned()))
}
