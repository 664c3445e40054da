//! One run of one row by one client.
//!
//! Everything is fresh: directories, mount, page cache. What is prepared and what is checked
//! afterwards is done without added latency and outside the measurement. The order is: prepare,
//! mount, measure (perhaps several times), check what was read, unmount, check what was written,
//! remove it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_base::clock;
use penstock_devserver::Counters;

use crate::{
    client::{Client, Kind},
    measure::{Measurement, Subjects},
    mount::{Attempt, Mounted},
    plan::Planned,
    process::Task,
    record::Sample,
    session::{Session, make_private},
    settings, settled,
    store::Store,
    suite::{self, Row, Tool, Workload},
    template::{self, Variables, variables},
    tool::{self, Said},
    worker::{Expected, Job, Place},
};

/// Bytes of one run that are compared with what they must be; of more, pieces.
const COMPARED_MAX: u64 = 256 << 20;
/// Foreign load, in processors, from which a run counts as disturbed.
const FOREIGN_LOAD_MAX: f64 = 0.1;
/// Processor seconds below which foreign load is the clock's grain.
const FOREIGN_GRAIN: f64 = 0.03;
/// Passes at the end of several that count as steady.
const STEADY_PASSES: usize = 3;

pub(crate) struct Run<'a> {
    pub(crate) session: &'a Session,
    pub(crate) store: Option<&'a Store>,
    pub(crate) client: &'a Client,
    pub(crate) planned: &'a Planned,
    pub(crate) limit: Duration,
    pub(crate) bandwidth: Option<u64>,
    /// What fio takes to start and to end.
    pub(crate) fio_overhead: f64,
    /// Whether inputs were made through a mount before.
    pub(crate) is_prepared: bool,
}

/// Why a run has no figures. What a client does wrong is no error of ours, only a reason.
type Reason = String;

