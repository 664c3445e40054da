//! The process of a mount, from its start to its end.
//!
//! ```text
//! split off -> volume -> door -> announced as ready
//!                                  |
//!      unmounted by anybody --------+
//!      order by the control socket -+--> what is unsaved is sent --> reported, exit code
//!      SIGTERM, SIGINT -------------+        (a second signal leaves at once)
//! ```

mod answers;
mod detach;
mod mounted;
mod signals;
mod stage;
mod start;
mod waiters;

use std::time::Duration;

use penstock_base::processors;
use penstock_fuse::Unsaved;
use tracing::{error, info};

use crate::{
    control::SocketDirectory,
    doors::DoorKind,
    failure::{Exit, Failure, Outcome},
    guardian::Guardian,
    keeper::{Inherited, Line},
    logging::LogFile,
    output,
    volumes::VolumeSpec,
};

pub(crate) use detach::{Announcer, READY_DEADLINE, Side, detach};
use signals::Signals;
use start::Opening;

/// How long tasks that are still running may take to end after everything was reported.
const RUNTIME_GRACE: Duration = Duration::from_secs(1);

/// Everything that is known before a mount is started.
pub(crate) struct Plan {
    /// What is mounted; of mount targets, what holds for the process of them all.
    pub volume: VolumeSpec,
    /// How programs reach it.
    pub door: DoorKind,
    pub log: Option<LogFile>,
    /// Where the sockets of the user's mounts are.
    pub place: SocketDirectory,
    /// To the process that starts this one again, if there is one.
    pub line: Option<Line>,
    /// What lets programs go when this process is killed, if the mount has it.
    pub guardian: Option<Guardian>,
}

impl Plan {
    /// What another process, which was killed, had begun.
    fn inherited(&self) -> Option<&Inherited> {
        self.line.as_ref()?.inherited.as_ref()
    }

    /// Whether this process goes on with what another one began. Nobody is there who could be told
    /// of a mistake, and the store may be away just now.
    fn goes_on(&self) -> bool {
        self.inherited().is_some()
    }
}

/// How a mount ended.
#[derive(Debug)]
enum End {
    /// In good order; these files could not be saved, perhaps for this cause.
    Finished(Unsaved, Option<String>),
    /// By a second signal, without waiting for anything.
    AtOnce,
}

/// Mounts, announces it, and serves until the end.
pub(crate) fn run(plan: &Plan, announcer: Announcer) -> Outcome {
    let runtime = match runtime(plan) {
        Ok(runtime) => runtime,
        Err(error) => {
            let failure = Failure::new(
                format!("no threads can be started: {error}"),
                "raise the limit of processes",
            );
            announcer.failed(&failure);
            return Err(failure);
        }
    };
    let outcome = runtime.block_on(serve(plan, announcer));
    runtime.shutdown_timeout(RUNTIME_GRACE);
    outcome
}

/// Threads for as many processors as the volume may use.
fn runtime(plan: &Plan) -> std::io::Result<tokio::runtime::Runtime> {
    let limit = plan.volume.processors();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(limit.unwrap_or_else(processors::count))
        .enable_all()
        .build()
}

async fn serve(plan: &Plan, announcer: Announcer) -> Outcome {
    let mut signals = Signals::listen()?;
    let opened = Opening::default();
    let started = tokio::select! {
        started = start::start(plan, &opened) => started,
        () = signals.asked_to_end() => Err(Failure::new("interrupted", "mount again")),
        () = announcer.left_alone() => {
            Err(Failure::new("whoever asked for the mount has gone", "mount again"))
        }
    };
    let mounted = match started {
        Ok(mounted) => mounted,
        Err(failure) => {
            tokio::select! {
                () = opened.shut_down() => {}
                () = signals.asked_to_end() => {}
            }
            if plan.log.is_some() {
                error!("{failure}");
            }
            announcer.failed(&failure);
            return Err(failure);
        }
    };
    let (source, mountpoint) = (&plan.volume.source, plan.volume.mountpoint.display());
    info!(source, %mountpoint, "mounted");
    if let Err(failure) = announcer.ready() {
        mounted.leave().await;
        info!("unmounted again: {failure}");
        return Err(failure);
    }
    let end = mounted.until_end(&mut signals).await;
    report(plan, end)
}

/// Says what could not be saved.
fn report(plan: &Plan, end: End) -> Outcome {
    let mountpoint = plan.volume.mountpoint.display();
    let (unsaved, cause) = match end {
        End::Finished(unsaved, cause) => (unsaved, cause),
        End::AtOnce => {
            error!(%mountpoint, "left at once; files that were open are not saved");
            return Err(Failure::new(
                "left at once on a second signal",
                "files that were being written are not saved; write them again",
            )
            .with_exit(Exit::Unsaved));
        }
    };
    if unsaved.is_empty() {
        info!(%mountpoint, "unmounted, everything is saved");
        return Ok(());
    }
    for (path, reason) in &unsaved {
        error!(path, %reason, "could not be saved");
        output::complain(&format!("could not save `{path}`: {reason}"));
    }
    if let Some(cause) = cause {
        error!("{cause}");
        output::complain(&cause);
    }
    let count = unsaved.len();
    Err(Failure::new(
        format!("{count} changes could not be saved"),
        "what a staging directory keeps the next mount saves; do the rest again",
    )
    .with_exit(Exit::Unsaved))
}
