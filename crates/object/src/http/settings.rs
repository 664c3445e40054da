//! What a client is told when it is made.

use std::{path::PathBuf, sync::Arc, time::Duration};

use penstock_base::MemoryBudget;

use super::Origin;
use crate::ClientCertificate;

/// Settings of [`super::Client`].
#[derive(Debug, Clone)]
pub(crate) struct HttpSettings {
    /// Resolving, connecting and the TLS handshake together.
    pub(crate) connect_timeout: Duration,
    /// From the last byte of a request to the first of its response.
    pub(crate) first_byte_timeout: Duration,
    /// The same for requests that make the store work before it answers, such as copies.
    pub(crate) long_answer_timeout: Duration,
    /// Without any progress of a body.
    pub(crate) stall_timeout: Duration,
    /// Idle connections kept per origin.
    pub(crate) idle_connections_max: usize,
    /// Idle connections older than this are closed: servers close theirs soon after.
    pub(crate) idle_age_max: Duration,
    /// Connections that were opened longer ago than this are closed after their request: where the name of a server leads to,
    /// and whom files of certificates trust, counts for all by then.
    pub(crate) connection_age_max: Duration,
    /// Certificates (PEM) to trust beside the system's.
    pub(crate) ca_file: Option<PathBuf>,
    /// What is shown to servers that ask for a certificate.
    pub(crate) client_certificate: Option<ClientCertificate>,
    /// A proxy for all requests.
    pub(crate) proxy: Option<Origin>,
    /// What encrypted connections draw from to send several records at once.
    pub(crate) memory: Option<Arc<MemoryBudget>>,
    /// The `User-Agent` header.
    pub(crate) user_agent: String,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(20),
            long_answer_timeout: Duration::from_secs(120),
            stall_timeout: Duration::from_secs(10),
            idle_connections_max: 256,
            idle_age_max: Duration::from_secs(15),
            connection_age_max: Duration::from_secs(10 * 60),
            ca_file: None,
            client_certificate: None,
            proxy: None,
            memory: None,
            user_agent: concat!("penstock/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

#[cfg(test)]
impl HttpSettings {
    /// The defaults of a client that trusts the certificates of a file.
    pub(crate) fn trusting(ca_file: impl Into<PathBuf>) -> Self {
        Self {
            ca_file: Some(ca_file.into()),
            ..Self::default()
        }
    }
}
