//! The files that certificates are read from, again when they changed.
//!
//! A certificate is renewed by a new file in the place of the old one, as Kubernetes does it with those of a secret, or by new
//! bytes in it. So the files that options name are looked at for each new connection; a connection that is there goes on until
//! it has reached its age. A look that takes long, as on a file server that is away, holds nobody up: what was read before serves.

use std::{
    fmt,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use penstock_base::{
    Mutex,
    clock::{self, Instant},
};
use tokio::sync::Notify;

use super::{TlsConnector, cannot, connector, files::read_within, untrusting};
use crate::http::{HttpError, HttpSettings};

/// How long a new connection waits for a look at the files.
const LOOK_DEADLINE: Duration = Duration::from_secs(1);

/// How long files that cannot be used are left alone, unless they change.
const FAULT_PAUSE: Duration = Duration::from_secs(10);

/// After how long a look counts as lost, as one at a file server that is away, and another may begin beside it.
const LOST_AFTER: Duration = Duration::from_secs(60);

/// How many looks are lost at most, each of which holds a thread.
const LOST_MAX: usize = 3;

/// How often one fault is told.
const TELL_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// How many faults are remembered, so that those that come by turns are told once each.
const TOLD_MAX: usize = 4;

/// What is trusted and shown, as the files have it.
pub(in super::super) struct Certificates {
    settings: Arc<HttpSettings>,
    held: Mutex<Option<Held>>,
    looking: Mutex<UnderWay>,
    looked: Notify,
    /// The faults of the files that were told last, and when.
    told: Mutex<Vec<(String, Instant)>>,
}

/// The looks that have not ended.
#[derive(Default)]
struct UnderWay {
    /// When the one began that others wait for.
    since: Option<Instant>,
    /// Those that nobody waits for any more.
    lost: usize,
}

impl UnderWay {
    /// When the look began that may begin now.
    fn begin(&mut self) -> Option<Instant> {
        match self.since {
            None => {}
            Some(since) if since.elapsed() >= LOST_AFTER && self.lost < LOST_MAX => self.lost += 1,
            Some(_) => return None,
        }
        self.since = Some(clock::now());
        self.since
    }

    fn end(&mut self, begun: Instant) {
        match self.since == Some(begun) {
            true => self.since = None,
            false => self.lost -= 1,
        }
    }
}

struct Held {
    connector: Arc<TlsConnector>,
    /// When the look began that read it: one that was lost and ends late knows less.
    begun: Instant,
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

/// A look at the files that is under way; it ends with this.
struct Looking {
    certificates: Arc<Certificates>,
    begun: Instant,
}

impl Looking {
    /// Looks, which goes on when nobody waits for it any more.
    async fn done(self) -> Result<Arc<TlsConnector>, HttpError> {
        let looking = tokio::task::spawn_blocking(move || {
            let own = self;
            own.certificates.look(own.begun)
        });
        looking.await.unwrap_or_else(|error| Err(cannot(&error)))
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.certificates.looking.lock().end(self.begun);
        self.certificates.looked.notify_waiters();
    }
}

/// What the system says of each file that an option names, if it is there.
type Looks = Vec<Option<Look>>;

/// A file that is another one, or has other bytes, looks another way.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    place: (u64, u64),
    /// What comes out of a pipe comes once.
    version: Option<Version>,
}

/// What tells the bytes of a file from others.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Look {
    fn at(path: &Path) -> Option<Self> {
        let known = std::fs::metadata(path).ok()?;
        Some(Self {
            place: (known.dev(), known.ino()),
            version: known.is_file().then(|| Version {
                size: known.size(),
                modified: (known.mtime(), known.mtime_nsec()),
                changed: (known.ctime(), known.ctime_nsec()),
            }),
        })
    }
}

impl Certificates {
    pub(in super::super) fn new(settings: Arc<HttpSettings>) -> Self {
        Self {
            settings,
            held: Mutex::default(),
            looking: Mutex::default(),
            looked: Notify::new(),
            told: Mutex::default(),
        }
    }

    /// Reads the files. Fails where they say nothing of use, or nothing for as long as a connection may take.
    pub(in super::super) fn prepare(self: &Arc<Self>) -> Result<(), HttpError> {
        let own = Arc::clone(self);
        // A pipe tells of itself before.
        let limit = self.settings.connect_timeout + Duration::from_secs(1);
        let looked = read_within(limit, move || own.look(clock::now()));
        let looked = looked.map_err(|error| cannot(&error))?;
        looked.unwrap_or_else(|| Err(self.silent(limit))).map(drop)
    }

    /// What connects as the files say now, or said before where they do not answer. Fails where they never said anything of
    /// use.
    pub(in super::super) async fn current(
        self: &Arc<Self>,
    ) -> Result<Arc<TlsConnector>, HttpError> {
        match self.held() {
            Some(held) if self.named().next().is_none() => Ok(held),
            Some(held) => self.renewed(held).await,
            None => {
                let limit = self.settings.connect_timeout;
                let read = clock::deadline(limit, self.first()).await;
                read.unwrap_or_else(|_| Err(self.silent(limit)))
            }
        }
    }

