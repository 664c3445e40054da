//! `penstock check SOURCE`: tries everything that a mount needs, one plain verdict a line.

use clap::{ArgMatches, Command};
use penstock_object::credentials::CredentialOrigin;
use serde::Serialize;

use super::{listing, mount::source_argument};
use crate::{
    command_line,
    environment::Environment,
    failure::{Failure, Outcome},
    options::{
        Scope, Values,
        table::{self, ENDPOINT},
    },
    output, stores, text_table,
};

mod abilities;
mod tls;
mod trials;

pub(crate) fn command() -> Command {
    Command::new("check")
        .about("Check endpoint, clock, credentials and permissions of a bucket")
        .long_about(
            "Tries what a mount needs and says what is wrong and what to do about it: one line for \
             each trial, `ok`, `note` (works, but not as well as it could) or `FAILED`. Also says \
             what TLS was agreed, whose certificate that is and who vouches for it, \
             where the credentials were found, and what this store can do and what it lacks, with \
             what that means. Writes a few small objects under one name that nobody else uses, reads \
             them back and deletes them. Ends with status 1 when something failed.",
        )
        .arg(source_argument())
        .arg(command_line::flag(
            "no-write",
            "Do not try to write and delete",
        ))
        .arg(command_line::flag("json", "Print JSON"))
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
        let origin = CredentialOrigin::default();
        let store = stores::for_first_look(source, &values, environment, &origin)?;
        let tls = tls::trial(source, &values, environment).await;
        let trials = trials::all(source, &store, may_write).await;
        let mut findings = configured(source, &values, (&origin, &trials));
        findings.extend(joined(tls, trials));
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

/// The trials behind that of TLS. What it could not have while others could is no failure: a name may lead to several servers.
/// Without TLS there is nothing to tell of the others.
fn joined(tls: Option<Finding>, trials: Vec<Finding>) -> Vec<Finding> {
    let is_good = |finding: &Finding| finding.verdict == Verdict::Good;
    match tls {
        Some(tls) if tls.verdict == Verdict::Bad && trials.iter().any(is_good) => {
            let verdict = Verdict::Fair;
            std::iter::once(Finding { verdict, ..tls })
                .chain(trials)
                .collect()
        }
        Some(tls) if tls.verdict == Verdict::Bad => vec![tls],
        tls => tls.into_iter().chain(trials).collect(),
    }
}

/// Where requests went, and what they were signed with.
fn configured(
    source: &str,
    values: &Values,
    signed: (&CredentialOrigin, &[Finding]),
) -> Vec<Finding> {
    if stores::local_directory(source).is_some() {
        return Vec::new();
    }
    let endpoint = match values.text(&table::ENDPOINT) {
        Some(url) if stores::is_plain(url) => Finding::new(
            "endpoint",
            Verdict::Fair,
            format!("{url}: what is sent there can be read on the way; https:// encrypts it"),
        ),
        Some(url) => Finding::new("endpoint", Verdict::Good, url),
        None => Finding::new("endpoint", Verdict::Good, ENDPOINT.default_text()),
    };
    vec![endpoint, credentials(values, signed)]
}

/// Where the credentials were found, without them. Without any the first request fails, and says why.
fn credentials(values: &Values, (origin, trials): (&CredentialOrigin, &[Finding])) -> Finding {
    let good = |detail| Finding::new("credentials", Verdict::Good, detail);
    if values.flag(&table::ANONYMOUS) {
        return good("none, requests are anonymous".to_owned());
    }
    let Some(found) = origin.get() else {
        let mut failed = trials.iter().filter(|trial| trial.verdict == Verdict::Bad);
        let cause = failed.next().map(|trial| trial.detail.clone());
        let cause = cause.unwrap_or_else(|| "none were found".to_owned());
        return Finding::new("credentials", Verdict::Bad, cause);
    };
    match values.origin(&table::ACCESS_KEY_ID) {
        Some(given) => good(format!("from {given}: `{}`", table::ACCESS_KEY_ID.name)),
        None => good(format!("from {found}")),
    }
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
