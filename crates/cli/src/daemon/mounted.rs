//! A mount that is up.

use std::{
    io::Write,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use penstock_base::clock;
use penstock_fuse::{UnmountError, UnmountMode, Unsaved};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::{End, Signals, answers::Answers, signals, waiters::Waiters};
use crate::{
    commands::stats,
    control::{
        Progress, Refusal, Reply, UnsavedFile,
        record::Record,
        server::{self, Daemon},
    },
    doors::Door,
    explain,
    failure::Failure,
    logging::{self, LogFile},
    output,
    prometheus::Exporter,
    resources::Resources,
    sharing::Places,
    volumes::OpenedVolumes,
};

/// How often an unmount reports what it waits for.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// How long programs that have files open may take to close them when the mount is asked to
/// leave. What they wrote until then is saved in any case.
const LEAVE_GRACE: Duration = Duration::from_secs(3);

/// How old the last error of a store is at most that is told beside what could not be saved.
const CAUSE_AGE_MAX: Duration = Duration::from_secs(10 * 60);

/// How long a mount whose last part was just sent may still be busy: the object is completed, and
/// the kernel lets go of the file, after that.
const SETTLE: Duration = Duration::from_secs(5);

/// How long a mount may be busy after the last file was closed: what closed it may still be on its
/// way out of the kernel.
const CLOSING: Duration = Duration::from_secs(1);

/// How often a busy mount is tried again.
const BUSY_INTERVAL: Duration = Duration::from_millis(100);

/// Where a mount that is told to go is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// Perhaps still in the file tree.
    Leaving,
    /// Out of the file tree; whoever used it before goes on.
    Out,
}

/// What came of an order to unmount while the mount goes on.
enum Obeyed {
    /// It was not carried out.
    Refused(Reply),
    /// The mount point is gone, and these are left.
    Parted(Vec<PathBuf>),
}

/// A mount that is up, with those who can give it orders.
pub(super) struct Mounted {
    pub core: Core,
    pub orders: mpsc::Receiver<server::UnmountOrder>,
    pub control: Option<server::Server>,
    pub record: Option<Record>,
    pub _exporter: Option<Exporter>,
}

/// A mount that is up.
pub(super) struct Core {
    pub door: Box<dyn Door>,
    pub volumes: OpenedVolumes,
    pub resources: Resources,
    /// Bytes of memory that are reserved while nothing happens.
    pub held_at_rest: u64,
    pub log: Option<LogFile>,
    pub answers: Arc<Answers>,
}

impl Mounted {
    /// Serves until somebody unmounts or a signal asks us to leave.
    pub(super) async fn until_end(mut self, signals: &mut Signals) -> End {
        let mut waiters = Waiters::default();
        let unsaved = match self.until_gone(signals, &mut waiters).await {
            Some(unsaved) => Some(unsaved),
            None => self.leave_by_signal(signals, &mut waiters).await,
        };
        // Whoever hears the last word may mount here again at once, with a socket of the same name.
        if let Some(control) = self.control.take() {
            control.close().await;
        }
        let Some(unsaved) = unsaved else {
            return End::AtOnce;
        };
        if let Some(places) = self.core.answers.stage.places() {
            places.clear().await;
        }
        self.core.volumes.close();
        if let Some(record) = self.record.take() {
            record.remove();
        }
        let cause = self.core.untold_cause(&unsaved);
        waiters
            .end(&mut self.orders, last_word(&unsaved, cause.clone()))
            .await;
        End::Finished(unsaved, cause)
    }

    /// Returns what could not be saved; nothing when a signal asks to leave.
    async fn until_gone(
        &mut self,
        signals: &mut Signals,
        waiters: &mut Waiters,
    ) -> Option<Unsaved> {
        let core = &self.core;
        let mut gone = pin!(core.door.wait());
        loop {
            let request = tokio::select! {
                unsaved = &mut gone => return Some(unsaved),
                Some(order) = self.orders.recv() => {
                    waiters.add(order);
                    continue;
                }
                (place, obeyed) = core.obey(waiters) => {
                    core.tell(obeyed, waiters.take(place.as_deref()));
                    continue;
                }
                request = signals.next() => request,
            };
            match request {
                signals::Request::Reload => {
                    core.reopen_log();
                    core.door.reload().await;
                }
                signals::Request::Report => core.report(),
                signals::Request::ChangeLogLevel => change_log_level(),
                signals::Request::End => return None,
            }
        }
    }

