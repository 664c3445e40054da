//! TLS: whom to trust, and how bytes are enciphered.
//!
//! rustls shakes hands ([`handshake`]) and keeps the session's secrets; records are sealed and opened here
//! ([`tls_stream`], [`outgoing`], [`record_key`]), where the bytes lie: rustls would copy each of them twice on its way in.
//!
//! The authorities of the system and those of a file vouch for others ([`trust`]). A certificate of the file that the
//! server shows itself is trusted, too, as it stands, with any signature: `openssl req -x509` marks what it makes as
//! an authority's, and such a one vouches for others only, by the book. One that is no authority's vouches for itself alone.
//! Names and dates count for all, in each handshake that is no resumption of one in the last hour.
//! A server that asks for a certificate is shown the one that was named, if one was. Files that were named are read again
//! when they changed ([`certificates`]).

mod alerts;
mod aside;
mod certificates;
mod files;
#[cfg(any(test, feature = "testing"))]
pub(super) mod fuzzing;
mod handshake;
mod outgoing;
mod pem;
mod record_cipher;
mod record_key;
mod report;
mod tls_stream;
mod trust;
mod verifier;

use std::{io, path::Path, sync::Arc, time::Duration};

use penstock_base::{
    MemoryBudget, Mutex,
    clock::{self, Instant},
};
use rustls::{
    CertificateError, CipherSuite, ClientConfig, InvalidMessage, RootCertStore,
    client::{Resumption, WebPkiServerVerifier},
    crypto::CryptoProvider,
    pki_types::ServerName,
};
use tokio::net::TcpStream;

use super::{HttpError, HttpSettings, Origin};
use crate::ErrorKind;
use alerts::Refused;
pub(super) use certificates::Certificates;
use files::NamedFile;
pub use report::{CertificateFacts, TlsReport, TrustedBy};
pub use tls_stream::room_for_seals;
pub(super) use tls_stream::{RECEIVED_AT_ONCE, SEALS_MAX, TlsStream};
use trust::Trust;
pub use trust::read_system_trust;
use verifier::Verifier;

/// How long sessions are resumed: what is judged in a handshake, such as the dates of an authority, may have changed.
const SESSIONS_AGE_MAX: Duration = Duration::from_secs(60 * 60);

/// Sessions that are remembered, each for a server by its name.
const SESSIONS_MAX: usize = 256;

/// Encrypts connections. Sessions of servers that it met are resumed.
#[derive(Debug)]
pub(super) struct TlsConnector {
    /// With the sessions since then.
    config: Mutex<(Instant, Arc<ClientConfig>)>,
    /// The file of the certificate that is shown to who asks for one.
    shown: Option<Arc<Path>>,
    /// What connections draw from. Without it they have what they want.
    memory: Option<Arc<MemoryBudget>>,
}

impl TlsConnector {
    /// How to shake hands now.
    fn config(&self) -> Arc<ClientConfig> {
        let mut held = self.config.lock();
        let (since, config) = &mut *held;
        if since.elapsed() >= SESSIONS_AGE_MAX {
            let mut forgetful = ClientConfig::clone(config);
            forgetful.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
            (*since, *config) = (clock::now(), Arc::new(forgetful));
        }
        Arc::clone(config)
    }

    /// Shakes hands with a server that must be `name`.
    pub(super) async fn connect(
        &self,
        name: ServerName<'static>,
        stream: TcpStream,
    ) -> io::Result<TlsStream> {
        handshake::shake_hands(self, name, stream).await
    }

    /// Does so to tell what came of it, and nothing else.
    pub(super) async fn report(
        &self,
        name: ServerName<'static>,
        stream: TcpStream,
    ) -> io::Result<TlsReport> {
        report::report(self, name, stream).await
    }
}

/// What the server sent breaks the rules of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Broken(&'static str);

impl Broken {
    fn new(what: &'static str) -> Self {
        Self(what)
    }
}

impl From<Broken> for io::Error {
    fn from(broken: Broken) -> Self {
        Self::new(io::ErrorKind::InvalidData, broken.0)
    }
}

