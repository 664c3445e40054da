//! What the clients talk to: a server that is started for them, or a store that exists.
//!
//! The development server is this program once more, `penstock bench server`, so that one binary is enough ([`serve`]). It
//! is asked without signatures and without encryption ([`send`]): for its counters, and for whole objects or pieces of them.
//! Where clients speak HTTPS to it, it goes on answering that on the same port.

use std::{
    fs,
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_base::{ByteSize, Secret};
use penstock_devserver::{Counters, Crowd, Faults, Fill, Identity, Server};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ureq::{Agent, Body, http::Response};

use crate::{
    BenchError, BenchResult, client,
    process::{Running, Task},
    settings::{self, Credentials, RunSettings, Target},
    system::{self, LOOK},
    template::{Variables, variables},
};

/// How long a server may take to start: making memory ready takes about a second per GiB.
const START: Duration = Duration::from_secs(120);
const BUCKET: &str = "bench";
/// Where programs look for certificates to trust: OpenSSL and what is written in Go and Rust, curl. rclone 1.60 does not
/// start with `AWS_CA_BUNDLE`.
const TRUST_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "CURL_CA_BUNDLE"];
/// The region that requests are signed for if nobody says.
const REGION: &str = "us-east-1";
/// The key to servers that are started here.
const KEY: &str = "benchbench";
/// What needs memory beside the objects that clients write.
const MEMORY_RESERVE: u64 = 128 << 20;

