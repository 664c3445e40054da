//! What there is to run and with what (`penstock bench list`), and what is going to be run: every row of every suite at
//! every latency.

use std::{collections::BTreeMap, path::Path, time::Duration};

use penstock_devserver::{Crowd, Fill};

use crate::{
    BenchError, BenchResult,
    client::{self, Catalog},
    record::{Cell, Row as Shown, Table},
    settings::{self, AS_IS, PROFILES, RunSettings, Surroundings, Target},
    suite::{self, Files, Row, Suite, Workload},
};

/// How long a run may take whatever it does.
const LIMIT_BASE: Duration = Duration::from_secs(120);
/// Bytes per second below which a client counts as hanging.
const SLOWEST_RATE: u64 = 4 << 20;
/// What a file may cost beside its bytes.
const SLOWEST_FILE: Duration = Duration::from_millis(100);
/// The same of a file that programs make or remove one after the other, with several requests each.
const SLOWEST_STORED_FILE: Duration = Duration::from_secs(2);
/// What a listed object may cost.
const SLOWEST_OBJECT: Duration = Duration::from_millis(1);
/// Programs that rows use, with how to get them.
const PROGRAMS: [(&str, &str); 7] = [
    (
        "fio",
        "apt-get install fio, or https://github.com/axboe/fio",
    ),
    (
        "sysbench",
        "apt-get install sysbench, or https://github.com/akopytov/sysbench",
    ),
    ("rsync", "apt-get install rsync"),
    ("fpsync", "apt-get install fpart"),
    ("git", "apt-get install git"),
    ("cargo", "apt-get install cargo, or https://rustup.rs"),
    ("npm", "apt-get install npm, or https://nodejs.org"),
];

/// A row of the report that is to be filled.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) workload: Workload,
    pub(crate) name: String,
    pub(crate) profile: String,
    pub(crate) table: usize,
    pub(crate) row: usize,
    pub(crate) unavailable: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) tables: Vec<Table>,
    pub(crate) rows: Vec<Planned>,
}

impl Plan {
    /// The plan for `settings`, with an empty cell for each of `clients`.
    pub(crate) fn new(settings: &RunSettings, clients: &[String]) -> BenchResult<Self> {
        check_profiles(&settings.profiles)?;
        check_rows(settings)?;
        let mut plan = Self {
            tables: Vec::new(),
            rows: Vec::new(),
        };
        for name in &settings.suites {
            plan.add(&suite::find(name)?, settings, clients)?;
        }
        if plan.rows.is_empty() {
            let remedy = "`penstock bench list` shows the rows and their profiles";
            return Err(BenchError::new("no row is left to run", remedy));
        }
        Ok(plan)
    }

    fn add(
        &mut self,
        suite: &Suite,
        settings: &RunSettings,
        clients: &[String],
    ) -> BenchResult<()> {
        let scale = settings.scale.unwrap_or(suite.scale);
        let mut table = Table {
            suite: suite.name.clone(),
            scale,
            rows: Vec::new(),
        };
        for workload in suite.workloads(scale)? {
            let name = workload.name()?;
            if !is_asked_for(&name, &settings.rows) {
                continue;
            }
            for profile in profiles(suite, &workload, settings) {
                let unavailable = unavailable(&workload, settings);
                table.rows.push(Shown {
                    workload: name.clone(),
                    description: workload.description()?,
                    commands: workload.commands()?,
                    profile: profile.clone(),
                    unavailable: unavailable.clone(),
                    cells: clients.iter().map(|it| cell(it)).collect(),
                    published: workload.published(),
                });
                self.rows.push(Planned {
                    workload: workload.clone(),
                    name: name.clone(),
                    profile,
                    table: self.tables.len(),
                    row: table.rows.len() - 1,
                    unavailable,
                });
            }
        }
        self.tables.push(table);
        Ok(())
    }

    /// The objects that the rows read, each once.
    pub(crate) fn fills(&self) -> BenchResult<Vec<Fill>> {
        self.each_once(Workload::fills, |fill| fill.prefix.clone())
    }

    /// The objects that are made up for the rows, each crowd once.
    pub(crate) fn crowds(&self) -> BenchResult<Vec<Crowd>> {
        self.each_once(Workload::crowds, Crowd::to_string)
    }

