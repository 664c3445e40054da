//! Judging the certificate of a server.

use std::{borrow::Cow, fmt, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime},
    server::ParsedCertificate,
};
use sha2::{Digest, Sha256};
use x509_parser::{
    certificate::X509Certificate,
    prelude::{FromDer, X509Version},
};

use super::{
    by_the_book, provider,
    trust::{Trust, Unfit, UnfitFor},
};
use crate::http::HttpError;

/// See [`super`].
#[derive(Debug)]
pub(super) struct Verifier {
    trust: Trust,
    book: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
}

/// What a server shows, and who it should be.
struct Claim<'a> {
    certificate: &'a CertificateDer<'a>,
    intermediates: &'a [CertificateDer<'a>],
    name: &'a ServerName<'a>,
    status: &'a [u8],
    now: UnixTime,
}

impl Claim<'_> {
    fn verified_by(&self, book: &WebPkiServerVerifier) -> Result<ServerCertVerified, Error> {
        let Self {
            certificate,
            intermediates,
            name,
            status,
            now,
        } = *self;
        book.verify_server_cert(certificate, intermediates, name, status, now)
    }
}

impl Verifier {
    /// Trusts those of `trust`.
    pub(super) fn new(trust: Trust, provider: &Arc<CryptoProvider>) -> Result<Self, HttpError> {
        Ok(Self {
            book: by_the_book(trust.roots(), provider)?,
            provider: Arc::clone(provider),
            trust,
        })
    }

    /// Judges by all who are trusted, and then without those of them who may not vouch for servers now.
    fn verify(&self, claim: &Claim<'_>) -> Result<ServerCertVerified, Error> {
        let verified = claim.verified_by(&self.book)?;
        let unfit = self.trust.unfit(claim.now);
        let Some(first) = unfit.first() else {
            return Ok(verified);
        };
        if self.is_verified_with(claim, None) {
            return Ok(verified);
        }
        let vouches = |unfit: &&Unfit<'_>| self.is_verified_with(claim, Some(unfit));
        let culprit = unfit.iter().find(vouches).unwrap_or(first);
        let why = OtherError(Arc::new(Unvouched::of(culprit)));
        Err(CertificateError::Other(why).into())
    }

    fn is_verified_with(&self, claim: &Claim<'_>, unfit: Option<&Unfit<'_>>) -> bool {
        let roots = self.trust.fit_roots(claim.now, unfit);
        let book = by_the_book(roots, &self.provider);
        book.is_ok_and(|book| claim.verified_by(&book).is_ok())
    }
}

/// The authority that signed a certificate may not.
#[derive(Debug)]
struct Unvouched {
    subject: String,
    why: UnfitFor,
}

impl Unvouched {
    fn of(Unfit { authority, why }: &Unfit<'_>) -> Self {
        Self {
            subject: authority.subject.clone(),
            why: *why,
        }
    }

    /// What is wrong, and what helps.
    fn words(&self) -> (String, Cow<'static, str>) {
        let (what, remedy) = match self.why {
            UnfitFor::Today => (
                "has expired",
                "set `--ca-file` to what it was renewed by, or set the clock of this machine",
            ),
            UnfitFor::AlreadyNow => ("is not valid yet", "wait, or set the clock of this machine"),
            UnfitFor::Signing => (
                "may not sign others",
                "have an authority sign it whose keyUsage has keyCertSign, or which has none",
            ),
            UnfitFor::Servers => (
                "is not one for servers",
                "have an authority sign it whose extendedKeyUsage has serverAuth, or which has none",
            ),
        };
        let subject = &self.subject;
        let why = format!(
            "is signed by an authority of `--ca-file` (or AWS_CA_BUNDLE), {subject}, which {what}"
        );
        (why, Cow::Borrowed(remedy))
    }
}

impl fmt::Display for Unvouched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().0)
    }
}

impl std::error::Error for Unvouched {}

/// Judges what the book, which stopped at whom it trusts, did not come to.
fn verify_by_itself(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
) -> Result<ServerCertVerified, Error> {
    if !is_for_servers(certificate) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
    Ok(ServerCertVerified::assertion())
}

