//! `penstock bench list`: suites, rows and clients, found or not and why.

use std::path::PathBuf;

use clap::{ArgMatches, Command};
use penstock_base::text;
use penstock_bench::{ClientListing, RowListing, SuiteListing};

use super::{failed, show, surroundings, table_argument};
use crate::{environment::Environment, failure::Outcome, output};

/// Columns that a description gets however long the names are.
const DESCRIPTION_MIN: usize = 30;
/// What to do with what is listed.
const USE: &str = "Run some: `penstock bench run --suite NAME,... --rows NAME,... --clients \
                   NAME,...`. Sizes shrink with --scale; --scale 1 is the source's own size.";

pub(super) fn command() -> Command {
    Command::new("list")
        .about("List suites, their rows, and clients")
        .arg(table_argument())
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let surroundings = surroundings(environment)?;
    let width = show::terminal_options(environment).width;
    let table = matches.get_one::<PathBuf>("config").map(PathBuf::as_path);
    let clients = penstock_bench::clients(table, &surroundings).map_err(failed)?;
    for suite in penstock_bench::suites().map_err(failed)? {
        output::print(&suite_text(&suite, &clients, width))?;
        output::print_line("")?;
    }
    output::print_line("clients")?;
    let clients: Vec<_> = clients.iter().map(client_row).collect();
    output::print(&described(&clients, width))?;
    output::print_line("")?;
    text::wrap(USE, width)
        .iter()
        .try_for_each(|line| output::print_line(line))
}

fn suite_text(suite: &SuiteListing, clients: &[ClientListing], width: usize) -> String {
    let mut paragraphs = vec![
        format!("{}: {}", suite.name, suite.title),
        format!(
            "  scale {} and latency profile {} if nothing else is asked for",
            suite.scale,
            suite.profiles.join(", ")
        ),
    ];
    paragraphs.extend(own_volume(suite, clients).map(|text| format!("  {text}")));
    let head = paragraphs
        .iter()
        .flat_map(|paragraph| text::wrap(paragraph, width))
        .map(|line| line + "\n");
    let rows: Vec<_> = suite.rows.iter().map(row).collect();
    head.collect::<String>() + &described(&rows, width)
}

/// Says that what a suite is about cannot be measured, when that is so.
fn own_volume(suite: &SuiteListing, clients: &[ClientListing]) -> Option<String> {
    let name = suite.client.as_ref()?;
    let client = clients.iter().find(|client| client.name == *name)?;
    let why = client.found.as_ref().err()?;
    Some(format!(
        "{why}. Until then the rows that can be run measure other clients."
    ))
}

fn row(row: &RowListing) -> (String, String) {
    let what = match &row.unavailable {
        Some(why) => format!("not available: {why}. {}", row.description),
        None => row.description.clone(),
    };
    let except = row
        .unavailable_for
        .iter()
        .map(|(client, why)| format!(". Not for {client}: {why}"));
    (row.name.clone(), what + &except.collect::<String>())
}

fn client_row(client: &ClientListing) -> (String, String) {
    let found = match &client.found {
        Ok(path) => path.clone(),
        Err(why) => format!("- {why}"),
    };
    (client.name.clone(), format!("{}: {found}", client.about))
}

/// Names, and beside them what they mean, in lines of at most `width`.
fn described(rows: &[(String, String)], width: usize) -> String {
    let name_width = rows.iter().map(|(name, _)| text::width(name)).max();
    let indent = name_width.unwrap_or(0) + 4;
    let room = width.saturating_sub(indent).max(DESCRIPTION_MIN);
    let mut out = String::new();
    for (name, description) in rows {
        let mut lead = format!("  {name}");
        for line in text::wrap(description, room) {
            let pad = " ".repeat(indent - text::width(&lead));
            out.push_str(&format!("{lead}{pad}{line}\n"));
            lead.clear();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite() -> SuiteListing {
        SuiteListing {
            name: "images",
            title: "Images of a volume that may not exist".to_owned(),
            client: Some("novel".to_owned()),
            scale: 0.5,
            profiles: vec!["lan".to_owned(), "far".to_owned()],
            rows: vec![RowListing {
                name: "row".to_owned(),
                description: "Something is read again and again and again, for long.".to_owned(),
                unavailable: Some("it does not exist".to_owned()),
                unavailable_for: Default::default(),
            }],
        }
    }

    fn client(found: Result<String, String>) -> ClientListing {
        ClientListing {
            name: "novel".to_owned(),
            about: "a new one".to_owned(),
            found,
        }
    }

    #[test]
    fn a_suite_whose_volume_does_not_exist_says_so() {
        let missing = client(Err("not available: no such volume".to_owned()));
        let text = suite_text(&suite(), &[missing], 200);
        assert!(text.contains("not available: no such volume."), "{text}");
        assert!(text.contains("row  not available: it does"), "{text}");
        let there = client(Ok("/bin/novel".to_owned()));
        assert!(!suite_text(&suite(), &[there], 200).contains("other clients"));
    }

    #[test]
    fn lines_are_as_wide_as_the_terminal_at_most() {
        for width in [40, 60, 120] {
            let missing = client(Err("not available: no such volume".to_owned()));
            let text = suite_text(&suite(), &[missing], width);
            let widest = text.lines().map(text::width).max();
            assert!(widest <= Some(width), "{widest:?} of {width}:\n{text}");
        }
    }
}
