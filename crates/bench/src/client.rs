//! The clients: the table, built in, with a user's own merged over it, and those of one invocation, found or not.
//!
//! A client is found when its program is, and when that says that it can do what the client needs: its `probe` is a
//! command that says yes by succeeding, and the first line of its complaint is the reason why the client is not available.

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde::Deserialize;

use crate::{
    BenchError, BenchResult, process, record,
    session::Session,
    settings::{RunSettings, Target},
    store::Store,
    suite::Row,
    system,
    template::{self, Variables, variables},
};

/// The table that is built in.
const BUILT_IN: &str = include_str!("clients.toml");
/// What `program` says when this program is meant.
const OURSELVES: &str = "{penstock}";
/// How long a program may take to answer whether it can be a client.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of its complaint that are read.
const COMPLAINT_MAX: u64 = 4 << 10;

/// How a client is mounted, as the table says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ClientSpec {
    pub(crate) about: String,
    /// Its program, looked for on PATH.
    pub(crate) program: String,
    pub(crate) get: String,
    pub(crate) version: Vec<String>,
    /// Succeeds when the program can do what this client needs.
    pub(crate) probe: Vec<String>,
    /// What is missing when it does not; the program's own complaint if empty.
    pub(crate) lacking: String,
    /// Run once for the client before its first mount in a store.
    pub(crate) setup: Vec<Vec<String>>,
    /// Mounts; may stay in the foreground or leave a daemon.
    pub(crate) mount: Vec<String>,
    /// Unmounts; the system's own way if empty.
    pub(crate) unmount: Vec<String>,
    /// Commands of its own that rows measure in place of a mount, by name: `index`.
    pub(crate) commands: BTreeMap<String, Vec<String>>,
    /// Removes what it leaves elsewhere on the machine when it is killed.
    pub(crate) cleanup: Vec<String>,
    /// Where it writes what went wrong, if not to its standard error.
    pub(crate) log: String,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) files: BTreeMap<String, String>,
    /// What it speaks, for people: `s3` or `oss`.
    pub(crate) dialect: String,
    /// How long it may take to mount; half a minute if not given.
    pub(crate) ready_seconds: Option<u64>,
    /// A file is not an object: its files are only seen through it.
    pub(crate) own_layout: bool,
    /// Its volumes are read-only: inputs are made through the client of this name.
    pub(crate) inputs_through: Option<String>,
    /// It works through block devices: what the kernel's workers do is its work too.
    pub(crate) kernel_workers: bool,
    /// The suites that it is part of when nobody names clients; all if empty.
    pub(crate) suites: Vec<String>,
    /// Why it cannot be run at all.
    pub(crate) unavailable: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Catalog(BTreeMap<String, ClientSpec>);

impl Catalog {
    /// The built-in table with the one in `file` over it.
    pub(crate) fn read(file: Option<&Path>) -> BenchResult<Self> {
        let mut catalog = Self(parse(BUILT_IN, "the built-in table")?);
        if let Some(file) = file {
            let text = fs::read_to_string(file).map_err(|error| {
                let cause = format!(
                    "cannot read the table of clients {}: {error}",
                    file.display()
                );
                BenchError::new(cause, "check the path and its permissions")
            })?;
            catalog.0.extend(parse(&text, &file.display().to_string())?);
        }
        Ok(catalog)
    }

    /// All names, ours first.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.0.keys().cloned().collect();
        names.sort_by_key(|name| (!name.starts_with("penstock"), name.clone()));
        names
    }

    /// Those that are measured when nobody names any. Whom a suite is about comes first, as what a
    /// report says is said of the first one.
    pub(crate) fn names_for(&self, suites: &[String]) -> Vec<String> {
        let suites_of = |name: &String| self.0.get(name).map_or(&[][..], |spec| &spec.suites);
        let is_about = |name: &String| suites_of(name).iter().any(|suite| suites.contains(suite));
        let mut names = self.names();
        names.retain(|name| suites_of(name).is_empty() || is_about(name));
        names.sort_by_key(|name| !is_about(name));
        names
    }

    pub(crate) fn get(&self, name: &str) -> BenchResult<&ClientSpec> {
        self.0.get(name).ok_or_else(|| {
            let remedy = format!(
                "there are {}; add one with --config",
                self.names().join(", ")
            );
            BenchError::new(format!("`{name}` is no client"), remedy)
        })
    }
}

fn parse(text: &str, name: &str) -> BenchResult<BTreeMap<String, ClientSpec>> {
    let invalid = |why: String| {
        let cause = format!("{name} is not a table of clients: {why}");
        BenchError::new(cause, "docs/benchmark.md describes its form")
    };
    let clients: Result<BTreeMap<String, ClientSpec>, _> = toml::from_str(text);
    let clients = clients.map_err(|error| invalid(error.to_string()))?;
    match clients.iter().find(|(_, spec)| spec.program.is_empty()) {
        Some((client, _)) => Err(invalid(format!("{client} has no program"))),
        None => Ok(clients),
    }
}

