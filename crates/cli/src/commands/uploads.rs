//! `penstock uploads SOURCE`: unfinished uploads, which cost money and are seen nowhere else.

use std::time::{Duration, SystemTime};

use clap::{Arg, ArgMatches, Command};
use penstock_base::clock;
use penstock_object::Upload;
use serde_json::json;

use super::{
    listing::{self, Look},
    mount::source_argument,
};
use crate::{
    command_line,
    environment::Environment,
    failure::Outcome,
    options::{Scope, Values, duration},
    output, text_table,
};

/// An upload that is this young may belong to a program that is still running.
const OLDER_THAN_DEFAULT: &str = "1d";

pub(crate) fn command() -> Command {
    Command::new("uploads")
        .about("List unfinished uploads, or remove them")
        .long_about(
            "Lists uploads that were begun and never finished, as a program that was killed leaves \
             them. The store keeps their parts, and bills for them, until they are removed.",
        )
        .arg(source_argument())
        .arg(command_line::flag("abort", "Remove them"))
        .arg(
            Arg::new("older-than")
                .long("older-than")
                .value_name("DURATION")
                .value_parser(|text: &str| {
                    duration::parse(text).ok_or("it must be a duration such as 12h or 7d")
                })
                .help("Only those begun longer ago [default with --abort: 1d]"),
        )
        .arg(command_line::flag("json", "Print one JSON object per line"))
        .args(command_line::option_arguments(Scope::Store))
}

/// Which uploads are listed or removed, in whatever way that was asked for.
#[derive(Debug)]
pub(crate) struct Request {
    pub source: String,
    pub abort: bool,
    /// Only those that were begun at least this long ago.
    pub older_than: Duration,
    pub as_json: bool,
}

pub(crate) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let source = matches.get_one::<String>("source").expect("required");
    let abort = matches.get_flag("abort");
    let default = if abort { OLDER_THAN_DEFAULT } else { "0" };
    let age = matches.get_one::<Duration>("older-than").copied();
    let age = age.or_else(|| duration::parse(default)).unwrap_or_default();
    let values = command_line::values(matches, Scope::Store, environment)?;
    let request = Request {
        source: source.clone(),
        abort,
        older_than: age,
        as_json: matches.get_flag("json"),
    };
    perform(&request, &values, environment)
}

/// Lists the uploads, or removes them.
pub(crate) fn perform(request: &Request, values: &Values, environment: &Environment) -> Outcome {
    listing::start_logging(values);
    listing::block_on(async {
        let look = listing::open(&request.source, values, environment)?;
        let uploads = all(&look).await?;
        let now = clock::wall_time();
        let old: Vec<_> = uploads
            .into_iter()
            .filter(|upload| age_of(upload, now) >= request.older_than)
            .collect();
        if request.abort {
            remove(&look, &old).await?;
        }
        output::print(&show(&old, now, request.abort, request.as_json))
    })
}

async fn all(look: &Look) -> Outcome<Vec<Upload>> {
    let mut uploads = Vec::new();
    let mut continuation = None;
    loop {
        let page = look.store.list_uploads("", continuation.as_deref());
        let page = listing::request(&look.source, page).await?;
        uploads.extend(page.uploads);
        continuation = page.continuation;
        if continuation.is_none() {
            return Ok(uploads);
        }
    }
}

async fn remove(look: &Look, uploads: &[Upload]) -> Outcome {
    for upload in uploads {
        let removed = look.store.abort_upload(&upload.key, &upload.id);
        listing::request(&look.source, removed).await?;
    }
    Ok(())
}

fn age_of(upload: &Upload, now: SystemTime) -> Duration {
    now.duration_since(upload.initiated).unwrap_or_default()
}

fn show(uploads: &[Upload], now: SystemTime, removed: bool, as_json: bool) -> String {
    if as_json {
        let lines = uploads.iter().map(|upload| {
            let entry = json!({
                "key": upload.key.as_str(),
                "id": upload.id.as_str(),
                "initiated": text_table::timestamp(upload.initiated),
                "removed": removed,
            });
            format!("{entry}\n")
        });
        return lines.collect();
    }
    let row = |upload: &Upload| {
        let age = Duration::from_secs(age_of(upload, now).as_secs());
        vec![
            text_table::timestamp(upload.initiated),
            format!("{} ago", duration::display(age)),
            upload.key.as_str().to_owned(),
        ]
    };
    let rows: Vec<_> = uploads.iter().map(row).collect();
    let verb = if removed { "removed" } else { "unfinished" };
    format!("{}{} {verb}\n", text_table::columns(&rows), uploads.len())
}
