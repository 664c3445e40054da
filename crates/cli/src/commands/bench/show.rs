//! `penstock bench show` and `penstock bench compare`: reports that were saved, read again.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_bench::{
    compare::compare,
    record::{self, Report},
    report::{self, terminal},
};

use super::option;
use crate::{
    command_line,
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
        .arg(command_line::flag("json", "Print JSON"))
        .arg(command_line::flag("markdown", "Print Markdown"))
}

fn report_argument(name: &'static str) -> Arg {
    Arg::new(name)
        .value_name("FILE.json")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("A report that `penstock bench run --json` wrote")
}

/// Where reports are written to, for two commands.
pub(super) fn file_arguments() -> [Arg; 4] {
    [
        ("json", "FILE", "Write the report as JSON"),
        ("markdown", "FILE", "Write the report as Markdown"),
        ("html", "FILE", "Write the report as one page with charts"),
        (
            "svg",
            "DIR",
            "Write the charts as pictures for documents, light and dark, into this directory",
        ),
    ]
    .map(|(name, placeholder, help)| {
        option(name, placeholder, help).value_parser(value_parser!(PathBuf))
    })
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
    record::load(&text).map_err(|error| unreadable(error.to_string()))
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
        write_json(path, report)?;
    }
    if let Some(path) = path("markdown") {
        write(path, &report::markdown(report))?;
    }
    if let Some(path) = path("html") {
        write(path, &report::html(report))?;
    }
    if let Some(directory) = path("svg") {
        fs::create_dir_all(directory).map_err(|error| unwritable(directory, &error))?;
        for picture in report::pictures(report) {
            write(&directory.join(picture.name), &picture.text)?;
        }
    }
    Ok(())
}

/// Writes the JSON that was asked for while the report grows, in one step, so that there is always a whole one.
/// Only to a file: a pipe would hold each state of it.
pub(super) fn keep_json(matches: &ArgMatches, report: &Report) -> Outcome {
    let Some(path) = matches.get_one::<PathBuf>("json") else {
        return Ok(());
    };
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Ok(());
    }
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    let mut new = path.clone().into_os_string();
    new.push(".new");
    write_json(Path::new(&new), report)?;
    fs::rename(&new, &path).map_err(|error| unwritable(&path, &error))
}

fn write_json(path: &Path, report: &Report) -> Outcome {
    let text =
        record::save(report).map_err(|error| Failure::new(error.cause, "leave --json out"))?;
    write(path, &text)
}

fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        format!("cannot write {}: {error}", path.display()),
        "check the path and the space that is left",
    )
}
