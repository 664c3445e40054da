//! An option as it was given somewhere: text, spelling and place.

use std::{fmt, path::PathBuf};

use super::{OptionSpec, Value};
use crate::failure::Failure;

/// Where an option was given. Later variants win over earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// The default of the program whose command line we take.
    Program(&'static str),
    /// A variable of other programs, which counts where nobody says anything.
    Variable(&'static str),
    /// What is kept with the fileset of this name.
    Fileset(String),
    /// A configuration file.
    File { path: PathBuf, line: usize },
    /// An environment variable.
    Environment,
    /// A word after `-o`.
    MountWord,
    /// An option of its own on the command line.
    CommandLine,
}

impl Origin {
    /// How strong it is, whatever file or line it came from.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Self::Program(_) | Self::Variable(_) => 0,
            Self::Fileset(_) => 1,
            Self::File { .. } => 2,
            Self::Environment => 3,
            Self::MountWord => 4,
            Self::CommandLine => 5,
        }
    }

    /// Whether every user of the machine can see what was given there.
    pub(crate) fn is_public(&self) -> bool {
        matches!(self, Self::MountWord | Self::CommandLine)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(name) => write!(f, "the default of {name}"),
            Self::Variable(name) => f.write_str(name),
            Self::Fileset(name) => write!(f, "what is kept with fileset {name}"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment => f.write_str("the environment"),
            Self::MountWord => f.write_str("-o"),
            Self::CommandLine => f.write_str("the command line"),
        }
    }
}

/// An option that was given, not yet read.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub spec: &'static OptionSpec,
    /// How the option was written where it was given, for messages.
    pub spelling: String,
    /// The value as text. Never print it without looking at the kind: it may be a credential.
    pub text: String,
    pub origin: Origin,
}

impl Given {
    /// Reads the text. Fails with the option, its value, the valid range and the place.
    pub(crate) fn read(&self) -> Result<Value, Failure> {
        self.spec.kind.parse(&self.text).map_err(|valid| {
            let shown = match self.spec.kind {
                super::Kind::Secret => "***",
                _ => &self.text,
            };
            Failure::usage(
                format!(
                    "`{}` cannot be `{shown}` (from {})",
                    self.spelling, self.origin
                ),
                format!("it must be {valid}"),
            )
        })
    }
}
