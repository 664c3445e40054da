//! What a server means by the alert that it ends a connection with, and what helps.

use std::{fmt, io};

use rustls::AlertDescription;

use crate::ErrorKind;

/// The server ended the handshake or the connection with this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused(pub(super) AlertDescription);

impl Refused {
    /// What the caller can do about it.
    pub(super) fn kind(self) -> ErrorKind {
        match self.0 {
            AlertDescription::CloseNotify
            | AlertDescription::InternalError
            | AlertDescription::UserCanceled => ErrorKind::Unavailable,
            _ if self.is_about_our_certificate() => ErrorKind::BadCredentials,
            _ => ErrorKind::Untrusted,
        }
    }

    /// A server that lacks a certificate calls it a bad one where its version knows no better word. One that cannot
    /// verify a signature says `decrypt_error`, which a broken handshake may be, too, but rarely is.
    fn is_about_our_certificate(self) -> bool {
        use AlertDescription as Alert;
        matches!(
            self.0,
            Alert::CertificateRequired
                | Alert::NoCertificate
                | Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::DecryptError
                | Alert::AccessDenied
        )
    }

    /// The kind of an error that holds one, if the server would refuse again.
    pub(super) fn lasting(error: &io::Error) -> Option<ErrorKind> {
        let refused: &Self = error.get_ref()?.downcast_ref()?;
        refused.is_about_our_certificate().then_some(refused.kind())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(alert) = self;
        match alert {
            AlertDescription::CertificateRequired | AlertDescription::NoCertificate => f.write_str(
                "the server wants a certificate of its client: set `--client-cert`, or use an endpoint that asks for none",
            ),
            _ if self.is_about_our_certificate() => write!(
                f,
                "the server does not accept the certificate of this client, or wants one ({alert:?}): set `--client-cert` to one that it trusts"
            ),
            AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => write!(
                f,
                "the server finds no cipher or key in common ({alert:?}), or wants a certificate of its client: check its settings of TLS, or set `--client-cert`"
            ),
            AlertDescription::ProtocolVersion => f.write_str(
                "the server speaks neither TLS 1.2 nor 1.3: have it speak one of them",
            ),
            AlertDescription::UnrecognisedName => f.write_str(
                "the server does not know the name that the endpoint has: check the endpoint",
            ),
            _ => write!(f, "the server ended TLS with the alert {alert:?}"),
        }
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        Self::new(io::ErrorKind::ConnectionAborted, refused)
    }
}