    /// What the files say when they are read for the first time, by this or by another that came before.
    async fn first(self: &Arc<Self>) -> Result<Arc<TlsConnector>, HttpError> {
        loop {
            let looked = self.looked.notified();
            if let Some(held) = self.held() {
                return Ok(held);
            }
            match self.begin() {
                Some(looking) => return looking.done().await,
                None => looked.await,
            }
        }
    }

    fn held(&self) -> Option<Arc<TlsConnector>> {
        let held = self.held.lock();
        held.as_ref().map(|held| Arc::clone(&held.connector))
    }

    /// What the files say now, or what is `held` while they do not answer.
    async fn renewed(
        self: &Arc<Self>,
        held: Arc<TlsConnector>,
    ) -> Result<Arc<TlsConnector>, HttpError> {
        let looked = self.looked.notified();
        let said = match self.begin() {
            Some(looking) => clock::deadline(LOOK_DEADLINE, looking.done()).await,
            None => {
                let since = self.looking.lock().since;
                let since = since.map(|since| since.elapsed()).unwrap_or_default();
                let ended = clock::deadline(LOOK_DEADLINE.saturating_sub(since), looked).await;
                ended.map(|()| Ok(self.held().unwrap_or_else(|| Arc::clone(&held))))
            }
        };
        said.unwrap_or_else(|_| {
            self.tell(&"the files of certificates do not answer");
            Ok(held)
        })
    }

    /// Begins a look, unless there is one that may still end.
    fn begin(self: &Arc<Self>) -> Option<Looking> {
        let begun = self.looking.lock().begin()?;
        Some(Looking {
            certificates: Arc::clone(self),
            begun,
        })
    }

    /// Warns of what keeps the files from being used, from time to time.
    fn tell(&self, fault: &dyn fmt::Display) {
        let fault = fault.to_string();
        let mut told = self.told.lock();
        told.retain(|(_, when)| when.elapsed() < TELL_INTERVAL);
        if told.iter().any(|(known, _)| *known == fault) {
            return;
        }
        tracing::warn!("{fault}; what was there before stays in use");
        if told.len() >= TOLD_MAX {
            told.remove(0);
        }
        told.push((fault, clock::now()));
    }

    /// What a look that began then comes to.
    fn look(&self, begun: Instant) -> Result<Arc<TlsConnector>, HttpError> {
        let looks = self.looks();
        let old = match &mut *self.held.lock() {
            Some(held) if held.begun > begun || held.is_as(&looks) => {
                return Ok(Arc::clone(&held.connector));
            }
            Some(held) => {
                if held.looks != looks {
                    self.told.lock().clear();
                }
                // Until these were read they count as unusable, so that nobody reads the same fault at once again.
                held.looks.clone_from(&looks);
                held.fault = Some(clock::now());
                Some(Arc::clone(&held.connector))
            }
            None => None,
        };
        match (self.read(), old) {
            (Ok(connector), old) => {
                let mut held = self.held.lock();
                if let Some(newer) = held.as_ref().filter(|held| held.begun > begun) {
                    return Ok(Arc::clone(&newer.connector));
                }
                *held = Some(Held {
                    connector: Arc::clone(&connector),
                    begun,
                    looks,
                    fault: None,
                });
                drop(held);
                if old.is_some() {
                    let files: Vec<_> = self.named().collect();
                    tracing::info!(?files, "certificates were read again");
                }
                Ok(connector)
            }
            (Err(error), Some(old)) => {
                self.tell(&error);
                Ok(old)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// The files that options name.
    fn named(&self) -> impl Iterator<Item = &PathBuf> {
        let ours = self.settings.client_certificate.iter();
        let ours = ours.flat_map(|ours| [&ours.certificate, &ours.key]);
        self.settings.ca_file.iter().chain(ours)
    }

    fn silent(&self, limit: Duration) -> HttpError {
        let mut files: Vec<_> = self
            .named()
            .map(|path| path.display().to_string())
            .collect();
        files.dedup();
        files.push("what the system trusts, SSL_CERT_FILE, SSL_CERT_DIR".to_owned());
        let files = files.join(", ");
        untrusting(format!(
            "cannot read the certificates ({files}) within {limit:?}: is one on a file server that is away?"
        ))
    }

    fn looks(&self) -> Looks {
        self.named().map(|path| Look::at(path)).collect()
    }

    fn read(&self) -> Result<Arc<TlsConnector>, HttpError> {
        connector(&self.settings).map(Arc::new)
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn looks_that_never_end_are_few() {
        let mut looks = UnderWay::default();
        let mut begun = Vec::new();
        for _ in 0..LOST_MAX + 3 {
            begun.extend(looks.begin());
            assert_eq!(looks.begin(), None, "one is under way");
            tokio::time::advance(LOST_AFTER).await;
        }
        assert_eq!(begun.len(), 1 + LOST_MAX);
        // One that was lost makes room for another, and the one that is waited for does.
        looks.end(begun[0]);
        begun.extend(looks.begin());
        assert_eq!((begun.len(), looks.begin()), (2 + LOST_MAX, None));
        looks.end(begun[1 + LOST_MAX]);
        assert!(looks.begin().is_some());
    }
}
