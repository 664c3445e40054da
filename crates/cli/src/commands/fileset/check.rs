//! `penstock fileset check NAME`.

use clap::{ArgMatches, Command};
use penstock_base::{BufferPool, MemoryBudget};
use penstock_fileset::check::{Report, check, check_data};
use penstock_transfer::Transfer;

use super::{closed, failure, fileset_values, name_argument, named, opened, with_store_options};
use crate::{
    command_line,
    commands::listing,
    environment::Environment,
    failure::{Failure, Outcome},
    filesets::{Company, OpenedFileset},
    output,
};

pub(super) fn command() -> Command {
    let command = Command::new("check")
        .about("Check that a file system is whole")
        .long_about(
            "Looks at all of the metadata, which must not be in use, and lists the bucket: whether \
             names, links, sizes and counters fit, and whether each object that a file refers to is \
             there with its length. With --data all bytes are read, too, and compared with their \
             checksums, as each read of a file does anyway. Changes nothing. Ends with status 1 when \
             something is wrong.",
        )
        .arg(name_argument())
        .arg(command_line::flag(
            "data",
            "Read all data and compare it with its checksums",
        ));
    with_store_options(command)
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    let record = fileset.record()?;
    let values = fileset_values(matches, environment)?;
    let report = listing::block_on(async {
        let look = listing::open(&record.store, &values, environment)?;
        let OpenedFileset {
            engine,
            store,
            spool,
        } = opened(&fileset, &record, (&values, &look), Company::Nobody).await?;
        let checked = match matches.get_flag("data") {
            true => {
                let pool = BufferPool::new(MemoryBudget::new(super::MEMORY));
                check_data(&*engine, Transfer::new(store, pool), spool.as_deref()).await
            }
            false => check(&*engine, &*store, spool.as_deref()).await,
        };
        closed(&*engine, checked)
            .await
            .map_err(|error| failure(&fileset, &error))
    })?;
    output::print(&text(&report))?;
    if report.is_clean() {
        return Ok(());
    }
    Err(Failure::new(
        format!("fileset `{}` is not whole", fileset.name),
        "restore its metadata, or the objects that are missing",
    ))
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        text += &format!("{finding}\n");
    }
    if report.more > 0 {
        text += &format!("and {} more\n", report.more);
    }
    let Report {
        files,
        bytes,
        objects,
        leaked,
        compared,
        ..
    } = report;
    text += &format!("{files} files, {bytes} bytes in {objects} objects");
    if *compared > 0 {
        text += &format!("; {compared} bytes in the bucket compared with their checksums");
    }
    if *leaked > 0 {
        text += &format!(
            "; {leaked} objects that nothing refers to, left by a crash: `penstock fileset gc`"
        );
    }
    text + "\n"
}
