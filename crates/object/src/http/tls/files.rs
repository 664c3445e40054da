//! The files that options name: what is in them, and what is wrong with them.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read},
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        LazyLock,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use penstock_base::{Mutex, run_blocking};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};

use super::untrusting;
use crate::{ClientCertificate, http::HttpError};

/// The options that name files, as they are typed.
pub(super) const CA_FILE: &str = "`--ca-file` (or AWS_CA_BUNDLE)";
pub(super) const CLIENT_CERT: &str = "`--client-cert`";
pub(super) const CLIENT_KEY: &str = "`--client-key`";

/// Bytes of a file of certificates: those of all authorities of a system are some 200 KiB.
const FILE_MAX: u64 = 4 << 20;

/// The right of everybody to read a key. A group's may be meant, as in a secret of Kubernetes.
const OTHERS_MODE: u32 = 0o004;

/// A certificate with those between it and its authority, and its key.
pub(super) type Shown = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// What `read` comes to in a thread of its own, or `None` where it takes longer than `limit`: a pipe to which nobody writes, or
/// a file server that is away. The thread is left behind then.
pub(super) fn read_within<T: Send + 'static>(
    limit: Duration,
    read: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Option<T>> {
    let (tell, told) = channel();
    let reader = thread::Builder::new().name("certificates".to_owned());
    reader.spawn(move || tell.send(read()))?;
    run_blocking(|| match told.recv_timeout(limit) {
        Ok(read) => Ok(Some(read)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the reader ended")),
    })
}

/// The certificates of a file that an option names.
pub(super) fn read_certificates(
    option: &str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, HttpError> {
    let bytes = read_file(option, path)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates = read.map_err(|error| unusable(option, path, &of_pem(&error)))?;
    if certificates.is_empty() {
        let why = Binary::of(&bytes).map_or("it has no PEM certificate", Binary::words);
        return Err(unusable(option, path, &why));
    }
    Ok(certificates)
}

/// The certificate that is shown to servers, and its key.
pub(super) fn read_shown(ours: &ClientCertificate) -> Result<Shown, HttpError> {
    let chain = read_certificates(CLIENT_CERT, &ours.certificate)?;
    let bytes = read_file(CLIENT_KEY, &ours.key)?;
    let key = PrivateKeyDer::from_pem_slice(&bytes);
    let key = key.map_err(|error| unfit_key(ours, &bytes, &error))?;
    Ok((chain, key))
}

fn unfit_key(ours: &ClientCertificate, bytes: &[u8], error: &pem::Error) -> HttpError {
    if has_passphrase(bytes) {
        let why = "its key has a passphrase; `openssl pkey -in FILE -out NEW` makes a file without";
        return unusable(CLIENT_KEY, &ours.key, &why);
    }
    match error {
        pem::Error::NoItemsFound if ours.key == ours.certificate => {
            let why = "it has no key; name the file that has it by `--client-key`";
            unusable(CLIENT_CERT, &ours.certificate, &why)
        }
        pem::Error::NoItemsFound => {
            let why = Binary::of(bytes).map_or("it has no PEM key", Binary::words);
            unusable(CLIENT_KEY, &ours.key, &why)
        }
        other => unusable(CLIENT_KEY, &ours.key, &of_pem(other)),
    }
}

/// Whether a key is enciphered: as PKCS#8 has it, or in a line behind the first one as OpenSSL had it before.
fn has_passphrase(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    ["-----BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"]
        .iter()
        .any(|mark| text.contains(mark))
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
    /// version 0 or 1, certificates with another sequence.
    fn of(bytes: &[u8]) -> Option<Self> {
        let inner = match *bytes {
            [0x30, 0x80, ref inner @ ..] => inner,
            [0x30, length, ref inner @ ..] if length < 0x80 => inner,
            [0x30, length, ref behind @ ..] => behind.get(usize::from(length & 0x7f)..)?,
            _ => return None,
        };
        match *inner {
            [2, 1, 3, ..] => Some(Self::Pkcs12),
            [2, 1, 0 | 1, ..] => Some(Self::Key),
            [0x30, ..] => Some(Self::Certificate),
            _ => None,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Pkcs12 => {
                "it is PKCS#12, not PEM; `openssl pkcs12 -in FILE -nodes -out NEW` makes PEM of it"
            }
            Self::Key => {
                "it is a key in DER, not PEM; `openssl pkey -inform der -in FILE -out NEW` makes PEM of it"
            }
            Self::Certificate => {
                "it is a certificate in DER, not PEM; `openssl x509 -inform der -in FILE -out NEW` makes PEM of it"
            }
        }
    }
}

/// The bytes of a file, one more than it may have at most, and whether it is a pipe.
fn read_bounded(path: &Path) -> io::Result<(Vec<u8>, bool)> {
    let file = File::open(path)?;
    let is_pipe = file.metadata()?.file_type().is_fifo();
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    Ok((bytes, is_pipe))
}

fn read_file(option: &str, path: &Path) -> Result<Vec<u8>, HttpError> {
    let (bytes, is_pipe) = read_bounded(path).map_err(|error| unusable(option, path, &error))?;
    if is_pipe && bytes.is_empty() {
        let why = "it is a pipe without anything in it: one can be read once, and a mount \
                   reads twice, so use a file";
        return Err(unusable(option, path, &why));
    }
    if bytes.len() as u64 > FILE_MAX {
        let why = format!("it is longer than {} MiB", FILE_MAX >> 20);
        return Err(unusable(option, path, &why));
    }
    Ok(bytes)
}

/// Why a certificate and a key cannot be shown.
pub(super) fn unfit(ours: &ClientCertificate, error: &rustls::Error) -> HttpError {
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

pub(super) fn unusable(option: &str, path: &Path, error: &dyn std::fmt::Display) -> HttpError {
    untrusting(format!("cannot use {option} {}: {error}", path.display()))
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
                &[0x30, 0x82, 1, 0x85, 0x30, 0x82],
                Some(Binary::Certificate),
            ),
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
