//! `penstock fileset list`.

use clap::{ArgMatches, Command};
use serde::Serialize;

use crate::{
    command_line, environment::Environment, failure::Outcome, filesets::Fileset, output, text_table,
};

pub(super) fn command() -> Command {
    Command::new("list")
        .about("List the file systems of this machine")
        .arg(command_line::flag("json", "Print JSON"))
}

#[derive(Serialize)]
struct Listed {
    name: String,
    store: String,
    identity: String,
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let mut listed = Vec::new();
    for fileset in Fileset::all(environment) {
        let record = fileset.record()?;
        listed.push(Listed {
            name: fileset.name,
            store: record.store,
            identity: record.identity,
        });
    }
    if matches.get_flag("json") {
        return output::print_json(&listed);
    }
    if listed.is_empty() {
        return output::print_line("there are no filesets");
    }
    let mut rows = vec![["NAME", "STORE", "IDENTITY"].map(str::to_owned).to_vec()];
    rows.extend(
        listed
            .into_iter()
            .map(|one| vec![one.name, one.store, one.identity]),
    );
    output::print(&text_table::columns(&rows))
}
