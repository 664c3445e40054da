//! Whom a client trusts: the authorities of the system, and the certificates of a file.
//!
//! The library that goes over a chain asks an authority for its name and its key alone. So those of the file are asked here
//! whether they may still vouch for servers; those of the system are kept by who looks after it.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, Der, TrustAnchor, UnixTime},
};
use x509_parser::{
    certificate::X509Certificate,
    prelude::{FromDer, X509Version},
};

use super::{
    files::{CA_FILE, read_certificates, read_within, unusable},
    untrusting,
};
use crate::http::HttpError;

/// How long a process that will fork waits for what the system trusts.
const SYSTEM_DEADLINE: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub(super) struct Trust {
    system: Arc<RootCertStore>,
    /// All certificates of the file, each of which is trusted as it stands.
    named: Vec<CertificateDer<'static>>,
    /// Those of them that vouch for others.
    authorities: Vec<Authority>,
}

impl Trust {
    /// Trusts those of the system and those in `ca_file`. Fails where there are none.
    pub(super) fn of(ca_file: Option<&Path>) -> Result<Self, HttpError> {
        let (named, authorities) = match ca_file {
            Some(path) => read_named(path)?,
            None => Default::default(),
        };
        let system = system();
        if system.is_empty() && named.is_empty() {
            return Err(untrusting(
                "the system has no certificates to check the server's with: install \
                 `ca-certificates` or set `--ca-file`",
            ));
        }
        Ok(Self {
            system,
            named,
            authorities,
        })
    }

    /// Whether the file has the certificate itself.
    pub(super) fn names(&self, certificate: &CertificateDer<'_>) -> bool {
        self.named.iter().any(|named| named == certificate)
    }

    /// Who vouches for others, whether or not it may.
    pub(super) fn roots(&self) -> RootCertStore {
        self.roots_with(|_| true)
    }

    /// The same without those of the file that may not vouch for servers now, and the first of these; `None` where all may.
    pub(super) fn fit_roots(&self, now: UnixTime) -> Option<(RootCertStore, Unfit)> {
        let unfit = self.authorities.iter().find_map(|one| one.unfit(now))?;
        let fit = self.roots_with(|authority| authority.unfit(now).is_none());
        Some((fit, unfit))
    }

    fn roots_with(&self, is_wanted: impl Fn(&Authority) -> bool) -> RootCertStore {
        let mut roots = RootCertStore::clone(&self.system);
        let wanted = self.authorities.iter().filter(|one| is_wanted(one));
        roots.extend(wanted.map(|authority| authority.anchor.clone()));
        if roots.is_empty() {
            roots.roots.push(nobody());
        }
        roots
    }
}

/// An authority of the file.
#[derive(Debug)]
struct Authority {
    anchor: TrustAnchor<'static>,
    subject: String,
    /// Its first and last second, since 1970.
    valid: (i64, i64),
    is_for_servers: bool,
}

/// Why an authority of the file may not vouch for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unfit {
    pub(super) subject: String,
    pub(super) why: UnfitFor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnfitFor {
    Expired,
    NotYetValid,
    Servers,
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} may not vouch: {:?}", self.subject, self.why)
    }
}

impl std::error::Error for Unfit {}

impl Authority {
    /// `None` if it is damaged.
    fn of(certificate: &CertificateDer<'static>, parsed: &X509Certificate<'_>) -> Option<Self> {
        let anchor = webpki::anchor_from_trusted_cert(certificate).ok()?;
        let validity = parsed.validity();
        Some(Self {
            anchor: anchor.to_owned(),
            subject: parsed.subject().to_string(),
            valid: (
                validity.not_before.timestamp(),
                validity.not_after.timestamp(),
            ),
            is_for_servers: vouches_for_servers(parsed),
        })
    }

    fn unfit(&self, now: UnixTime) -> Option<Unfit> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let why = match self.valid {
            (_, last) if last < now => UnfitFor::Expired,
            (first, _) if now < first => UnfitFor::NotYetValid,
            _ if !self.is_for_servers => UnfitFor::Servers,
            _ => return None,
        };
        Some(Unfit {
            subject: self.subject.clone(),
            why,
        })
    }
}

/// Whether its extended key usage, if it has one, names servers, or all purposes.
fn vouches_for_servers(authority: &X509Certificate<'_>) -> bool {
    let usage = authority.extended_key_usage();
    usage.is_ok_and(|usage| usage.is_none_or(|usage| usage.value.server_auth || usage.value.any))
}

/// Whether a certificate may vouch for others. Those of version 1 do not say: one that signed itself may.
fn is_of_authority(parsed: &X509Certificate<'_>) -> bool {
    let is_its_own = parsed.version() == X509Version::V1 && parsed.subject() == parsed.issuer();
    parsed.is_ca() || is_its_own
}

/// The certificates of the file, and the authorities among them.
fn read_named(path: &Path) -> Result<(Vec<CertificateDer<'static>>, Vec<Authority>), HttpError> {
    let named = read_certificates(CA_FILE, path)?;
    let mut authorities = Vec::new();
    for (index, certificate) in named.iter().enumerate() {
        let damaged = || {
            let why = format!("certificate {} in it is damaged", index + 1);
            unusable(CA_FILE, path, &why)
        };
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| damaged())?;
        if is_of_authority(&parsed) {
            authorities.push(Authority::of(certificate, &parsed).ok_or_else(damaged)?);
        }
    }
    Ok((named, authorities))
}

/// What the system trusts, or the files that SSL_CERT_FILE and SSL_CERT_DIR name.
///
/// The process reads it once: it may leave the directory that these names count from, and a file that is replaced in that
/// moment would take trust away from a mount that is up.
pub(super) fn system() -> Arc<RootCertStore> {
    static READ: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(read) = READ.get() {
        return Arc::clone(read);
    }
    let mut read = RootCertStore::empty();
    read.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let read = Arc::new(read);
    match read.is_empty() {
        true => read,
        false => Arc::clone(READ.get_or_init(|| read)),
    }
}

/// Reads what the system trusts, for this process and those that it forks. What takes longer than half a minute is left to who needs it.
pub fn read_system_trust() {
    if let Err(error) = read_within(SYSTEM_DEADLINE, system) {
        tracing::debug!(%error, "the system's certificates are read later");
    }
}

/// An authority that signed nothing, for it has no key: the library wants one where none is trusted.
fn nobody() -> TrustAnchor<'static> {
    TrustAnchor {
        subject: Der::from_slice(&[0]),
        subject_public_key_info: Der::from_slice(&[]),
        name_constraints: None,
    }
}
