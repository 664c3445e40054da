//! `penstock check SOURCE`: tries everything that a mount needs, one plain verdict a line.

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::Serialize;

use super::{listing, mount::source_argument};
use crate::{
    assemble, command_line,
    environment::Environment,
    failure::{Failure, Outcome},
    options::{
        Scope, Values,
        table::{self, ENDPOINT},
    },
    output, text_table,
};

mod trials;

pub(crate) fn command() -> Command {
    Command::new("check")
        .about("Check endpoint, clock, credentials and permissions of a bucket")
        .long_about(
            "Tries what a mount needs and says what is wrong and what to do about it. Writes one \
             small object, reads it back and deletes it.",
        )
        .arg(source_argument())
        .arg(
            Arg::new("no-write")
                .long("no-write")
                .action(ArgAction::SetTrue)
                .help("Do not try to write and delete"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print JSON"),
        )
        .args(command_line::option_arguments(Scope::Store))
}

/// What came of one trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Good,
    /// Works, but not as well as it could.
    Fair,
    Bad,
    Untried,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Fair => "note",
            Self::Bad => "FAILED",
            Self::Untried => "-",
        }
    }
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    what: &'static str,
    verdict: Verdict,
    /// What was seen, and the remedy where something is wrong.
    detail: String,
}

impl Finding {
    fn new(what: &'static str, verdict: Verdict, detail: impl Into<String>) -> Self {
        Self {
            what,
            verdict,
            detail: detail.into(),
        }
    }

    fn of(what: &'static str, outcome: Result<String, Failure>) -> Self {
        match outcome {
            Ok(detail) => Self::new(what, Verdict::Good, detail),
            Err(failure) => Self::new(what, Verdict::Bad, failure.to_string()),
        }
    }
}

pub(crate) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let source = matches.get_one::<String>("source").expect("required");
    let may_write = !matches.get_flag("no-write");
    let values = listing::values(matches, environment)?;
    let findings = listing::block_on(async {
        let store = assemble::impatient_store(source, &values, environment)?;
        let mut findings = configured(source, &values);
        findings.extend(trials::all(source, &store, may_write).await);
        Ok(findings)
    })?;
    if matches.get_flag("json") {
        let text = serde_json::json!({ "source": source, "findings": findings });
        output::print_line(&text.to_string())?;
    } else {
        let rows = findings.iter().map(|finding| {
            let Finding {
                what,
                verdict,
                detail,
            } = finding;
            vec![
                verdict.word().to_owned(),
                (*what).to_owned(),
                detail.clone(),
            ]
        });
        output::print(&text_table::columns(&rows.collect::<Vec<_>>()))?;
    }
    verdict(source, &findings)
}

/// What is known before anything is tried.
fn configured(source: &str, values: &Values) -> Vec<Finding> {
    if assemble::local_directory(source).is_some() {
        return Vec::new();
    }
    let endpoint = match values.text(&table::ENDPOINT) {
        Some(url) if url.starts_with("http://") => Finding::new(
            "endpoint",
            Verdict::Fair,
            format!("{url}: what is sent there can be read on the way; https:// encrypts it"),
        ),
        Some(url) => Finding::new("endpoint", Verdict::Good, url),
        None => Finding::new("endpoint", Verdict::Good, ENDPOINT.default_text()),
    };
    let credentials = Finding::new("credentials", Verdict::Good, credentials(values));
    vec![endpoint, credentials]
}

/// Where credentials come from, without them.
fn credentials(values: &Values) -> String {
    if values.flag(&table::ANONYMOUS) {
        return "none, requests are anonymous".to_owned();
    }
    let sources = [
        &table::ACCESS_KEY_ID,
        &table::RAM_ROLE,
        &table::PASSWORD_FILE,
        &table::CREDENTIAL_PROCESS,
        &table::PROFILE,
    ];
    for spec in sources {
        if let Some(origin) = values.origin(spec) {
            return format!("`{}` of {origin}", spec.name);
        }
    }
    "looked for in password files, the environment, the provider's files, web identity and the \
     machine's role, in this order"
        .to_owned()
}

fn verdict(source: &str, findings: &[Finding]) -> Outcome {
    let bad = findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::Bad);
    match bad.count() {
        0 => Ok(()),
        count => Err(Failure::new(
            format!("{source}: {count} of {} checks failed", findings.len()),
            "see the lines above",
        )),
    }
}
