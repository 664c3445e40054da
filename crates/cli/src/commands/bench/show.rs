//! `penstock bench show` and `penstock bench compare`: reports that were saved, read again.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_bench::{
    compare::compare,
    record::Report,
    report::{html, json, markdown, terminal},
};

use super::option;
use crate::{
    environment::Environment,
    failure::{Failure, Outcome},
    output,
};

pub(super) fn show_command() -> Command {
    Command::new("show")
        .about("Show a report that was saved")
        .arg(report_argument("report"))
        .args(file_arguments())
}

pub(super) fn compare_command() -> Command {
    Command::new("compare")
        .about("Show what changed between two reports beyond the noise")
        .arg(report_argument("before"))
        .arg(report_argument("after"))
        .arg(super::flag("json", "Print JSON"))
        .arg(super::flag("markdown", "Print Markdown"))
}

fn report_argument(name: &'static str) -> Arg {
    Arg::new(name)
        .value_name("FILE.json")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("A report that `penstock bench run --json` wrote")
}

/// Where reports are written to, for two commands.
pub(super) fn file_arguments() -> [Arg; 3] {
    [
        ("json", "Write the report as JSON"),
        ("markdown", "Write the report as Markdown"),
        ("html", "Write the report as one page with charts"),
    ]
    .map(|(name, help)| option(name, "FILE", help).value_parser(value_parser!(PathBuf)))
}

pub(super) fn show(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let report = load(matches, "report")?;
    write_files(matches, &report)?;
    output::print(&terminal::write(&report, &terminal_options(environment)))
}

pub(super) fn run_compare(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let comparison = compare(&load(matches, "before")?, &load(matches, "after")?);
    if matches.get_flag("json") {
        let text = comparison.json().map_err(|error| {
            Failure::new(format!("cannot write JSON: {error}"), "leave --json out")
        })?;
        return output::print_line(&text);
    }
    if matches.get_flag("markdown") {
        return output::print(&comparison.markdown());
    }
    output::print(&comparison.terminal(&terminal_options(environment)))
}

fn load(matches: &ArgMatches, name: &str) -> Outcome<Report> {
    let path = matches.get_one::<PathBuf>(name).expect("required");
    let unreadable = |error: String| {
        Failure::new(
            format!("cannot read {}: {error}", path.display()),
            "give a file that `penstock bench run --json` wrote",
        )
    };
    let text = fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    json::load(&text).map_err(|error| unreadable(error.to_string()))
}

/// How wide the terminal is and whether it has colours.
pub(super) fn terminal_options(environment: &Environment) -> terminal::Options {
    use std::io::IsTerminal;
    let is_terminal = std::io::stdout().is_terminal();
    let width = environment
        .variable("COLUMNS")
        .and_then(|text| text.parse().ok());
    let width = width.or_else(crate::system::terminal_width);
    terminal::Options {
        width: width.unwrap_or(if is_terminal { 80 } else { 120 }),
        colour: is_terminal && environment.variable("NO_COLOR").is_none(),
        boxes: is_terminal,
    }
}

/// Writes the files that were asked for.
pub(super) fn write_files(matches: &ArgMatches, report: &Report) -> Outcome {
    let path = |name| matches.get_one::<PathBuf>(name);
    if let Some(path) = path("json") {
        let text = json::save(report)
            .map_err(|error| Failure::new(error.to_string(), "leave --json out"))?;
        write(path, &text)?;
    }
    if let Some(path) = path("markdown") {
        write(path, &markdown::write(report))?;
    }
    if let Some(path) = path("html") {
        write(path, &html::write(report))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| {
        Failure::new(
            format!("cannot write {}: {error}", path.display()),
            "check the path and the space that is left",
        )
    })
}
