//! What the clients talk to: a server that is started for them, or a store that exists.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_base::{ByteSize, Secret};
use penstock_devserver::{Counters, Crowd, Faults, Fill};

use crate::{
    BenchError, BenchResult, catalog,
    http::Request,
    process::{Running, Task},
    settings::{Credentials, RunSettings, Target},
    system::{self, LOOK},
    template::{Variables, variables},
};

/// How long a server may take to start: making memory ready takes about a second per GiB.
const START: Duration = Duration::from_secs(120);
/// The bucket on servers that are started here.
const BUCKET: &str = "bench";
/// The region that requests are signed for if nobody says.
const REGION: &str = "us-east-1";
/// The key to servers that are started here.
const KEY: &str = "benchbench";
/// What needs memory beside the objects that clients write.
const MEMORY_RESERVE: u64 = 128 << 20;

/// How to begin a store.
pub(crate) struct StoreNeeds {
    /// Objects that must be there.
    pub(crate) fills: Vec<Fill>,
    /// Objects that are there without being made.
    pub(crate) crowds: Vec<Crowd>,
    /// Bytes that clients will write at a time.
    pub(crate) written: u64,
    /// Starts a server as a program.
    pub(crate) server: Task,
    /// Where a server may keep files.
    pub(crate) directory: PathBuf,
}

/// A store that clients can mount.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) url: String,
    pub(crate) bucket: String,
    pub(crate) prefix: String,
    region: String,
    credentials: Credentials,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Development(Running),
    Minio(Running),
    Foreign,
}

impl Store {
    /// Starts a server, or takes the store that exists.
    pub(crate) fn begin(settings: &RunSettings, needs: &StoreNeeds) -> BenchResult<Self> {
        match &settings.target {
            Target::Endpoint {
                url,
                bucket,
                prefix,
                region,
            } => Ok(Self {
                url: url.trim_end_matches('/').to_owned(),
                bucket: bucket.clone(),
                prefix: prefix.trim_matches('/').to_owned(),
                region: region.clone(),
                credentials: settings.surroundings.credentials.clone(),
                kind: Kind::Foreign,
            }),
            Target::Minio => start_minio(settings, needs),
            _ => start_development(needs),
        }
    }

    fn of_ours(url: String, kind: Kind) -> Self {
        Self {
            url,
            bucket: BUCKET.to_owned(),
            prefix: String::new(),
            region: REGION.to_owned(),
            credentials: Credentials {
                access_key: KEY.to_owned(),
                secret_key: Secret::new(KEY),
                session_token: Secret::default(),
            },
            kind,
        }
    }

    /// In words, for the report.
    pub(crate) fn description(&self) -> String {
        match &self.kind {
            Kind::Development(_) => "development server on this machine".to_owned(),
            Kind::Minio(_) => "MinIO on this machine".to_owned(),
            Kind::Foreign => format!("{}, bucket {}", without_user(&self.url), self.bucket),
        }
    }

    /// Whether it uses the processors of this machine.
    pub(crate) fn is_local(&self) -> bool {
        !matches!(self.kind, Kind::Foreign)
            || self.url.contains("//127.")
            || self.url.contains("//localhost")
    }

    /// Whether it makes objects at once, counts requests, and answers without signatures.
    pub(crate) fn is_development(&self) -> bool {
        matches!(self.kind, Kind::Development(_))
    }

    /// The server's process, if it is ours.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.kind {
            Kind::Development(running) | Kind::Minio(running) => Some(running.pid()),
            Kind::Foreign => None,
        }
    }

    /// What templates say about it.
    pub(crate) fn variables(&self) -> Variables {
        let or_nothing = |text: String| {
            if self.prefix.is_empty() {
                String::new()
            } else {
                text
            }
        };
        let only_local = |text: &str| {
            if self.is_local() {
                text.to_owned()
            } else {
                String::new()
            }
        };
        variables([
            ("endpoint", self.url.clone()),
            (
                "oss_endpoint",
                if self.is_local() {
                    "http://oss.local".to_owned()
                } else {
                    self.url.clone()
                },
            ),
            ("local_endpoint", only_local(&self.url)),
            ("path_style", only_local("use_path_request_style")),
            ("bucket", self.bucket.clone()),
            ("prefix", self.prefix.clone()),
            ("slash_prefix", or_nothing(format!("/{}", self.prefix))),
            ("colon_prefix", or_nothing(format!(":{}", self.prefix))),
            (
                "colon_slash_prefix",
                or_nothing(format!(":/{}", self.prefix)),
            ),
            ("prefix_slash", or_nothing(format!("{}/", self.prefix))),
            ("region", self.region.clone()),
            ("access_key", self.credentials.access_key.clone()),
            (
                "secret_key",
                self.credentials.secret_key.expose().to_owned(),
            ),
            (
                "session_token",
                self.credentials.session_token.expose().to_owned(),
            ),
        ])
    }

    /// `text` without any of the secrets.
    pub(crate) fn redact(&self, text: &str) -> String {
        let secrets = [
            &self.credentials.secret_key,
            &self.credentials.session_token,
        ];
        secrets
            .iter()
            .filter(|secret| !secret.is_empty())
            .fold(text.to_owned(), |text, secret| {
                text.replace(secret.expose(), "***")
            })
    }

    /// Sets what every answer of the development server waits for, and all that it sends.
    pub(crate) fn set_latency(&self, latency: Duration, bandwidth: Option<u64>) -> BenchResult<()> {
        let faults = Faults {
            bandwidth_total: bandwidth,
            ..Faults::latency(latency)
        };
        let body = serde_json::to_string(&faults).expect("numbers");
        let mut request = Request::new("PUT", &self.url, "/-/faults");
        request.body = &body;
        let answer = request.send().and_then(super::http::Answer::text);
        answer.map(drop).map_err(|error| silent(&error))
    }

    /// What the development server counted since it started.
    pub(crate) fn counters(&self) -> Option<Counters> {
        if !self.is_development() {
            return None;
        }
        let answer = Request::new("GET", &self.url, "/-/counters").send().ok()?;
        serde_json::from_str(&answer.text().ok()?).ok()
    }
}

