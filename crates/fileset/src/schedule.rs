//! What a file system does by itself: snapshots and dumps at their times, of which so many stay, and emptying the trash.
//!
//! The schedule is in the engine, and whoever has the file system open looks at it every [`LOOK_INTERVAL`]. A job is due in
//! a period, such as this hour, that is not the one in which it was done last. The operation that takes a snapshot writes
//! down its period too: so of several machines one takes it, and one that somebody removed is not taken again, also where
//! the clock of a machine is up to an hour behind. A dump is made by the machine whose session is the oldest, which
//! also removes from the trash what was there for long enough. What nobody had open in a period is not done for it later.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use penstock_base::{FileName, FsError, FsResult, Mutex, clock};
use tokio::{sync::Notify, task::JoinHandle};

pub use crate::schema::Job;
use crate::{
    dumps::{self, NewDump},
    engine::{Engine, Reads, Transaction, query, transact},
    schema::{SCHEDULE, Schedule},
    snapshots::{self, Snapshot},
    trash,
    volume::Parts,
};

/// How often it is looked whether something is due, and how soon what failed is tried again.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// How long an unmount takes at most to give up a dump that is under way.
const GIVE_UP_WAIT: Duration = Duration::from_secs(5);

/// How many snapshots or dumps of a job can be kept.
pub const KEEP_MAX: u32 = 10_000;

/// How many of each job stay. Jobs that are not in it are not done.
pub type Keep = BTreeMap<Job, u32>;

/// How many of each stay.
pub async fn get(engine: &dyn Engine) -> FsResult<Keep> {
    Ok(query(engine, |reads| schedule(reads)).await?.keep)
}

/// Changes how many of each stay: with 0 a job is not done any more, and what there is of it stays. Jobs that are not in
/// `changes` are as before. It is durable when this returns; returns what is so now.
pub async fn set(engine: &dyn Engine, changes: Keep) -> FsResult<Keep> {
    if changes.values().any(|keep| *keep > KEEP_MAX) {
        return Err(FsError::InvalidArgument("at most 10000 of each are kept"));
    }
    let keep = transact(engine, move |transaction| {
        let mut schedule = schedule(transaction)?;
        schedule.keep.extend(&changes);
        schedule.keep.retain(|_, keep| *keep > 0);
        transaction.put(SCHEDULE, schedule.encode());
        Ok::<_, FsError>(schedule.keep)
    })
    .await?;
    engine.sync().await?;
    Ok(keep)
}

fn schedule(reads: &dyn Reads) -> FsResult<Schedule> {
    let value = reads.get(SCHEDULE)?;
    value.map_or_else(|| Ok(Schedule::default()), |value| Schedule::decode(&value))
}

/// The tasks that do what is due, for as long as a volume is open: one for each kind, so that none waits for another.
#[derive(Debug)]
pub(crate) struct Scheduler {
    snapshots: Looking,
    dumps: Looking,
    trash: Looking,
    begun: Begun,
}

impl Scheduler {
    pub(crate) fn start(parts: &Weak<Parts>) -> Self {
        let begun = Begun::default();
        let start =
            |task| Looking::start(|bell| run(Weak::clone(parts), (task, begun.clone()), bell));
        Self {
            snapshots: start(Task::Snapshots),
            dumps: start(Task::Dumps),
            trash: start(Task::Trash),
            begun,
        }
    }

    /// Looks at once.
    pub(crate) fn look(&self) {
        self.snapshots.bell.notify_one();
        self.dumps.bell.notify_one();
        self.trash.bell.notify_one();
    }

    /// Returns when nothing more is done. A dump that is under way is given up.
    pub(crate) async fn end(&self, parts: &Parts) {
        self.snapshots.end().await;
        self.dumps.end().await;
        self.trash.end().await;
        let Some(dump) = self.begun.take() else {
            return;
        };
        let given_up = dumps::give_up(&*parts.engine, &dump);
        if clock::deadline(GIVE_UP_WAIT, given_up).await.is_err() {
            tracing::debug!(
                dump,
                "the snapshot of a dump that was not made is removed later"
            );
        }
    }
}

/// A task that looks now and then whether something is due.
#[derive(Debug)]
struct Looking {
    bell: Arc<Notify>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Looking {
    fn start<F: Future<Output = ()> + Send + 'static>(run: impl FnOnce(Arc<Notify>) -> F) -> Self {
        let bell = Arc::new(Notify::new());
        let task = tokio::spawn(run(Arc::clone(&bell)));
        Self {
            bell,
            task: Mutex::new(Some(task)),
        }
    }

    async fn end(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
            // It ends so.
            let _ = task.await;
        }
    }
}

/// The dump that is under way, until it is published. Cheap to clone.
#[derive(Debug, Clone, Default)]
struct Begun(Arc<Mutex<Option<String>>>);

impl Begun {
    fn begin(&self, dump: &str) {
        *self.0.lock() = Some(dump.to_owned());
    }

    fn take(&self) -> Option<String> {
        self.0.lock().take()
    }
}

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Snapshots,
    Dumps,
    /// Removes from the trash what is too old.
    Trash,
}

impl Task {
    fn does(self, job: Job) -> bool {
        match self {
            Self::Snapshots => job != Job::Dumps,
            Self::Dumps => job == Job::Dumps,
            Self::Trash => false,
        }
    }

    /// What it says when it cannot.
    fn failed(self, error: &FsError) {
        match self {
            Self::Snapshots | Self::Dumps => {
                tracing::warn!(%error, "a scheduled snapshot or dump could not be made; it is tried again");
            }
            Self::Trash => {
                tracing::warn!(%error, "what is too old could not be removed from the trash; it is tried again");
            }
        }
    }
}

