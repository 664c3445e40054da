//! `penstock fileset schedule`: what a file system does by itself; of one that is mounted its process is asked.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_fileset::{
    engine::Engine,
    schedule::{self, Job, KEEP_MAX, Keep},
};

use super::{answered, failure, mount_of, name_argument, named, with_engine, with_store_options};
use crate::{
    command_line, control::client, environment::Environment, failure::Outcome, filesets::Fileset,
    output, text_table,
};

/// How long a mount may take to write it down.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn command() -> Command {
    let command = Command::new("schedule")
        .about("Have snapshots taken and dumps made by themselves")
        .long_about(
            "Says how many snapshots of each hour, day, week and month are kept, and how many dumps of the \
             metadata in the bucket, one a day; 0 ends one of these, and what there is of it stays. \
             Without options it shows what is so. Hours and days begin by UTC, weeks on Monday. A mount \
             takes a snapshot soon after its hour, day, week or month has begun and calls it \
             hourly-2026-11-24T15, daily-2026-11-24, weekly-2026-11-23 or monthly-2026-11; the first ones at \
             once. Where several machines have the file system one of them does it; while nobody has it \
             mounted nobody does. See `penstock fileset snapshot` and `penstock fileset dump`.",
        )
        .after_help(
            "Examples:\n  penstock fileset schedule home --hourly=24 --daily=7 --weekly=4 --dumps=7\n  \
             penstock fileset schedule home --hourly=0\n  penstock fileset schedule home",
        )
        .arg(name_argument())
        .args(Job::ALL.map(argument))
        .arg(command_line::flag("json", "Print JSON"));
    with_store_options(command)
}

fn argument(job: Job) -> Arg {
    let help = match job {
        Job::Hourly => "How many snapshots stay of which one is taken each hour",
        Job::Daily => "How many stay of which one is taken each day",
        Job::Weekly => "How many stay of which one is taken each week",
        Job::Monthly => "How many stay of which one is taken each month",
        Job::Dumps => "How many dumps stay in the bucket, of which one is made each day",
    };
    Arg::new(job.name())
        .long(job.name())
        .value_name("COUNT")
        .value_parser(value_parser!(u32).range(0..=i64::from(KEEP_MAX)))
        .help(help)
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    fileset.record()?;
    let changes = Job::ALL.into_iter().filter_map(|job| {
        let keep = matches.get_one::<u32>(job.name())?;
        Some((job, *keep))
    });
    let changes: Keep = changes.collect();
    let keep = match mount_of(&fileset, environment) {
        Some(mount) => {
            let answer = client::schedule((&mount.socket, &fileset.name), told(&changes), PATIENCE);
            answered(&fileset, answer)?
        }
        None => told(&set_here(&fileset, changes, (matches, environment))?),
    };
    match matches.get_flag("json") {
        true => output::print_json(&keep),
        false => output::print(&text(&keep)),
    }
}

fn set_here(fileset: &Fileset, changes: Keep, given: (&ArgMatches, &Environment)) -> Outcome<Keep> {
    let set = async |engine: &Arc<dyn Engine>| match changes.is_empty() {
        true => schedule::get(&**engine).await,
        false => schedule::set(&**engine, changes).await,
    };
    with_engine(fileset, given, set, |error| failure(fileset, error))
}

/// A schedule as processes tell it to each other.
pub(crate) fn told(keep: &Keep) -> BTreeMap<String, u32> {
    let told = keep
        .iter()
        .map(|(job, keep)| (job.name().to_owned(), *keep));
    told.collect()
}

/// The same back, without jobs that this version does not know.
pub(crate) fn understood(told: &BTreeMap<String, u32>) -> Keep {
    let known = told
        .iter()
        .filter_map(|(name, keep)| Some((Job::named(name)?, *keep)));
    known.collect()
}

fn text(keep: &BTreeMap<String, u32>) -> String {
    if keep.is_empty() {
        return "nothing is done by itself\n".to_owned();
    }
    let head = ["JOB", "KEEP"].map(str::to_owned).to_vec();
    let jobs = Job::ALL.into_iter().filter_map(|job| {
        let keep = keep.get(job.name())?;
        Some(vec![job.name().to_owned(), keep.to_string()])
    });
    let rows: Vec<_> = std::iter::once(head).chain(jobs).collect();
    text_table::columns(&rows)
}
