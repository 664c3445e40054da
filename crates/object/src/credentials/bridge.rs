//! What `reqsign` borrows from us, and its credentials in our terms.

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{Payload, Secret, run_blocking};
use reqsign_core::{
    CommandExecute, CommandOutput, Context, Error, FileRead, HttpSend, ProvideCredential, Result,
    time::Timestamp,
};

use super::{Credentials, Environment, chain::Chain, chain::Place, origin::Found, process};
use crate::http::{Client, HttpSettings, Origin, Patience, Request, RequestHeaders};

/// Bytes in the largest answer of a metadata or token service.
const ANSWER_MAX: usize = 1 << 20;

/// Bytes in the largest credentials file.
const FILE_MAX: u64 = 1 << 20;

/// Settings of the client for metadata and token services. Metadata services are one hop away,
/// or not there at all, which should not take long to find out.
pub(crate) fn metadata_http_settings(store: &HttpSettings) -> HttpSettings {
    HttpSettings {
        connect_timeout: Duration::from_secs(3),
        first_byte_timeout: Duration::from_secs(5),
        idle_connections_max: 2,
        ..store.clone()
    }
}

/// The ambient world as `reqsign` sees it.
#[derive(Debug, Clone)]
pub(crate) struct Bridge(Context);

impl Bridge {
    pub(crate) fn new(client: Arc<Client>, environment: Environment) -> Self {
        let context = Context::new()
            .with_env(environment)
            .with_http_send(Sender(client))
            .with_file_read(Files)
            .with_command_execute(Programs);
        Self(context)
    }

    /// The same world with another environment.
    pub(super) fn with_environment(&self, environment: Environment) -> Self {
        Self(self.0.clone().with_env(environment))
    }

    pub(super) fn context(&self) -> Context {
        self.0.clone()
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
    async fn look(&self) -> std::result::Result<Option<Found>, String> {
        let found = self.provider.provide_credential(&self.context).await;
        let found = found.map_err(|error| one_line(&error.to_string()))?;
        Ok(found.map(|credential| Found {
            credentials: credential.into(),
            origin: self.origin.clone(),
        }))
    }
}

fn one_line(text: &str) -> String {
    const LENGTH_MAX: usize = 200;
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

/// Sends requests for `reqsign`.
#[derive(Debug)]
struct Sender(Arc<Client>);

impl HttpSend for Sender {
    async fn http_send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>> {
        let request = convert(request)?;
        let failed = |error: crate::http::HttpError| Error::unexpected(error.to_string());
        let response = self.0.send(&request).await.map_err(failed)?;
        let mut converted = http::Response::builder().status(response.status);
        for (name, value) in response.headers.iter() {
            converted = converted.header(name, value);
        }
        let body = response.collect(ANSWER_MAX).await.map_err(failed)?;
        converted
            .body(body.into())
            .map_err(|error| Error::unexpected(error.to_string()))
    }
}

fn convert(request: http::Request<Bytes>) -> Result<Request> {
    let invalid = |message: &str| Error::request_invalid(message.to_owned());
    let (parts, body) = request.into_parts();
    let scheme = parts.uri.scheme_str().ok_or_else(|| invalid("no scheme"))?;
    let authority = parts.uri.authority().ok_or_else(|| invalid("no host"))?;
    let origin = Origin::parse(&format!("{scheme}://{authority}"))
        .map_err(|error| invalid(&error.to_string()))?;
    let method = ["GET", "PUT", "POST", "HEAD", "DELETE"]
        .into_iter()
        .find(|method| *method == parts.method.as_str())
        .ok_or_else(|| invalid("unknown method"))?;
    let mut headers = RequestHeaders::default();
    headers.push("host", origin.authority());
    for (name, value) in &parts.headers {
        let value = value.to_str().map_err(|_| invalid("binary header"))?;
        if !matches!(name.as_str(), "host" | "content-length" | "user-agent") {
            headers.push(name.as_str().to_owned(), value.to_owned());
        }
    }
    Ok(Request {
        origin: Arc::new(origin),
        method,
        target: parts
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str())
            .to_owned(),
        headers,
        body: Payload::from(body),
        patience: Patience::Usual,
        repeatable: true,
    })
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

/// Runs programs for `reqsign`.
#[derive(Debug)]
struct Programs;

impl CommandExecute for Programs {
    async fn command_execute<'a>(
        &'a self,
        program: &'a str,
        args: &'a [&'a str],
    ) -> Result<CommandOutput> {
        let finished = process::run(program, args).await;
        let finished = finished.map_err(Error::unexpected)?;
        Ok(CommandOutput {
            status: finished.status,
            stdout: finished.stdout,
            stderr: Vec::new(),
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
