//! A mount that is up.

use std::{io::Write, pin::pin, sync::Arc, time::Duration};

use penstock_base::{BufferPool, clock, metrics::Registry, run_blocking};
use penstock_fuse::{UnmountError, UnmountMode, Unsaved};
use penstock_transfer::DiskCache;
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::{Door, End, Signals, signals};
use crate::{
    assemble,
    commands::stats,
    control::{Progress, Reply, Status, server},
    explain,
    logging::{self, LogFile},
    output,
    prometheus::Exporter,
};

/// How often an unmount reports what it waits for.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// How long programs that have files open may take to close them when the mount is asked to
/// leave. What they wrote until then is saved in any case.
const LEAVE_GRACE: Duration = Duration::from_secs(3);

/// How long a mount whose last part was just sent may still be busy: the object is completed, and
/// the kernel lets go of the file, after that.
const SETTLE: Duration = Duration::from_secs(5);

/// How long a mount may be busy after the last file was closed: what closed it may still be on its
/// way out of the kernel.
const CLOSING: Duration = Duration::from_secs(1);

/// How often a busy mount is tried again.
const BUSY_INTERVAL: Duration = Duration::from_millis(100);

/// How long the last word to a client may take.
const LAST_WORD_DEADLINE: Duration = Duration::from_secs(2);

/// Something that is kept by being held, such as the index of a stream volume.
pub(crate) type Held = Box<dyn Send + Sync>;

/// A mount that is up, with those who can give it orders.
pub(super) struct Mounted {
    pub core: Core,
    pub orders: mpsc::Receiver<server::UnmountOrder>,
    /// What has to stay as long as the mount is there.
    pub _held: Option<Held>,
    pub control: Option<server::Server>,
    pub _exporter: Option<Exporter>,
}

/// A mount that is up.
pub(super) struct Core {
    pub door: Door,
    pub pool: Arc<BufferPool>,
    pub registry: Arc<Registry>,
    pub cache: Option<Arc<DiskCache>>,
    /// Whether the cache goes with the mount.
    pub discards_cache: bool,
    /// Bytes of memory that are reserved while nothing happens.
    pub held_at_rest: u64,
    pub log: Option<LogFile>,
    /// How the mount is now.
    pub status: Arc<dyn Fn() -> Status + Send + Sync>,
}

impl Mounted {
    /// Serves until somebody unmounts or a signal asks us to leave.
    pub(super) async fn until_end(mut self, signals: &mut Signals) -> End {
        let mut order = None;
        let unsaved = self.until_gone(signals, &mut order).await;
        // Whoever hears the last word may mount here again at once, with a socket of the same name.
        drop(self.control.take());
        match unsaved {
            Some(unsaved) => self.core.finished(unsaved, order).await,
            None => End::AtOnce,
        }
    }

    /// Returns what could not be saved; nothing when it is left at once.
    async fn until_gone(
        &mut self,
        signals: &mut Signals,
        order: &mut Option<server::UnmountOrder>,
    ) -> Option<Unsaved> {
        let core = &self.core;
        loop {
            let request = tokio::select! {
                unsaved = core.door.wait() => return Some(unsaved),
                Some(asked) = self.orders.recv(), if order.is_none() => {
                    *order = Some(asked);
                    continue;
                }
                obeyed = core.obey(order.as_ref()) => match obeyed {
                    Ok(unsaved) => return Some(unsaved),
                    Err(refusal) => {
                        answer(order.take(), refusal).await;
                        continue;
                    }
                },
                request = signals.next() => request,
            };
            match request {
                signals::Request::ReopenLog => core.reopen_log(),
                signals::Request::Report => core.report(),
                signals::Request::ChangeLogLevel => change_log_level(),
                signals::Request::End => {
                    info!("asked to leave by a signal");
                    return tokio::select! {
                        unsaved = core.door.leave(LEAVE_GRACE) => Some(unsaved),
                        () = signals.asked_to_end() => None,
                    };
                }
            }
        }
    }

