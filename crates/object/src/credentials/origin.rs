//! Where credentials were found, in words and without them.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;

use super::{CredentialSettings, Credentials, Environment, chain::Place};

/// Tells where the credentials of a store were found last, once a request was made. Clones share
/// what they tell: keep one and put another into [`CredentialSettings::origin`].
#[derive(Debug, Clone, Default)]
pub struct CredentialOrigin(Arc<Mutex<Option<String>>>);

impl CredentialOrigin {
    /// In words, such as ``the profile `dev` of /home/me/.aws/credentials``. `None` until some
    /// were found.
    pub fn get(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn set(&self, origin: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(origin);
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
    async fn look(&self) -> Result<Option<Found>, String> {
        let found = self.role.look().await?;
        Ok(found.map(|found| {
            let base = self.base.get().unwrap_or_default();
            let origin = format!("the role {}, assumed with those of {base}", found.origin);
            Found { origin, ..found }
        }))
    }
}

/// A profile in the files of a provider's tools: the variables that name profile and files, and
/// where the files are otherwise, below the home directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProfileFiles {
    pub(super) profile: &'static str,
    pub(super) files: &'static [(&'static str, &'static str)],
}

impl ProfileFiles {
    /// Names the profile, and the files of it that exist.
    pub(super) fn describe(&self, settings: &CredentialSettings) -> String {
        let environment = &settings.environment;
        let profile = settings.profile.as_deref();
        let profile = profile.or_else(|| environment.get(self.profile));
        let files = self.files.iter().filter_map(|(variable, usual)| {
            let path = file_of(environment, variable, usual)?;
            path.exists().then(|| path.display().to_string())
        });
        let mut files: Vec<_> = files.collect();
        files.dedup();
        format!(
            "the profile `{}` of {}",
            profile.unwrap_or("default"),
            files.join(" and ")
        )
    }
}

fn file_of(environment: &Environment, variable: &str, usual: &str) -> Option<PathBuf> {
    let named = environment.get(variable).map(PathBuf::from);
    named.or_else(|| Some(environment.home()?.join(usual)))
}