impl Run<'_> {
    /// Runs it. Whatever goes wrong is in the sample.
    pub(crate) fn sample(&self) -> Sample {
        let mut sample = Sample::default();
        if let Some(why) = self.client.cannot(self.row()) {
            sample.failure = Some(format!("not available: {why}"));
            return sample;
        }
        let outcome = match &self.row().client_command {
            Some(name) => self.own_command(name, &mut sample),
            None => self.run(&mut sample),
        };
        if let Err(why) = outcome {
            let why = self.store.map_or(why.clone(), |store| store.redact(&why));
            sample.failure = Some(without_paths(&why, &self.session.directory));
        }
        sample
    }

    fn workload(&self) -> &Workload {
        &self.planned.workload
    }

    fn row(&self) -> &Row {
        &self.planned.workload.row
    }

    fn work(&self, job: &Job) -> Result<(), Reason> {
        self.session.work(job, self.limit)
    }

    fn run_once(&self, role: &str, arguments: Vec<String>) -> Result<String, Reason> {
        self.session
            .run(&self.session.task(role, arguments), self.limit)
    }

    fn run(&self, sample: &mut Sample) -> Result<(), Reason> {
        self.set_profile(false)?;
        let scratch = self.make_scratch()?;
        if self.only_through_mount() && !self.is_prepared {
            self.prepare()?;
        }
        let mut mounted = self.mount(self.client)?;
        let outcome = self.measure_mounted(&mounted, &scratch, sample);
        let reset = self.set_profile(false);
        let mut outcome = outcome.and(reset);
        // What was stored by then and what unmounting stores are two things.
        let is_checked_now = self.row().until_stored && !self.only_through_mount();
        if is_checked_now {
            outcome = outcome.and_then(|()| self.check_written(sample));
        }
        if let Err(why) = outcome {
            let complaint = mounted.complaint();
            let has_died = mounted.is_dead();
            mounted.abort(self.session);
            return Err(match (has_died, complaint.as_str()) {
                (true, _) => format!("{why}; the client had ended: {complaint}"),
                (false, "") => why,
                (false, _) => format!("{why}; the client says: {complaint}"),
            });
        }
        mounted.end(self.session)?;
        if !is_checked_now {
            self.check_written(sample)?;
        }
        // Left over, it would only take space until the end.
        let _ = fs::remove_dir_all(&scratch);
        Ok(())
    }

    fn mount(&self, client: &Client) -> Result<Mounted, Reason> {
        drop_caches(Caches::All);
        Mounted::begin(client, self.session, self.store)
    }

    /// Whether files can be made and looked at only as the client's own files.
    fn only_through_mount(&self) -> bool {
        self.client.has_own_layout() || !self.store.is_some_and(Store::is_development)
    }

    fn set_profile(&self, measuring: bool) -> Result<(), Reason> {
        let Some(store) = self.store.filter(|store| store.is_development()) else {
            return Ok(());
        };
        let latency = settings::latency(&self.planned.profile).unwrap_or_default();
        let (latency, bandwidth) = match measuring {
            true => (latency, self.bandwidth),
            false => (Duration::ZERO, None),
        };
        Ok(store.set_latency(latency, bandwidth)?)
    }

    fn make_scratch(&self) -> Result<PathBuf, Reason> {
        let name = format!("scratch-{}", self.session.number());
        let root = self.session.directory.join(name);
        let mut files = self.workload().files(&self.row().scratch)?;
        for file in &mut files {
            // Here they lie at the top, not below the suite's name.
            let prefix = format!("{}/", self.workload().suite);
            file.key = file.key.trim_start_matches(&prefix).to_owned();
        }
        if !files.is_empty() {
            let root = root.clone();
            self.work(&Job::Write { root, files })?;
        }
        if !self.row().scratch_commands.is_empty() {
            make_private(&root)?;
        }
        let known = self.variables(&root);
        for command in &self.row().scratch_commands {
            let command = inside(&root, template::expand_all(command, &known)?);
            self.run_once("scratch", command)?;
        }
        Ok(root)
    }

    /// Makes the inputs through the client, or the one that writes for it, on a mount of its own.
    fn prepare(&self) -> Result<(), Reason> {
        let files = self.workload().files(&self.row().inputs)?;
        if files.is_empty() {
            return Ok(());
        }
        let mounted = self.mount(self.client.writer())?;
        let root = mounted.directory.clone();
        match self.work(&Job::Write { root, files }) {
            Ok(()) => mounted.end(self.session),
            Err(why) => {
                mounted.abort(self.session);
                Err(format!("inputs could not be made: {why}"))
            }
        }
    }

    fn measure_mounted(
        &self,
        mounted: &Mounted,
        scratch: &Path,
        sample: &mut Sample,
    ) -> Result<(), Reason> {
        let row = self.row();
        let directory = mounted.directory.join(&self.workload().suite);
        let directories = row.directories.iter().map(|name| directory.join(name));
        let directories = directories.collect();
        self.work(&Job::MakeDirectories { directories })?;
        let mut known = self.variables(scratch);
        known.insert("directory".to_owned(), directory.display().to_string());
        for command in &row.before {
            self.run_once("before", template::expand_all(command, &known)?)?;
        }
        if row.until_stored && !row.before.is_empty() {
            self.settle()?;
        }
        let mut arguments = template::expand_all(&row.command, &known)?;
        let program = arguments.first().cloned().unwrap_or_default();
        let more = tool::arguments(row.tool).iter();
        arguments.extend(more.map(|&word| word.to_owned()));
        if !row.inside.is_empty() {
            arguments = inside(&directory.join(&row.inside), arguments);
        }
        self.set_profile(true)?;
        self.passes(mounted, (&program, &arguments), sample)?;
        self.set_profile(false)?;
        self.check_read(mounted, sample)
    }

    /// What the places of commands stand for, but for the directory in the mount.
    fn variables(&self, scratch: &Path) -> Variables {
        let ourselves = &self.session.surroundings.program;
        self.workload().variables(variables([
            ("scratch", scratch.display().to_string()),
            ("penstock", ourselves.display().to_string()),
        ]))
    }

    /// Waits until everything is in the store, and returns how long that took.
    fn settle(&self) -> Result<Duration, Reason> {
        let store = self.store.ok_or("there is no server")?;
        settled::settle(store, self.limit)
    }

    /// Runs the command as often as the row wants it, and keeps the steady pass.
    fn passes(
        &self,
        mounted: &Mounted,
        (program, arguments): (&str, &[String]),
        sample: &mut Sample,
    ) -> Result<(), Reason> {
        let mut passes = Vec::new();
        for _ in 0..self.row().passes.unwrap_or(1) {
            let is_cold = drop_caches(Caches::Pages);
            self.load(program);
            let mut pass = Sample::default();
            let subjects = Subjects {
                client: mounted.mark(),
                is_workload: false,
                kernel_workers: self.client.has_kernel_workers(),
                cache: mounted.cache().to_path_buf(),
                server: self.store.and_then(Store::pid),
            };
            let task = self.session.task("workload", arguments.to_vec());
            let outcome = self.pass(subjects, &task, &mut pass);
            if !is_cold {
                pass.disturbed = Some("the page cache could not be dropped: not root".to_owned());
            }
            if outcome.is_err() {
                *sample = pass;
                return outcome;
            }
            passes.push(pass);
        }
        *sample = steady(passes);
        Ok(())
    }

    fn pass(&self, subjects: Subjects, task: &Task, pass: &mut Sample) -> Result<(), Reason> {
        let before = self.store.and_then(Store::counters);
        let measurement = Measurement::begin(subjects);
        let started = clock::now();
        let output = self.session.run(task, self.limit);
        let ended = started.elapsed();
        let settled = match self.row().until_stored && output.is_ok() {
            true => self.settle().map(Some),
            false => Ok(None),
        };
        *pass = measurement.end();
        note_load(pass);
        if let Ok(Some(more)) = &settled {
            pass.seconds = ended.as_secs_f64();
            pass.stored_seconds = Some((ended + *more).as_secs_f64());
        }
        if let (Some(before), Some(store)) = (before, self.store) {
            note_requests(&before, &store.counters().unwrap_or_default(), pass);
        }
        let said = self.understand(output, task)?;
        settled?;
        self.note_said(&said, pass);
        self.check_entries(&said)
    }

    /// Gets a program back into the page cache, for reading it from disk is not what is measured.
    fn load(&self, program: &str) {
        let arguments = vec![program.to_owned(), "--version".to_owned()];
        // If it cannot be run, the run itself will say so.
        let _ = self.run_once("load", arguments);
    }

    /// A tool that fails may say more about it in its figures.
    fn understand(&self, output: Result<String, Reason>, task: &Task) -> Result<Said, Reason> {
        let tool = self.row().tool;
        match output {
            Ok(output) => tool::understand(tool, &output),
            Err(why) if tool == Tool::Sysbench => {
                let output = fs::read_to_string(&task.output).unwrap_or_default();
                let fatal = tool::understand(tool, &output).err();
                let fatal = fatal.filter(|_| output.contains("FATAL"));
                Err(fatal.unwrap_or(why))
            }
            Err(why) => Err(why),
        }
    }

    fn note_said(&self, said: &Said, pass: &mut Sample) {
        let row = self.row();
        pass.seconds = match said.seconds {
            // A file is stored when it is closed, which fio's clock does not see.
            Some(seconds) if row.tool == Tool::Fio && !row.outputs.is_empty() => {
                seconds.max(pass.seconds - self.fio_overhead)
            }
            Some(seconds) => seconds,
            None => pass.seconds,
        };
        pass.bytes = said.bytes;
        let counts = row.counts_operations || !matches!(row.tool, Tool::Fio | Tool::Sysbench);
        pass.operations = if counts { said.operations } else { 0 };
        pass.latency_seconds.clone_from(&said.latency_seconds);
        if row.tool == Tool::Plain {
            let files = self.workload().files(&row.outputs).unwrap_or_default();
            pass.bytes = files.iter().map(|file| file.size).sum();
            let counted = self.workload().number(&row.files).unwrap_or_default();
            pass.operations = counted.max(files.len() as u64);
        }
    }

    fn check_entries(&self, said: &Said) -> Result<(), Reason> {
        let expected = self.workload().number(&self.row().entries)?;
        let is_listing = matches!(self.row().tool, Tool::Lines | Tool::Objects);
        let found = said.operations;
        match is_listing && found != expected {
            true => Err(format!("listed {found} entries instead of {expected}")),
            false => Ok(()),
        }
    }

    /// Compares what the client delivers with what the files hold, through the same mount and,
    /// where the row reads through it, the same page cache.
    fn check_read(&self, mounted: &Mounted, sample: &mut Sample) -> Result<(), Reason> {
        let row = self.row();
        if row.tool == Tool::Lines {
            sample.verified = Some(true);
            return Ok(());
        }
        if row.inputs.is_empty() || row.changes_inputs || row.removes_inputs {
            return Ok(());
        }
        let files = self.workload().files(&row.inputs)?;
        let place = Place::Directory(mounted.directory.clone());
        self.check(place, files, sample)
    }

    /// Compares what arrived with what was written and removes it, and looks that what was removed is gone.
    fn check_written(&self, sample: &mut Sample) -> Result<(), Reason> {
        let row = self.row();
        let files = self.workload().files(&row.outputs)?;
        let gone = match row.removes_inputs {
            true => self.workload().files(&row.inputs)?,
            false => Vec::new(),
        };
        if files.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let suite = &self.workload().suite;
        let directories = row.directories.iter();
        let directories = directories.map(|name| format!("{suite}/{name}/"));
        let keys = files.iter().map(|file| file.key.clone());
        let keys = keys.chain(directories).collect();
        let check = |place: Place| {
            let checked = self.check(place.clone(), files, sample);
            let checked = checked.and_then(|()| self.check_gone(place.clone(), gone, sample));
            if self.store_goes() {
                return checked;
            }
            let removed = self.work(&Job::Remove { place, keys });
            checked.and(removed)
        };
        if !self.only_through_mount() {
            let place = self.store.map(server_place).ok_or("there is no server")?;
            return check(place);
        }
        let mounted = self.mount(self.client)?;
        match check(Place::Directory(mounted.directory.clone())) {
            Ok(()) => mounted.end(self.session),
            Err(why) => {
                mounted.abort(self.session);
                Err(why)
            }
        }
    }

    /// Whether the store ends with this run, so that nothing needs to be removed from it.
    fn store_goes(&self) -> bool {
        self.row().fresh_store && self.store.is_some_and(Store::is_development)
    }

    fn check_gone(
        &self,
        place: Place,
        files: Vec<Expected>,
        sample: &mut Sample,
    ) -> Result<(), Reason> {
        if files.is_empty() {
            return Ok(());
        }
        let keys = files.into_iter().map(|file| file.key).collect();
        let outcome = self.work(&Job::CheckGone { place, keys });
        sample.verified = Some(outcome.is_ok());
        outcome
    }

    fn check(&self, place: Place, files: Vec<Expected>, sample: &mut Sample) -> Result<(), Reason> {
        if files.is_empty() {
            return Ok(());
        }
        let is_known = files.iter().any(|file| file.content.is_known());
        let job = Job::Check {
            place,
            files,
            budget: COMPARED_MAX,
        };
        let outcome = self.work(&job);
        if is_known {
            sample.verified = Some(outcome.is_ok());
        }
        outcome.map_err(|why| format!("wrong content: {why}"))
    }
}