    /// Takes the mount down again because nobody wants it.
    pub(super) async fn leave(self) {
        let _ = self.core.door.leave(Duration::ZERO).await;
    }
}

impl Core {
    /// Unmounts and waits until everything is saved, telling the client how that goes. Files
    /// being sent keep a mount busy; those are waited for. Without an order it never returns.
    async fn obey(&self, order: Option<&server::UnmountOrder>) -> Result<Unsaved, Reply> {
        let Some(order) = order else {
            return std::future::pending().await;
        };
        let mode = if order.lazy {
            UnmountMode::Lazy
        } else {
            UnmountMode::Plain
        };
        let mut patient_until = clock::now() + CLOSING;
        while let Err(error) = self.door.unmount(mode).await {
            if assemble::uploads_in_flight(&self.registry) > 0 {
                patient_until = clock::now() + SETTLE;
            }
            let settles = clock::now() < patient_until;
            if !settles || !matches!(error, UnmountError::Busy(_)) {
                return Err(refusal(&error));
            }
            let progress = Reply::Progress(self.progress());
            if order.replies.send(progress).await.is_err() {
                return Err(refusal(&error));
            }
            clock::sleep(BUSY_INTERVAL).await;
        }
        let mut ended = pin!(self.door.wait());
        loop {
            tokio::select! {
                unsaved = &mut ended => return Ok(unsaved),
                () = clock::sleep(PROGRESS_INTERVAL) => {
                    // A client that lost patience does not stop what it began.
                    let _ = order.replies.try_send(Reply::Progress(self.progress()));
                }
            }
        }
    }

    async fn finished(&self, unsaved: Unsaved, order: Option<server::UnmountOrder>) -> End {
        if let Some(cache) = &self.cache {
            run_blocking(|| {
                cache.close();
                if self.discards_cache {
                    cache.remove("");
                }
            });
        }
        let files = unsaved.iter();
        let told = files.map(|(path, reason)| (path.clone(), reason.to_string()));
        let reply = Reply::Ended {
            unsaved: told.collect(),
        };
        answer(order, reply).await;
        End::Finished(unsaved)
    }

    fn progress(&self) -> Progress {
        let count = |name| assemble::metric(&self.registry, name);
        // What is not sent yet is in memory, however large the files are by now.
        let held = self.pool.budget().used().saturating_sub(self.held_at_rest);
        Progress {
            files: count("bucket_unsaved_files"),
            left: count("bucket_unsaved_bytes").min(held),
            sent: count("object_sent_bytes_total"),
        }
    }

    /// Writes the counters where messages go, whatever the level of the log is.
    fn report(&self) {
        let text = stats::describe(&(self.status)(), None);
        match &self.log {
            Some(log) => {
                let mut log: &LogFile = log;
                if let Err(error) = log.write_all(text.as_bytes()) {
                    warn!(%error, "the counters cannot be written to the log file");
                }
            }
            None => output::complain(&text),
        }
    }

    fn reopen_log(&self) {
        let Some(log) = &self.log else {
            return;
        };
        match log.reopen() {
            Ok(()) => info!("log file opened again"),
            Err(error) => warn!(%error, "the log file cannot be opened again"),
        }
    }
}

fn change_log_level() {
    if let Some(level) = logging::next_level() {
        warn!("the log level is now {level}, by a signal");
    }
}

fn refusal(error: &UnmountError) -> Reply {
    let failure = explain::unmount_error(error);
    Reply::Refused {
        cause: failure.cause().to_owned(),
        remedy: failure.remedy().to_owned(),
    }
}

/// Sends the last word and waits until it was heard, since the process may end right after.
async fn answer(order: Option<server::UnmountOrder>, reply: Reply) {
    let Some(order) = order else {
        return;
    };
    let heard = async {
        if order.replies.send(reply).await.is_ok() {
            order.replies.closed().await;
        }
    };
    let _ = clock::deadline(LAST_WORD_DEADLINE, heard).await;
}