    /// Returns what could not be saved; nothing when a second signal asks to leave at once.
    async fn leave_by_signal(
        &mut self,
        signals: &mut Signals,
        waiters: &mut Waiters,
    ) -> Option<Unsaved> {
        info!("asked to leave by a signal");
        let core = &self.core;
        let mut left = pin!(core.leave(LEAVE_GRACE));
        let mut hurried = pin!(signals.asked_to_end());
        loop {
            tokio::select! {
                unsaved = &mut left => return Some(unsaved),
                () = &mut hurried => return None,
                Some(order) = self.orders.recv() => waiters.add(order),
                _ = core.keep_telling(waiters, Sight::Leaving) => {}
            }
        }
    }

    /// Takes the mount down again because nobody wants it.
    pub(super) async fn leave(self) {
        let _ = self.core.leave(Duration::ZERO).await;
    }
}

impl Core {
    /// Unmounts as the first order says, and once the whole mount is gone tells those who wait how the saving goes, for
    /// ever. Files being sent keep a mount busy; those are waited for. Returns what the order was about and why the mount
    /// stays. Without an order it does nothing.
    async fn obey(&self, waiters: &Waiters) -> (Option<PathBuf>, Obeyed) {
        let Some(place) = waiters.first() else {
            return std::future::pending().await;
        };
        let answer = |obeyed| (place.map(Path::to_owned), obeyed);
        if let Err(error) = self.take_out_of_sight(place, waiters).await {
            return answer(Obeyed::Refused(refusal(&error)));
        }
        let left = self.places().map(Places::list).transpose();
        match left {
            Ok(Some(left)) if place.is_some() && !left.is_empty() => answer(Obeyed::Parted(left)),
            Ok(_) => self.keep_telling(waiters, Sight::Out).await,
            Err(error) => answer(Obeyed::Refused(refused(&error.into()))),
        }
    }

    /// Answers orders. Before a mount point counts as gone what was written is made durable, as the process goes on.
    fn tell(&self, obeyed: Obeyed, mut orders: Waiters) {
        match obeyed {
            Obeyed::Refused(reply) => orders.answer(&reply),
            Obeyed::Parted(places) => {
                info!(left = ?places, "a mount point is gone, the mount goes on at others");
                tokio::spawn(part(self.gauge(), places, orders));
            }
        }
    }

    /// The mount points, as long as the kernel has the mount: later the number of its device is another's.
    fn places(&self) -> Option<&Places> {
        let places = self.answers.stage.places();
        places.filter(|_| self.door.is_used())
    }

    /// Takes one mount point out of the file tree, or all.
    async fn unmount(&self, place: Option<&Path>, mode: UnmountMode) -> Result<(), UnmountError> {
        match (self.places(), place) {
            (Some(places), Some(place)) => places.unmount(place.to_owned(), mode).await,
            (Some(places), None) => places.unmount_all(mode).await,
            // The last of several mount points has gone, whoever took it away.
            (None, _) if self.answers.stage.places().is_some() => Ok(()),
            (None, _) => self.door.unmount(mode).await,
        }
    }

    /// Leaves with all mount points, and gives those who use them `grace` to finish.
    async fn leave(&self, grace: Duration) -> Unsaved {
        if let Some(places) = self.places()
            && places.unmount_all(UnmountMode::Plain).await.is_err()
            && let Err(error) = places.unmount_all(UnmountMode::Lazy).await
        {
            warn!(%error, "a mount point stays behind");
        }
        self.door.leave(grace).await
    }

