//! `penstock fileset move NAME --engine URL`.

use std::{path::PathBuf, sync::Arc};

use clap::{Arg, ArgMatches, Command};
use penstock_base::FsError;
use penstock_fileset::{
    Durability, Label,
    check::check,
    dumps::{FrozenPages, carry},
    engine::{Engine, remove_shipped, remove_tables},
    format_of,
};
use penstock_object::Store;

use super::{
    closed,
    dump::{check_sent, progress},
    engine_arguments, failure, fileset_values,
    load::put_label,
    name_argument, named, opened, password_file, readable, with_store_options,
};
use crate::{
    command_line,
    commands::listing::{self, Look},
    databases,
    environment::Environment,
    failure::{Failure, Outcome},
    filesets::{Company, Fileset, Record},
    options::Values,
    output,
};

/// What stands for an engine on this machine.
const EMBEDDED: &str = "embedded";

pub(super) fn command() -> Command {
    let command = Command::new("move")
        .about("Take the metadata of a file system from one engine to another")
        .long_about(
            "Copies all metadata to another engine, reads it back there, compares it, and has the file system use it from \
             then on. It must be mounted nowhere meanwhile. Who is interrupted says the same command \
             again, which copies it anew. What the file system had before stays as it was, and no mount of it \
             is possible any more, until --drop-old removes it. Other machines `attach` it anew.",
        )
        .after_help(
            "Examples:\n  penstock fileset move home --engine postgres://penstock@db/files\n  \
             penstock fileset move home --engine embedded --durability local\n  \
             penstock fileset move home --drop-old",
        )
        .arg(name_argument())
        .args(engine_arguments())
        .mut_arg("engine", |engine| {
            engine.help(
                "Where it goes: a PostgreSQL database, postgres://USER@HOST[:PORT]/DATABASE, as `create` has it, or \
                 `embedded`, a directory of this machine",
            )
        })
        .arg(
            Arg::new("durability")
                .long("durability")
                .value_name("WHERE")
                .value_parser(["local", "store"])
                .default_value("local")
                .help("With --engine=embedded: where a file is when fsync returns"),
        )
        .arg(command_line::flag("drop-old", "Remove the engine that was moved from"));
    with_store_options(command)
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    let record = fileset.record()?;
    let values = fileset_values(matches, environment)?;
    let engine = matches.get_one::<String>("engine");
    match (engine, matches.get_flag("drop-old")) {
        (Some(engine), false) => {
            let target = target(&record, engine, matches)?;
            move_to(&fileset, (&record, target), (&values, environment))
        }
        (None, true) => drop_old(&fileset, record, (&values, environment)),
        _ => Err(Failure::usage(
            "it does not say what is to be done",
            "say --engine to move it or, afterwards, --drop-old",
        )),
    }
}

/// What will be known of the file system.
fn target(record: &Record, engine: &str, matches: &ArgMatches) -> Outcome<Record> {
    let is_database = engine != EMBEDDED;
    if is_database {
        databases::address(engine)?;
    }
    let durability = match matches.get_one::<String>("durability").map(String::as_str) {
        Some("local") if !is_database => Durability::Local,
        _ => Durability::Store,
    };
    if record.moved_from.is_some() {
        return Err(Failure::usage(
            "it was moved before, and the engine before that is still there",
            "remove that with --drop-old first",
        ));
    }
    let engine = is_database.then(|| engine.to_owned());
    let is_same = record.engine == engine && (is_database || record.durability == durability);
    if is_same {
        return Err(Failure::usage("its metadata is there already", "mount it"));
    }
    let password_file: Option<PathBuf> = password_file(matches)?;
    Ok(Record {
        engine,
        durability,
        engine_password_file: password_file,
        generation: record.generation + 1,
        moved_from: Some(Box::new(record.clone())),
        ..record.clone()
    })
}

