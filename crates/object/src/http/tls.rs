//! TLS: whom to trust, and how bytes are enciphered.
//!
//! rustls shakes hands ([`handshake`]) and keeps the session's secrets; records are sealed and opened here
//! ([`tls_stream`], [`outgoing`], [`record_key`]), where the bytes lie: rustls would copy each of them twice on its way in.
//!
//! The authorities of the system and those of a file vouch for others. A certificate of the file that the
//! server shows itself is trusted, too, as it stands, with any signature: `openssl req -x509` marks what it makes as
//! an authority's, and such a one vouches for others only, by the book. One that is no authority's vouches for itself alone.
//! Names and dates count for all, in each handshake that is no resumption of an earlier one.
//! A server that asks for a certificate is shown the one that was named, if one was. Files that were named are read again
//! when they changed ([`certificates`]).

mod alerts;
mod aside;
mod certificates;
#[cfg(any(test, feature = "testing"))]
pub(super) mod fuzzing;
mod handshake;
mod outgoing;
mod record_key;
mod report;
mod tls_stream;
mod verifier;

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{Arc, OnceLock},
};

use penstock_base::MemoryBudget;
use rustls::{
    CertificateError, CipherSuite, ClientConfig, InvalidMessage, RootCertStore,
    client::WebPkiServerVerifier,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, Der, PrivateKeyDer, ServerName, TrustAnchor,
        pem::{self, PemObject},
    },
};
use tokio::net::TcpStream;
use x509_parser::{
    certificate::X509Certificate,
    prelude::{FromDer, X509Version},
};

use super::{HttpError, Origin};
use crate::{ClientCertificate, ErrorKind};
use alerts::Refused;
pub(super) use certificates::Certificates;
pub use report::{CertificateFacts, TlsReport, TrustedBy};
pub use tls_stream::room_for_seals;
pub(super) use tls_stream::{RECEIVED_AT_ONCE, SEALS_MAX, TlsStream};
use verifier::Verifier;

/// The options that name files, as they are typed.
const CA_FILE: &str = "`--ca-file` (or AWS_CA_BUNDLE)";
const CLIENT_CERT: &str = "`--client-cert`";
const CLIENT_KEY: &str = "`--client-key`";

/// Bytes of a file of certificates: those of all authorities of a system are some 200 KiB.
const FILE_MAX: u64 = 4 << 20;

/// The right of everybody to read a key. A group's may be meant, as in a secret of Kubernetes.
const OTHERS_MODE: u32 = 0o004;

/// Encrypts connections. Sessions of servers that it met are resumed.
#[derive(Debug)]
pub(super) struct TlsConnector {
    config: Arc<ClientConfig>,
    /// The file of the certificate that is shown to who asks for one.
    shown: Option<Arc<Path>>,
    /// What connections draw from. Without it they have what they want.
    memory: Option<Arc<MemoryBudget>>,
}

