//! The table of clients: built in, with a user's own merged over it.
//!
//! A client is found when its program is, and when that says that it can do what the client needs: its `probe` is a
//! command that says yes by succeeding. The first word of its complaint is the reason why the client is not available.

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde::Deserialize;

use crate::{
    BenchError, BenchResult, system,
    template::{self, variables},
};

/// The table that is built in.
const BUILT_IN: &str = include_str!("clients.toml");
/// What `program` says when this program is meant.
const OURSELVES: &str = "{penstock}";
/// How long a client may take to mount if its table does not say, in seconds.
const READY_SECONDS: u64 = 30;
/// How long a program may take to answer whether it can be a client.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of its complaint that are read.
const COMPLAINT_MAX: u64 = 4 << 10;

/// How a client is mounted, as the table says it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientSpec {
    /// What it is, in a few words.
    #[serde(default)]
    pub(crate) about: String,
    /// Its program, looked for on PATH.
    pub(crate) program: String,
    /// How to get it.
    #[serde(default)]
    pub(crate) get: String,
    /// Prints its version.
    #[serde(default)]
    pub(crate) version: Vec<String>,
    /// Succeeds when the program can do what this client needs.
    #[serde(default)]
    pub(crate) probe: Vec<String>,
    /// What is missing when it does not; the program's own complaint if empty.
    #[serde(default)]
    pub(crate) lacking: String,
    /// Run once for the client before its first mount.
    #[serde(default)]
    pub(crate) setup: Vec<Vec<String>>,
    /// Mounts; may stay in the foreground or leave a daemon.
    pub(crate) mount: Vec<String>,
    /// Unmounts; the system's own way if empty.
    #[serde(default)]
    pub(crate) unmount: Vec<String>,
    /// Commands of its own that rows measure in place of a mount, by name: `index`.
    #[serde(default)]
    pub(crate) commands: BTreeMap<String, Vec<String>>,
    /// Removes what it leaves elsewhere on the machine when it is killed.
    #[serde(default)]
    pub(crate) cleanup: Vec<String>,
    /// Where it writes what went wrong, if not to its standard error.
    #[serde(default)]
    pub(crate) log: String,
    /// Variables that it is given.
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    /// Files that are made for it, by name.
    #[serde(default)]
    pub(crate) files: BTreeMap<String, String>,
    /// What it speaks: `s3` or `oss`.
    #[serde(default = "s3")]
    pub(crate) dialect: String,
    /// How long it may take to mount.
    #[serde(default = "ready_seconds")]
    pub(crate) ready_seconds: u64,
    /// A file is not an object: its files are only seen through it.
    #[serde(default)]
    pub(crate) own_layout: bool,
    /// Its volumes are read-only: inputs are made through the client of this name.
    #[serde(default)]
    pub(crate) inputs_through: Option<String>,
    /// It works through block devices: what the kernel's workers do is its work too.
    #[serde(default)]
    pub(crate) kernel_workers: bool,
    /// The suites that it is part of when nobody names clients; all if empty.
    #[serde(default)]
    pub(crate) suites: Vec<String>,
    /// Why it cannot be run at all.
    #[serde(default)]
    pub(crate) unavailable: Option<String>,
}

fn s3() -> String {
    "s3".to_owned()
}

fn ready_seconds() -> u64 {
    READY_SECONDS
}

/// Every client by name.
#[derive(Debug, Clone)]
pub(crate) struct Catalog(BTreeMap<String, ClientSpec>);

impl Catalog {
    /// The built-in table with the one in `file` over it.
    pub(crate) fn read(file: Option<&Path>) -> BenchResult<Self> {
        let mut catalog = Self(parse(BUILT_IN, "the built-in table")?);
        if let Some(file) = file {
            let text = fs::read_to_string(file).map_err(|error| {
                BenchError::new(
                    format!(
                        "cannot read the table of clients {}: {error}",
                        file.display()
                    ),
                    "check the path and its permissions",
                )
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

    /// The client of this name.
    pub(crate) fn get(&self, name: &str) -> BenchResult<&ClientSpec> {
        self.0.get(name).ok_or_else(|| {
            BenchError::new(
                format!("`{name}` is no client"),
                format!(
                    "there are {}; add one with --config",
                    self.names().join(", ")
                ),
            )
        })
    }
}

fn parse(text: &str, name: &str) -> BenchResult<BTreeMap<String, ClientSpec>> {
    toml::from_str(text).map_err(|error| {
        BenchError::new(
            format!("{name} is not a table of clients: {error}"),
            "docs/benchmark.md describes its form",
        )
    })
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
    let Some((program, arguments)) = command.split_first() else {
        return Ok(());
    };
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| format!("{program}: {error}"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_has_every_client_that_is_promised() {
        let catalog = Catalog::read(None).expect("valid");
        let names = catalog.names();
        for name in [
            "penstock",
            "penstock-splice",
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
