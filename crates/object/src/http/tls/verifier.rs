//! Judging the certificate of a server.

use std::{fmt, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use sha2::{Digest, Sha256};

/// See [`super`].
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) by_the_book: Arc<WebPkiServerVerifier>,
    /// Certificates that somebody named.
    pub(super) named: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// Whether the one thing against a certificate is that it is an authority's, and it was named itself.
    /// Its dates are judged before that by the book.
    fn is_named(&self, certificate: &CertificateDer<'_>, error: &Error) -> bool {
        is_of_an_authority(error) && self.named.iter().any(|named| named == certificate)
    }
}

fn is_of_an_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(why))) = error else {
        return false;
    };
    matches!(why.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        status: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let book = &self.by_the_book;
        let verified = book.verify_server_cert(certificate, intermediates, name, status, now);
        let verified = match verified {
            Err(error) if self.is_named(certificate, &error) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
                    .map(|()| ServerCertVerified::assertion())
            }
            verified => verified,
        };
        verified.map_err(|error| Distrust::of(&error, certificate, name))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let book = &self.by_the_book;
        book.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let book = &self.by_the_book;
        book.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_the_book.supported_verify_schemes()
    }
}

/// Why a certificate is not trusted, which one it is, and what helps.
#[derive(Debug)]
struct Distrust {
    why: String,
    remedy: &'static str,
    fingerprint: String,
}

impl Distrust {
    fn of(error: &Error, certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> Error {
        let (why, remedy) = words(error, &name.to_str());
        let digest = Sha256::digest(certificate);
        let fingerprint = digest.iter().map(|byte| format!("{byte:02X}"));
        let distrust = Self {
            why,
            remedy,
            fingerprint: fingerprint.collect::<Vec<_>>().join(":"),
        };
        Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(distrust))))
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            why,
            remedy,
            fingerprint,
        } = self;
        write!(
            f,
            "the server's certificate {why}; {remedy} (its SHA-256 is {fingerprint})"
        )
    }
}

impl std::error::Error for Distrust {}

fn words(error: &Error, name: &str) -> (String, &'static str) {
    use CertificateError as Why;
    let Error::InvalidCertificate(cause) = error else {
        return (format!("is not accepted: {error}"), "use another one");
    };
    match cause {
        Why::NotValidForName => {
            let remedy = "name the server in the endpoint as its certificate does";
            (format!("is not for `{name}`"), remedy)
        }
        Why::NotValidForNameContext { presented, .. } => {
            let presented: Vec<_> = presented.iter().map(|name| bare(name)).collect();
            let why = format!("is not for `{name}` but for {}", presented.join(", "));
            (
                why,
                "name the server in the endpoint as its certificate does",
            )
        }
        Why::Expired | Why::ExpiredContext { .. } => {
            let remedy = "renew it, or set the clock of this machine";
            ("has expired".to_owned(), remedy)
        }
        Why::NotValidYet | Why::NotValidYetContext { .. } => {
            let remedy = "wait, or set the clock of this machine";
            ("is not valid yet".to_owned(), remedy)
        }
        Why::UnknownIssuer | Why::BadSignature => {
            let remedy =
                "set `ca_file` to the authority that signed it, or to the certificate itself";
            ("is signed by nobody who is trusted here".to_owned(), remedy)
        }
        _ if is_of_an_authority(error) => {
            let remedy = "set `ca_file` to the certificate itself if it is to be trusted";
            ("is that of an authority".to_owned(), remedy)
        }
        other => (format!("is not accepted: {other}"), "use another one"),
    }
}

/// A name as people write it: the library tells its kind, too, as in `DnsName("a.example")`.
fn bare(presented: &str) -> &str {
    let inner = presented
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(presented).trim_matches('"')
}
