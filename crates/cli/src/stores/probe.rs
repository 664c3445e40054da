//! A first look at a store, so that a mistake is told before anything is mounted.

use std::{sync::Arc, time::Duration};

use penstock_base::clock;
use penstock_object::{
    ErrorKind, GetOptions, Key, ListOptions, ObjectError, Store, credentials::CredentialOrigin,
};

use crate::{
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    options::Values,
};

/// How long looking at the bucket may take, so that a wrong address is reported within ten
/// seconds.
const PROBE_DEADLINE: Duration = Duration::from_secs(8);

/// How long a store that answers that it cannot now is asked again. A wrong address does not answer so.
const BUSY_PATIENCE: Duration = Duration::from_secs(6);
/// How long it is left alone before.
const BUSY_PAUSE: Duration = Duration::from_millis(300);

/// An object that a read endpoint is asked for to see whether it answers.
const UNLIKELY_NAME: &str = ".penstock-looks-whether-this-endpoint-answers";

/// Asks the store for one name, which shows at once whether endpoint, credentials, clock, bucket
/// and permissions are right.
pub(crate) async fn probe(source: &str, values: &Values, environment: &Environment) -> Outcome {
    let look = async {
        let untold = CredentialOrigin::default();
        let store = super::for_first_look(source, values, environment, &untold)?;
        look_inside(source, &store).await?;
        match super::impatient_reads(source, values, environment)? {
            Some(reads) => look_at_reads(source, &reads).await,
            None => Ok(()),
        }
    };
    clock::deadline(PROBE_DEADLINE, look)
        .await
        .unwrap_or_else(|_| {
            Err(Failure::new(
                format!("{source}: the store does not answer within {PROBE_DEADLINE:?}"),
                "check --endpoint, the network and any firewall",
            ))
        })
}

/// Reads an object that is hardly there: nothing else is ever asked of a read endpoint.
async fn look_at_reads(source: &str, store: &Arc<dyn Store>) -> Outcome {
    let key = Key::new(UNLIKELY_NAME).expect("it is a valid key");
    let options = GetOptions {
        range: Some(0..1),
        ..GetOptions::default()
    };
    let Err(error) = store.get(&key, options, &mut Vec::new()).await else {
        return Ok(());
    };
    // Who may not list is not told that there is no such object.
    if matches!(
        error.kind,
        ErrorKind::NotFound | ErrorKind::PermissionDenied
    ) {
        return Ok(());
    }
    let failure = explain::store_error(source, &error);
    Err(Failure::new(
        format!("{} (at the read-endpoint)", failure.cause()),
        format!("it must lead to the same bucket; {}", failure.remedy()),
    ))
}

/// Lists at most one name.
async fn look_inside(source: &str, store: &Arc<dyn Store>) -> Outcome {
    let began = clock::now();
    loop {
        let options = ListOptions {
            max_keys: Some(1),
            ..ListOptions::default()
        };
        match store.list(options).await {
            Ok(_) => return Ok(()),
            Err(error) if is_busy(&error) && began.elapsed() < BUSY_PATIENCE => {
                clock::sleep(BUSY_PAUSE).await;
            }
            Err(error) => return Err(explain::store_error(source, &error)),
        }
    }
}

/// Whether a store has answered that it cannot answer now.
fn is_busy(error: &ObjectError) -> bool {
    error.status.is_some() && matches!(error.kind, ErrorKind::Throttled | ErrorKind::Unavailable)
}
