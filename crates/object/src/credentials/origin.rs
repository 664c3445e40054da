//! Where credentials were found, in words and without them.

use std::sync::Arc;

use penstock_base::Mutex;

use async_trait::async_trait;

use super::{
    Credentials,
    chain::{Nothing, Place},
};

/// Tells where the credentials of a store were found last, once a request was made. Clones share
/// what they tell: keep one and put another into [`CredentialSettings::origin`].
#[derive(Debug, Clone, Default)]
pub struct CredentialOrigin(Arc<Mutex<Option<String>>>);

impl CredentialOrigin {
    /// In words, such as ``the profile `dev` of /home/me/.aws/credentials``. `None` until some
    /// were found.
    pub fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }

    pub(super) fn set(&self, origin: String) {
        *self.0.lock() = Some(origin);
    }
}

/// Credentials and where they were.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) credentials: Credentials,
    pub(crate) origin: String,
}

/// A role: what it is assumed with was told just before.
#[derive(Debug)]
pub(super) struct Assumed<P> {
    role: P,
    base: CredentialOrigin,
}

impl<P: Place> Assumed<P> {
    pub(super) fn new(role: P, base: &CredentialOrigin) -> Self {
        Self {
            role,
            base: base.clone(),
        }
    }
}

#[async_trait]
impl<P: Place> Place for Assumed<P> {
    async fn look(&self) -> Result<Found, Nothing> {
        let found = self.role.look().await?;
        let base = self.base.get().unwrap_or_default();
        let origin = format!("the role {}, assumed with those of {base}", found.origin);
        Ok(Found { origin, ..found })
    }
}
