//! `penstock bench list`: suites, rows and clients, found or not and why.

use std::path::PathBuf;

use clap::{ArgMatches, Command};
use penstock_bench::{ClientListing, SuiteListing};

use super::{failed, surroundings, table_argument};
use crate::{environment::Environment, failure::Outcome, output, text_table};

pub(super) fn command() -> Command {
    Command::new("list")
        .about("List suites, their rows, and clients")
        .arg(table_argument())
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let surroundings = surroundings(environment)?;
    let table = matches.get_one::<PathBuf>("config").map(PathBuf::as_path);
    let clients = penstock_bench::clients(table, &surroundings).map_err(failed)?;
    for suite in penstock_bench::suites().map_err(failed)? {
        print_suite(&suite)?;
    }
    output::print_line("clients")?;
    output::print(&text_table::columns(
        &clients.iter().map(client_row).collect::<Vec<_>>(),
    ))
}

fn print_suite(suite: &SuiteListing) -> Outcome {
    let SuiteListing {
        name,
        title,
        scale,
        profiles,
        rows,
    } = suite;
    let profiles = profiles.join(", ");
    output::print_line(&format!("{name}: {title} (scale {scale}, at {profiles})"))?;
    let rows = rows.iter().map(|row| {
        let what = match &row.unavailable {
            Some(why) => format!("{} [not available: {why}]", row.description),
            None => row.description.clone(),
        };
        vec![format!("  {}", row.name), what]
    });
    output::print(&text_table::columns(&rows.collect::<Vec<_>>()))?;
    output::print_line("")
}

fn client_row(client: &ClientListing) -> Vec<String> {
    let found = match &client.found {
        Ok(path) => path.clone(),
        Err(why) => format!("- {why}"),
    };
    vec![format!("  {}", client.name), client.about.clone(), found]
}