impl ClientSpec {
    /// Where its program is, or why it cannot be run.
    pub(crate) fn find(&self, ourselves: &Path, path: &str) -> Result<PathBuf, String> {
        if let Some(why) = &self.unavailable {
            return Err(format!("not available: {why}"));
        }
        let program = self.find_program(ourselves, path)?;
        let places = variables([
            ("program", program.display().to_string()),
            ("penstock", ourselves.display().to_string()),
        ]);
        let probe =
            template::expand_all(&self.probe, &places).map_err(|error| error.to_string())?;
        match ask(&probe, path) {
            Ok(()) => Ok(program),
            Err(_) if !self.lacking.is_empty() => Err(format!("not available: {}", self.lacking)),
            Err(why) => Err(format!("not available: {why}")),
        }
    }

    fn find_program(&self, ourselves: &Path, path: &str) -> Result<PathBuf, String> {
        if self.program == OURSELVES {
            return Ok(ourselves.to_path_buf());
        }
        find_program(&self.program, path).ok_or_else(|| match self.get.as_str() {
            "" => format!("`{}` is not on PATH", self.program),
            get => format!("`{}` is not on PATH; get it: {get}", self.program),
        })
    }
}

/// Looks for a program as a shell would.
pub(crate) fn find_program(name: &str, path: &str) -> Option<PathBuf> {
    let directories: Vec<&str> = if name.contains('/') {
        vec![""]
    } else {
        path.split(':')
            .filter(|directory| !directory.is_empty())
            .collect()
    };
    let is_program = |candidate: &PathBuf| {
        let metadata = fs::metadata(candidate);
        metadata.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    directories
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(is_program)
}

/// Runs `command` and returns why it did not succeed, if so.
fn ask(command: &[String], path: &str) -> Result<(), String> {
    let environment = variables([("PATH", path.to_owned())]);
    let Some(mut asking) = process::quiet(command, &environment) else {
        return Ok(());
    };
    let child = asking.stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("{}: {error}", command[0]))?;
    match system::ends_within(&mut child, ANSWER_LIMIT) {
        Some(Ok(status)) if status.success() => return Ok(()),
        Some(Ok(_)) => {}
        Some(Err(error)) => return Err(error.to_string()),
        None => {
            // It may have ended in this moment.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("it does not answer within {ANSWER_LIMIT:.0?}"));
        }
    }
    let mut complaint = Vec::new();
    if let Some(errors) = child.stderr.take() {
        // What was not said is not missed.
        let _ = errors.take(COMPLAINT_MAX).read_to_end(&mut complaint);
    }
    let text = String::from_utf8_lossy(&complaint);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    Err(line.unwrap_or("it refuses and does not say why").to_owned())
}

/// How long a program may take to tell its version.
const VERSION_LIMIT: Duration = Duration::from_secs(20);
/// The client that a mounted directory stands for.
const DIRECTORY: &str = "directory";

#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    version: Option<String>,
    command: String,
    /// Through whom its inputs are made, when its volumes are read-only.
    writer: Option<Box<Client>>,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Program(Box<ClientSpec>, PathBuf),
    Directory(PathBuf),
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
            if let Some(writer) = client.spec().and_then(|spec| spec.inputs_through.clone()) {
                let writer = Self::find(&writer, catalog.get(&writer)?, session)?;
                client.writer = Some(Box::new(writer));
            }
            Ok(client)
        });
        found.collect()
    }

    fn spec(&self) -> Option<&ClientSpec> {
        match &self.kind {
            Kind::Program(spec, _) => Some(spec),
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
        let spec = self.spec()?;
        if let Some(command) = &row.client_command {
            let has = spec.commands.contains_key(command);
            return (!has).then(|| format!("it keeps no {command}"));
        }
        let writes = row.changes_store() || !row.outputs.is_empty() || !row.directories.is_empty();
        (writes && spec.inputs_through.is_some()).then(|| "its volumes are read-only".to_owned())
    }

    /// Whether it is run in a row.
    pub(crate) fn does(&self, row: &Row) -> bool {
        self.missing().is_none() && self.cannot(row).is_none()
    }

    pub(crate) fn has_kernel_workers(&self) -> bool {
        self.spec().is_some_and(|spec| spec.kernel_workers)
    }

    fn find(name: &str, spec: &ClientSpec, session: &Session) -> BenchResult<Self> {
        let surroundings = &session.surroundings;
        let found = spec.find(&surroundings.program, &surroundings.path);
        let mut client = Self {
            name: name.to_owned(),
            kind: Kind::Missing(String::new()),
            version: None,
            command: String::new(),
            writer: None,
        };
        match found {
            Ok(program) => {
                client.version = ask_version(spec, &program, session)?;
                client.command = shown_command(spec);
                client.kind = Kind::Program(Box::new(spec.clone()), program);
            }
            Err(why) => client.kind = Kind::Missing(why),
        }
        Ok(client)
    }

    pub(crate) fn missing(&self) -> Option<&str> {
        match &self.kind {
            Kind::Missing(why) => Some(why),
            _ => None,
        }
    }

    /// Whether its files can only be seen through it.
    pub(crate) fn has_own_layout(&self) -> bool {
        let is_directory = matches!(self.kind, Kind::Directory(_));
        is_directory || self.spec().is_some_and(|spec| spec.own_layout)
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
                ("run", session.token().to_owned()),
            ]));
        }
        known
    }

    pub(crate) fn record(&self) -> record::Client {
        record::Client {
            name: self.name.clone(),
            version: self.version.clone(),
            missing: self.missing().map(str::to_owned),
            command: self.command.clone(),
        }
    }
}

