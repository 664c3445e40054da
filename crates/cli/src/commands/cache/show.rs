//! `penstock cache show DIR`: what lies in a cache directory.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_transfer::CacheContents;
use serde_json::json;

use crate::{command_line, failure::Outcome, output, text_table, volumes::cache};

pub(super) fn command() -> Command {
    Command::new("show")
        .about("Show what a cache directory holds, whether or not a mount uses it")
        .arg(directory_argument())
        .arg(command_line::flag("json", "Print JSON"))
}

/// The argument that names a cache.
pub(super) fn directory_argument() -> Arg {
    Arg::new("directory")
        .value_name("DIR")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("The directory that was given as --cache-dir")
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let directory = matches.get_one::<PathBuf>("directory").expect("required");
    let contents = CacheContents::of(directory).map_err(|error| cache::failure(&error))?;
    let time = |time: Option<_>| time.map(text_table::timestamp);
    let (oldest, newest) = (time(contents.oldest), time(contents.newest));
    if matches.get_flag("json") {
        let text = json!({
            "objects": contents.objects,
            "bytes": contents.bytes,
            "oldest": oldest,
            "newest": newest,
            "pid": contents.user,
        });
        return output::print_line(&text.to_string());
    }
    let none = || "-".to_owned();
    let user = contents.user.map(|pid| format!("process {pid}"));
    let rows = [
        ("objects", contents.objects.to_string()),
        ("bytes", text_table::bytes(contents.bytes)),
        ("read longest ago", oldest.unwrap_or_else(none)),
        ("read last", newest.unwrap_or_else(none)),
        ("used by", user.unwrap_or_else(|| "nobody".to_owned())),
    ];
    let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
    output::print(&text_table::columns(&rows))
}
