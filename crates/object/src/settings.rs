//! What can be set about a store.

use std::{path::PathBuf, sync::Arc, time::Duration};

use penstock_base::MemoryBudget;
use thiserror::Error;

use crate::{
    credentials::CredentialSettings,
    http::{HttpSettings, Origin},
};
pub use crate::{rest::Addressing, s3::ChecksumChoice};

/// Settings of a store, apart from what [`crate::StoreUrl`] says. Every field has a default.
#[derive(Debug, Clone)]
pub struct StoreSettings {
    /// `https://host[:port]` or `http://host[:port]`. Default: that of the region.
    pub endpoint: Option<String>,
    /// Another endpoint that leads to the same bucket, from which objects are read. Default: none.
    pub read_endpoint: Option<String>,
    /// Such as `eu-west-1` or `cn-hangzhou`. Default: the one in the endpoint's name, else
    /// `us-east-1` for S3. OSS signs with version 1 where no region is known.
    pub region: Option<String>,
    /// Where the bucket's name stands. Default: [`Addressing::Auto`].
    pub addressing: Addressing,
    /// The version of the signatures of OSS. Default: [`SignatureChoice::Auto`].
    pub signature: SignatureChoice,
    /// How credentials are found.
    pub credentials: CredentialSettings,
    /// Send requests unsigned, for public buckets. Default: no.
    pub anonymous: bool,
    /// Let the requester be charged instead of the bucket's owner. Default: no.
    pub requester_pays: bool,
    /// What is said of every object that is written.
    pub writes: WriteSettings,
    /// How listings are asked for. Default: [`ListVersion::V2`].
    pub listing: ListVersion,
    /// Sign with the store's time once it refused a request for its time. Where it is off such a
    /// request fails, which suits a first look: somebody should set the clock. Default: yes.
    pub follow_store_clock: bool,
    /// Which checksum protects bodies on S3; OSS always has its CRC-64 unless this is `Off`.
    /// Default: [`ChecksumChoice::Auto`].
    pub checksum: ChecksumChoice,
    /// Look whether an object is there, or has a certain version, before a write that insists on it,
    /// unless the store is known to check that itself: some answer success and check nothing. Who
    /// wants to find that out looks the other way. Default: yes.
    pub look_before_writes: bool,
    /// A PEM file of certificates to trust beside the system's, read again when it changed. Default: none.
    pub ca_file: Option<PathBuf>,
    /// What servers are shown that ask their clients for a certificate. Default: none.
    pub client_certificate: Option<ClientCertificate>,
    /// What HTTPS draws from to send several records at once; without room there it sends one at a time. Default: as
    /// much as it likes.
    pub memory: Option<Arc<MemoryBudget>>,
    /// `http://host:port` of a proxy for all requests. Default: none.
    pub http_proxy: Option<String>,
    /// The `User-Agent` header. Default: `penstock/VERSION`.
    pub user_agent: Option<String>,
    /// Whether a write to a `file://` bucket survives a power failure once it returned, and not
    /// only the end of the process. Default: yes.
    pub durable: bool,
    /// Whether symbolic links in a bucket that is a directory are followed. Whoever removes what is below a path must not.
    /// Default: yes.
    pub follow_links: bool,
    /// How long each step of a request may take.
    pub timeouts: Timeouts,
    /// How failures are retried.
    pub retry: RetrySettings,
    /// Requests under way at once, 1 to 65536. Default: 256.
    pub concurrency_max: usize,
    /// Idle connections that are kept, 0 to 65536. Default: 256.
    pub idle_connections_max: usize,
    /// How long an idle connection is kept. Servers close theirs after 20 s or later. Default:
    /// 15 s.
    pub idle_age_max: Duration,
}

/// What is said of every object that is written, and how fast bytes are sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteSettings {
    /// Default: as the bucket is set up.
    pub encryption: Encryption,
    /// The storage class in the store's words. Default: the bucket's.
    pub storage_class: Option<String>,
    /// The store's name for who may use objects, such as `public-read`. Default: the bucket's.
    pub acl: Option<String>,
    /// Bits per second of a request that sends a body, where the store can limit that (OSS).
    pub upload_limit: Option<u64>,
    /// Bits per second of a request that receives a body, where the store can limit that (OSS).
    pub download_limit: Option<u64>,
}

/// How the store encrypts what it keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Encryption {
    /// As the bucket is set up.
    #[default]
    ByStore,
    /// With keys that the store makes up.
    Aes256,
    /// With a key of the store's key management.
    Kms {
        /// Which key; `None` takes the default one.
        key: Option<String>,
    },
}

/// How listings are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ListVersion {
    /// The first form, which some older stores know only.
    V1,
    /// `ListObjectsV2`.
    #[default]
    V2,
}

/// How requests to OSS are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SignatureChoice {
    /// Version 4 where the region is known, else version 1.
    #[default]
    Auto,
    /// Version 1, for stores that know no other.
    V1,
    /// Version 4; settings without a region cannot work.
    V4,
}

