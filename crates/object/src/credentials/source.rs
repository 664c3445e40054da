//! Credentials in memory, renewed in time.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use penstock_base::{Mutex, clock};

use super::{CredentialError, Credentials, chain::Chain};

/// How long before they expire credentials are renewed, at the earliest.
const RENEW_BEFORE_MAX: Duration = Duration::from_secs(20 * 60);

/// How long before they expire credentials count as expired: a request must still arrive.
const RENEW_BEFORE_MIN: Duration = Duration::from_secs(60);

/// Short-lived credentials are renewed when this part of their life is left.
const RENEW_AT_FRACTION: u32 = 3;

/// How long a failure to get any stands before all places are looked in again.
const FAILURE_AGE_MAX: Duration = Duration::from_secs(5);

/// The longest that a look in all places may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// The place to ask for credentials.
#[derive(Debug)]
pub(crate) struct CredentialSource {
    /// `None` for requests without a signature.
    chain: Option<Chain>,
    state: Mutex<State>,
    /// Held by whoever looks, so that one does and the others wait for what it finds.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    current: Option<Current>,
    failure: Option<(CredentialError, clock::Instant)>,
}

#[derive(Debug, Clone)]
struct Current {
    credentials: Arc<Credentials>,
    /// From when on newer ones are looked for.
    renew_at: Option<SystemTime>,
}

impl CredentialSource {
    /// Requests are sent without a signature.
    pub(crate) fn anonymous() -> Arc<Self> {
        Arc::new(Self::of(None))
    }

    /// Credentials come from `chain`.
    pub(crate) fn new(chain: Chain) -> Arc<Self> {
        Arc::new(Self::of(Some(chain)))
    }

    fn of(chain: Option<Chain>) -> Self {
        Self {
            chain,
            state: Mutex::default(),
            looking: tokio::sync::Mutex::new(()),
        }
    }

    /// Credentials that will be valid for a while; `None` when requests go unsigned.
    pub(crate) async fn current(
        self: &Arc<Self>,
    ) -> Result<Option<Arc<Credentials>>, CredentialError> {
        let Some(chain) = &self.chain else {
            return Ok(None);
        };
        let now = clock::wall_time();
        if let Some(current) = self.usable(now) {
            if current.renew_at.is_some_and(|time| time <= now) {
                self.renew_behind();
            }
            return Ok(Some(current.credentials));
        }
        let _looking = self.looking.lock().await;
        if let Some(current) = self.usable(now) {
            return Ok(Some(current.credentials));
        }
        let found = match self.recent_failure() {
            Some(failure) => Err(failure),
            None => self.look(chain).await,
        };
        found
            .or_else(|error| self.unexpired().ok_or(error))
            .map(Some)
    }

    /// The credentials at hand, until the very moment when they expire.
    fn unexpired(&self) -> Option<Arc<Credentials>> {
        let current = self.state.lock().current.clone()?;
        let expires = current.credentials.expires;
        let valid = expires.is_none_or(|time| clock::wall_time() < time);
        valid.then_some(current.credentials)
    }

    /// Makes the next request look anew, since the store says that `old` has expired.
    pub(crate) fn forget(&self, old: &Credentials) {
        let mut state = self.state.lock();
        if state
            .current
            .as_ref()
            .is_some_and(|current| *current.credentials == *old)
        {
            state.current = None;
        }
    }

    /// Lets the credentials look old enough to be renewed.
    #[cfg(test)]
    pub(super) fn age(&self) {
        if let Some(current) = &mut self.state.lock().current {
            current.renew_at = Some(clock::wall_time());
        }
    }

    fn usable(&self, now: SystemTime) -> Option<Current> {
        let current = self.state.lock().current.clone()?;
        let expires = current.credentials.expires;
        let usable = expires.is_none_or(|time| now + RENEW_BEFORE_MIN < time);
        usable.then_some(current)
    }

    fn recent_failure(&self) -> Option<CredentialError> {
        let state = self.state.lock();
        let (failure, when) = state.failure.as_ref()?;
        (when.elapsed() < FAILURE_AGE_MAX).then(|| failure.clone())
    }

    /// Looks in a task of its own, unless one does already or just failed.
    fn renew_behind(self: &Arc<Self>) {
        if self.looking.try_lock().is_err() || self.recent_failure().is_some() {
            return;
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let Ok(_looking) = this.looking.try_lock() else {
                return;
            };
            if let Some(chain) = &this.chain
                && let Err(error) = this.look(chain).await
            {
                tracing::warn!("cannot renew the credentials, which will expire soon: {error}");
            }
        });
    }

    async fn look(&self, chain: &Chain) -> Result<Arc<Credentials>, CredentialError> {
        let found = match clock::deadline(LOOK_TIMEOUT, chain.find()).await {
            Ok(found) => found,
            Err(passed) => Err(CredentialError::new(format!(
                "no credentials: the places to look in did not answer, {passed}"
            ))),
        };
        let mut state = self.state.lock();
        match found {
            Ok(credentials) => {
                let credentials = Arc::new(credentials);
                state.failure = None;
                state.current = Some(Current {
                    renew_at: renew_at(&credentials, clock::wall_time()),
                    credentials: Arc::clone(&credentials),
                });
                Ok(credentials)
            }
            Err(error) => {
                state.failure = Some((error.clone(), clock::now()));
                Err(error)
            }
        }
    }
}

fn renew_at(credentials: &Credentials, now: SystemTime) -> Option<SystemTime> {
    let expires = credentials.expires?;
    let life = expires.duration_since(now).unwrap_or_default();
    let before = (life / RENEW_AT_FRACTION).clamp(RENEW_BEFORE_MIN, RENEW_BEFORE_MAX);
    expires.checked_sub(before)
}
