//! The clients of one invocation: found or not, and how to start them.

use std::{path::PathBuf, time::Duration};

use crate::{
    BenchResult,
    catalog::{Catalog, ClientSpec},
    record,
    session::Session,
    settings::{RunSettings, Target},
    store::Store,
    suite::Row,
    template::{self, Variables, variables},
};

/// How long a program may take to tell its version.
const VERSION_LIMIT: Duration = Duration::from_secs(20);
/// The client that a mounted directory stands for.
const DIRECTORY: &str = "directory";

/// A client of this invocation.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    version: Option<String>,
    command: String,
    /// Through whom its inputs are made, when its volumes are read-only.
    writer: Option<Box<Client>>,
}

/// What there is to run.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// A program that mounts.
    Program(Box<ClientSpec>, PathBuf),
    /// A directory that is mounted already.
    Directory(PathBuf),
    /// Nothing, and why.
    Missing(String),
}

impl Client {
    /// The clients that the settings ask for.
    pub(crate) fn all(settings: &RunSettings, session: &Session) -> BenchResult<Vec<Self>> {
        if let Target::Directory(path) = &settings.target {
            let elsewhere = session.elsewhere.clone();
            return Ok(vec![Self {
                name: DIRECTORY.to_owned(),
                kind: Kind::Directory(elsewhere.unwrap_or_else(|| path.clone())),
                version: None,
                command: path.display().to_string(),
                writer: None,
            }]);
        }
        let catalog = Catalog::read(settings.table.as_deref())?;
        let names = match settings.clients.as_slice() {
            [] => catalog.names_for(&settings.suites),
            names => names.to_vec(),
        };
        let found = names.iter().map(|name| {
            let mut client = Self::find(name, catalog.get(name)?, session)?;
            if let Some(writer) = client.inputs_through() {
                let writer = Self::find(&writer, catalog.get(&writer)?, session)?;
                client.writer = Some(Box::new(writer));
            }
            Ok(client)
        });
        found.collect()
    }

    fn inputs_through(&self) -> Option<String> {
        match &self.kind {
            Kind::Program(spec, _) => spec.inputs_through.clone(),
            _ => None,
        }
    }

    /// The client through which inputs are made.
    pub(crate) fn writer(&self) -> &Self {
        self.writer.as_deref().unwrap_or(self)
    }

    /// Why a row is not for it, if so.
    pub(crate) fn cannot(&self, row: &Row) -> Option<String> {
        if let Some(why) = row.unavailable_for.get(&self.name) {
            return Some(why.clone());
        }
        let Kind::Program(spec, _) = &self.kind else {
            return None;
        };
        if let Some(command) = &row.client_command {
            let has = spec.commands.contains_key(command);
            return (!has).then(|| format!("it keeps no {command}"));
        }
        let writes = row.changes_inputs || !row.outputs.is_empty() || !row.directories.is_empty();
        (writes && spec.inputs_through.is_some()).then(|| "its volumes are read-only".to_owned())
    }

    /// Whether kernel workers do some of its work.
    pub(crate) fn has_kernel_workers(&self) -> bool {
        matches!(&self.kind, Kind::Program(spec, _) if spec.kernel_workers)
    }

    fn find(name: &str, spec: &ClientSpec, session: &Session) -> BenchResult<Self> {
        let surroundings = &session.surroundings;
        let mut client = Self {
            name: name.to_owned(),
            kind: Kind::Missing(String::new()),
            version: None,
            command: String::new(),
            writer: None,
        };
        match spec.find(&surroundings.program, &surroundings.path) {
            Ok(program) => {
                client.command = shown_command(spec);
                client.kind = Kind::Program(Box::new(spec.clone()), program);
                client.version = client.ask_version(session)?;
            }
            Err(why) => client.kind = Kind::Missing(why),
        }
        Ok(client)
    }

    fn ask_version(&self, session: &Session) -> BenchResult<Option<String>> {
        let Kind::Program(spec, program) = &self.kind else {
            return Ok(None);
        };
        if spec.version.is_empty() {
            return Ok(None);
        }
        let known = variables([("program", program.display().to_string())]);
        let task = session.task("version", template::expand_all(&spec.version, &known)?);
        // A client that cannot tell its version can be measured all the same.
        let output = session.run(&task, VERSION_LIMIT).unwrap_or_default();
        let errors = std::fs::read_to_string(task.errors()).unwrap_or_default();
        let line = output
            .lines()
            .chain(errors.lines())
            .find(|line| !line.trim().is_empty());
        Ok(line.map(|line| line.trim().to_owned()))
    }

    /// Why it cannot be run, if it cannot.
    pub(crate) fn missing(&self) -> Option<&str> {
        match &self.kind {
            Kind::Missing(why) => Some(why),
            _ => None,
        }
    }

    /// Whether its files can only be seen through it.
    pub(crate) fn has_own_layout(&self) -> bool {
        match &self.kind {
            Kind::Program(spec, _) => spec.own_layout,
            Kind::Directory(_) => true,
            Kind::Missing(_) => false,
        }
    }

    /// What its templates can name, where it is mounted aside.
    pub(crate) fn variables(&self, session: &Session, store: &Store) -> Variables {
        let mut known = store.variables();
        if let Kind::Program(_, program) = &self.kind {
            let ourselves = session.surroundings.program.display().to_string();
            let state = session.state(&self.name).display().to_string();
            known.extend(variables([
                ("program", program.display().to_string()),
                ("penstock", ourselves),
                ("state", state),
            ]));
        }
        known
    }

    /// For the report.
    pub(crate) fn record(&self) -> record::Client {
        record::Client {
            name: self.name.clone(),
            version: self.version.clone(),
            missing: self.missing().map(str::to_owned),
            command: self.command.clone(),
        }
    }
}

/// The mount command for people: places stay as they are, but for the program.
fn shown_command(spec: &ClientSpec) -> String {
    let name = spec.program.trim_matches(['{', '}']);
    let words = spec
        .mount
        .iter()
        .map(|word| word.replace("{program}", name));
    words.collect::<Vec<_>>().join(" ")
}
