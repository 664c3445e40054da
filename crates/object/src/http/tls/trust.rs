//! Whom a client trusts: the authorities of the system, and the certificates of a file.
//!
//! The library that goes over a chain asks an authority for its name, its key and what names it is for. So those of the file are
//! asked here whether they may sign for servers, and now; those of the system are kept by who looks after it.

use std::{
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
    files::{NamedFile, read_within},
    pem::read_certificates,
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
    /// Trusts those of the system and those in `file`. Fails where there are none.
    pub(super) fn of(file: Option<NamedFile<'_>>, patience: Duration) -> Result<Self, HttpError> {
        let (named, authorities) = match file {
            Some(file) => read_named(file, patience)?,
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

    /// The authorities of the file that may not vouch for servers now.
    pub(super) fn unfit(&self, now: UnixTime) -> Vec<Unfit<'_>> {
        let unfit = self.authorities.iter().filter_map(|authority| {
            let why = authority.unfit(now)?;
            Some(Unfit { authority, why })
        });
        unfit.collect()
    }

    /// Who may vouch for servers now, and `but`, which may not.
    pub(super) fn fit_roots(&self, now: UnixTime, but: Option<&Unfit<'_>>) -> RootCertStore {
        self.roots_with(|authority| {
            let is_it = but.is_some_and(|but| std::ptr::eq(but.authority, authority));
            is_it || authority.unfit(now).is_none()
        })
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
pub(super) struct Authority {
    anchor: TrustAnchor<'static>,
    pub(super) subject: String,
    /// Its first and last second, since 1970.
    valid: (i64, i64),
    may_sign: bool,
    is_for_servers: bool,
}

/// One that may not vouch for a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unfit<'a> {
    pub(super) authority: &'a Authority,
    pub(super) why: UnfitFor,
}

/// What an authority may not be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnfitFor {
    /// It has expired.
    Today,
    /// It is not valid yet.
    AlreadyNow,
    /// Its keyUsage does not let it sign others.
    Signing,
    /// Its extendedKeyUsage does not let it vouch for servers.
    Servers,
}

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
            may_sign: may_sign(parsed),
            is_for_servers: vouches_for_servers(parsed),
        })
    }

    fn unfit(&self, now: UnixTime) -> Option<UnfitFor> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        match self.valid {
            (_, last) if last < now => Some(UnfitFor::Today),
            (first, _) if now < first => Some(UnfitFor::AlreadyNow),
            _ if !self.may_sign => Some(UnfitFor::Signing),
            _ if !self.is_for_servers => Some(UnfitFor::Servers),
            _ => None,
        }
    }
}

/// Whether its key usage, if it has one, lets it sign certificates.
fn may_sign(authority: &X509Certificate<'_>) -> bool {
    let usage = authority.key_usage();
    usage.is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()))
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
fn read_named(
    file: NamedFile<'_>,
    patience: Duration,
) -> Result<(Vec<CertificateDer<'static>>, Vec<Authority>), HttpError> {
    let named = read_certificates(file, patience)?;
    let mut authorities = Vec::new();
    for (index, certificate) in named.iter().enumerate() {
        let damaged = || {
            let why = format!("certificate {} in it is damaged", index + 1);
            file.unusable(&why)
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

/// Reads what the system trusts, for this process and those that it forks; no thread is left where that goes well. Fails where it
/// takes longer than half a minute.
pub fn read_system_trust() -> std::io::Result<()> {
    let late = || {
        std::io::Error::other(
            "the system's certificates (SSL_CERT_FILE, SSL_CERT_DIR) cannot be read within 30 s: is one a pipe, or on a file \
             server that is away?",
        )
    };
    read_within(SYSTEM_DEADLINE, system)?
        .map(drop)
        .ok_or_else(late)
}

/// An authority that signed nothing, for it has no key: the library wants one where none is trusted.
fn nobody() -> TrustAnchor<'static> {
    TrustAnchor {
        subject: Der::from_slice(&[0]),
        subject_public_key_info: Der::from_slice(&[]),
        name_constraints: None,
    }
}
