//! Why a command could not do what it was asked, in one line: the cause, then the remedy.

use std::{fmt, process::ExitCode};

use penstock_control::Refusal;

use crate::legible::legible;

/// The result of a command.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// How the process ends when a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The other end of our output went away; nothing to say.
    Quiet,
    /// The command could not be carried out.
    Failed,
    /// The command line or a setting makes no sense.
    Usage,
    /// The mount ended, but some files could not be saved.
    Unsaved,
    /// Files of an archive failed; what tar(1) ends with.
    Fatal,
    /// The user ended it.
    Interrupted,
}

impl Exit {
    /// The number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Quiet => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unsaved => 3,
            Self::Fatal => 2,
            Self::Interrupted => 130,
        }
    }

    /// The ending that a shell number stands for; the inverse of [`Exit::code`].
    pub(crate) fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Quiet,
            2 => Self::Usage,
            3 => Self::Unsaved,
            _ => Self::Failed,
        }
    }
}

/// A command that failed. Prints as one line, `cause; remedy`, without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    cause: String,
    remedy: String,
    exit: Exit,
}

impl Failure {
    /// Something could not be done; `remedy` says what the user can do about it.
    pub(crate) fn new(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            cause: one_line(&cause.into()),
            remedy: one_line(&remedy.into()),
            exit: Exit::Failed,
        }
    }

    /// The request itself makes no sense.
    pub(crate) fn usage(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            ..Self::new(cause, remedy)
        }
    }

    /// The same failure with another ending.
    #[must_use]
    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// A failure that another process reported as its one line.
    pub(crate) fn reported(line: &str, exit: Exit) -> Self {
        Self {
            cause: one_line(line),
            remedy: String::new(),
            exit,
        }
    }

    /// What went wrong.
    pub(crate) fn cause(&self) -> &str {
        &self.cause
    }

    /// What the user can do about it.
    pub(crate) fn remedy(&self) -> &str {
        &self.remedy
    }

    /// How the process should end.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// How the process should end, for `main`.
    pub(crate) fn exit_code(&self) -> ExitCode {
        self.exit.code().into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.cause, refusal.remedy)
    }
}

/// Joins the lines and runs of blanks of `text`, so that a message stays one line whatever a
/// server or a library put into it.
fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    legible(&line).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_of_cause_and_remedy() {
        let failure = Failure::new("no answer\n  from the server", "check\tthe cable");
        assert_eq!(
            failure.to_string(),
            "no answer from the server; check the cable"
        );
    }

    #[test]
    fn exit_codes_survive_a_trip_through_a_number() {
        for exit in [Exit::Quiet, Exit::Failed, Exit::Usage, Exit::Unsaved] {
            assert_eq!(Exit::from_code(exit.code()), exit);
        }
    }
}