impl Run<'_> {
    /// Runs the client's command of this name, which is what is measured, without a mount, such as the building of an index.
    ///
    /// Client and workload are the same processes then. Their time is what the kernel credits us with when they have ended,
    /// exact to the last one.
    fn own_command(&self, name: &str, sample: &mut Sample) -> Result<(), Reason> {
        let (Kind::Program(spec, _), Some(store)) = (&self.client.kind, self.store) else {
            return Err("there is no client to run".to_owned());
        };
        self.set_profile(false)?;
        let mut attempt = Attempt::new((self.client, spec), self.session, store)?;
        let crowd = self.workload().crowds()?.pop();
        let path = crowd.map_or(String::new(), |crowd| crowd.prefix);
        attempt.known.extend(variables([
            ("crowd_bucket", suite::CROWD_BUCKET.to_owned()),
            ("crowd", path.trim_end_matches('/').to_owned()),
        ]));
        let command = spec.commands.get(name).map_or(&[][..], Vec::as_slice);
        let task = attempt.task(command)?;
        drop_caches(Caches::All);
        self.load(task.arguments.first().map_or("", String::as_str));
        let subjects = Subjects {
            client: Some(task.mark.clone()),
            is_workload: true,
            kernel_workers: false,
            cache: attempt.area.cache.clone(),
            server: store.pid(),
        };
        self.set_profile(true)?;
        let outcome = self.pass(subjects, &task, sample);
        if outcome.is_ok() {
            // How many there are is given; how long it takes is the figure.
            sample.operations = 0;
            let counts_objects = self.row().tool == Tool::Objects;
            sample.verified = counts_objects.then_some(true);
        }
        outcome.and(self.set_profile(false))
    }
}