/// Whether its extended key usage, if it has one, names servers.
fn is_for_servers(certificate: &CertificateDer<'_>) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return false;
    };
    let usage = parsed.extended_key_usage();
    usage.is_ok_and(|usage| usage.is_none_or(|usage| usage.value.server_auth))
}

/// Whether the one thing against a certificate is that it is an authority's or that nobody known signed it, among whom may be
/// somebody of the same name with another kind of key. Its dates are judged before that by the book.
fn is_sound(error: &Error) -> bool {
    use CertificateError as Why;
    let is_vouched_by_none = matches!(
        error,
        Error::InvalidCertificate(
            Why::UnknownIssuer
                | Why::BadSignature
                | Why::UnsupportedSignatureAlgorithmContext { .. }
                | Why::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
        )
    );
    let is_of_who_signed = match other(error) {
        Some(webpki::Error::CaUsedAsEndEntity | webpki::Error::NameConstraintViolation) => true,
        _ => other::<Unvouched>(error).is_some(),
    };
    is_of_who_signed || is_vouched_by_none
}

/// What is wrong with a certificate that has no name among the library's.
fn other<T: std::error::Error + 'static>(error: &Error) -> Option<&T> {
    match error {
        Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => why.downcast_ref(),
        _ => None,
    }
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
        let is_named = self.trust.names(certificate);
        let claim = Claim {
            certificate,
            // What is wrong with those in between says nothing of one that needs none of them.
            intermediates: if is_named { &[] } else { intermediates },
            name,
            status,
            now,
        };
        let verified = match self.verify(&claim) {
            Err(error) if is_named && is_sound(&error) => verify_by_itself(certificate, name),
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
        let book = &self.book;
        book.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let book = &self.book;
        book.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.book.supported_verify_schemes()
    }
}

/// Why a certificate is not trusted, which one it is, and what helps.
#[derive(Debug)]
struct Distrust {
    why: String,
    remedy: Cow<'static, str>,
    fingerprint: String,
}