    fn each_once<T>(
        &self,
        of: fn(&Workload) -> BenchResult<Vec<T>>,
        name: fn(&T) -> String,
    ) -> BenchResult<Vec<T>> {
        let mut found = BTreeMap::new();
        for planned in self.runnable() {
            let these = of(&planned.workload)?.into_iter();
            found.extend(these.map(|it| (name(&it), it)));
        }
        Ok(found.into_values().collect())
    }

    pub(crate) fn written_most(&self) -> BenchResult<u64> {
        let mut most = 0;
        for planned in self.runnable() {
            let workload = &planned.workload;
            let row = &workload.row;
            let mut bytes = total(workload, &row.outputs)?;
            if row.changes_inputs {
                bytes += total(workload, &row.inputs)?;
            }
            most = most.max(bytes);
        }
        Ok(most)
    }

    fn runnable(&self) -> impl Iterator<Item = &Planned> {
        self.rows.iter().filter(|row| row.unavailable.is_none())
    }
}

impl Planned {
    pub(crate) fn title(&self) -> String {
        format!("{} · {}", self.name, self.profile)
    }

    pub(crate) fn limit(&self, settings: &RunSettings) -> BenchResult<Duration> {
        if let Some(limit) = settings.timeout {
            return Ok(limit);
        }
        let row = &self.workload.row;
        let bytes = total(&self.workload, &row.outputs)? + total(&self.workload, &row.inputs)?;
        let mut files = 0;
        for spec in row.inputs.iter().chain(&row.outputs) {
            files += self.workload.count(spec)?;
        }
        let handled = match row.until_stored || row.fresh_store {
            true => self.workload.number(&row.files)?.max(files),
            false => 0,
        };
        let crowds = self.workload.crowds()?;
        let listed = crowds.iter().map(|crowd| crowd.count).sum();
        let [files, handled, listed] =
            [files, handled, listed].map(|it: u64| u32::try_from(it).unwrap_or(u32::MAX));
        let seconds = self.workload.number(&row.seconds)? * 2 + bytes / SLOWEST_RATE;
        Ok(LIMIT_BASE
            + Duration::from_secs(seconds)
            + SLOWEST_FILE.saturating_mul(files)
            + SLOWEST_STORED_FILE.saturating_mul(handled)
            + SLOWEST_OBJECT.saturating_mul(listed))
    }
}

fn total(workload: &Workload, files: &[Files]) -> BenchResult<u64> {
    let mut bytes = 0;
    for spec in files {
        bytes += workload.bytes(&spec.size)? * workload.count(spec)?;
    }
    Ok(bytes)
}

fn check_profiles(profiles: &[String]) -> BenchResult<()> {
    let is_unknown = |name: &&String| settings::latency(name).is_none();
    match profiles.iter().find(is_unknown) {
        Some(name) => {
            let known = PROFILES.map(|(name, _)| name).join(", ");
            let cause = format!("`{name}` is no latency profile");
            Err(BenchError::new(cause, format!("there are {known}")))
        }
        None => Ok(()),
    }
}

fn cell(client: &str) -> Cell {
    Cell {
        client: client.to_owned(),
        samples: Vec::new(),
    }
}

/// Whether a row is one of those that were asked for: by its name, or by its beginning with `*`.
fn is_asked_for(name: &str, asked: &[String]) -> bool {
    let is_meant = |asked: &String| match asked.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == asked,
    };
    asked.is_empty() || asked.iter().any(is_meant)
}

/// A row that no suite has is a slip of the pen, and would be missed only after an hour.
fn check_rows(settings: &RunSettings) -> BenchResult<()> {
    let mut names = Vec::new();
    for name in &settings.suites {
        let suite = suite::find(name)?;
        for workload in suite.workloads(settings.scale.unwrap_or(suite.scale))? {
            names.push(workload.name()?);
        }
    }
    let is_unknown = |asked: &&String| {
        let asked = std::slice::from_ref(*asked);
        !names.iter().any(|name| is_asked_for(name, asked))
    };
    match settings.rows.iter().find(is_unknown) {
        Some(unknown) => Err(BenchError::new(
            format!("`{unknown}` is no row of {}", settings.suites.join(" or ")),
            format!("there are {}", names.join(", ")),
        )),
        None => Ok(()),
    }
}