fn silent(error: &io::Error) -> BenchError {
    BenchError::new(
        format!("the server does not answer: {error}"),
        "try again; if it repeats, look whether memory is short",
    )
}

/// An URL may hold a name and a password, which belong into no report.
fn without_user(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            format!("{scheme}://{host}")
        }
        None => url.to_owned(),
    }
}

fn start_development(needs: &StoreNeeds) -> BenchResult<Store> {
    let mut task = needs.server.clone();
    task.arguments
        .extend(["bench", "server", "--bucket", BUCKET].map(str::to_owned));
    for fill in &needs.fills {
        task.arguments
            .extend(["--fill".to_owned(), format!("{BUCKET}/{}", fill_of(fill))]);
    }
    for crowd in &needs.crowds {
        let mut crowd = crowd.clone();
        if crowd.bucket.is_empty() {
            BUCKET.clone_into(&mut crowd.bucket);
        }
        task.arguments
            .extend(["--crowd".to_owned(), crowd.to_string()]);
    }
    if needs.written > 0 {
        let memory = ByteSize(needs.written + needs.written / 8 + MEMORY_RESERVE);
        task.arguments
            .extend(["--prepared-memory".to_owned(), memory.to_string()]);
    }
    let mut running = start(&task)?;
    let url = wait_for(&task, &mut running, || {
        let output = fs::read_to_string(&task.output).unwrap_or_default();
        output
            .trim()
            .strip_prefix("listening on ")
            .map(str::to_owned)
    })?;
    Ok(Store::of_ours(url, Kind::Development(running)))
}

fn fill_of(fill: &Fill) -> String {
    format!("{}:{}:{}", fill.prefix, fill.count, fill.size)
}

/// MinIO keeps its objects in a directory, in which a directory is a bucket.
fn start_minio(settings: &RunSettings, needs: &StoreNeeds) -> BenchResult<Store> {
    let program = catalog::find_program("minio", &settings.surroundings.path).ok_or_else(|| {
        BenchError::new(
            "`minio` is not on PATH",
            "get it: go install github.com/minio/minio@latest",
        )
    })?;
    let data = needs.directory.join("minio");
    let bucket = data.join(BUCKET);
    fs::create_dir_all(&bucket).map_err(|error| BenchError::unusable(&bucket, &error))?;
    let port = free_port().map_err(|error| silent(&error))?;
    let address = format!("127.0.0.1:{port}");
    let mut task = needs.server.clone();
    task.arguments = vec![program.display().to_string()];
    task.arguments
        .extend(["server", "--address", &address].map(str::to_owned));
    task.arguments.push(data.display().to_string());
    for name in ["MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"] {
        task.environment.insert(name.to_owned(), KEY.to_owned());
    }
    let url = format!("http://{address}");
    let mut running = start(&task)?;
    wait_for(&task, &mut running, || {
        let answer = Request::new("GET", &url, "/minio/health/live")
            .send()
            .ok()?;
        (answer.status == 200).then(|| url.clone())
    })?;
    Ok(Store::of_ours(url, Kind::Minio(running)))
}

fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

fn start(task: &Task) -> BenchResult<Running> {
    task.start().map_err(|error| {
        let program = task.arguments.first().map_or("", String::as_str);
        BenchError::unusable(Path::new(program), &error)
    })
}

fn wait_for(
    task: &Task,
    running: &mut Running,
    mut answer: impl FnMut() -> Option<String>,
) -> BenchResult<String> {
    let answered = system::until(START, LOOK, || {
        let has_ended = running.ending().is_some() || system::interrupted();
        answer().map(Some).or(has_ended.then_some(None))
    });
    if let Some(url) = answered.flatten() {
        return Ok(url);
    }
    if system::interrupted() {
        return Err(BenchError::new("interrupted", "nothing was measured yet"));
    }
    let why = match (task.complaint(), running.ending()) {
        (words, Some(status)) if words.is_empty() => status.to_string(),
        (words, _) => words,
    };
    Err(BenchError::new(
        format!("the server does not start: {why}"),
        "look whether there is memory enough, or choose a smaller --scale",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreign(prefix: &str) -> Store {
        Store {
            url: "https://id:pass@s3.example.com".to_owned(),
            bucket: "b".to_owned(),
            prefix: prefix.to_owned(),
            region: "r".to_owned(),
            credentials: Credentials {
                access_key: "id".to_owned(),
                secret_key: Secret::new("hunter2"),
                session_token: Secret::default(),
            },
            kind: Kind::Foreign,
        }
    }

    #[test]
    fn a_prefix_comes_in_every_spelling_or_not_at_all() {
        let with = foreign("a/b").variables();
        assert_eq!(with["colon_slash_prefix"], ":/a/b");
        assert_eq!(with["prefix_slash"], "a/b/");
        let without = foreign("").variables();
        assert_eq!(without["colon_prefix"], "");
        assert_eq!(without["local_endpoint"], "");
    }

    #[test]
    fn no_secret_is_shown() {
        let store = foreign("");
        assert_eq!(store.redact("sig hunter2 bad"), "sig *** bad");
        assert!(!store.description().contains("pass"));
        assert!(!format!("{store:?}").contains("hunter2"));
    }
}