fn server_place(store: &Store) -> Place {
    let known = store.variables();
    Place::Server {
        url: store.plain_url(),
        path: format!("/{}/{}", store.bucket, known["prefix_slash"]),
    }
}

/// The command as run in a directory. The shell goes there, not we: the directory may hang.
fn inside(directory: &Path, arguments: Vec<String>) -> Vec<String> {
    let script = "cd \"$0\" && exec \"$@\"";
    let mut wrapped = ["sh", "-c", script].map(str::to_owned).to_vec();
    wrapped.push(directory.display().to_string());
    wrapped.extend(arguments);
    wrapped
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caches {
    /// File content, as the sources do between runs.
    Pages,
    /// Names and attributes too. Some clients forget directories that they have not stored yet.
    All,
}

/// Empties caches. Only root can.
fn drop_caches(caches: Caches) -> bool {
    let word = match caches {
        Caches::Pages => "1",
        Caches::All => "3",
    };
    penstock_base::is_root() && fs::write("/proc/sys/vm/drop_caches", word).is_ok()
}

fn note_load(pass: &mut Sample) {
    let load = (pass.foreign_cpu_seconds - FOREIGN_GRAIN) / pass.seconds.max(1e-9);
    if load > FOREIGN_LOAD_MAX {
        pass.disturbed = Some(format!("{load:.1} cores of foreign load"));
    }
}

fn note_requests(before: &Counters, after: &Counters, pass: &mut Sample) {
    pass.server_sent_bytes = after.bytes_out.saturating_sub(before.bytes_out);
    pass.server_received_bytes = after.bytes_in.saturating_sub(before.bytes_in);
    let earlier = by_operation(before);
    for (operation, count) in by_operation(after) {
        let new = count.saturating_sub(earlier.get(&operation).copied().unwrap_or(0));
        if new > 0 {
            pass.requests.insert(operation, new);
        }
    }
}

fn by_operation(counters: &Counters) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, count) in counters.requests.values().flatten() {
        *sums.entry(operation_name(name)).or_insert(0) += count;
    }
    sums
}