/// A connector that trusts and shows what the settings name. Fails where that is of no use.
pub(super) fn connector(settings: &HttpSettings) -> Result<TlsConnector, HttpError> {
    let patience = settings.connect_timeout;
    let ca_file = settings.ca_file.as_deref();
    let trust = Trust::of(ca_file.map(NamedFile::of_authorities), patience)?;
    let provider = Arc::new(provider());
    let verifier = Arc::new(Verifier::new(trust, &provider)?);
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| cannot(&error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let ours = settings.client_certificate.as_ref();
    let mut config = match ours {
        Some(ours) => {
            let (chain, key) = pem::read_shown(ours, patience)?;
            let shown = builder.with_client_auth_cert(chain, key);
            let config = shown.map_err(|error| pem::unfit(ours, &error))?;
            pem::warn_of_readers(&ours.key);
            config
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.enable_secret_extraction = true;
    Ok(TlsConnector {
        config: Mutex::new((clock::now(), Arc::new(config))),
        shown: ours.map(|ours| ours.certificate.as_path().into()),
        memory: settings.memory.clone(),
    })
}

/// Judges as the standards say.
fn by_the_book(
    roots: RootCertStore,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, HttpError> {
    WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(provider))
        .build()
        .map_err(|error| cannot(&error))
}

fn cannot(error: &dyn std::fmt::Display) -> HttpError {
    untrusting(format!("cannot set TLS up: {error}"))
}

/// What ring can do, the ciphers first that cost this processor least: servers mostly take the client's first.
fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    let has_aes = has_aes();
    provider
        .cipher_suites
        .sort_by_key(|suite| cost(suite.suite(), has_aes));
    provider
}

/// AES with 128 bits has 10 rounds, with 256 bits 14. Without instructions for it both are slow.
fn cost(suite: CipherSuite, has_aes: bool) -> u32 {
    let name = suite.as_str().unwrap_or_default();
    match (name.contains("_AES_128_"), name.contains("_AES_256_")) {
        (true, _) => u32::from(!has_aes),
        (_, true) => 1 + u32::from(!has_aes),
        _ if has_aes => 2,
        _ => 0,
    }
}

#[cfg(target_arch = "x86_64")]
fn has_aes() -> bool {
    std::is_x86_feature_detected!("aes")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

/// The name that the server's certificate must be for.
pub(super) fn server_name(origin: &Origin) -> Result<ServerName<'static>, HttpError> {
    ServerName::try_from(origin.host.clone())
        .map_err(|_| untrusting(format!("`{}` cannot be in a certificate", origin.host)))
}

/// What a handshake failed for, and what helps, if that is known.
pub(super) fn told(error: &io::Error) -> Option<(ErrorKind, String)> {
    if let Some(refused) = Refused::within(error) {
        return Some(refused.told());
    }
    let message = match error.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidCertificate(CertificateError::Other(why)) => why.0.to_string(),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "what answers there speaks no TLS; is it http:// or another port?".to_owned()
        }
        rustls::Error::InvalidCertificate(_) => {
            "the server signs with another key than its certificate has, or with one that is not supported here: RSA of 2048 \
             bits or more, P-256, P-384 and Ed25519 are"
                .to_owned()
        }
        other => format!("{other}; check the endpoint's scheme and name"),
    };
    Some((ErrorKind::Untrusted, message))
}

/// What the caller can do about a connection that broke, and why it did, where trying again does not help.
pub(super) fn lasting(error: &io::Error) -> Option<(ErrorKind, String)> {
    Refused::lasting(error).map(Refused::told)
}

fn untrusting(message: impl Into<String>) -> HttpError {
    HttpError::new(ErrorKind::InvalidRequest, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_cipher_is_offered_first() {
        let sorted = |has_aes| {
            let mut suites = [
                CipherSuite::TLS13_AES_256_GCM_SHA384,
                CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
                CipherSuite::TLS13_AES_128_GCM_SHA256,
            ];
            suites.sort_by_key(|suite| cost(*suite, has_aes));
            suites.map(|suite| suite.as_str().unwrap_or_default())
        };
        let [first, second, _] = sorted(true);
        assert!(first.contains("AES_128") && second.contains("AES_256"));
        assert!(sorted(false)[0].contains("CHACHA20"));
    }

    /// What a handshake judges may have changed since the one that a session is of.
    #[tokio::test(start_paused = true)]
    async fn sessions_are_forgotten_from_time_to_time() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), made.cert.pem()).expect("written");
        let settings = HttpSettings::trusting(file.path());
        let connector = connector(&settings).expect("a certificate");
        let first = connector.config();
        tokio::time::advance(SESSIONS_AGE_MAX - Duration::from_secs(1)).await;
        assert!(Arc::ptr_eq(&first, &connector.config()));
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = connector.config();
        assert!(!Arc::ptr_eq(&first, &second));
        assert!(Arc::ptr_eq(&second, &connector.config()));
    }
}
