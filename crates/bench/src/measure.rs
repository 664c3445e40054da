//! What a run costs, asked of the kernel.
//!
//! A thread looks twenty times a second at all processes that carry the client's mark: resident
//! memory, space in its cache directory and in files that it unlinked, processor time. Processor
//! time is exact to the nanosecond for a running process; for one that ended between two looks it
//! is what its parent was credited with, or what was last seen. Of a client that works through
//! block devices the kernel's workers do a part: on a machine that does nothing else, their time
//! is the client's.
//!
//! The whole machine's busy time less that of client, workload, server and benchmark is what
//! strangers used.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

use penstock_base::clock::{self, Instant};

use crate::{proc_fs, process::Mark, record::Sample, system};

/// Between looks at memory and processor time.
const PERIOD: Duration = Duration::from_millis(50);
/// Looks between those at disks, which cost more.
const LOOKS_PER_DISK_LOOK: u32 = 4;
/// Looks after which processes of strangers are asked again whether they are ours: a program that
/// was just being started may have shown its starter's environment.
const LOOKS_PER_REVIEW: u32 = 5;
/// Directories below a cache that are walked into.
const DEPTH_MAX: usize = 16;

#[derive(Debug, Clone)]
pub(crate) struct Subjects {
    /// The client's processes; nobody when a mounted directory is measured.
    pub(crate) client: Option<Mark>,
    /// The client's processes are the workload: their time is that of our children.
    pub(crate) is_workload: bool,
    /// The kernel's workers work for the client.
    pub(crate) kernel_workers: bool,
    /// Where the client keeps files.
    pub(crate) cache: PathBuf,
    pub(crate) server: Option<u32>,
}

pub(crate) struct Measurement {
    subjects: Subjects,
    seen: Seen,
    /// Sees the rest until its sender goes, and hands over what it saw.
    watch: Option<(Sender<()>, JoinHandle<Seen>)>,
    started: Instant,
    before: Clocks,
    workers_before: HashMap<u32, Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Clocks {
    machine: Duration,
    client: Duration,
    workload: Duration,
    /// The server and the benchmark.
    others: Duration,
}

impl Measurement {
    /// Begins. The workload must be started and waited for by this process before [`end`].
    ///
    /// [`end`]: Measurement::end
    pub(crate) fn begin(subjects: Subjects) -> Self {
        let mut seen = Seen::default();
        seen.look(&subjects, true);
        let (sender, receiver) = channel();
        let (watching, watched) = (seen.clone(), subjects.clone());
        let thread = std::thread::Builder::new()
            .name("bench-measure".to_owned())
            .spawn(move || watching.go_on(&watched, &receiver));
        Self {
            before: Clocks::read(&subjects, seen.client_time()),
            workers_before: workers(&subjects),
            started: clock::now(),
            watch: thread.ok().map(|thread| (sender, thread)),
            seen,
            subjects,
        }
    }