/// `get_object` as the protocols spell it: `GetObject`.
fn operation_name(name: &str) -> String {
    let words = name.split('_').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    });
    words.collect()
}

/// The median of the last passes, by time.
fn steady(mut passes: Vec<Sample>) -> Sample {
    let mut last = passes.split_off(passes.len().saturating_sub(STEADY_PASSES));
    last.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let middle = last.len().saturating_sub(1) / 2;
    last.into_iter().nth(middle).unwrap_or_default()
}

/// A reason without the way to our directories, which means nothing to a reader and differs from run to
/// run.
fn without_paths(why: &str, directory: &Path) -> String {
    let prefix = format!("{}/", directory.display());
    let mut parts = why.split(&prefix);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let number = part.strip_prefix("mount-");
        let rest = number.map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        match rest.and_then(|rest| rest.strip_prefix("/mnt")) {
            Some(rest) => text += &format!("MOUNT{rest}"),
            None => text += &format!("TMPDIR/{part}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_do_not_name_our_directories() {
        let directory = Path::new("/tmp/penstock-bench-0f");
        let why = "fio: /tmp/penstock-bench-0f/mount-34/mnt/a/b: no; /tmp/penstock-bench-0f/home/x, /tmp/y";
        let text = without_paths(why, directory);
        assert_eq!(text, "fio: MOUNT/a/b: no; TMPDIR/home/x, /tmp/y");
        assert_eq!(without_paths("nothing", directory), "nothing");
    }

    #[test]
    fn the_steady_state_is_the_median_of_the_last_three() {
        let pass = |seconds| Sample {
            seconds,
            ..Sample::default()
        };
        let chosen = |times: &[f64]| steady(times.iter().map(|time| pass(*time)).collect()).seconds;
        assert!((chosen(&[9.0, 8.0, 1.0, 3.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((chosen(&[7.0]) - 7.0).abs() < 1e-9);
    }

    #[test]
    fn requests_are_those_of_both_dialects_that_came_since() {
        let counters = |s3: u64, oss: u64| Counters {
            requests: BTreeMap::from([
                (
                    "s3".to_owned(),
                    BTreeMap::from([("get_object".to_owned(), s3)]),
                ),
                (
                    "oss".to_owned(),
                    BTreeMap::from([("get_object".to_owned(), oss)]),
                ),
            ]),
            bytes_out: s3 * 10,
            ..Counters::default()
        };
        let mut pass = Sample::default();
        note_requests(&counters(1, 1), &counters(4, 2), &mut pass);
        assert_eq!(pass.requests, BTreeMap::from([("GetObject".to_owned(), 4)]));
        assert_eq!(pass.server_sent_bytes, 30);
    }

    #[test]
    fn foreign_load_is_named() {
        let pass = |foreign_cpu_seconds| {
            let mut pass = Sample {
                seconds: 2.0,
                foreign_cpu_seconds,
                ..Sample::default()
            };
            note_load(&mut pass);
            pass.disturbed
        };
        assert_eq!(pass(0.2), None);
        assert_eq!(pass(1.63).as_deref(), Some("0.8 cores of foreign load"));
    }
}