impl TlsConnector {
    /// The same, with connections that draw from `memory`.
    pub(super) fn drawing_from(self, memory: Option<Arc<MemoryBudget>>) -> Self {
        Self { memory, ..self }
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

/// A connector that trusts the system's certificates and those in `ca_file`, and shows `ours` to who asks for it.
pub(super) fn connector(
    ca_file: Option<&Path>,
    ours: Option<&ClientCertificate>,
) -> Result<TlsConnector, HttpError> {
    let mut roots = RootCertStore::empty();
    let named = match ca_file {
        Some(path) => add_file(&mut roots, path)?,
        None => Vec::new(),
    };
    add_system(&mut roots);
    if roots.is_empty() && !named.is_empty() {
        roots.roots.push(nobody());
    }
    if roots.is_empty() {
        return Err(untrusting(
            "the system has no certificates to check the server's with: install \
             `ca-certificates` or set `--ca-file`",
        ));
    }
    let provider = Arc::new(provider());
    let by_the_book = by_the_book(roots, &provider)?;
    let verifier = Arc::new(Verifier { by_the_book, named });
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| cannot(&error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match ours {
        Some(ours) => {
            let (chain, key) = read_ours(ours)?;
            let shown = builder.with_client_auth_cert(chain, key);
            let config = shown.map_err(|error| unfit(ours, &error))?;
            warn_of_readers(&ours.key);
            config
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.enable_secret_extraction = true;
    Ok(TlsConnector {
        config: Arc::new(config),
        shown: ours.map(|ours| ours.certificate.as_path().into()),
        memory: None,
    })
}

/// Why a certificate and a key cannot be shown.
fn unfit(ours: &ClientCertificate, error: &rustls::Error) -> HttpError {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            let why = format!("it is not the key of {}", ours.certificate.display());
            unusable(CLIENT_KEY, &ours.key, &why)
        }
        // What the library says of a key that it cannot read.
        rustls::Error::General(_) => {
            let why = "it is damaged, or of a kind that is not supported; RSA of 2048 to 4096 bits, P-256, P-384 and Ed25519 are";
            unusable(CLIENT_KEY, &ours.key, &why)
        }
        other => unusable(CLIENT_CERT, &ours.certificate, other),
    }
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
        other => format!("{other}; check the endpoint's scheme and name"),
    };
    Some((ErrorKind::Untrusted, message))
}

/// What the caller can do about a connection that broke, and why it did, where trying again does not help.
pub(super) fn lasting(error: &io::Error) -> Option<(ErrorKind, String)> {
    Refused::lasting(error).map(Refused::told)
}

/// Adds what the system trusts, or those of the files that SSL_CERT_FILE and SSL_CERT_DIR name.
///
/// The process reads them once: it may leave the directory that these names count from, and a file that is replaced in that
/// moment would take trust away from a mount that is up.
fn add_system(roots: &mut RootCertStore) {
    static READ: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
    match READ.get() {
        Some(read) => roots.add_parsable_certificates(read.iter().cloned()),
        None => {
            let read = rustls_native_certs::load_native_certs().certs;
            let added = roots.add_parsable_certificates(read.iter().cloned());
            if !read.is_empty() {
                let _ = READ.set(read);
            }
            added
        }
    };
}

/// Reads what the system trusts, for this process and those that it forks.
pub fn read_system_trust() {
    add_system(&mut RootCertStore::empty());
}

/// An authority that signed nothing, for it has no key: the library wants one where none is trusted.
fn nobody() -> TrustAnchor<'static> {
    TrustAnchor {
        subject: Der::from_slice(&[0]),
        subject_public_key_info: Der::from_slice(&[]),
        name_constraints: None,
    }
}

/// Adds the authorities of the file, and tells all of its certificates.
fn add_file(
    roots: &mut RootCertStore,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, HttpError> {
    let named = read_certificates(CA_FILE, path)?;
    for (index, certificate) in named.iter().enumerate() {
        let damaged = || {
            let why = format!("certificate {} in it is damaged", index + 1);
            unusable(CA_FILE, path, &why)
        };
        if is_of_authority(certificate).ok_or_else(damaged)? {
            roots.add(certificate.clone()).map_err(|_| damaged())?;
        }
    }
    Ok(named)
}

/// Whether a certificate may vouch for others; `None` if it is damaged. Those of version 1 do not say: one that signed itself may.
fn is_of_authority(certificate: &CertificateDer<'_>) -> Option<bool> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let is_its_own = parsed.version() == X509Version::V1 && parsed.subject() == parsed.issuer();
    Some(parsed.is_ca() || is_its_own)
}

/// The certificates of a file that an option names.
fn read_certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, HttpError> {
    let text = read_file(option, path)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = read.map_err(|error| unusable(option, path, &of_pem(&error)))?;
    if certificates.is_empty() {
        let remedy = "it has no PEM certificate; of DER `openssl x509 -inform der` makes one";
        return Err(unusable(option, path, &remedy));
    }
    Ok(certificates)
}

fn read_file(option: &str, path: &Path) -> Result<Vec<u8>, HttpError> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut text));
    read.map_err(|error| unusable(option, path, &error))?;
    if text.len() as u64 > FILE_MAX {
        let why = format!("it is longer than {} MiB", FILE_MAX >> 20);
        return Err(unusable(option, path, &why));
    }
    Ok(text)
}

fn read_ours(
    ours: &ClientCertificate,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), HttpError> {
    let chain = read_certificates(CLIENT_CERT, &ours.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&read_file(CLIENT_KEY, &ours.key)?);
    let key = key.map_err(|error| unusable(CLIENT_KEY, &ours.key, &of_pem(&error)))?;
    Ok((chain, key))
}

fn warn_of_readers(key: &Path) {
    let mode = std::fs::metadata(key).map_or(0, |known| known.permissions().mode());
    if mode & OTHERS_MODE != 0 {
        tracing::warn!(
            "the key {} can be read by everybody: `chmod o-r` ends that",
            key.display()
        );
    }
}

/// What is wrong with a file of PEM.
fn of_pem(error: &pem::Error) -> String {
    let why = match error {
        pem::Error::NoItemsFound => {
            "it has no PEM key without a passphrase; `openssl pkey` takes a passphrase away"
        }
        pem::Error::MissingSectionEnd { .. } => "it is cut: the line that ends a part is missing",
        pem::Error::IllegalSectionStart { .. } => {
            "it is no PEM: a line that begins a part is damaged"
        }
        pem::Error::Base64Decode(_) => "it is damaged: a part is not Base64",
        other => return other.to_string(),
    };
    why.to_owned()
}

fn unusable(option: &str, path: &Path, error: &dyn std::fmt::Display) -> HttpError {
    untrusting(format!("cannot use {option} {}: {error}", path.display()))
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
}
