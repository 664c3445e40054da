//! Why the benchmark could not begin, or could not go on.

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