/// How long each step of a request may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// Resolving the name, connecting and the TLS handshake together. Default: 10 s.
    pub connect: Duration,
    /// From the end of a request to the first byte of its answer. Default: 20 s.
    pub first_byte: Duration,
    /// The same where the store works before it answers: copies and completed uploads.
    /// Default: 120 s.
    pub long_answer: Duration,
    /// Without progress of a body, in either direction. Default: 10 s.
    pub stall: Duration,
}

/// How failures are retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrySettings {
    /// Attempts for one operation, the first included, 1 to 100; 1 repeats nothing. Default: 10.
    pub attempts_max: u32,
    /// The longest that an operation may take with all its attempts. Default: 120 s.
    pub total: Duration,
    /// Whether attempts that a store does not answer because it is away do not count, so that only
    /// `total` ends them. Default: yes.
    pub ride_out: bool,
}

impl Default for StoreSettings {
    fn default() -> Self {
        let http = HttpSettings::default();
        Self {
            endpoint: None,
            read_endpoint: None,
            region: None,
            signature: SignatureChoice::Auto,
            addressing: Addressing::Auto,
            credentials: CredentialSettings::default(),
            anonymous: false,
            requester_pays: false,
            writes: WriteSettings::default(),
            listing: ListVersion::default(),
            follow_store_clock: true,
            checksum: ChecksumChoice::Auto,
            look_before_writes: true,
            ca_file: None,
            client_certificate: None,
            memory: None,
            http_proxy: None,
            user_agent: None,
            durable: true,
            follow_links: true,
            timeouts: Timeouts::default(),
            retry: RetrySettings::default(),
            concurrency_max: 256,
            idle_connections_max: http.idle_connections_max,
            idle_age_max: http.idle_age_max,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        let http = HttpSettings::default();
        Self {
            connect: http.connect_timeout,
            first_byte: http.first_byte_timeout,
            long_answer: http.long_answer_timeout,
            stall: http.stall_timeout,
        }
    }
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            attempts_max: 10,
            total: Duration::from_secs(120),
            ride_out: true,
        }
    }
}

/// Settings that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// The endpoint is not one.
    #[error("endpoint: {0}")]
    Endpoint(String),
    /// The endpoint to read from is not one.
    #[error("read_endpoint: {0}")]
    ReadEndpoint(String),
    /// There is only one way to read the files of a directory.
    #[error("read_endpoint has no meaning for a source that is not across a network")]
    ReadEndpointOfLocal,
    /// Version 4 signs for a region.
    #[error("signature version 4 needs a region, such as region = cn-hangzhou")]
    NoRegion,
    /// The proxy is not one.
    #[error("http_proxy: {0}")]
    Proxy(String),
    /// OSS has no endpoint of its own.
    #[error("an oss:// source needs an endpoint or a region, such as region = cn-hangzhou")]
    NoOssEndpoint,
}

/// Files that tell a server who its client is, read again when they changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// A PEM file of the certificate, and of those between it and its authority.
    pub certificate: PathBuf,
    /// A PEM file of its key, which can be the same.
    pub key: PathBuf,
}

impl StoreSettings {
    /// What the HTTP client is told.
    pub(crate) fn http(&self) -> Result<HttpSettings, SettingsError> {
        let defaults = HttpSettings::default();
        let proxy = self.http_proxy.as_deref().map(parse_proxy).transpose()?;
        Ok(HttpSettings {
            connect_timeout: self.timeouts.connect,
            first_byte_timeout: self.timeouts.first_byte,
            long_answer_timeout: self.timeouts.long_answer,
            stall_timeout: self.timeouts.stall,
            idle_connections_max: self.idle_connections_max,
            idle_age_max: self.idle_age_max,
            connection_age_max: defaults.connection_age_max,
            ca_file: self.ca_file.clone(),
            client_certificate: self.client_certificate.clone(),
            proxy,
            memory: self.memory.clone(),
            user_agent: self.user_agent.clone().unwrap_or(defaults.user_agent),
        })
    }
}

pub(crate) fn parse_endpoint(text: &str) -> Result<Origin, SettingsError> {
    Origin::parse(text).map_err(|error| SettingsError::Endpoint(error.to_string()))
}

/// The endpoint to read from, if there is one.
pub(crate) fn read_origin(settings: &StoreSettings) -> Result<Option<Origin>, SettingsError> {
    let parse = |text: &String| {
        Origin::parse(text).map_err(|error| SettingsError::ReadEndpoint(error.to_string()))
    };
    settings.read_endpoint.as_ref().map(parse).transpose()
}

fn parse_proxy(text: &str) -> Result<Origin, SettingsError> {
    let origin = Origin::parse(text).map_err(|error| SettingsError::Proxy(error.to_string()))?;
    if origin.secure {
        let message =
            format!("`{text}` must start with http://: the proxy itself is not spoken to in TLS");
        return Err(SettingsError::Proxy(message));
    }
    Ok(origin)
}
