//! What one invocation is asked to do, and why it cannot.

use std::{path::PathBuf, time::Duration};

use penstock_base::Secret;

/// One invocation.
#[derive(Debug, Clone)]
pub struct RunSettings {
    /// Names of suites, in order.
    pub suites: Vec<String>,
    /// Rows to run, by their short names; all when empty.
    pub rows: Vec<String>,
    /// Names of clients, in order; every client that is found when empty.
    pub clients: Vec<String>,
    /// How often each cell is run.
    pub repeat: u32,
    /// What the sources' sizes are multiplied with; each suite's own choice if not given.
    pub scale: Option<f64>,
    /// Latency profiles by name; each suite's own choice when empty.
    pub profiles: Vec<String>,
    /// Bytes per second of all connections to the development server together.
    pub bandwidth: Option<u64>,
    /// What the clients talk to.
    pub target: Target,
    /// Whether the development server is spoken to by HTTPS.
    pub tls: bool,
    /// A table of clients to merge over the built-in one.
    pub table: Option<PathBuf>,
    /// How long one run may take; estimated from its sizes if not given.
    pub timeout: Option<Duration>,
    /// What the process was started in.
    pub surroundings: Surroundings,
}

/// What the clients talk to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A development server that is started for it.
    DevelopmentServer,
    /// A MinIO that is started for it.
    Minio,
    /// A store that exists.
    Endpoint {
        /// Scheme, host and port.
        url: String,
        /// The bucket, which exists.
        bucket: String,
        /// What all keys begin with, without slashes around it.
        prefix: String,
        /// The region that requests are signed for.
        region: String,
    },
    /// A directory that somebody else mounted.
    Directory(PathBuf),
}

/// Keys to a store.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// The access key's id.
    pub access_key: String,
    /// The secret.
    pub secret_key: Secret,
    /// The session token of temporary keys; empty for others.
    pub session_token: Secret,
}

/// What is read from the environment of the process.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// This program, to be started again.
    pub program: PathBuf,
    /// `PATH`.
    pub path: String,
    /// Where temporary files go.
    pub temporary: PathBuf,
    /// Keys for a real store.
    pub credentials: Credentials,
}

/// The name of each latency profile with its latency.
pub const PROFILES: [(&str, Duration); 5] = [
    ("lan", Duration::from_micros(200)),
    ("near", Duration::from_millis(5)),
    ("region", Duration::from_millis(10)),
    ("far", Duration::from_millis(30)),
    ("distant", Duration::from_millis(50)),
];

/// The profile of a store whose latency is what it is.
pub(crate) const AS_IS: &str = "as is";

/// The latency of a profile.
pub(crate) fn latency(profile: &str) -> Option<Duration> {
    PROFILES
        .iter()
        .find_map(|(name, latency)| (*name == profile).then_some(*latency))
}

/// A failure of the benchmark itself. A client that fails is no such failure: it is a sample that
/// says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}; {remedy}")]
pub struct BenchError {
    /// What went wrong.
    pub cause: String,
    /// What the user can do about it.
    pub remedy: String,
}

impl BenchError {
    /// A failure with its remedy.
    pub fn new(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            cause: cause.into(),
            remedy: remedy.into(),
        }
    }

    /// A file or directory of the benchmark's own that could not be used.
    pub(crate) fn unusable(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::new(
            format!("cannot use {}: {error}", path.display()),
            "check its permissions and the space that is left",
        )
    }
}

/// What the benchmark's own steps come to.
pub type BenchResult<T> = Result<T, BenchError>;

/// A sample keeps its reason in words.
impl From<BenchError> for String {
    fn from(error: BenchError) -> Self {
        error.to_string()
    }
}
