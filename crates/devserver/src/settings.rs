//! What a server is told when it starts.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use crate::{
    faults::Faults,
    identity::Identity,
    store::{crowd::Crowd, fill::Fill},
};

/// Connections served at a time if nobody says; each has a thread.
pub const CONNECTIONS_DEFAULT: usize = 1024;

/// What the tags of new objects are made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EtagPolicy {
    /// MD5 up to 1 MiB, where it costs little; above, a tag that looks like that of a multipart
    /// upload, which no client takes for a hash.
    #[default]
    Auto,
    /// MD5 always. Costs about 1.6 CPU seconds per GiB.
    Md5,
    /// Never MD5, unless the client sends one.
    Opaque,
}

impl FromStr for EtagPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "md5" => Ok(Self::Md5),
            "opaque" => Ok(Self::Opaque),
            _ => Err(format!("`{text}` is not one of auto, md5, opaque")),
        }
    }
}

/// A key that may sign requests.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The access key id.
    pub key_id: String,
    /// The secret that signatures are made with.
    pub secret: String,
    /// The security token that must come with it, for temporary keys.
    pub token: Option<String>,
}

impl Credentials {
    /// A permanent key.
    pub fn new(key_id: impl Into<String>, secret: impl Into<String>) -> Self {
        Self {
            key_id: key_id.into(),
            secret: secret.into(),
            token: None,
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("key_id", &self.key_id)
            .finish_non_exhaustive()
    }
}

impl FromStr for Credentials {
    type Err = String;

    /// Parses `KEY:SECRET` or `KEY:SECRET:TOKEN`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, ':').map(str::to_owned);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(key_id), Some(secret), token) if !key_id.is_empty() && !secret.is_empty() => {
                Ok(Self {
                    key_id,
                    secret,
                    token,
                })
            }
            _ => Err("credentials are not of the form KEY:SECRET or KEY:SECRET:TOKEN".to_owned()),
        }
    }
}

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen; port 0 picks a free one.
    pub address: SocketAddr,
    /// Buckets that exist from the start.
    pub buckets: Vec<String>,
    /// Objects that exist from the start.
    pub fills: Vec<Fill>,
    /// Crowds that are there from the start.
    pub crowds: Vec<Crowd>,
    /// A directory to read objects from at the start.
    pub directory: Option<PathBuf>,
    /// Keys that may sign.
    pub credentials: Vec<Credentials>,
    /// Whether requests must be signed, with one of `credentials`.
    pub verify_signatures: bool,
    /// The region that signatures must name and that buckets live in; `None` accepts any.
    pub region: Option<String>,
    /// A domain whose sub-domains are buckets, for host names that do not tell by themselves.
    pub domain: Option<String>,
    /// What the server shows of itself to clients that speak HTTPS. On the same port it answers who does not.
    pub identity: Option<Identity>,
    /// What tags are made from.
    pub etag: EtagPolicy,
    /// Faults from the start.
    pub faults: Faults,
    /// Bytes of memory to make ready at the start and to keep; the first time that memory is
    /// used costs more than the next. 0 for none.
    pub prepared_memory: u64,
    /// Connections served at a time; more are told to slow down.
    pub connections_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            buckets: Vec::new(),
            fills: Vec::new(),
            crowds: Vec::new(),
            directory: None,
            credentials: Vec::new(),
            verify_signatures: false,
            region: None,
            domain: None,
            identity: None,
            etag: EtagPolicy::Auto,
            faults: Faults::default(),
            prepared_memory: 0,
            connections_max: CONNECTIONS_DEFAULT,
        }
    }
}

impl Settings {
    /// The defaults with one bucket.
    pub fn with_bucket(name: &str) -> Self {
        Self {
            buckets: vec![name.to_owned()],
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_parsed_and_never_printed() {
        let credentials: Credentials = "id:secret:to:ken".parse().expect("well formed");
        assert_eq!(credentials.token.as_deref(), Some("to:ken"));
        assert_eq!(
            format!("{credentials:?}"),
            "Credentials { key_id: \"id\", .. }"
        );
        assert!("id".parse::<Credentials>().is_err());
        assert!(":secret".parse::<Credentials>().is_err());
    }
}