impl Distrust {
    fn of(error: &Error, certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> Error {
        let (why, remedy) = match is_of_itself(error, certificate) {
            true => words(error, name),
            false => (
                format!("is signed by one in between that {}", words(error, name).0),
                Cow::Borrowed(
                    "have the server send another one, or set `--ca-file` to who signed the server's",
                ),
            ),
        };
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

/// Whether what is wrong is so of the certificate, and not of one between it and its authority.
fn is_of_itself(error: &Error, certificate: &CertificateDer<'_>) -> bool {
    use CertificateError as Why;
    let Error::InvalidCertificate(why) = error else {
        return true;
    };
    match why {
        Why::Expired
        | Why::ExpiredContext { .. }
        | Why::NotValidYet
        | Why::NotValidYetContext { .. } => {
            let parsed = X509Certificate::from_der(certificate);
            !parsed.is_ok_and(|(_, parsed)| parsed.validity().is_valid())
        }
        Why::InvalidPurpose | Why::InvalidPurposeContext { .. } => !is_for_servers(certificate),
        Why::Other(_) => match other(error) {
            Some(webpki::Error::EndEntityUsedAsCa | webpki::Error::PathLenConstraintViolated) => {
                false
            }
            Some(webpki::Error::UnsupportedCertVersion) => {
                let parsed = X509Certificate::from_der(certificate);
                !parsed.is_ok_and(|(_, parsed)| parsed.version() == X509Version::V3)
            }
            _ => true,
        },
        _ => true,
    }
}

fn words(error: &Error, name: &ServerName<'_>) -> (String, Cow<'static, str>) {
    use CertificateError as Why;
    if let Some(unvouched) = other::<Unvouched>(error) {
        return unvouched.words();
    }
    let (why, remedy) = match error {
        Error::InvalidCertificate(Why::NotValidForNameContext { presented, .. }) => {
            let presented: Vec<_> = presented.iter().map(|name| bare(name)).collect();
            return words_of_names(name, &presented);
        }
        Error::InvalidCertificate(Why::NotValidForName) => return words_of_names(name, &[]),
        Error::InvalidCertificate(Why::Expired | Why::ExpiredContext { .. }) => {
            ("has expired", "renew it, or set the clock of this machine")
        }
        Error::InvalidCertificate(Why::NotValidYet | Why::NotValidYetContext { .. }) => {
            ("is not valid yet", "wait, or set the clock of this machine")
        }
        Error::InvalidCertificate(why) if is_signed_in_another_way(why) => (
            "is signed in a way that is not supported here",
            "have an authority sign it whose key is RSA, P-256, P-384 or Ed25519, with SHA-256 or SHA-384, or set `--ca-file` \
             to the certificate itself",
        ),
        Error::InvalidCertificate(
            Why::UnknownIssuer
            | Why::BadSignature
            | Why::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
        ) => (
            "is signed by nobody who is trusted here",
            "set `--ca-file` to the authority that signed it, or to the certificate itself, or have the server \
             send those in between",
        ),
        Error::InvalidCertificate(Why::InvalidPurpose | Why::InvalidPurposeContext { .. }) => (
            "is not one for servers",
            "make it anew with extendedKeyUsage=serverAuth, or without one",
        ),
        error => match other(error) {
            Some(webpki::Error::CaUsedAsEndEntity) => (
                "is that of an authority",
                "set `--ca-file` to the certificate itself if it is to be trusted",
            ),
            Some(webpki::Error::NameConstraintViolation) => (
                "is signed by an authority that is not for this name",
                "have another one sign it, or set `--ca-file` to the certificate itself",
            ),
            Some(webpki::Error::UnsupportedCertVersion) => (
                "is of version 1, which names no host",
                "make it anew with a subjectAltName",
            ),
            Some(webpki::Error::EndEntityUsedAsCa) => {
                ("is no authority's", "make it anew with CA:TRUE")
            }
            Some(webpki::Error::PathLenConstraintViolated) => (
                "lets fewer sign below it",
                "make it anew with a greater path length",
            ),
            _ => {
                let why = format!("is not accepted: {error}");
                return (why, Cow::Borrowed("use another one"));
            }
        },
    };
    (why.to_owned(), Cow::Borrowed(remedy))
}

/// Whether the authority is known, and nobody here can verify what it signs: its key, or how it signs, is of another kind.
fn is_signed_in_another_way(why: &CertificateError) -> bool {
    use CertificateError as Why;
    match why {
        Why::UnsupportedSignatureAlgorithmContext { .. } => true,
        Why::UnsupportedSignatureAlgorithmForPublicKeyContext {
            public_key_algorithm_id,
            ..
        } => {
            let known = provider().signature_verification_algorithms.all;
            let is_it = |known: &&dyn SignatureVerificationAlgorithm| {
                known.public_key_alg_id().as_ref() == *public_key_algorithm_id
            };
            !known.iter().any(is_it)
        }
        _ => false,
    }
}

/// For a certificate of other names than the endpoint's.
fn words_of_names(name: &ServerName<'_>, presented: &[&str]) -> (String, Cow<'static, str>) {
    let (kind, name) = match name {
        ServerName::IpAddress(_) => ("IP", name.to_str()),
        _ => ("DNS", name.to_str()),
    };
    if presented.is_empty() {
        let remedy = format!(
            "make it anew with the name, as `openssl req -addext subjectAltName={kind}:{name}` does"
        );
        return ("names no host (subjectAltName)".to_owned(), remedy.into());
    }
    let why = format!("is not for `{name}` but for {}", presented.join(", "));
    let remedy = "name the server in the endpoint as its certificate does";
    match name.split_once('.') {
        Some((bucket, host)) if presented.contains(&host) => {
            let remedy = format!(
                "if `{bucket}` is the bucket, `--addressing path` takes it out of the name; else {remedy}"
            );
            (why, remedy.into())
        }
        _ => (why, remedy.into()),
    }
}

/// A name as people write it: the library tells its kind, too, as in `DnsName("a.example")`.
fn bare(presented: &str) -> &str {
    let inner = presented
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(presented).trim_matches('"')
}
