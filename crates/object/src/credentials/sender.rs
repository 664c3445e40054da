//! Requests to metadata and token services.
//!
//! Their answers are credentials. They pass a proxy only encrypted, through a tunnel: a proxy that is
//! spoken to in clear would read them, and one that asks a metadata service asks that of its own machine.
//! What is on this machine or its link is reached without the proxy in any case.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use penstock_base::{Payload, metrics::Registry};
use reqsign_core::{Error, HttpSend, Result};

use crate::http::{Client, ClientMetrics, HttpSettings, Origin, Patience, Request, RequestHeaders};

/// Bytes in the largest answer of a metadata or token service.
const ANSWER_MAX: usize = 1 << 20;

/// The status of a service that has no role for this machine.
const NO_ROLE: u16 = 404;

/// The address of the metadata service of Alibaba Cloud.
const ALIBABA_METADATA: [u8; 4] = [100, 100, 100, 200];

/// What the addresses of the metadata services of AWS begin with.
const AWS_METADATA: [u16; 2] = [0xfd00, 0xec2];

/// Sends requests for `reqsign`.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    direct: Arc<Client>,
    /// Where there is a proxy.
    tunnel: Option<Arc<Client>>,
    heard: Arc<Heard>,
}

impl Sender {
    /// The requests have counters of their own, which nobody reads: they are none to the store.
    pub(super) fn new(store: &HttpSettings) -> Self {
        let unread = ClientMetrics::new(&Registry::default());
        let client = |settings| Arc::new(Client::new(settings, unread.clone()));
        let settings = settings(store);
        let direct = HttpSettings {
            proxy: None,
            ..settings.clone()
        };
        Self {
            direct: client(direct),
            tunnel: store.proxy.is_some().then(|| client(settings)),
            heard: Arc::default(),
        }
    }

    /// The same, and what tells whether anybody answered to it.
    pub(super) fn listening(&self) -> (Self, Arc<Heard>) {
        let heard = Arc::<Heard>::default();
        let sender = Self {
            heard: Arc::clone(&heard),
            ..self.clone()
        };
        (sender, heard)
    }

    fn client(&self, origin: &Origin) -> &Client {
        match &self.tunnel {
            Some(tunnel) if origin.secure && !is_near(origin) => tunnel,
            _ => &self.direct,
        }
    }

    /// What to know about a request that failed.
    fn failure(&self, origin: &Origin, error: &crate::http::HttpError) -> Error {
        if self.tunnel.is_some() && !origin.secure && !is_near(origin) {
            return Error::unexpected(format!(
                "{error}; credentials pass no proxy in clear: name a service with https://"
            ));
        }
        Error::unexpected(error.to_string())
    }
}

/// Settings of the clients. Metadata services are one hop away, or not there at all, which should
/// not take long to find out.
fn settings(store: &HttpSettings) -> HttpSettings {
    HttpSettings {
        connect_timeout: Duration::from_secs(3),
        first_byte_timeout: Duration::from_secs(5),
        idle_connections_max: 2,
        ..store.clone()
    }
}

/// Whether the host is this machine or a service that only this machine can ask.
fn is_near(origin: &Origin) -> bool {
    match origin
        .host
        .parse::<IpAddr>()
        .map(|address| address.to_canonical())
    {
        Ok(IpAddr::V4(address)) => {
            address.is_loopback() || address.is_link_local() || address.octets() == ALIBABA_METADATA
        }
        Ok(IpAddr::V6(address)) => {
            let is_metadata = address.segments().starts_with(&AWS_METADATA);
            address.is_loopback() || address.is_unicast_link_local() || is_metadata
        }
        Err(_) => origin.host == "localhost",
    }
}

/// Whether a service answered since it was last asked.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The last status, 0 for none.
    status: AtomicU16,
}

impl Heard {
    pub(super) fn forget(&self) {
        self.status.store(0, Ordering::Relaxed);
    }

    /// Whether it answered, and not that it has no role for this machine.
    pub(super) fn something(&self) -> bool {
        !matches!(self.status.load(Ordering::Relaxed), 0 | NO_ROLE)
    }
}

impl HttpSend for Sender {
    async fn http_send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>> {
        let request = convert(request)?;
        let failed = |error| self.failure(&request.origin, &error);
        let client = self.client(&request.origin);
        let response = client.send(&request).await.map_err(failed)?;
        self.heard.status.store(response.status, Ordering::Relaxed);
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
