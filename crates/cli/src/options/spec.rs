//! What is known about one option.

use super::Kind;

/// Options that help shows together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Store,
    Credentials,
    Transfers,
    Cache,
    Staging,
    Freshness,
    Files,
    Metadata,
    Mount,
    Stream,
    Serve,
    Observation,
}

impl Group {
    /// Every group, in the order of help.
    pub(crate) const ALL: [Self; 12] = [
        Self::Store,
        Self::Credentials,
        Self::Transfers,
        Self::Cache,
        Self::Staging,
        Self::Freshness,
        Self::Files,
        Self::Metadata,
        Self::Mount,
        Self::Stream,
        Self::Serve,
        Self::Observation,
    ];

    /// The heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Store => "Object store",
            Self::Credentials => "Credentials",
            Self::Transfers => "Memory and transfers",
            Self::Cache => "Disk cache",
            Self::Staging => "Writing",
            Self::Freshness => "Freshness of metadata",
            Self::Files => "Files",
            Self::Metadata => "Metadata kept in objects",
            Self::Mount => "Mount",
            Self::Stream => "Stream volumes",
            Self::Serve => "NFS mount target",
            Self::Observation => "Logs, metrics and configuration",
        }
    }
}

/// Which commands have an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every command that speaks to a store.
    Store,
    /// Those that show a bucket or a fileset: `mount` and, unless it is the kernel's business, `serve`.
    Mount,
    /// Those that show something: `stream`, too.
    Volume,
    /// Those about a fileset: `fileset`, and what shows one.
    Fileset,
    /// Only `stream`.
    Stream,
    /// Only `serve`.
    Serve,
}

impl Scope {
    /// Whether a command of this scope has an option.
    pub(crate) fn includes(self, spec: &OptionSpec) -> bool {
        let serves = self == Self::Serve && !spec.of_kernel;
        match spec.scope {
            Self::Store => true,
            Self::Volume => serves || matches!(self, Self::Mount | Self::Stream),
            Self::Mount => serves || self == Self::Mount,
            Self::Fileset => serves || matches!(self, Self::Mount | Self::Fileset),
            Self::Stream | Self::Serve => self == spec.scope,
        }
    }

    /// Whether its commands take mount words after `-o`.
    pub(crate) fn takes_words(self) -> bool {
        matches!(self, Self::Mount | Self::Volume | Self::Stream)
    }

    /// The command whose help explains its options.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Serve => "serve",
            _ => "mount",
        }
    }
}

/// How widely an option is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// For most mounts.
    Common,
    /// For tuning, and for the command lines of other programs: `--help` leaves it out.
    Expert,
}

/// Where an option may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepts {
    Anywhere,
    /// Not in a configuration file: it names the file.
    NotInFile,
    /// Only in a file or the environment: a command line is visible to every user.
    Privately,
}

/// What holds when an option is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Default {
    /// This text, read like any other.
    Is(&'static str),
    /// Something that depends on the machine or on other options, in words.
    Depends(&'static str),
}

/// One option.
#[derive(Debug)]
pub(crate) struct OptionSpec {
    /// The name on the command line and in files, words joined by `-`.
    pub name: &'static str,
    /// The letter on the command line.
    pub short: Option<char>,
    /// Other names, as other mount programs call it.
    pub aliases: &'static [&'static str],
    pub group: Group,
    pub scope: Scope,
    /// It says how the kernel mounts, so that `serve` has no use for it.
    pub of_kernel: bool,
    pub level: Level,
    pub accepts: Accepts,
    pub kind: Kind,
    pub default: Default,
    /// What it does, in a few words.
    pub help: &'static str,
    /// What else there is to know, in sentences.
    pub detail: &'static str,
    /// What changing it does to cost, latency or safety.
    pub effect: &'static str,
}

impl OptionSpec {
    /// What most options have in common.
    pub(super) const COMMON: Self = Self {
        name: "",
        short: None,
        aliases: &[],
        group: Group::Store,
        scope: Scope::Mount,
        of_kernel: false,
        level: Level::Common,
        accepts: Accepts::Anywhere,
        kind: Kind::Flag,
        default: Default::Is("off"),
        help: "",
        detail: "",
        effect: "",
    };

    /// The environment variable that sets it.
    pub(crate) fn variable(&self) -> String {
        format!(
            "PENSTOCK_{}",
            self.name.to_ascii_uppercase().replace('-', "_")
        )
    }

    /// Whether `word` is one of its names. `_` counts as `-`, as in `-o` lists.
    pub(crate) fn answers_to(&self, word: &str) -> bool {
        let word = word.replace('_', "-");
        self.name == word || self.aliases.contains(&word.as_str())
    }

    /// The default in words.
    pub(crate) fn default_text(&self) -> &'static str {
        match self.default {
            Default::Is(text) | Default::Depends(text) => text,
        }
    }
}
