//! `penstock fileset gc NAME`.

use clap::{ArgMatches, Command};
use penstock_base::{BufferPool, ByteSize, MemoryBudget};
use penstock_fileset::{
    Label,
    garbage::{Count, Garbage, LEAK_GRACE, Sweep, collect_garbage},
    trash::State,
};
use penstock_transfer::Transfer;

use super::{
    closed, failure, fileset_values, name_argument, named, opened, trash::text as trash_text,
    with_store_options,
};
use crate::{
    command_line,
    commands::listing,
    environment::Environment,
    failure::Outcome,
    filesets::{Company, OpenedFileset},
    output,
};

pub(super) fn command() -> Command {
    let command = Command::new("gc")
        .about("Say what the bucket holds and remove what no file needs")
        .long_about(
            "Deletes the objects of removed files, and looks through the bucket for objects that \
             were stored when a crash came, which nothing refers to. These go when they are an hour \
             old. A mount does the same by itself, once a day. The metadata must not be in use, and \
             must be the newest that there is: what was stored after an old copy of it was made \
             looks like left by a crash.",
        )
        .arg(name_argument())
        .arg(command_line::flag("dry-run", "Delete nothing"))
        .arg(command_line::flag("json", "Print JSON"));
    with_store_options(command)
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    let record = fileset.record()?;
    let values = fileset_values(matches, environment)?;
    let sweep = Sweep {
        grace: LEAK_GRACE,
        dry_run: matches.get_flag("dry-run"),
    };
    let found = listing::block_on(async {
        let look = listing::open(&record.store, &values, environment)?;
        record.check_label(Label::read(&*look.store).await.ok())?;
        let OpenedFileset { engine, store, .. } =
            opened(&fileset, &record, (&values, &look), Company::Nobody).await?;
        let pool = BufferPool::new(MemoryBudget::new(super::MEMORY));
        let transfer = Transfer::new(store, pool);
        let found = collect_garbage(engine.clone(), transfer, sweep).await;
        closed(&*engine, found)
            .await
            .map_err(|error| failure(&fileset, &error))
    })?;
    if matches.get_flag("json") {
        return output::print_json(&found);
    }
    output::print(&text(&found))
}

fn text(found: &Garbage) -> String {
    let trash = match found.trash {
        trash if trash == State::default() => String::new(),
        trash => format!("{:8}  of these {}\n", "trash", trash_text(&trash)),
    };
    let line = |what: &str, count: Count, more: String| {
        let Count { objects, bytes } = count;
        format!("{what:8}  {objects} objects, {}{more}\n", ByteSize(bytes))
    };
    let unused = ByteSize(found.unused_bytes);
    let unused = format!(", of which at least {unused} are of no use to files");
    let deleted = format!(", {} deleted", found.deleted);
    line("live", found.live, unused)
        + &trash
        + &line("held", found.held, ", which only snapshots need".to_owned())
        + &line("pending", found.pending, String::new())
        + &line("leaked", found.leaked, deleted)
}
