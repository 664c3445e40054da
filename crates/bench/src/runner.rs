//! The whole invocation: rows in order, and in each row the clients taking turns, so that whatever
//! changes on the machine in the meantime hits all of them.

use std::{collections::BTreeSet, time::Duration};

use penstock_base::{
    clock::{self, Instant},
    text::timestamp,
};

use crate::{
    BenchResult,
    client::Client,
    plan::{Plan, Planned},
    proc_fs,
    process::Task,
    record::{Endpoint, FORMAT, Report, Row, Sample, Table},
    sample::Run,
    session::Session,
    settings::{RunSettings, Target},
    store::{Store, StoreNeeds},
    system,
};

/// How long fio may take for nothing.
const CALIBRATION_LIMIT: Duration = Duration::from_secs(20);

/// Where the invocation is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Runs that are done.
    pub done: usize,
    /// Runs in all.
    pub total: usize,
    /// Seconds since the first one began.
    pub seconds: f64,
    /// What runs now: "ossfs2 read-4 · far, s3fs, run 2 of 3".
    pub current: &'a str,
    /// Which of the client's runs of the row this is, from 1.
    pub run: u32,
}

/// What happens while it runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// What is going to be run: clients and rows, without samples.
    Planned(&'a Report),
    /// A run begins.
    Begins(Progress<'a>),
    /// A run has ended.
    Ends(Progress<'a>, &'a Sample),
    /// A row is complete, or cannot be run.
    RowEnds(&'a Report, &'a Table, &'a Row),
    /// The user wants to stop; what is left is not run. The report is what there is.
    Stopped(&'a Report),
}

/// Told what happens.
pub type Observer<'a> = dyn FnMut(&Event<'_>) + 'a;

/// Runs everything that `settings` ask for. Interrupted, it returns what it has, and has told of
/// [`Event::Stopped`].
///
/// # Errors
/// The settings make no sense, or the server or the directory for temporary files cannot be
/// used. A client that fails is no error.
pub fn run(settings: &RunSettings, observer: &mut Observer<'_>) -> BenchResult<Report> {
    system::catch_interrupts();
    let session = Session::begin(&settings.surroundings, &settings.target)?;
    let clients = Client::all(settings, &session)?;
    let names: Vec<_> = clients.iter().map(|client| client.name.clone()).collect();
    let plan = Plan::new(settings, &names)?;
    let needs = StoreNeeds {
        fills: plan.fills()?,
        crowds: plan.crowds()?,
        written: plan.written_most()?,
        server: server_task(&session),
        directory: session.directory.join("server"),
        tls: settings.tls,
    };
    let store = match settings.target {
        Target::Directory(_) => None,
        _ => Some(Store::begin(settings, &needs)?),
    };
    let report = Report {
        format: FORMAT,
        started: timestamp(clock::wall_time()),
        machine: proc_fs::machine(),
        endpoint: endpoint(settings, store.as_ref()),
        clients: clients.iter().map(Client::record).collect(),
        tables: plan.tables,
    };
    let mut runner = Runner {
        settings,
        fio_overhead: fio_overhead(&session),
        session: &session,
        needs,
        store,
        clients: &clients,
        prepared: BTreeSet::new(),
        wear: Wear::New,
        report,
        done: 0,
        total: 0,
        started: clock::now(),
    };
    runner.total = runner.cells(&plan.rows) * settings.repeat as usize;
    observer(&Event::Planned(&runner.report));
    runner.run(&plan.rows, observer)?;
    Ok(runner.report)
}

fn server_task(session: &Session) -> Task {
    let program = session.surroundings.program.display().to_string();
    session.task("server", vec![program])
}

fn endpoint(settings: &RunSettings, store: Option<&Store>) -> Endpoint {
    let (mut description, same_machine) = match (&settings.target, store) {
        (_, Some(store)) => (store.description(), store.is_local()),
        (Target::Directory(path), None) => (format!("directory {}", path.display()), false),
        (_, None) => (String::new(), false),
    };
    let is_limited = store.is_some_and(Store::is_development);
    if let Some(bandwidth) = settings.bandwidth.filter(|_| is_limited) {
        description += &format!(", {} MiB/s", bandwidth >> 20);
    }
    Endpoint {
        description,
        same_machine,
    }
}

/// What fio takes for a run of nothing: the shorter of two.
fn fio_overhead(session: &Session) -> f64 {
    let words =
        "fio --name=nothing --ioengine=null --rw=write --bs=1M --size=1M --output-format=json";
    let once = || {
        let arguments = words.split(' ').map(str::to_owned).collect();
        let started = clock::now();
        let outcome = session.run(&session.task("calibration", arguments), CALIBRATION_LIMIT);
        outcome.map_or(0.0, |_| started.elapsed().as_secs_f64())
    };
    once().min(once())
}

/// What was done with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wear {
    New,
    /// It has what clients made to be read.
    Used,
    /// Its objects are not as they were.
    Changed,
}

struct Runner<'a> {
    settings: &'a RunSettings,
    session: &'a Session,
    needs: StoreNeeds,
    store: Option<Store>,
    clients: &'a [Client],
    /// Inputs that were made through a mount: by row, and by client where each has its own.
    prepared: BTreeSet<(String, String, String)>,
    wear: Wear,
    fio_overhead: f64,
    report: Report,
    /// Runs that are done, of all, and since when.
    done: usize,
    total: usize,
    started: Instant,
}

