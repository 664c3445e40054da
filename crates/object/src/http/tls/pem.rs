//! What is in a file of PEM, and what is wrong with one.

use std::{
    collections::HashSet,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::Duration,
};

use penstock_base::Mutex;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};

use super::files::NamedFile;
use crate::{ClientCertificate, http::HttpError};

/// The right of everybody to read a key. A group's may be meant, as in a secret of Kubernetes.
const OTHERS_MODE: u32 = 0o004;

/// What is wrong with a key that is enciphered.
const PASSPHRASE: &str =
    "its key has a passphrase; `openssl pkey -in FILE -out NEW` makes a file without";

/// A certificate with those between it and its authority, and its key.
pub(super) type Shown = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The certificates of a file.
pub(super) fn read_certificates(
    file: NamedFile<'_>,
    patience: Duration,
) -> Result<Vec<CertificateDer<'static>>, HttpError> {
    certificates_in(file, &file.bytes(patience)?)
}

fn certificates_in(
    file: NamedFile<'_>,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, HttpError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    // A part that is no certificate is looked into, too.
    let why = |error| match has_passphrase(bytes) {
        true => PASSPHRASE.to_owned(),
        false => of_pem(&error),
    };
    let certificates = read.map_err(|error| file.unusable(&why(error)))?;
    if certificates.is_empty() {
        let why = Binary::of(bytes).map_or("it has no PEM certificate", Binary::words);
        return Err(file.unusable(&why));
    }
    Ok(certificates)
}

/// The certificate that is shown to servers, and its key.
pub(super) fn read_shown(ours: &ClientCertificate, patience: Duration) -> Result<Shown, HttpError> {
    let of_client = NamedFile::of_client(&ours.certificate);
    let bytes = of_client.bytes(patience)?;
    let chain = certificates_in(of_client, &bytes)?;
    // A pipe can be read once.
    let bytes = match ours.key == ours.certificate {
        true => bytes,
        false => NamedFile::of_key(&ours.key).bytes(patience)?,
    };
    let key = PrivateKeyDer::from_pem_slice(&bytes);
    let key = key.map_err(|error| unfit_key(ours, &bytes, &error))?;
    Ok((chain, key))
}

fn unfit_key(ours: &ClientCertificate, bytes: &[u8], error: &pem::Error) -> HttpError {
    let file = NamedFile::of_key(&ours.key);
    if has_passphrase(bytes) {
        return file.unusable(&PASSPHRASE);
    }
    match error {
        pem::Error::NoItemsFound if ours.key == ours.certificate => {
            let why = "it has no key; name the file that has it by `--client-key`";
            NamedFile::of_client(&ours.certificate).unusable(&why)
        }
        pem::Error::NoItemsFound => {
            file.unusable(&Binary::of(bytes).map_or("it has no PEM key", Binary::words))
        }
        other => file.unusable(&of_pem(other)),
    }
}

/// Whether a key is enciphered: as PKCS#8 has it, or in a line behind the first one as OpenSSL had it before.
fn has_passphrase(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    ["-----BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"]
        .iter()
        .any(|mark| text.contains(mark))
}

/// Why a certificate and a key cannot be shown.
pub(super) fn unfit(ours: &ClientCertificate, error: &rustls::Error) -> HttpError {
    let key = NamedFile::of_key(&ours.key);
    match error {
        rustls::Error::InconsistentKeys(_) => {
            let why = format!("it is not the key of {}", ours.certificate.display());
            key.unusable(&why)
        }
        // What the library says of a key that it cannot read.
        rustls::Error::General(_) => key.unusable(
            &"it is damaged, or of a kind that is not supported; RSA of 2048 to 4096 bits, P-256, P-384 and Ed25519 are",
        ),
        other => NamedFile::of_client(&ours.certificate).unusable(other),
    }
}

