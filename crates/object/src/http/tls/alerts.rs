//! What a server means by the alert that it ends a connection with, and what helps.

use std::{fmt, io, path::Path, sync::Arc};

use rustls::AlertDescription;

use crate::ErrorKind;

/// The server ended the handshake or the connection with an alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) alert: AlertDescription,
    /// It had chosen a cipher by then, so that is not what it lacks.
    pub(super) has_cipher: bool,
    /// The file of the certificate that a server is shown which asks for one.
    pub(super) shown: Option<Arc<Path>>,
}

impl Refused {
    /// What the caller can do about it.
    fn kind(&self) -> ErrorKind {
        match self.alert {
            AlertDescription::CloseNotify
            | AlertDescription::InternalError
            | AlertDescription::UserCanceled => ErrorKind::Unavailable,
            _ if self.is_about_our_certificate() => ErrorKind::ClientUntrusted,
            _ => ErrorKind::Untrusted,
        }
    }

    /// A server that lacks a certificate calls it a bad one, or says `handshake_failure`, where its version knows no
    /// better word. One that cannot verify a signature says `decrypt_error`, which a broken handshake may be, too, but
    /// rarely is.
    fn is_about_our_certificate(&self) -> bool {
        use AlertDescription as Alert;
        match self.alert {
            Alert::CertificateRequired | Alert::NoCertificate | Alert::BadCertificate => true,
            Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::DecryptError
            | Alert::AccessDenied => self.shown.is_some(),
            Alert::HandshakeFailure => self.has_cipher,
            _ => false,
        }
    }

    /// The one in an error.
    pub(super) fn within(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// The one in an error, if the server would refuse again.
    pub(super) fn lasting(error: &io::Error) -> Option<&Self> {
        Self::within(error).filter(|refused| refused.is_about_our_certificate())
    }

    /// What the caller can do, and why.
    pub(super) fn told(&self) -> (ErrorKind, String) {
        (self.kind(), self.to_string())
    }

    fn tell_of_certificate(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alert = self.alert;
        let Some(file) = &self.shown else {
            return write!(
                f,
                "the server wants a certificate of its client ({alert:?}): set `--client-cert` to one that it trusts, or \
                 use an endpoint that asks for none"
            );
        };
        let (meaning, remedy) = words(alert);
        write!(
            f,
            "the server refused the client certificate of `--client-cert` {}: {meaning} ({alert:?}); {remedy}",
            file.display()
        )
    }
}

/// What a server has against a certificate, and what helps.
fn words(alert: AlertDescription) -> (&'static str, &'static str) {
    match alert {
        AlertDescription::UnknownCA => (
            "it does not trust the authority that signed it",
            "have the server trust that authority, or use a certificate of one that it trusts",
        ),
        AlertDescription::CertificateExpired => (
            "by the server's clock it has expired or is not valid yet",
            "renew it, or set that clock",
        ),
        AlertDescription::CertificateRevoked => ("it was revoked", "use another one"),
        AlertDescription::UnsupportedCertificate => (
            "it is not one for clients, or its key is of a kind that the server does not take",
            "make it anew with extendedKeyUsage=clientAuth",
        ),
        AlertDescription::AccessDenied => (
            "whom it names may not use the server",
            "have the server let that name in",
        ),
        AlertDescription::DecryptError => (
            "another key signed it than that of the authority which the server trusts",
            "have the server trust the authority that signed it, or use a certificate of one that it trusts",
        ),
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => (
            "its key is of a kind that the server does not take",
            "use one with another kind of key, such as RSA or ECDSA",
        ),
        _ => ("the server does not say why", "its log may"),
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.alert {
            _ if self.is_about_our_certificate() => self.tell_of_certificate(f),
            alert @ (AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity) => write!(
                f,
                "the server finds no cipher or key in common ({alert:?}): check its settings of TLS, and that its key is RSA, P-256, \
                 P-384 or Ed25519"
            ),
            AlertDescription::ProtocolVersion => {
                f.write_str("the server speaks neither TLS 1.2 nor 1.3: have it speak one of them")
            }
            AlertDescription::UnrecognisedName => f.write_str(
                "the server does not know the name that the endpoint has: check the endpoint",
            ),
            alert => write!(f, "the server ended TLS with the alert {alert:?}"),
        }
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        Self::new(io::ErrorKind::ConnectionAborted, refused)
    }
}
