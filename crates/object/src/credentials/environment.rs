//! The process's environment, handed in.

use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
};

/// Environment variables and the home directory, as whoever opens a store wants them to be seen.
#[derive(Clone, Default)]
pub struct Environment {
    variables: HashMap<String, String>,
    home: Option<PathBuf>,
}

impl Environment {
    /// An environment of these variables; `HOME` among them is the home directory.
    pub fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let variables: HashMap<String, String> = variables.into_iter().collect();
        let home = variables.get("HOME").map(PathBuf::from);
        Self { variables, home }
    }

    /// The same environment with one variable set.
    #[cfg(test)]
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// A variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(name)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// Whether the variables `names` are set. Where the first is, all must be; without it the others
    /// mean nothing, as in the SDKs (a role may be named for other purposes).
    pub(super) fn has_all(&self, names: &[&str]) -> Result<bool, String> {
        let is_missing = |name: &&&str| self.get(name).is_none();
        match names.iter().find(is_missing) {
            None => Ok(true),
            Some(name) if *name == names[0] => Ok(false),
            Some(name) => Err(format!("{} is set, {name} is not", names[0])),
        }
    }

    /// The home directory.
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }
}

/// Names only: values may be secrets.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

impl reqsign_core::Env for Environment {
    fn var(&self, key: &str) -> Option<String> {
        self.get(key).map(str::to_owned)
    }

    /// Those that are not empty, as everywhere else.
    fn vars(&self) -> HashMap<String, String> {
        let set = self.variables.iter().filter(|(_, value)| !value.is_empty());
        set.map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    fn home_dir(&self) -> Option<PathBuf> {
        self.home.clone()
    }
}
