//! Looking in one place after another.

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;

use super::{CredentialError, CredentialOrigin, Credentials, origin::Found};

/// One place to look in.
#[async_trait]
pub(crate) trait Place: Debug + Send + Sync {
    /// The credentials that are there, or `None` when the place does not exist here. An error
    /// means that it exists but is of no use; the text must not hold a secret.
    async fn look(&self) -> Result<Option<Found>, String>;
}

/// Places in the order in which they are looked in.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    places: Vec<(&'static str, Arc<dyn Place>)>,
    origin: CredentialOrigin,
}

impl Chain {
    /// A chain without places, which tells `origin` where it finds something.
    pub(super) fn new(origin: &CredentialOrigin) -> Self {
        Self {
            places: Vec::new(),
            origin: origin.clone(),
        }
    }

    /// Adds a place at the end.
    pub(super) fn push(&mut self, name: &'static str, place: impl Place + 'static) {
        self.places.push((name, Arc::new(place)));
    }

    /// The credentials of the first place that has some.
    pub(super) async fn find(&self) -> Result<Credentials, CredentialError> {
        let mut findings = Vec::new();
        for (name, place) in &self.places {
            match place.look().await {
                Ok(Some(found)) => {
                    tracing::debug!(place = name, origin = found.origin, "found credentials");
                    self.origin.set(found.origin);
                    return Ok(found.credentials);
                }
                Ok(None) => findings.push(format!("{name}: none")),
                Err(error) => {
                    tracing::debug!(place = name, error, "no credentials");
                    findings.push(format!("{name}: {error}"));
                }
            }
        }
        findings.dedup();
        // What to do about it says whoever knows how the settings are called.
        Err(CredentialError::new(format!(
            "no place has a usable key: {}",
            findings.join(", ")
        )))
    }
}
