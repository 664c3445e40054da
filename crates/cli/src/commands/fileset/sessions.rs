//! `penstock fileset sessions`: the machines that have a file system open whose metadata is in a database.

use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_fileset::engine::{DatabaseSessions, SessionId, SessionRecord};
use serde::Serialize;

use super::{name_argument, named};
use crate::{
    command_line,
    commands::listing,
    environment::Environment,
    failure::{Failure, Outcome},
    filesets::{Company, Fileset},
    output, text_table,
};

pub(super) fn command() -> Command {
    Command::new("sessions")
        .about("List the machines that have a file system open, or shut one of them out")
        .long_about(
            "Shows who has a file system open whose metadata is in a database: each mount, and each command \
             that looks at it. One that is not heard of for 30 seconds is over, and what it held goes: locks, \
             and files without a name. --evict ends one at once: nothing that is written there is \
             acknowledged any more, and its mount fails all that programs ask of it until it is mounted anew.",
        )
        .arg(name_argument())
        .arg(
            Arg::new("evict")
                .long("evict")
                .value_name("SESSION")
                .value_parser(value_parser!(u64))
                .help("End the session with this number"),
        )
        .arg(command_line::flag("json", "Print JSON"))
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    let evicted = matches.get_one::<u64>("evict").copied().map(SessionId);
    let listed = listing::block_on(async {
        let sessions = connected(&fileset)?;
        if let Some(session) = evicted {
            let found = fileset.opened(sessions.evict(session).await)?;
            return found
                .then(Vec::new)
                .ok_or_else(|| unknown(&fileset, session));
        }
        fileset.opened(sessions.list().await)
    })?;
    match (evicted, matches.get_flag("json")) {
        (Some(_), _) => Ok(()),
        (None, true) => output::print_json(&listed.iter().map(Listed::of).collect::<Vec<_>>()),
        (None, false) => output::print(&table(&listed)),
    }
}

fn connected(fileset: &Fileset) -> Outcome<DatabaseSessions> {
    let record = fileset.record()?;
    let database = record.database().ok_or_else(|| {
        Failure::usage(
            format!("the metadata of `{}` is in no database", fileset.name),
            "it belongs to one machine at a time, which `penstock fileset attach` changes",
        )
    })?;
    let settings =
        fileset.on_database(&record.identity, (super::MEMORY, Company::Others), database)?;
    fileset.opened(DatabaseSessions::of(&*settings))
}

fn unknown(fileset: &Fileset, session: SessionId) -> Failure {
    Failure::new(
        format!("fileset `{}` has no session {}", fileset.name, session.0),
        format!(
            "`penstock fileset sessions {}` shows those that there are",
            fileset.name
        ),
    )
}

/// A session as it is printed.
#[derive(Serialize)]
struct Listed<'a> {
    session: u64,
    machine: &'a str,
    begun: String,
    heard: String,
}

impl<'a> Listed<'a> {
    fn of(record: &'a SessionRecord) -> Self {
        Self {
            session: record.id.0,
            machine: &record.name,
            begun: text_table::timestamp(record.begun),
            heard: text_table::timestamp(record.heard),
        }
    }
}

fn table(records: &[SessionRecord]) -> String {
    if records.is_empty() {
        return "nobody has it open\n".to_owned();
    }
    let head = ["SESSION", "MACHINE", "BEGUN", "HEARD"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(records.iter().map(|record| {
        let Listed {
            session,
            machine,
            begun,
            heard,
        } = Listed::of(record);
        vec![session.to_string(), machine.to_owned(), begun, heard]
    }));
    text_table::columns(&rows)
}