fn ask_version(
    spec: &ClientSpec,
    program: &Path,
    session: &Session,
) -> BenchResult<Option<String>> {
    if spec.version.is_empty() {
        return Ok(None);
    }
    let known = variables([("program", program.display().to_string())]);
    let task = session.task("version", template::expand_all(&spec.version, &known)?);
    // A client that cannot tell its version can be measured all the same.
    let output = session.run(&task, VERSION_LIMIT).unwrap_or_default();
    let errors = std::fs::read_to_string(task.errors()).unwrap_or_default();
    let mut lines = output.lines().chain(errors.lines()).map(str::trim);
    let line = lines.find(|line| !line.is_empty());
    Ok(line.map(str::to_owned))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_has_every_client_that_is_promised() {
        let catalog = Catalog::read(None).expect("valid");
        let names = catalog.names();
        for name in [
            "penstock",
            "penstock-staged",
            "penstock-stream",
            "penstock-stream-direct",
            "penstock-stream-fuse",
            "penstock-stream-fuse-direct",
            "s3fs",
            "ossfs",
            "ossfs2",
            "goofys",
            "geesefs",
            "mount-s3",
            "rclone",
            "juicefs",
        ] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
        assert_eq!(names[0], "penstock");
    }

    #[test]
    fn some_clients_are_part_of_their_own_suites_only() {
        let catalog = Catalog::read(None).expect("valid");
        let has = |suites: &[&str], name: &str| {
            let suites: Vec<_> = suites.iter().map(|&suite| suite.to_owned()).collect();
            catalog.names_for(&suites).iter().any(|known| known == name)
        };
        assert!(has(&["smoke"], "s3fs") && !has(&["smoke"], "penstock-stream"));
        assert!(has(&["smoke", "strmvol"], "penstock-stream"));
        let names = catalog.names_for(&["strmvol".to_owned()]);
        assert_eq!(names[0], "penstock-stream");
    }

    #[test]
    fn no_secret_stands_in_arguments() {
        let catalog = Catalog::read(None).expect("valid");
        for name in catalog.names() {
            let spec = catalog.get(&name).expect("a client");
            let arguments = spec.mount.iter().chain(spec.setup.iter().flatten());
            let arguments = arguments.chain(spec.commands.values().flatten());
            for argument in arguments {
                assert!(
                    !argument.contains("secret") && !argument.contains("token"),
                    "{name}: {argument}"
                );
            }
        }
    }

    /// A client whose program answers that it cannot be one.
    const REFUSING: &str = r#"[staged]
program = "/bin/sh"
probe = ["{program}", "-c", "echo \"$0 has no mode\" >&2; exit 2", "{program}"]
mount = []
"#;

    #[test]
    fn a_users_table_replaces_and_adds() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("clients.toml");
        fs::write(
            &file,
            "[s3fs]\nprogram = \"mine\"\nmount = [\"x\"]\n[novel]\nprogram = \"/bin/sh\"\nmount = []\n",
        )
        .expect("written");
        let catalog = Catalog::read(Some(&file)).expect("valid");
        assert_eq!(catalog.get("s3fs").expect("there").mount, ["x"]);
        let novel = catalog.get("novel").expect("added");
        assert!(novel.find(Path::new("/x"), "").is_ok());
        let missing = catalog
            .get("goofys")
            .expect("kept")
            .find(Path::new("/x"), "/none");
        assert!(missing.expect_err("not there").contains("get it: https://"));
        fs::write(&file, REFUSING).expect("written");
        let refusing = Catalog::read(Some(&file)).expect("valid");
        let found = refusing
            .get("staged")
            .expect("added")
            .find(Path::new("/x"), "/bin");
        assert_eq!(found, Err("not available: /bin/sh has no mode".to_owned()));
        fs::write(&file, "[a]\nprogram = \"a\"\nmount = []\nspeed = 1\n").expect("written");
        assert!(Catalog::read(Some(&file)).is_err());
    }

    fn ask_shell(script: &str) -> Result<(), String> {
        ask(&["/bin/sh", "-c", script].map(str::to_owned), "/bin")
    }

    #[test]
    fn success_is_yes_and_the_first_line_of_a_complaint_is_the_reason() {
        assert_eq!(ask_shell("echo noise; exit 0"), Ok(()));
        let refused = ask_shell("echo >&2; echo 'no such mode' >&2; echo more >&2; exit 2");
        assert_eq!(refused, Err("no such mode".to_owned()));
        let silent = ask_shell("exit 1");
        assert_eq!(silent, Err("it refuses and does not say why".to_owned()));
        assert!(ask(&["/no/such/program".to_owned()], "/bin").is_err());
        assert_eq!(ask(&[], "/bin"), Ok(()));
    }
}
