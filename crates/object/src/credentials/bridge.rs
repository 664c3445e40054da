//! What `reqsign` borrows from us, and its credentials in our terms.

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use penstock_base::{Secret, run_blocking};
use reqsign_core::{Context, Error, FileRead, ProvideCredential, Result, time::Timestamp};

use super::{
    Credentials, Environment,
    chain::{Chain, Nothing, Place},
    origin::Found,
    sender::{Heard, Sender},
};
use crate::http::HttpSettings;

/// Bytes in the largest credentials file.
const FILE_MAX: u64 = 1 << 20;

/// The ambient world as `reqsign` sees it.
#[derive(Debug, Clone)]
pub(crate) struct Bridge {
    context: Context,
    sender: Sender,
}

impl Bridge {
    /// The world with the settings of the store's own client.
    pub(crate) fn new(http: &HttpSettings, environment: Environment) -> Self {
        let sender = Sender::new(http);
        let context = Context::new()
            .with_env(environment)
            .with_http_send(sender.clone())
            .with_file_read(Files);
        Self { context, sender }
    }

    pub(super) fn context(&self) -> Context {
        self.context.clone()
    }

    /// One of `reqsign`'s places of which only a service that answers shows that it is there.
    pub(super) fn probed<P: ProvideCredential>(
        &self,
        provider: P,
        origin: impl Into<String>,
    ) -> Probed<P> {
        let (sender, heard) = self.sender.listening();
        let context = self.context().with_http_send(sender);
        let origin = origin.into();
        let place = Provided {
            provider,
            context,
            origin,
        };
        Probed { place, heard }
    }

    /// One of `reqsign`'s places, and what people call it.
    pub(super) fn place<P: ProvideCredential>(
        &self,
        provider: P,
        origin: impl Into<String>,
    ) -> Provided<P> {
        Provided {
            provider,
            context: self.context(),
            origin: origin.into(),
        }
    }
}

/// One of `reqsign`'s places as one of ours.
#[derive(Debug)]
pub(super) struct Provided<P> {
    provider: P,
    context: Context,
    origin: String,
}

#[async_trait]
impl<P> Place for Provided<P>
where
    P: ProvideCredential,
    P::Credential: Into<Credentials>,
{
    async fn look(&self) -> std::result::Result<Found, Nothing> {
        let found = self.provider.provide_credential(&self.context).await;
        let found = found.map_err(|error| one_line(&told(&error)))?;
        Ok(Found {
            credentials: found.ok_or_else(Nothing::absent)?.into(),
            origin: self.origin.clone(),
        })
    }
}

/// A place that is not set up where its service does not answer, or knows of no role.
#[derive(Debug)]
pub(super) struct Probed<P> {
    place: Provided<P>,
    heard: Arc<Heard>,
}

#[async_trait]
impl<P: Debug + Send + Sync> Place for Probed<P>
where
    Provided<P>: Place,
{
    async fn look(&self) -> std::result::Result<Found, Nothing> {
        self.heard.forget();
        match self.place.look().await {
            Err(Nothing::Broken(why)) if !self.heard.something() => Err(Nothing::Absent(why)),
            outcome => outcome,
        }
    }
}

/// What `reqsign` says, and what it was told by what it borrows from us. Other causes may quote what
/// they could not read, which may be a secret.
fn told(error: &Error) -> String {
    let ours = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<Error>());
    match ours {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn one_line(text: &str) -> String {
    const LENGTH_MAX: usize = 300;
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(LENGTH_MAX).collect()
}

/// Our places as one of `reqsign`'s: what a role is assumed with.
#[derive(Debug)]
pub(super) struct Base(pub(super) Chain);

impl Base {
    pub(super) async fn find<C: From<Credentials>>(&self) -> Result<Option<C>> {
        let found = self.0.find().await;
        found
            .map(|credentials| Some(credentials.into()))
            .map_err(|error| Error::config_invalid(error.to_string()))
    }
}

/// Reads files for `reqsign`.
#[derive(Debug)]
struct Files;

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> Result<Vec<u8>> {
        let failed = |error: &dyn std::fmt::Display| Error::unexpected(format!("{path}: {error}"));
        run_blocking(|| {
            let size = std::fs::metadata(path)
                .map_err(|error| failed(&error))?
                .len();
            if size > FILE_MAX {
                return Err(failed(&"the file is larger than 1 MiB"));
            }
            std::fs::read(path).map_err(|error| failed(&error))
        })
    }
}

impl From<reqsign_aws_v4::Credential> for Credentials {
    fn from(credential: reqsign_aws_v4::Credential) -> Self {
        Self {
            key_id: credential.access_key_id,
            secret: Secret::new(credential.secret_access_key),
            token: credential.session_token.map(Secret::new),
            expires: credential.expires_in.map(Timestamp::as_system_time),
        }
    }
}

impl From<Credentials> for reqsign_aws_v4::Credential {
    fn from(credentials: Credentials) -> Self {
        Self {
            access_key_id: credentials.key_id,
            secret_access_key: credentials.secret.expose().to_owned(),
            session_token: credentials.token.map(|token| token.expose().to_owned()),
            expires_in: None,
        }
    }
}

impl From<reqsign_aliyun_oss::Credential> for Credentials {
    fn from(credential: reqsign_aliyun_oss::Credential) -> Self {
        Self {
            key_id: credential.access_key_id,
            secret: Secret::new(credential.access_key_secret),
            token: credential.security_token.map(Secret::new),
            expires: credential.expires_in.map(Timestamp::as_system_time),
        }
    }
}

impl From<Credentials> for reqsign_aliyun_oss::Credential {
    fn from(credentials: Credentials) -> Self {
        Self {
            access_key_id: credentials.key_id,
            access_key_secret: credentials.secret.expose().to_owned(),
            security_token: credentials.token.map(|token| token.expose().to_owned()),
            expires_in: None,
        }
    }
}