impl Runner<'_> {
    fn cells(&self, rows: &[Planned]) -> usize {
        let rows = rows.iter().filter(|row| row.unavailable.is_none());
        let clients = |row: &Planned| {
            let clients = self.clients.iter();
            clients
                .filter(|client| client.does(&row.workload.row))
                .count()
        };
        rows.map(clients).sum()
    }

    fn run(&mut self, rows: &[Planned], observer: &mut Observer<'_>) -> BenchResult<()> {
        for planned in rows {
            let outcome = match planned.unavailable {
                None => self.run_row(planned, observer),
                Some(_) => Ok(()),
            };
            if system::interrupted() {
                // What broke then broke because of that.
                observer(&Event::Stopped(&self.report));
                break;
            }
            outcome?;
            let table = &self.report.tables[planned.table];
            let row = &table.rows[planned.row];
            observer(&Event::RowEnds(&self.report, table, row));
        }
        Ok(())
    }

    fn run_row(&mut self, planned: &Planned, observer: &mut Observer<'_>) -> BenchResult<()> {
        for run in 1..=self.settings.repeat {
            for (index, client) in self.clients.iter().enumerate() {
                if client.missing().is_some() {
                    continue;
                }
                let (suite, runs) = (&planned.workload.suite, self.settings.repeat);
                let (row, name) = (planned.title(), &client.name);
                let current = format!("{suite} {row}, {name}, run {run} of {runs}");
                observer(&Event::Begins(self.progress(&current, run)));
                let sample = self.sample(planned, client)?;
                if system::interrupted() {
                    return Ok(());
                }
                self.done += usize::from(client.does(&planned.workload.row));
                observer(&Event::Ends(self.progress(&current, run), &sample));
                let row = &mut self.report.tables[planned.table].rows[planned.row];
                row.cells[index].samples.push(sample);
            }
        }
        Ok(())
    }

    fn progress<'a>(&self, current: &'a str, run: u32) -> Progress<'a> {
        Progress {
            done: self.done,
            total: self.total,
            seconds: self.started.elapsed().as_secs_f64(),
            current,
            run,
        }
    }

    fn sample(&mut self, planned: &Planned, client: &Client) -> BenchResult<Sample> {
        let row = &planned.workload.row;
        let needs_another = match self.wear {
            Wear::New => false,
            Wear::Used => row.fresh_store,
            Wear::Changed => true,
        };
        if needs_another && client.cannot(row).is_none() {
            self.renew_store()?;
        }
        let owner = Some(&client.name).filter(|_| client.has_own_layout());
        let inputs = (
            planned.workload.suite.clone(),
            planned.name.clone(),
            owner.cloned().unwrap_or_default(),
        );
        let run = Run {
            session: self.session,
            store: self.store.as_ref(),
            client,
            planned,
            limit: planned.limit(self.settings)?,
            bandwidth: self.settings.bandwidth,
            fio_overhead: self.fio_overhead,
            is_prepared: self.prepared.contains(&inputs),
        };
        let sample = run.sample();
        let changes = row.changes_store();
        if sample.failure.is_none() && !changes {
            self.prepared.insert(inputs);
        }
        if client.cannot(row).is_some() {
            return Ok(sample);
        }
        let leaves_something = sample.failure.is_some() && !row.outputs.is_empty();
        self.wear = match changes || leaves_something {
            true => Wear::Changed,
            false => Wear::Used,
        };
        Ok(sample)
    }

    /// A new development server in place of one whose objects are not as they were, with which clients begin anew.
    fn renew_store(&mut self) -> BenchResult<()> {
        if !self.store.as_ref().is_some_and(Store::is_development) || system::interrupted() {
            return Ok(());
        }
        if let Some(pid) = self.store.as_ref().and_then(Store::pid) {
            system::kill(pid);
        }
        self.needs.server = server_task(self.session);
        self.store = Some(Store::begin(self.settings, &self.needs)?);
        self.session.forget_states();
        self.prepared.clear();
        self.wear = Wear::New;
        Ok(())
    }
}
