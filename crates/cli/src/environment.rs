//! The command line and the environment, read once and passed on as values.

#![allow(clippy::disallowed_methods)]

use std::{collections::BTreeMap, ffi::OsString, num::NonZeroUsize, path::PathBuf};

/// How many processors a test lets the machine have. Release builds do not look at it.
const PROCESSORS_VARIABLE: &str = "PENSTOCK_TEST_PROCESSORS";

/// Names the directory of this machine's filesets.
pub(crate) const FILESETS_VARIABLE: &str = "PENSTOCK_FILESET_DIR";

/// What the process was started with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    /// The command line, the program's own name first.
    pub arguments: Vec<OsString>,
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// Reads it. Variables whose name or value is not UTF-8 mean nothing to this program.
    pub(crate) fn read() -> Self {
        let utf8 = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            arguments: std::env::args_os().collect(),
            variables: std::env::vars_os().filter_map(utf8).collect(),
        }
    }

    /// A variable that is set to something.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(name)?;
        (!value.is_empty()).then_some(value.as_str())
    }

    /// Every variable, sorted by name.
    pub(crate) fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }

    /// Takes out the processors that the machine is to be taken for having, if a test says so.
    pub(crate) fn take_pretended_processors(&mut self) -> Option<NonZeroUsize> {
        if !cfg!(debug_assertions) {
            return None;
        }
        self.variables.remove(PROCESSORS_VARIABLE)?.parse().ok()
    }

    /// A directory that a variable names; it must be absolute to count.
    pub(crate) fn directory(&self, name: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.variable(name)?);
        path.is_absolute().then_some(path)
    }

    /// The same environment with other variables, for tests.
    #[cfg(test)]
    pub(crate) fn of(variables: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            arguments: Vec::new(),
            variables: variables.iter().map(owned).collect(),
        }
    }
}