    /// Ends, and says what it cost.
    pub(crate) fn end(self) -> Sample {
        let seconds = self.started.elapsed().as_secs_f64();
        let seen = self.watch.and_then(|(sender, thread)| {
            drop(sender);
            thread.join().ok()
        });
        // If the thread panicked, what was seen before it still counts.
        let mut seen = seen.unwrap_or(self.seen);
        seen.look(&self.subjects, true);
        let after = Clocks::read(&self.subjects, seen.client_time());
        let workers = workers_spent(&self.workers_before, &workers(&self.subjects));
        let spent =
            |of: fn(&Clocks) -> Duration| of(&after).saturating_sub(of(&self.before)).as_secs_f64();
        let mut client = spent(|clocks| clocks.client);
        let mut workload = spent(|clocks| clocks.workload);
        if self.subjects.is_workload {
            client = std::mem::take(&mut workload);
        }
        client += workers;
        let ours = client + workload + spent(|clocks| clocks.others);
        Sample {
            seconds,
            client_cpu_seconds: client,
            workload_cpu_seconds: workload,
            foreign_cpu_seconds: (spent(|clocks| clocks.machine) - ours).max(0.0),
            peak_resident_bytes: seen.peak_resident,
            peak_disk_bytes: seen.peak_disk,
            ..Sample::default()
        }
    }
}

impl Clocks {
    fn read(subjects: &Subjects, client: Duration) -> Self {
        let server = subjects.server.and_then(system::processor_time);
        Self {
            machine: proc_fs::machine_busy(),
            client,
            workload: system::children_time(),
            others: server.unwrap_or_default() + system::own_time(),
        }
    }
}

/// What each of the kernel's workers has used, if they work for the client.
fn workers(subjects: &Subjects) -> HashMap<u32, Duration> {
    if !subjects.kernel_workers {
        return HashMap::new();
    }
    let pids = proc_fs::process_ids().into_iter();
    let workers = pids.filter(|pid| proc_fs::is_kernel_worker(*pid));
    workers
        .filter_map(|pid| Some((pid, proc_fs::time_on_processor(pid)?)))
        .collect()
}

fn workers_spent(before: &HashMap<u32, Duration>, after: &HashMap<u32, Duration>) -> f64 {
    let spent = after.iter().map(|(pid, time)| {
        let earlier = before.get(pid).copied().unwrap_or_default();
        time.saturating_sub(earlier)
    });
    spent.sum::<Duration>().as_secs_f64()
}

#[derive(Debug, Clone, Default)]
struct Seen {
    ours: HashMap<u32, Member>,
    strangers: BTreeSet<u32>,
    /// Time of processes that ended and whom nobody of ours was credited with.
    lost: Duration,
    peak_resident: u64,
    peak_disk: u64,
}

/// A process of the client when it was last seen.
#[derive(Debug, Clone, Copy)]
struct Member {
    start: u64,
    parent: u32,
    time: Duration,
}

impl Seen {
    fn go_on(mut self, subjects: &Subjects, ended: &Receiver<()>) -> Self {
        let mut looks = 0;
        while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
            looks += 1;
            if looks % LOOKS_PER_REVIEW == 0 {
                self.strangers.clear();
            }
            self.look(subjects, looks % LOOKS_PER_DISK_LOOK == 0);
        }
        self
    }

    fn look(&mut self, subjects: &Subjects, at_disk: bool) {
        let Some(mark) = &subjects.client else {
            return;
        };
        self.find(mark);
        self.update();
        if at_disk {
            let used = disk_use(&subjects.cache, self.ours.keys().copied());
            self.peak_disk = self.peak_disk.max(used);
        }
    }

    fn find(&mut self, mark: &Mark) {
        for pid in proc_fs::process_ids() {
            if self.ours.contains_key(&pid) || self.strangers.contains(&pid) {
                continue;
            }
            // Of strangers nothing else is asked: one that hangs in the kernel may hang who asks.
            let Some(stat) = mark.is_on(pid).then(|| proc_fs::stat(pid)).flatten() else {
                self.strangers.insert(pid);
                continue;
            };
            let member = Member {
                start: stat.start,
                parent: stat.parent,
                time: Duration::ZERO,
            };
            self.ours.insert(pid, member);
        }
    }

    fn update(&mut self) {
        let (mut resident, mut peak) = (0, 0);
        let mut ended = Vec::new();
        for (pid, member) in &mut self.ours {
            let stat = proc_fs::stat(*pid).filter(|stat| stat.start == member.start);
            let Some(stat) = stat else {
                ended.push(*pid);
                continue;
            };
            let own = system::processor_time(*pid).unwrap_or_default();
            member.time = member.time.max(own + stat.children);
            member.parent = stat.parent;
            let (now, most) = proc_fs::resident(*pid).unwrap_or_default();
            resident += now;
            peak = peak.max(most);
        }
        self.peak_resident = self.peak_resident.max(resident).max(peak);
        for pid in ended {
            // A parent of ours is credited with its child's time when it waits for it.
            let member = self.ours.remove(&pid);
            let orphan = member.filter(|member| !self.ours.contains_key(&member.parent));
            self.lost += orphan.map_or(Duration::ZERO, |member| member.time);
        }
    }