    async fn take_out_of_sight(
        &self,
        place: Option<&Path>,
        waiters: &Waiters,
    ) -> Result<(), UnmountError> {
        let mode = match waiters.is_lazy(place) {
            true => UnmountMode::Lazy,
            false => UnmountMode::Plain,
        };
        let mut patient_until = clock::now() + CLOSING;
        loop {
            let Err(error) = self.unmount(place, mode).await else {
                return Ok(());
            };
            if self.volumes.unsaved().parts_under_way > 0 {
                patient_until = clock::now() + SETTLE;
            }
            let settles = clock::now() < patient_until;
            let is_busy = matches!(error, UnmountError::Busy(_));
            waiters.tell(self.progress(Sight::Leaving));
            if !settles || !is_busy || waiters.are_gone() {
                return Err(error);
            }
            clock::sleep(BUSY_INTERVAL).await;
        }
    }

    async fn keep_telling(&self, waiters: &Waiters, sight: Sight) -> ! {
        loop {
            clock::sleep(PROGRESS_INTERVAL).await;
            waiters.tell(self.progress(sight));
        }
    }

    fn progress(&self, sight: Sight) -> Progress {
        Progress {
            used: sight == Sight::Out && self.door.is_used(),
            ..self.gauge().progress()
        }
    }

    fn gauge(&self) -> Gauge {
        Gauge {
            volumes: self.volumes.clone(),
            resources: self.resources.clone(),
            held_at_rest: self.held_at_rest,
        }
    }

    /// What the store said last, where something is unsaved and no reason for that says it.
    fn untold_cause(&self, unsaved: &Unsaved) -> Option<String> {
        let (error, when) = self.volumes.last_failure()?;
        let told = error.to_string();
        let is_told = unsaved
            .iter()
            .any(|(_, reason)| reason.to_string().contains(&told));
        let ago = when.elapsed();
        let untold = !unsaved.is_empty() && !is_told && ago < CAUSE_AGE_MAX;
        let ago = ago.as_secs();
        untold.then(|| format!("the last error of the store, {ago}s ago: {told}"))
    }

    /// Writes the counters where messages go, whatever the level of the log is.
    fn report(&self) {
        let text = stats::describe(&self.answers.status(), None);
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

/// What tells how the saving goes.
struct Gauge {
    volumes: OpenedVolumes,
    resources: Resources,
    held_at_rest: u64,
}

impl Gauge {
    fn progress(&self) -> Progress {
        let unsaved = self.volumes.unsaved();
        // What is not sent yet is in memory, however large the files are by now.
        let used = self.resources.pool.budget().used();
        let held = used.saturating_sub(self.held_at_rest);
        Progress {
            files: unsaved.files,
            left: unsaved.bytes.min(held),
            sent: self.volumes.sent(),
            used: false,
        }
    }
}

/// Makes durable what was written and says how that goes, as long as somebody waits for it. The mount goes on at `places`.
async fn part(gauge: Gauge, places: Vec<PathBuf>, mut orders: Waiters) {
    let failure = {
        let mut durable = pin!(gauge.volumes.make_durable());
        loop {
            tokio::select! {
                durable = &mut durable => break durable.err(),
                () = clock::sleep(PROGRESS_INTERVAL) => orders.tell(gauge.progress()),
            }
            if orders.are_gone() {
                return;
            }
        }
    };
    orders.answer(&Reply::Parted {
        places,
        failure: failure.map(|error| error.to_string()),
    });
}

fn change_log_level() {
    if let Some(level) = logging::next_level() {
        warn!("the log level is now {level}, by a signal");
    }
}

fn refusal(error: &UnmountError) -> Reply {
    refused(&explain::unmount_error(error))
}

fn refused(failure: &Failure) -> Reply {
    Reply::Refused(Refusal {
        cause: failure.cause().to_owned(),
        remedy: failure.remedy().to_owned(),
    })
}

fn last_word(unsaved: &Unsaved, cause: Option<String>) -> Reply {
    let files = unsaved.iter();
    let told = files.map(|(path, reason)| UnsavedFile {
        path: path.clone(),
        reason: reason.to_string(),
    });
    Reply::Ended {
        unsaved: told.collect(),
        cause,
    }
}
