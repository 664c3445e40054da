//! What commands that look into a bucket share.

use std::{future::Future, sync::Arc, time::Duration};

use clap::ArgMatches;
use penstock_base::clock;
use penstock_object::{ObjectResult, Store};

use crate::{
    command_line,
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    logging,
    options::{Scope, Values, table},
    stores,
};

/// How long one request of such a command may take with all its retries.
pub(super) const REQUEST_DEADLINE: Duration = Duration::from_secs(60);

/// A store that a command looks into.
#[derive(Debug, Clone)]
pub(super) struct Look {
    /// The URL that names it, for messages.
    pub source: String,
    pub store: Arc<dyn Store>,
}

/// The options of such a command; starts logging.
pub(super) fn values(matches: &ArgMatches, environment: &Environment) -> Outcome<Values> {
    let values = command_line::values(matches, Scope::Store, environment)?;
    start_logging(&values);
    stores::warn_of_idle_certificates(&values);
    Ok(values)
}

/// Logs what was asked for, else warnings.
pub(super) fn start_logging(values: &Values) {
    let level = match values.origin(&table::LOG_LEVEL) {
        Some(_) => values.choice(&table::LOG_LEVEL),
        None => "warn",
    };
    logging::start(level, None);
}

/// Opens a store.
pub(super) fn open(source: &str, values: &Values, environment: &Environment) -> Outcome<Look> {
    let store = stores::for_command(source, values, environment)?;
    Ok(Look {
        source: source.to_owned(),
        store,
    })
}

/// Runs the asynchronous part of a command.
pub(super) fn block_on<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start: {error}"), "try again"))?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}

/// One request within its deadline.
pub(super) async fn request<T>(
    source: &str,
    work: impl Future<Output = ObjectResult<T>>,
) -> Outcome<T> {
    let answered = within_deadline(source, async { Ok(work.await) });
    answered
        .await?
        .map_err(|error| explain::store_error(source, &error))
}

/// Runs one request within the deadline.
pub(super) async fn within_deadline<T>(
    source: &str,
    work: impl Future<Output = Outcome<T>>,
) -> Outcome<T> {
    clock::deadline(REQUEST_DEADLINE, work)
        .await
        .unwrap_or_else(|_| {
            Err(Failure::new(
                format!("{source}: no answer within {REQUEST_DEADLINE:?}"),
                "check --endpoint and the network",
            ))
        })
}

/// Splits `scheme://bucket/a/b` into the URL of everything above the last name, and that name
/// with its slash if it has one. None when only a bucket is named.
pub(super) fn split_last(source: &str) -> Option<(&str, &str)> {
    let path = source.find("://")? + "://".len();
    let body = source[path..].trim_end_matches('/');
    let at = path + body.rfind('/')?;
    let name = &source[at + 1..];
    let is_named = !name.trim_end_matches('/').is_empty();
    is_named.then_some((&source[..at], name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_name_is_split_off() {
        assert_eq!(split_last("s3://b/a/c"), Some(("s3://b/a", "c")));
        assert_eq!(split_last("s3://b/a/"), Some(("s3://b", "a/")));
        assert_eq!(split_last("file:///d/e"), Some(("file:///d", "e")));
        assert_eq!(split_last("s3://b"), None);
        assert_eq!(split_last("s3://b/"), None);
        assert_eq!(split_last("nonsense"), None);
    }
}
