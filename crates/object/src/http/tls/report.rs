//! What a handshake came to, for people who wonder: protocol, cipher, and whose certificate that is.

use std::{
    io,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use jiff::{civil::DateTime, tz::Offset};
use penstock_base::clock;
use rustls::{
    ProtocolVersion, RootCertStore,
    client::danger::ServerCertVerifier,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::net::TcpStream;

use super::{TlsConnector, add_system, by_the_book, handshake::Handshake, provider};

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
    let mut roots = RootCertStore::empty();
    add_system(&mut roots);
    let now = clock::wall_time().duration_since(UNIX_EPOCH);
    let now = UnixTime::since_unix_epoch(now.unwrap_or_default());
    let book = by_the_book(roots, &Arc::new(provider()));
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

    /// RFC 5280, section 4.1: version, number, algorithm, issuer, validity, subject.
    fn read(certificate: &[u8]) -> Option<Self> {
        let (whole, _) = expect(SEQUENCE, certificate)?;
        let (mut rest, _) = expect(SEQUENCE, whole)?;
        if let Some((_, after)) = expect(VERSION, rest) {
            rest = after;
        }
        let (_, rest) = expect(INTEGER, rest)?;
        let (_, rest) = expect(SEQUENCE, rest)?;
        let (issuer, rest) = expect(SEQUENCE, rest)?;
        let (validity, rest) = expect(SEQUENCE, rest)?;
        let (subject, _) = expect(SEQUENCE, rest)?;
        let until = element(element(validity)?.rest);
        Some(Self {
            subject: name(subject),
            issuer: name(issuer),
            valid_until: until.and_then(|until| time(&until)),
        })
    }
}

const INTEGER: u8 = 0x02;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;

/// The attributes of names that people know (RFC 4519), by the last byte of their numbers, which begin alike.
const ATTRIBUTES: [(u8, &str); 6] = [
    (3, "CN"),
    (6, "C"),
    (7, "L"),
    (8, "ST"),
    (10, "O"),
    (11, "OU"),
];
const ATTRIBUTES_BEGIN: [u8; 2] = [0x55, 0x04];

/// An element of DER.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    rest: &'a [u8],
}

/// The first element of `bytes`.
fn element(bytes: &[u8]) -> Option<Element<'_>> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let joined = length
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            (joined, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some(Element { tag, content, rest })
}

/// The content of the first element, which must be a `tag`, and what follows it.
fn expect(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let found = element(bytes)?;
    (found.tag == tag).then_some((found.content, found.rest))
}

fn elements(mut bytes: &[u8]) -> impl Iterator<Item = Element<'_>> {
    std::iter::from_fn(move || {
        let found = element(bytes)?;
        bytes = found.rest;
        Some(found)
    })
}

/// A name in one line, without what nobody knows.
fn name(sets: &[u8]) -> String {
    let sets = elements(sets).filter(|set| set.tag == SET);
    let attributes =
        sets.flat_map(|set| elements(set.content).filter_map(|one| attribute(one.content)));
    attributes.collect::<Vec<_>>().join(", ")
}

fn attribute(pair: &[u8]) -> Option<String> {
    let (number, text) = expect(OBJECT_IDENTIFIER, pair)?;
    let last = number.strip_prefix(&ATTRIBUTES_BEGIN)?;
    let (_, word) = ATTRIBUTES.iter().find(|(number, _)| last == [*number])?;
    let text = String::from_utf8_lossy(element(text)?.content).into_owned();
    Some(format!("{word}={text}"))
}

/// `YYMMDDhhmmssZ` until 2049, `YYYYMMDDhhmmssZ` from then on.
fn time(element: &Element<'_>) -> Option<SystemTime> {
    let text = std::str::from_utf8(element.content).ok()?;
    let digits = match element.tag {
        UTC_TIME if text < "5" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        _ => text.to_owned(),
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", &digits).ok()?;
    Some(Offset::UTC.to_timestamp(time).ok()?.into())
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
