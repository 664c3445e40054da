//! The files that certificates are read from, again when they changed.
//!
//! Whoever renews a certificate puts a new file in the place of the old one, or writes it anew: Kubernetes does the one with
//! the files of a secret, cert-manager's clients the other. So the files that options name are looked at for each new
//! connection. Connections that are there stay as they are.

use std::{fmt, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use penstock_base::{Mutex, run_blocking};

use super::{TlsConnector, connector};
use crate::http::{HttpError, HttpSettings};

/// What is trusted and shown, as the files have it.
pub(in super::super) struct Certificates {
    settings: Arc<HttpSettings>,
    held: Mutex<Option<Held>>,
}

struct Held {
    connector: Arc<TlsConnector>,
    /// What the files looked like before they were read.
    looks: Looks,
}

/// What the system says of each file that an option names, if it is there.
type Looks = Vec<Option<Look>>;

/// A file that is another one, or has other bytes, looks another way.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    place: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Look {
    fn at(path: &Path) -> Option<Self> {
        let known = std::fs::metadata(path).ok()?;
        Some(Self {
            place: (known.dev(), known.ino()),
            size: known.size(),
            modified: (known.mtime(), known.mtime_nsec()),
            changed: (known.ctime(), known.ctime_nsec()),
        })
    }
}

impl Certificates {
    pub(in super::super) fn new(settings: Arc<HttpSettings>) -> Self {
        Self {
            settings,
            held: Mutex::default(),
        }
    }

    /// What connects as the files say now. Fails where they never said anything of use.
    pub(in super::super) fn current(&self) -> Result<Arc<TlsConnector>, HttpError> {
        let names_none =
            self.settings.ca_file.is_none() && self.settings.client_certificate.is_none();
        match &*self.held.lock() {
            Some(held) if names_none => return Ok(Arc::clone(&held.connector)),
            _ => {}
        }
        run_blocking(|| self.look())
    }

    fn look(&self) -> Result<Arc<TlsConnector>, HttpError> {
        let looks = self.looks();
        let old = match &mut *self.held.lock() {
            Some(held) if held.looks == looks => return Ok(Arc::clone(&held.connector)),
            Some(held) => {
                // Others go on with what there was meanwhile, and nobody reads the same fault again.
                held.looks.clone_from(&looks);
                Some(Arc::clone(&held.connector))
            }
            None => None,
        };
        match (self.read(), old) {
            (Ok(connector), old) => {
                if old.is_some() {
                    tracing::info!("certificates were read again: their files changed");
                }
                *self.held.lock() = Some(Held {
                    connector: Arc::clone(&connector),
                    looks,
                });
                Ok(connector)
            }
            (Err(error), Some(old)) => {
                tracing::warn!("{error}; what was there before stays in use");
                Ok(old)
            }
            (Err(error), None) => Err(error),
        }
    }

    fn looks(&self) -> Looks {
        let ours = self.settings.client_certificate.iter();
        let ours = ours.flat_map(|ours| [&ours.certificate, &ours.key]);
        let named = self.settings.ca_file.iter().chain(ours);
        named.map(|path| Look::at(path)).collect()
    }

    fn read(&self) -> Result<Arc<TlsConnector>, HttpError> {
        let HttpSettings {
            ca_file,
            client_certificate,
            memory,
            ..
        } = &*self.settings;
        let connector = connector(ca_file.as_deref(), client_certificate.as_ref())?;
        Ok(Arc::new(connector.drawing_from(memory.clone())))
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}