/// Warns, once in a process, of a key that everybody can read.
pub(super) fn warn_of_readers(key: &Path) {
    static TOLD: LazyLock<Mutex<HashSet<PathBuf>>> = LazyLock::new(Mutex::default);
    let mode = std::fs::metadata(key).map_or(0, |known| known.permissions().mode());
    if mode & OTHERS_MODE != 0 && TOLD.lock().insert(key.to_owned()) {
        tracing::warn!(
            "the key {} can be read by everybody: `chmod o-r` ends that",
            key.display()
        );
    }
}

/// What a file is that is no PEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binary {
    Pkcs12,
    Key,
    Certificate,
}

impl Binary {
    /// By the first element within the first sequence: PKCS#12 begins with its version 3 (RFC 7292, section 4), keys with
    /// version 0 or 1, an enciphered key with its algorithm (RFC 5958, section 3), a certificate with another sequence, which
    /// begins with a version or a number (RFC 5280, section 4.1).
    fn of(bytes: &[u8]) -> Option<Self> {
        let inner = within_sequence(bytes)?;
        match *inner {
            [2, 1, 3, ..] => Some(Self::Pkcs12),
            [2, 1, 0 | 1, ..] => Some(Self::Key),
            _ => match *within_sequence(inner)? {
                [0xa0, 3, 2, 1, ..] | [2, ..] => Some(Self::Certificate),
                [6, ..] => Some(Self::Key),
                _ => None,
            },
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Pkcs12 => {
                "it is PKCS#12, not PEM; `openssl pkcs12 -in FILE -nodes -out NEW` makes PEM of it"
            }
            Self::Key => {
                "it is a key in DER, not PEM; `openssl pkey -inform der -in FILE -out NEW` makes PEM of it, without a passphrase"
            }
            Self::Certificate => {
                "it is a certificate in DER, not PEM; `openssl x509 -inform der -in FILE -out NEW` makes PEM of it"
            }
        }
    }
}

/// What is behind the head of a sequence of DER.
fn within_sequence(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        [0x30, 0x80, inner @ ..] => Some(inner),
        [0x30, length, inner @ ..] if *length < 0x80 => Some(inner),
        [0x30, length, behind @ ..] => behind.get(usize::from(length & 0x7f)..),
        _ => None,
    }
}

/// What is wrong with a file of PEM.
fn of_pem(error: &pem::Error) -> String {
    let why = match error {
        pem::Error::MissingSectionEnd { .. } => "it is cut: the line that ends a part is missing",
        pem::Error::IllegalSectionStart { .. } => {
            "it is no PEM: a line that begins a part is damaged"
        }
        pem::Error::Base64Decode(_) => "it is damaged: a part is not Base64",
        other => return other.to_string(),
    };
    why.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_pem_are_told_by_what_they_are() {
        for (bytes, is) in [
            (
                &[0x30, 0x82, 9, 0xa1, 2, 1, 3, 0x30][..],
                Some(Binary::Pkcs12),
            ),
            (&[0x30, 0x80, 2, 1, 3, 0x30], Some(Binary::Pkcs12)),
            (&[0x30, 0x2e, 2, 1, 0, 0x30], Some(Binary::Key)),
            (&[0x30, 0x81, 0x87, 2, 1, 0, 0x30], Some(Binary::Key)),
            (&[0x30, 0x77, 2, 1, 1, 4], Some(Binary::Key)),
            (
                &[0x30, 0x82, 1, 0x85, 0x30, 0x82, 1, 0x2b, 0xa0, 3, 2, 1, 2],
                Some(Binary::Certificate),
            ),
            (
                &[0x30, 0x82, 1, 0x85, 0x30, 0x81, 0x9b, 2, 9],
                Some(Binary::Certificate),
            ),
            (&[0x30, 0x81, 0xec, 0x30, 0x57, 6, 9], Some(Binary::Key)),
            (&[0x30, 0x30], None),
            (b"0123456789", None),
            (b"-----BEGIN", None),
            (&[0x30, 0xff, 2, 1, 3], None),
            (&[0x30], None),
            (&[], None),
        ] {
            assert_eq!(Binary::of(bytes), is, "{bytes:?}");
        }
    }
}