/// Only the development server can pretend to be somewhere else.
fn profiles(suite: &Suite, workload: &Workload, settings: &RunSettings) -> Vec<String> {
    if settings.target != Target::DevelopmentServer {
        return vec![AS_IS.to_owned()];
    }
    let asked = match settings.profiles.as_slice() {
        [] if !workload.row.profiles.is_empty() => &workload.row.profiles,
        [] => &suite.profiles,
        asked => asked,
    };
    asked.to_vec()
}

fn unavailable(workload: &Workload, settings: &RunSettings) -> Option<String> {
    let row = &workload.row;
    if row.unavailable.is_some() {
        return row.unavailable.clone();
    }
    let is_development = settings.target == Target::DevelopmentServer;
    if let Some(why) = needs_development_server(row).filter(|_| !is_development) {
        let remedy = "run it without --endpoint, --server and --dir";
        return Some(format!("{why} the development server; {remedy}"));
    }
    let path = &settings.surroundings.path;
    let is_missing = |program: &&String| client::find_program(program, path).is_none();
    let program = row.needs().find(is_missing)?;
    let known = PROGRAMS.iter().find(|(name, _)| name == program);
    let remedy = known.map_or(String::new(), |(_, get)| format!("; get it: {get}"));
    Some(format!("`{program}` is not on PATH{remedy}"))
}

/// What of a row only the development server does.
fn needs_development_server(row: &Row) -> Option<&'static str> {
    match row {
        Row { crowd: Some(_), .. } => Some("its objects are made up by"),
        Row {
            until_stored: true, ..
        } => Some("when all is stored is told by"),
        _ => None,
    }
}

/// A suite in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct SuiteListing {
    /// Its name.
    pub name: &'static str,
    /// What it reproduces.
    pub title: String,
    /// The client that the source is about, if that is one of ours of which nothing can be taken
    /// for granted.
    pub client: Option<String>,
    /// The factor for sizes if nobody gives one.
    pub scale: f64,
    /// Its latency profiles if nobody gives some.
    pub profiles: Vec<String>,
    /// Its rows at that scale.
    pub rows: Vec<RowListing>,
}

/// A row in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowListing {
    /// Its short name.
    pub name: String,
    /// What is done.
    pub description: String,
    /// Why nobody can run it yet.
    pub unavailable: Option<String>,
    /// Why some client cannot, by its name.
    pub unavailable_for: BTreeMap<String, String>,
}

/// A client in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientListing {
    /// Its name.
    pub name: String,
    /// What it is.
    pub about: String,
    /// Where its program is, or why it cannot be run.
    pub found: Result<String, String>,
}

/// Every suite.
///
/// # Errors
/// A suite is not valid, which a test rules out.
pub fn suites() -> BenchResult<Vec<SuiteListing>> {
    suite::names().into_iter().map(suite_listing).collect()
}

fn suite_listing(name: &'static str) -> BenchResult<SuiteListing> {
    let suite = suite::find(name)?;
    let mut rows = Vec::new();
    for workload in suite.workloads(suite.scale)? {
        rows.push(RowListing {
            name: workload.name()?,
            description: workload.description()?,
            unavailable: workload.row.unavailable.clone(),
            unavailable_for: workload.row.unavailable_for.clone(),
        });
    }
    Ok(SuiteListing {
        name,
        title: suite.title,
        client: suite.client,
        scale: suite.scale,
        profiles: suite.profiles,
        rows,
    })
}

/// Every client of the table.
///
/// # Errors
/// The user's table cannot be read.
pub fn clients(
    table: Option<&Path>,
    surroundings: &Surroundings,
) -> BenchResult<Vec<ClientListing>> {
    let catalog = Catalog::read(table)?;
    let listing = |name: String| {
        let spec = catalog.get(&name)?;
        let found = spec.find(&surroundings.program, &surroundings.path);
        Ok(ClientListing {
            about: spec.about.clone(),
            found: found.map(|path| path.display().to_string()),
            name,
        })
    };
    catalog.names().into_iter().map(listing).collect()
}