fn move_to(
    fileset: &Fileset,
    (record, target): (&Record, Record),
    (values, environment): (&Values, &Environment),
) -> Outcome {
    let moved = listing::block_on(async {
        let look = listing::open(&record.store, values, environment)?;
        let label = label(record, &target, &look).await?;
        let bucket = readable(fileset, record, (values, &look)).await?;
        let new = fileset.at(target.generation);
        let new = new.new_engine(&target, super::MEMORY, &bucket).await?;
        let is_there = format_of(&*new).await.is_ok();
        let is_told = label.generation == target.generation;
        let brought = match (is_there, is_told) {
            (true, true) => Ok(0),
            (true, false) => Err(occupied()),
            _ => {
                bring(
                    fileset,
                    record,
                    ((values, &look), &bucket),
                    (&*new, &target, label),
                )
                .await
            }
        };
        let ended = closed(&*new, Ok(())).await;
        let keys = brought?;
        ended.map_err(|error| failure(fileset, &error))?;
        fileset.write_record(&target)?;
        Ok(keys)
    });
    output::draw(None);
    moved?;
    output::print_line(&format!(
        "fileset {} has its metadata there now; `penstock fileset move {} --drop-old` removes what it had before",
        fileset.name, fileset.name
    ))
}

/// What lies in the bucket, if it is what this machine has, or was being moved from there.
async fn label(record: &Record, target: &Record, look: &Look) -> Outcome<Label> {
    let label = Label::read(&*look.store).await.ok();
    let is_going_on = label.as_ref().is_some_and(|label| {
        label.generation == target.generation
            && label.engine == target.engine
            && label.identity == target.identity
    });
    if !is_going_on {
        record.check_label(label.clone())?;
    }
    Ok(label.expect("it was checked"))
}

/// Brings all keys, compares them, shuts out who has the old engine, and makes them visible.
async fn bring(
    fileset: &Fileset,
    record: &Record,
    (way, bucket): ((&Values, &Look), &Arc<dyn Store>),
    (new, target, label): (&dyn Engine, &Record, Label),
) -> Outcome<u64> {
    let told = |error: FsError| match error {
        FsError::AlreadyExists => occupied(),
        error => failure(fileset, &error),
    };
    let old = opened(fileset, record, way, Company::Nobody).await?;
    check_sent(fileset, &old)?;
    let brought = async {
        let mut pages = FrozenPages::of(&*old.engine).await?;
        let tell = progress(|keys| format!("{keys} keys brought"));
        // The state of an engine that was opened since may be another one: all of it is brought anew.
        carry(&mut pages, (new, penstock_base::random::number()), &tell).await
    };
    let carried = brought.await.map_err(told)?;
    let report = check(new, &**bucket, None).await.map_err(told)?;
    if !report.is_clean() {
        closed(&*old.engine, Ok(())).await.map_err(told)?;
        return Err(Failure::new(
            format!(
                "fileset `{}` is not whole: {}",
                fileset.name,
                report.findings.join("; ")
            ),
            "see `penstock fileset check`; nothing was moved",
        ));
    }
    let keys = carried.keys();
    let label = Label {
        engine: target.engine.clone(),
        durability: target.durability,
        generation: target.generation,
        ..label
    };
    put_label(way.1, &label).await?;
    let published = carried.publish(new, target.generation).await;
    closed(&*old.engine, published).await.map_err(told)?;
    Ok(keys)
}

fn occupied() -> Failure {
    Failure::usage(
        "a file system is in that engine already",
        "take another database, or remove what is there",
    )
}

fn drop_old(
    fileset: &Fileset,
    record: Record,
    (values, environment): (&Values, &Environment),
) -> Outcome {
    let Some(old) = record.moved_from.clone() else {
        return Err(Failure::usage(
            format!("fileset `{}` has no engine from before", fileset.name),
            "it was not moved, or that was removed",
        ));
    };
    let place = fileset.at(old.generation);
    listing::block_on(async {
        match old.database() {
            Some(database) => {
                let settings = place.on_database(&old.identity, super::MEMORY, database)?;
                place.opened(remove_tables(&settings).await)
            }
            None if old.durability == Durability::Store && record.engine.is_some() => {
                let look = listing::open(&old.store, values, environment)?;
                place.opened(remove_shipped(look.store).await).map(drop)
            }
            None => Ok(()),
        }
    })?;
    place.remove_metadata()?;
    fileset.write_record(&Record {
        moved_from: None,
        ..record
    })?;
    output::print_line("what the file system had before is gone")
}