async fn run(parts: Weak<Parts>, (task, begun): (Task, Begun), bell: Arc<Notify>) {
    let mut fails = false;
    loop {
        let Some(parts) = parts.upgrade() else { return };
        let done = carry_out(&parts, (task, &begun)).await;
        if done.is_err() {
            parts.failures.tasks.increment();
        }
        drop(parts);
        if let Err(error) = &done
            && !fails
        {
            task.failed(error);
        }
        fails = done.is_err();
        // Either way it is looked again.
        let _ = clock::deadline(LOOK_INTERVAL, bell.notified()).await;
    }
}

/// Does all that is due. Fails with the first thing that cannot be done, after the others.
async fn carry_out(parts: &Parts, (task, begun): (Task, &Begun)) -> FsResult<()> {
    if task == Task::Trash {
        return trash::expire(parts, clock::wall_time()).await;
    }
    let schedule = query(&*parts.engine, |reads| schedule(reads)).await?;
    let now = clock::wall_time();
    let mut outcome = Ok(());
    for job in schedule.due(now).into_iter().filter(|job| task.does(*job)) {
        let keep = schedule.keep.get(&job).copied().unwrap_or(KEEP_MAX);
        let done = match job {
            Job::Dumps => dump(parts, (keep, now), begun).await,
            _ => take(parts, job, (keep, now)).await,
        };
        outcome = outcome.and(done);
    }
    outcome
}

async fn take(parts: &Parts, job: Job, (keep, now): (u32, SystemTime)) -> FsResult<()> {
    parts.save_pending().await?;
    let name = FileName::new(format!("{}-{}", job.name(), job.period(now)).as_bytes())
        .map_err(|_| FsError::InvalidArgument("this is no name for a snapshot"))?;
    let (wanted, taken) = (name.clone(), clock::wall_time());
    let is_taken = transact(&*parts.engine, move |transaction| {
        if !done(transaction, job, now)? {
            return Ok(false);
        }
        match snapshots::take_now(transaction, &wanted, taken) {
            // Somebody's clock was there before.
            Ok(_) | Err(FsError::AlreadyExists) => Ok(true),
            Err(error) => Err(error),
        }
    })
    .await?;
    if is_taken {
        parts.engine.sync().await?;
        tracing::info!(snapshot = %String::from_utf8_lossy(name.as_bytes()), "a scheduled snapshot was taken");
        remove_surplus(parts, job, keep).await?;
    }
    Ok(())
}

/// Writes down that a job is done in the period of a time. Returns whether that is news.
fn done(transaction: &mut dyn Transaction, job: Job, now: SystemTime) -> FsResult<bool> {
    let mut schedule = schedule(transaction)?;
    if !schedule.is_due(job, now) {
        return Ok(false);
    }
    schedule.done.insert(job, job.period(now));
    transaction.put(SCHEDULE, schedule.encode());
    Ok(true)
}

async fn remove_surplus(parts: &Parts, job: Job, keep: u32) -> FsResult<()> {
    for name in surplus(&snapshots::list(&*parts.engine).await?, job, keep) {
        match snapshots::remove(&*parts.engine, &name).await {
            Ok(()) | Err(FsError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    parts.held.bell.notify_one();
    Ok(())
}

/// The oldest snapshots of a job, but for so many.
fn surplus(there: &[Snapshot], job: Job, keep: u32) -> Vec<FileName> {
    let ours = there
        .iter()
        .filter(|one| !one.is_removed && job.took(&one.name));
    let ours: Vec<_> = ours.collect();
    let count = ours.len().saturating_sub(keep as usize);
    let names = ours[..count].iter();
    names
        .filter_map(|one| FileName::new(one.name.as_bytes()).ok())
        .collect()
}

async fn dump(parts: &Parts, (keep, now): (u32, SystemTime), begun: &Begun) -> FsResult<()> {
    if !parts.is_elected().await {
        return Ok(());
    }
    let new = NewDump::now(parts.label().await?);
    begun.begin(&new.name);
    let written = parts.write_dump(&new).await;
    begun.take();
    let made = written?.publish(&*parts.engine).await?;
    tracing::info!(dump = %made.name, keys = made.summary.keys, "a scheduled dump was made");
    let step = move |transaction: &mut dyn Transaction| done(transaction, Job::Dumps, now);
    transact(&*parts.engine, step).await?;
    // Another dump would be one more.
    if let Err(error) = parts.remove_older_dumps(u64::from(keep)).await {
        tracing::warn!(%error, "older dumps could not be removed; it is tried with the next one");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_a_job_are_too_many() {
        let snapshot = |number, name: &str, is_removed| Snapshot {
            number,
            name: name.to_owned(),
            taken: std::time::SystemTime::UNIX_EPOCH,
            is_removed,
        };
        let there = [
            snapshot(1, "hourly-2026-11-29T10", true),
            snapshot(2, "hourly-2026-11-29T11", false),
            snapshot(3, "daily-2026-11-29", false),
            snapshot(4, "hourly-2026-11-29T12", false),
            snapshot(5, "hourly-of-mine", false),
            snapshot(6, "hourly-2026-11-29T13", false),
        ];
        let named = |keep| {
            let names = surplus(&there, Job::Hourly, keep).into_iter();
            names
                .map(|name| String::from_utf8(name.as_bytes().to_vec()).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(named(2), ["hourly-2026-11-29T11"]);
        assert_eq!(named(1), ["hourly-2026-11-29T11", "hourly-2026-11-29T12"]);
        assert!(named(3).is_empty() && surplus(&there, Job::Daily, 1).is_empty());
    }
}