    fn client_time(&self) -> Duration {
        let times = self.ours.values().map(|member| member.time);
        times.sum::<Duration>() + self.lost
    }
}

/// Bytes on disk below `directory` and in files that have no name any more.
fn disk_use(directory: &Path, processes: impl Iterator<Item = u32>) -> u64 {
    let mut unnamed = BTreeMap::new();
    for pid in processes {
        proc_fs::unnamed_files(pid, &mut unnamed);
    }
    named_use(directory, DEPTH_MAX) + unnamed.values().sum::<u64>()
}

fn named_use(directory: &Path, depth: usize) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut bytes = 0;
    for entry in entries {
        // Whatever vanished since is no use of disk any more.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if metadata.is_file() {
            bytes += metadata.blocks() * proc_fs::BLOCK;
        } else if metadata.is_dir() && depth > 0 {
            bytes += named_use(&entry.path(), depth - 1);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Task;

    #[test]
    fn a_client_that_is_the_workload_is_counted_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let mark = Mark::of_role(&penstock_base::random::token(), "client");
        let script = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
        let task = Task::of_script(script, directory.path(), &mark);
        let measurement = Measurement::begin(Subjects {
            client: Some(mark),
            is_workload: true,
            kernel_workers: true,
            cache: directory.path().to_path_buf(),
            server: None,
        });
        let mut running = task.start().expect("starts");
        assert!(running.wait_calmly(Duration::from_secs(120)));
        let cost = measurement.end();
        assert!(cost.client_cpu_seconds > 0.05, "{cost:?}");
        assert!(cost.workload_cpu_seconds < 1e-9, "{cost:?}");
    }

    #[test]
    fn workers_that_came_and_went_do_not_confuse() {
        let seconds = |pairs: &[(u32, u64)]| -> HashMap<u32, Duration> {
            let times = pairs.iter();
            times
                .map(|(pid, seconds)| (*pid, Duration::from_secs(*seconds)))
                .collect()
        };
        let before = seconds(&[(1, 10), (2, 20)]);
        let after = seconds(&[(1, 13), (3, 4)]);
        assert!((workers_spent(&before, &after) - 7.0).abs() < 1e-9);
    }

    #[test]
    fn time_memory_and_disk_of_a_whole_tree_are_seen() {
        let directory = tempfile::tempdir().expect("a directory");
        let token = penstock_base::random::token();
        let mark = Mark::of_role(&token, "client");
        let cache = directory.path().join("cache");
        fs::create_dir(&cache).expect("made");
        let script = "cd cache; head -c 3000000 /dev/zero > named; \
             (head -c 2000000 /dev/zero; exec sleep 60) > unnamed & sleep 0.2; rm unnamed; \
             count=0; while [ $count -lt 2000000 ]; do count=$((count + 1)); done; wait";
        let task = Task::of_script(script, directory.path(), &mark);
        let mut running = task.start().expect("starts");
        let measurement = Measurement::begin(Subjects {
            client: Some(mark.clone()),
            is_workload: false,
            kernel_workers: false,
            cache,
            server: None,
        });
        running.wait_calmly(Duration::from_millis(2500));
        let cost = measurement.end();
        assert!(mark.end_all(false));
        running.wait_calmly(Duration::from_secs(10));
        assert!(cost.seconds >= 2.4, "{cost:?}");
        assert!(cost.client_cpu_seconds > 0.1, "{cost:?}");
        assert!(cost.peak_resident_bytes > 500_000, "{cost:?}");
        assert!(cost.peak_disk_bytes >= 4_900_000, "{cost:?}");
    }
}
