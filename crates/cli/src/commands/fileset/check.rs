//! `penstock fileset check NAME`: what is wrong with a file system, and what can be repaired of it.

use std::sync::Arc;

use clap::{ArgMatches, Command};
use penstock_base::{BufferPool, FsResult, MemoryBudget};
use penstock_fileset::{
    check::{Repair, Report, apply, check, check_data, plan},
    engine::Engine,
};
use penstock_transfer::Transfer;

use super::{closed, failure, fileset_values, name_argument, named, opened, with_store_options};
use crate::{
    command_line,
    commands::listing,
    environment::Environment,
    failure::{Failure, Outcome},
    filesets::{Company, OpenedFileset},
    legible::legible,
    output,
};

pub(super) fn command() -> Command {
    let command = Command::new("check")
        .about("Check that a file system is whole")
        .long_about(
            "Looks at all of the metadata, which must not be in use, and lists the bucket: whether \
             names, links, sizes and counters fit, and whether each object that a file refers to is \
             there with its length. With --data all bytes are read, too, and compared with their \
             checksums, as each read of a file does anyway. Changes nothing without --repair. Ends \
             with status 1 when something is wrong.\n\n\
             --repair mends what the metadata says, and invents no bytes: counts are counted anew, names that lead \
             nowhere go, files and directories that no name leads to come into lost+found. Each repair \
             is printed and is one step: after a kill say the same again. Files whose objects are missing stay as they are, \
             their reads fail with EIO and the ranges are listed. What metadata that was lost said of objects is \
             lost too, and the next gc removes these: if there is a dump, load that instead.",
        )
        .after_help(
            "Examples:\n  penstock fileset check home --data\n  \
             penstock fileset check home --repair --dry-run\n  \
             penstock fileset check home --repair",
        )
        .arg(name_argument())
        .arg(command_line::flag(
            "data",
            "Read all data and compare it with its checksums",
        ))
        .arg(command_line::flag("repair", "Repair what can be repaired, and check again"))
        .arg(command_line::flag("dry-run", "Print what --repair would do, and do nothing").requires("repair"));
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
            ahead,
        } = opened(&fileset, &record, (&values, &look), Company::Nobody).await?;
        let checked = async {
            if matches.get_flag("repair") {
                repair(&engine, matches.get_flag("dry-run")).await?;
            }
            match matches.get_flag("data") {
                true => {
                    let pool = BufferPool::new(MemoryBudget::new(super::MEMORY));
                    check_data(&*engine, Transfer::new(store, pool), ahead.as_ref()).await
                }
                false => check(&*engine, &*store, ahead.as_ref()).await,
            }
        };
        closed(&*engine, checked.await)
            .await
            .map_err(|error| failure(&fileset, &error))
    })?;
    output::print(&text(&report))?;
    if report.is_clean() {
        return Ok(());
    }
    Err(Failure::new(
        format!("fileset `{}` is not whole", fileset.name),
        "see what --repair --dry-run would do; load a dump of its metadata, or put back the objects that are missing",
    ))
}

/// Prints each repair, and makes it unless this is only to see them.
async fn repair(engine: &Arc<dyn Engine>, is_dry: bool) -> FsResult<()> {
    let plan = plan(&**engine).await?;
    match is_dry {
        true => plan
            .iter()
            .for_each(|repair| tell("would be repaired", repair)),
        false => apply(Arc::clone(engine), plan, &|repair| tell("repaired", repair)).await?,
    }
    Ok(())
}

/// A reader who went away keeps no repair from being made.
fn tell(what: &str, repair: &Repair) {
    let _ = output::print_line(&format!("{what}: {}", legible(&repair.text)));
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        text += &format!("{}\n", legible(finding));
    }
    if report.more > 0 {
        text += &format!("and {} more\n", report.more);
    }
    for lost in &report.damaged {
        text += &format!("{}\n", legible(lost));
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