pub(crate) struct StoreNeeds {
    pub(crate) fills: Vec<Fill>,
    /// Objects that are there without being made.
    pub(crate) crowds: Vec<Crowd>,
    /// Bytes that clients will write at a time.
    pub(crate) written: u64,
    /// Starts a server as a program.
    pub(crate) server: Task,
    pub(crate) directory: PathBuf,
    /// Whether clients are to speak HTTPS.
    pub(crate) tls: bool,
}

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) url: String,
    pub(crate) bucket: String,
    pub(crate) prefix: String,
    region: String,
    credentials: Credentials,
    /// The certificate that clients must trust, beside the system's.
    ca_file: Option<PathBuf>,
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
                ca_file: None,
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
            ca_file: None,
            kind,
        }
    }

    pub(crate) fn description(&self) -> String {
        match &self.kind {
            Kind::Development(_) if self.ca_file.is_some() => {
                "development server on this machine, over HTTPS".to_owned()
            }
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

    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.kind {
            Kind::Development(running) | Kind::Minio(running) => Some(running.pid()),
            Kind::Foreign => None,
        }
    }

    pub(crate) fn variables(&self) -> Variables {
        let prefix = &self.prefix;
        let prefixed = |text: String| {
            if prefix.is_empty() {
                String::new()
            } else {
                text
            }
        };
        let local = |here: &str, elsewhere: &str| {
            let text = if self.is_local() { here } else { elsewhere };
            text.to_owned()
        };
        let Credentials {
            access_key,
            secret_key,
            session_token,
        } = &self.credentials;
        variables([
            ("endpoint", self.url.clone()),
            ("ca_file", self.ca_file()),
            ("oss_endpoint", local("http://oss.local", &self.url)),
            ("local_endpoint", local(&self.url, "")),
            ("path_style", local("use_path_request_style", "")),
            ("bucket", self.bucket.clone()),
            ("prefix", prefix.clone()),
            ("slash_prefix", prefixed(format!("/{prefix}"))),
            ("colon_prefix", prefixed(format!(":{prefix}"))),
            ("colon_slash_prefix", prefixed(format!(":/{prefix}"))),
            ("prefix_slash", prefixed(format!("{prefix}/"))),
            ("region", self.region.clone()),
            ("access_key", access_key.clone()),
            ("secret_key", secret_key.expose().to_owned()),
            ("session_token", session_token.expose().to_owned()),
        ])
    }

    /// Where the certificate is that clients must trust; empty where the system's are enough.
    fn ca_file(&self) -> String {
        let file = self.ca_file.as_ref();
        file.map_or(String::new(), |file| file.display().to_string())
    }

    /// By which names programs are told of that certificate.
    pub(crate) fn trust(&self) -> impl Iterator<Item = (String, String)> {
        let file = self.ca_file();
        let names = TRUST_VARIABLES.iter().filter(move |_| !file.is_empty());
        let file = self.ca_file();
        names.map(move |name| ((*name).to_owned(), file.clone()))
    }

    /// The development server's address for requests that are not enciphered.
    pub(crate) fn plain_url(&self) -> String {
        self.url.replacen("https://", "http://", 1)
    }

    /// `text` without any of the secrets.
    pub(crate) fn redact(&self, text: &str) -> String {
        let Credentials {
            secret_key,
            session_token,
            ..
        } = &self.credentials;
        let secrets = [secret_key, session_token].into_iter();
        let secrets = secrets.filter(|secret| !secret.is_empty());
        secrets.fold(text.to_owned(), |text, secret| {
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
        let answer = send("PUT", (&self.plain_url(), "/-/faults"), None, &body);
        answer
            .and_then(text)
            .map(drop)
            .map_err(|error| silent(&error))
    }

    /// What the development server counted since it started.
    pub(crate) fn counters(&self) -> Option<Counters> {
        if !self.is_development() {
            return None;
        }
        let answer = send("GET", (&self.plain_url(), "/-/counters"), None, "");
        serde_json::from_str(&answer.and_then(text).ok()?).ok()
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
    let words = &mut task.arguments;
    words.extend(["bench", "server", "--bucket", BUCKET].map(str::to_owned));
    for Fill {
        prefix,
        count,
        size,
        ..
    } in &needs.fills
    {
        words.extend([
            "--fill".to_owned(),
            format!("{BUCKET}/{prefix}:{count}:{size}"),
        ]);
    }
    for crowd in &needs.crowds {
        let mut crowd = crowd.clone();
        if crowd.bucket.is_empty() {
            BUCKET.clone_into(&mut crowd.bucket);
        }
        words.extend(["--crowd".to_owned(), crowd.to_string()]);
    }
    if needs.written > 0 {
        let memory = ByteSize(needs.written + needs.written / 8 + MEMORY_RESERVE);
        words.extend(["--prepared-memory".to_owned(), memory.to_string()]);
    }
    let ca_file = needs.tls.then(|| needs.directory.join("ca.pem"));
    if let Some(file) = &ca_file {
        task.arguments
            .extend(["--tls".to_owned(), file.display().to_string()]);
    }
    let (url, running) = start(&task, || {
        let output = fs::read_to_string(&task.output).unwrap_or_default();
        let url = output.trim().strip_prefix("listening on ")?;
        Some(url.to_owned())
    })?;
    Ok(Store {
        ca_file,
        ..Store::of_ours(url, Kind::Development(running))
    })
}

/// MinIO keeps its objects in a directory, in which a directory is a bucket.
fn start_minio(settings: &RunSettings, needs: &StoreNeeds) -> BenchResult<Store> {
    let program = client::find_program("minio", &settings.surroundings.path).ok_or_else(|| {
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
    let [program, data] = [&program, &data].map(|path| path.display().to_string());
    task.arguments = vec![program];
    task.arguments
        .extend(["server", "--address", &address, &data].map(str::to_owned));
    for name in ["MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"] {
        task.environment.insert(name.to_owned(), KEY.to_owned());
    }
    let url = format!("http://{address}");
    let (url, running) = start(&task, || {
        let answer = send("GET", (&url, "/minio/health/live"), None, "").ok()?;
        answer.status().is_success().then(|| url.clone())
    })?;
    Ok(Store::of_ours(url, Kind::Minio(running)))
}

fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// Starts a server and waits until it can say its URL.
fn start(task: &Task, mut url: impl FnMut() -> Option<String>) -> BenchResult<(String, Running)> {
    let mut running = task.start().map_err(|error| {
        let program = task.arguments.first().map_or("", String::as_str);
        BenchError::unusable(Path::new(program), &error)
    })?;
    let answered = system::until(START, LOOK, || {
        let has_ended = running.ending().is_some() || system::interrupted();
        url().map(Some).or(has_ended.then_some(None))
    });
    if let Some(url) = answered.flatten() {
        return Ok((url, running));
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

/// How long a server on this machine may take to say something.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// What does not stand in a path as it is.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// Sends a request to `http://HOST:PORT`; `range` is the first byte and the length of what is wanted.
pub(crate) fn send(
    method: &str,
    (url, path): (&str, &str),
    range: Option<(u64, u64)>,
    body: &str,
) -> io::Result<Response<Body>> {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .timeout_connect(Some(SILENCE_MAX))
        .timeout_recv_response(Some(SILENCE_MAX))
        .timeout_recv_body(Some(SILENCE_MAX));
    let uri = format!("{url}{}", utf8_percent_encode(path, ESCAPED));
    let mut request = ureq::http::Request::builder().method(method).uri(uri);
    if let Some((first, length)) = range.filter(|(_, length)| *length > 0) {
        request = request.header("Range", format!("bytes={first}-{}", first + length - 1));
    }
    let agent = Agent::from(config.build());
    let answer = match body {
        "" => agent.run(request.body(()).map_err(io::Error::other)?),
        body => agent.run(request.body(body).map_err(io::Error::other)?),
    };
    answer.map_err(ureq::Error::into_io)
}

/// The length that an answer gives, which for HEAD is not that of its body.
pub(crate) fn length(answer: &Response<Body>) -> Option<u64> {
    let length = answer.headers().get("content-length")?;
    length.to_str().ok()?.parse().ok()
}

/// The body of an answer as text, or the status as an error.
pub(crate) fn text(mut answer: Response<Body>) -> io::Result<String> {
    let text = answer.body_mut().read_to_string();
    let text = text.map_err(ureq::Error::into_io)?;
    if !answer.status().is_success() {
        let why = format!("status {}: {}", answer.status().as_u16(), text.trim());
        return Err(io::Error::other(why));
    }
    Ok(text)
}

/// What the server is started with.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// Where to listen; port 0 picks a free one.
    pub address: SocketAddr,
    /// Buckets that exist from the start.
    pub buckets: Vec<String>,
    /// Objects that exist from the start, `BUCKET/PREFIX:COUNT:SIZE`.
    pub fills: Vec<String>,
    /// Objects that are there without taking memory, `BUCKET/PREFIX:COUNT:SIZE:DIRECTORIES`.
    pub crowds: Vec<String>,
    /// Keys that requests must be signed with, `KEY:SECRET`; any or none if empty.
    pub credentials: Vec<String>,
    /// HTTPS is spoken, too; the certificate to trust is written to this file.
    pub tls: Option<PathBuf>,
    /// The latency profile.
    pub profile: Option<String>,
    /// Bytes of memory to make ready before the first request.
    pub prepared_memory: u64,
}

/// Serves until the process is ended. Says where on `output`.
///
/// # Errors
/// The address cannot be listened on, or memory is exhausted.
pub fn serve(settings: ServeSettings, output: &mut dyn Write) -> BenchResult<()> {
    let address = settings.address;
    let cannot = |error: io::Error| {
        let cause = format!("cannot serve on {address}: {error}");
        BenchError::new(cause, "choose another --address, or less --prepared-memory")
    };
    let server = Server::start(server_settings(settings)?).map_err(cannot)?;
    let said = writeln!(output, "listening on {}", server.url());
    said.and_then(|()| output.flush()).map_err(cannot)?;
    server.wait();
    Ok(())
}

fn server_settings(settings: ServeSettings) -> BenchResult<penstock_devserver::Settings> {
    let credentials = parse::<penstock_devserver::Credentials>(&settings.credentials)?;
    let latency = settings.profile.as_deref().map(|name| {
        let why = || {
            BenchError::new(
                format!("`{name}` is no profile"),
                "there are lan, near, region, far and distant",
            )
        };
        settings::latency(name).ok_or_else(why)
    });
    let identity = settings.tls.as_deref().map(|file| -> BenchResult<_> {
        let identity = Identity::generate(settings.address.ip());
        let identity = identity.map_err(|error| BenchError::unusable(file, &error))?;
        let written = fs::write(file, identity.authority());
        written.map_err(|error| BenchError::unusable(file, &error))?;
        Ok(identity)
    });
    Ok(penstock_devserver::Settings {
        address: settings.address,
        identity: identity.transpose()?,
        fills: parse::<Fill>(&settings.fills)?,
        crowds: parse::<Crowd>(&settings.crowds)?,
        verify_signatures: !credentials.is_empty(),
        credentials,
        buckets: settings.buckets,
        faults: Faults::latency(latency.transpose()?.unwrap_or_default()),
        prepared_memory: settings.prepared_memory,
        ..penstock_devserver::Settings::default()
    })
}

fn parse<T: std::str::FromStr<Err = String>>(texts: &[String]) -> BenchResult<Vec<T>> {
    let parsed: Result<_, _> = texts.iter().map(|text| text.parse()).collect();
    parsed.map_err(|why| BenchError::new(why, "see `penstock help bench`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_devserver::Settings;

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
            ca_file: None,
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

    #[test]
    fn pieces_of_objects_and_the_servers_own_requests() {
        let server = Server::start(Settings::with_bucket("b")).expect("starts");
        server
            .data()
            .put("b", "a b/c", b"0123456789")
            .expect("stored");
        let url = server.url();
        let get = |path: &str, range| send("GET", (&url, path), range, "").expect("an answer");
        assert_eq!(text(get("/b/a b/c", None)).expect("good"), "0123456789");
        let piece = get("/b/a b/c", Some((3, 4)));
        assert_eq!(text(piece).expect("good"), "3456");
        let head = send("HEAD", (&url, "/b/a b/c"), None, "").expect("an answer");
        assert_eq!((head.status().as_u16(), length(&head)), (200, Some(10)));
        assert!(text(get("/b/none", None)).is_err());
        let counters = get("/-/counters", None);
        assert!(text(counters).expect("good").contains("requests"));
    }

    /// Clients are led to HTTPS and told whom to trust; the benchmark's own requests reach the same server without.
    #[test]
    fn a_server_with_a_certificate_is_asked_in_plain() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("ca.pem");
        let settings = ServeSettings {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            buckets: vec![BUCKET.to_owned()],
            fills: Vec::new(),
            crowds: Vec::new(),
            credentials: Vec::new(),
            tls: Some(file.clone()),
            profile: None,
            prepared_memory: 0,
        };
        let server = Server::start(server_settings(settings).expect("valid")).expect("starts");
        let store = Store {
            ca_file: Some(file.clone()),
            url: server.url(),
            ..foreign("")
        };
        assert!(store.variables()["endpoint"].starts_with("https://127.0.0.1:"));
        let written = fs::read_to_string(&file).expect("written");
        assert!(written.contains("BEGIN CERTIFICATE") && !written.contains("PRIVATE"));
        let trust: Vec<_> = store.trust().collect();
        assert_eq!(trust.len(), TRUST_VARIABLES.len());
        assert!(trust.iter().all(|(_, path)| Path::new(path) == file));
        store.set_latency(Duration::ZERO, None).expect("an answer");
        assert_eq!(foreign("").trust().count(), 0);
        assert_eq!(foreign("").variables()["ca_file"], "");
    }

    #[test]
    fn only_plain_http_is_spoken() {
        assert!(send("GET", ("https://127.0.0.1:9", "/"), None, "").is_err());
    }
}
