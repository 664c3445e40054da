//! Looking in one place after another, until one of them is set up.
//!
//! Whether a place is set up is decided before it is asked: by variables, settings and files. The
//! first that is decides: when it fails, its error is the answer, since the credentials of a later
//! place would be those of somebody else, who may be allowed less, or more. For the same reason a
//! place that had credentials once is asked alone from then on.

use std::{
    fmt::Debug,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;

use super::{CredentialError, CredentialOrigin, Credentials, origin::Found};

/// Why a place gave no credentials. The texts must not hold a secret.
#[derive(Debug, Clone)]
pub(crate) enum Nothing {
    /// It is not set up here: the next place is asked.
    Absent(String),
    /// It is set up, and of no use now: no other place is asked.
    Broken(String),
}

impl Nothing {
    /// A place that is not set up here, of which there is no more to say.
    pub(super) fn absent() -> Self {
        Self::Absent("none".to_owned())
    }

    pub(super) fn into_text(self) -> String {
        match self {
            Self::Absent(text) | Self::Broken(text) => text,
        }
    }
}

impl From<String> for Nothing {
    fn from(error: String) -> Self {
        Self::Broken(error)
    }
}

/// One place to look in.
#[async_trait]
pub(crate) trait Place: Debug + Send + Sync {
    /// The credentials that are there.
    async fn look(&self) -> Result<Found, Nothing>;
}

/// Whether a place is set up.
pub(super) trait Condition: Debug + Send + Sync {
    /// An error where that cannot be told, or only half of it is.
    fn is_met(&self) -> Result<bool, String>;
}

impl Condition for bool {
    fn is_met(&self) -> Result<bool, String> {
        Ok(*self)
    }
}

impl Condition for Result<bool, String> {
    fn is_met(&self) -> Result<bool, String> {
        self.clone()
    }
}

/// A place that says of itself only that it has nothing, and what shows whether it is set up.
#[derive(Debug)]
pub(super) struct SetUp<C, P> {
    condition: C,
    place: P,
}

impl<C: Condition, P: Place> SetUp<C, P> {
    pub(super) fn when(condition: C, place: P) -> Self {
        Self { condition, place }
    }
}

#[async_trait]
impl<C: Condition, P: Place> Place for SetUp<C, P> {
    async fn look(&self) -> Result<Found, Nothing> {
        if !self.condition.is_met()? {
            return Err(Nothing::absent());
        }
        let found = self.place.look().await;
        found.map_err(|nothing| Nothing::Broken(nothing.into_text()))
    }
}

/// Places in the order in which they are looked in.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    places: Vec<(&'static str, Arc<dyn Place>)>,
    /// Which of them had credentials.
    chosen: Arc<OnceLock<usize>>,
    origin: CredentialOrigin,
}

impl Chain {
    /// A chain without places, which tells `origin` where it finds something.
    pub(super) fn new(origin: &CredentialOrigin) -> Self {
        Self {
            places: Vec::new(),
            chosen: Arc::default(),
            origin: origin.clone(),
        }
    }

    /// Adds a place at the end.
    pub(super) fn push(&mut self, name: &'static str, place: impl Place + 'static) {
        self.places.push((name, Arc::new(place)));
    }

    /// The credentials of the first place that is set up.
    pub(super) async fn find(&self) -> Result<Credentials, CredentialError> {
        if let Some((name, place)) = self.chosen.get().map(|index| &self.places[*index]) {
            let found = place.look().await;
            return self.take(name, found.map_err(Nothing::into_text));
        }
        let mut findings = Vec::new();
        for (index, (name, place)) in self.places.iter().enumerate() {
            let found = match place.look().await {
                Ok(found) => {
                    let _ = self.chosen.set(index);
                    Ok(found)
                }
                Err(Nothing::Broken(error)) => Err(error),
                Err(Nothing::Absent(why)) => {
                    findings.push(format!("{name}: {why}"));
                    continue;
                }
            };
            return self.take(name, found);
        }
        findings.dedup();
        // What to do about it says whoever knows how the settings are called.
        Err(CredentialError::new(format!(
            "no place has a usable key: {}",
            findings.join(", ")
        )))
    }

    fn take(
        &self,
        name: &str,
        found: Result<Found, String>,
    ) -> Result<Credentials, CredentialError> {
        match found {
            Ok(found) => {
                tracing::debug!(place = name, origin = found.origin, "found credentials");
                self.origin.set(found.origin);
                Ok(found.credentials)
            }
            Err(error) => Err(CredentialError::new(format!(
                "the place `{name}` is set up and has no usable key: {error}"
            ))),
        }
    }
}
