//! The files that certificates are read from, again when they changed.
//!
//! A certificate is renewed by a new file in the place of the old one, as Kubernetes does it with those of a secret, or by new
//! bytes in it. So the files that options name are looked at for each new connection; a connection that is there goes on until
//! it has reached its age. A look that takes long, as on a file server that is away, holds nobody up: what was read before serves.

use std::{
    fmt,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use penstock_base::{
    Mutex,
    clock::{self, Instant},
    run_blocking,
};

use super::{TlsConnector, cannot, connector};
use crate::http::{HttpError, HttpSettings};

/// How long a new connection waits for a look at the files.
const LOOK_DEADLINE: Duration = Duration::from_secs(1);

/// How long files that cannot be used are left alone, unless they change: their fault is told again then.
const FAULT_PAUSE: Duration = Duration::from_secs(60 * 60);

/// What is trusted and shown, as the files have it.
pub(in super::super) struct Certificates {
    settings: Arc<HttpSettings>,
    held: Mutex<Option<Held>>,
    /// Somebody looks at the files.
    is_looking: AtomicBool,
}

struct Held {
    connector: Arc<TlsConnector>,
    /// What the files looked like before they were read.
    looks: Looks,
    /// When they were found to be unusable.
    fault: Option<Instant>,
}

impl Held {
    /// Whether files that look like this would say nothing new.
    fn is_as(&self, looks: &Looks) -> bool {
        let rests = |fault: Instant| fault.elapsed() < FAULT_PAUSE;
        self.looks == *looks && self.fault.is_none_or(rests)
    }
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
            is_looking: AtomicBool::new(false),
        }
    }

    /// Reads the files, however long that takes. Fails where they say nothing of use.
    pub(in super::super) fn prepare(&self) -> Result<(), HttpError> {
        run_blocking(|| self.look()).map(drop)
    }

    /// What connects as the files say now, or said before where they do not answer. Fails where they never said anything of
    /// use.
    pub(in super::super) async fn current(
        self: &Arc<Self>,
    ) -> Result<Arc<TlsConnector>, HttpError> {
        let Some(held) = self.held() else {
            return self.looked().await;
        };
        if self.names_none() || self.is_looking.swap(true, Ordering::Relaxed) {
            return Ok(held);
        }
        let looked = clock::deadline(LOOK_DEADLINE, self.looked()).await;
        looked.unwrap_or_else(|_| {
            tracing::warn!(
                "the files of certificates do not answer within {LOOK_DEADLINE:?}; what was there before stays in use"
            );
            Ok(held)
        })
    }

    fn held(&self) -> Option<Arc<TlsConnector>> {
        let held = self.held.lock();
        held.as_ref().map(|held| Arc::clone(&held.connector))
    }

    fn names_none(&self) -> bool {
        self.settings.ca_file.is_none() && self.settings.client_certificate.is_none()
    }

    /// Looks, which goes on when nobody waits for it any more.
    async fn looked(self: &Arc<Self>) -> Result<Arc<TlsConnector>, HttpError> {
        let own = Arc::clone(self);
        let looking = tokio::task::spawn_blocking(move || {
            let looked = own.look();
            own.is_looking.store(false, Ordering::Relaxed);
            looked
        });
        looking.await.unwrap_or_else(|error| Err(cannot(&error)))
    }

    fn look(&self) -> Result<Arc<TlsConnector>, HttpError> {
        let looks = self.looks();
        let old = match &mut *self.held.lock() {
            Some(held) if held.is_as(&looks) => return Ok(Arc::clone(&held.connector)),
            Some(held) => {
                // Others go on with what there was meanwhile, and nobody reads the same fault again.
                held.looks.clone_from(&looks);
                held.fault = Some(clock::now());
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
                    fault: None,
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
