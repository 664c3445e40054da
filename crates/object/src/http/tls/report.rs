//! What a handshake came to, for people to read: protocol, cipher, and whose certificate that is.

use std::{
    io,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use penstock_base::clock;
use rustls::{
    ProtocolVersion, RootCertStore,
    client::danger::ServerCertVerifier,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::net::TcpStream;
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use super::{TlsConnector, by_the_book, handshake::Handshake, provider, trust};

/// What was agreed with a server, and whom it proved to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsReport {
    /// Such as `TLS 1.3`.
    pub protocol: String,
    /// As IANA calls it, such as `TLS13_AES_128_GCM_SHA256`.
    pub cipher: String,
    /// The server's own certificate.
    pub certificate: CertificateFacts,
    /// Why it is trusted.
    pub trusted_by: TrustedBy,
}

/// Why a server's certificate is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustedBy {
    /// The certificates of the system vouch for it.
    System,
    /// They do not, those of [`crate::StoreSettings::ca_file`] do.
    CaFile,
}

/// What stands in a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Whose it is, such as `CN=store.corp, O=Corp`, or the names of hosts where it says nothing else.
    pub subject: String,
    /// Who signed it, in the same form.
    pub issuer: String,
    /// Until when it holds. `None` where it cannot be read.
    pub valid_until: Option<SystemTime>,
}

/// Shakes hands, and tells what came of it.
pub(super) async fn report(
    connector: &TlsConnector,
    name: ServerName<'static>,
    mut tcp: TcpStream,
) -> io::Result<TlsReport> {
    let handshake = Handshake::done(connector, name.clone(), &mut tcp).await?;
    let connection = &handshake.connection;
    let protocol = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => "TLS 1.3",
        _ => "TLS 1.2",
    };
    let cipher = connection.negotiated_cipher_suite();
    let cipher = cipher.and_then(|suite| suite.suite().as_str());
    let chain = connection.peer_certificates().unwrap_or_default();
    Ok(TlsReport {
        protocol: protocol.to_owned(),
        cipher: cipher.unwrap_or_default().to_owned(),
        certificate: chain.first().map(CertificateFacts::of).unwrap_or_default(),
        trusted_by: match is_trusted_by_system(chain, &name) {
            true => TrustedBy::System,
            false => TrustedBy::CaFile,
        },
    })
}

fn is_trusted_by_system(chain: &[CertificateDer<'_>], name: &ServerName<'_>) -> bool {
    let Some((own, between)) = chain.split_first() else {
        return false;
    };
    let now = clock::wall_time().duration_since(UNIX_EPOCH);
    let now = UnixTime::since_unix_epoch(now.unwrap_or_default());
    let book = by_the_book(
        RootCertStore::clone(&trust::system()),
        &Arc::new(provider()),
    );
    let verified = book.map(|book| {
        book.verify_server_cert(own, between, name, &[], now)
            .is_ok()
    });
    verified.unwrap_or(false)
}

impl CertificateFacts {
    /// Of a certificate that was verified. What cannot be read is left out.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Self {
        let mut facts = Self::read(certificate).unwrap_or_default();
        if facts.subject.is_empty()
            && let Ok(parsed) = webpki::EndEntityCert::try_from(certificate)
        {
            facts.subject = parsed.valid_dns_names().collect::<Vec<_>>().join(", ");
        }
        facts
    }

    fn read(certificate: &[u8]) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let until = u64::try_from(parsed.validity().not_after.timestamp());
        let until = until.ok().map(Duration::from_secs);
        Some(Self {
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            valid_until: until.and_then(|since| UNIX_EPOCH.checked_add(since)),
        })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, Issuer, KeyPair, date_time_ymd};

    use super::*;

    fn facts(years: (i32, i32), change: impl FnOnce(&mut CertificateParams)) -> CertificateFacts {
        let mut params = CertificateParams::new(["store.corp".to_owned()]).expect("a name");
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 7, 31);
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params);
        let mut authority = CertificateParams::default();
        let name = &mut authority.distinguished_name;
        *name = rcgen::DistinguishedName::new();
        name.push(DnType::CommonName, "The Authority");
        name.push(DnType::OrganizationName, "Corp");
        let key = || KeyPair::generate().expect("a key");
        let made = params.signed_by(&key(), &Issuer::new(authority, key()));
        CertificateFacts::of(made.expect("a certificate").der())
    }

    #[test]
    fn names_and_dates_of_a_certificate_are_read() {
        let read = facts((2020, 2031), |params| {
            let name = &mut params.distinguished_name;
            name.push(DnType::CountryName, "DE");
            name.push(DnType::OrganizationName, "Größe & Söhne");
            name.push(DnType::CommonName, "a".repeat(200));
        });
        let common = "a".repeat(200);
        assert_eq!(read.subject, format!("C=DE, O=Größe & Söhne, CN={common}"));
        assert_eq!(read.issuer, "CN=The Authority, O=Corp");
        for year in [1999, 2031, 2049, 2050, 2100] {
            let read = facts((1990, year), |_| ());
            assert_eq!(read.subject, "store.corp");
            let until = date_time_ymd(year, 7, 31);
            assert_eq!(read.valid_until, Some(until.into()), "{year}");
        }
    }

    #[test]
    fn what_is_no_certificate_is_read_as_nothing() {
        let whole = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
        let whole = whole.cert.der().to_vec();
        for length in 0..whole.len() {
            let cut = CertificateDer::from(whole[..length].to_vec());
            assert_eq!(CertificateFacts::of(&cut), CertificateFacts::default());
        }
        for at in 0..whole.len() {
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = CertificateFacts::of(&CertificateDer::from(changed));
            }
        }
    }
}
