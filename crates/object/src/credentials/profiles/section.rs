//! What a profile says in one file.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use penstock_base::Secret;

use super::super::Credentials;

/// Names, in lower case, with all the values that they have. Empty ones are none.
#[derive(Default)]
pub(super) struct Entries(BTreeMap<String, Vec<String>>);

impl Entries {
    pub(super) fn extend(&mut self, lines: Vec<(String, String)>) {
        for (name, value) in lines {
            let values = self.0.entry(name.to_ascii_lowercase()).or_default();
            let value = value.trim();
            if !value.is_empty() && !values.iter().any(|known| known == value) {
                values.push(value.to_owned());
            }
        }
    }
}

/// Names only: values may be secrets.
impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The names of entries that hold keys, each in every spelling, in lower case.
pub(in super::super) struct KeyNames {
    pub(in super::super) id: &'static [&'static str],
    pub(in super::super) secret: &'static [&'static str],
    pub(in super::super) token: &'static [&'static str],
}

/// The entries of a profile in one file, of all sections that are the profile's.
#[derive(Debug)]
pub(in super::super) struct Section {
    /// In words, for errors.
    title: String,
    entries: Entries,
}

impl Section {
    pub(super) fn new(name: &str, path: &Path, entries: Entries) -> Self {
        let title = format!("the profile `{name}` in {}", path.display());
        Self { title, entries }
    }

    /// An entry that is there and not empty. An error where it has two values: which of them counts is
    /// not the same for all tools.
    pub(in super::super) fn get(&self, name: &str) -> Result<Option<&str>, String> {
        match self.entries.0.get(name).map_or(&[][..], Vec::as_slice) {
            [] => Ok(None),
            [value] => Ok(Some(value)),
            _ => Err(format!("{} has two values of `{name}`", self.title)),
        }
    }

    /// The first of `names` that is there, with its value.
    pub(in super::super) fn first_of(
        &self,
        names: &[&'static str],
    ) -> Result<Option<(&'static str, &str)>, String> {
        let found =
            |name: &&'static str| Some(self.get(name).transpose()?.map(|value| (*name, value)));
        names.iter().find_map(found).transpose()
    }

    /// The keys. An error where only half of them is there.
    pub(in super::super) fn keys(&self, names: &KeyNames) -> Result<Option<Credentials>, String> {
        let half = |has, lacks| Err(format!("{} has `{has}` and no `{lacks}`", self.title));
        match (self.first_of(names.id)?, self.first_of(names.secret)?) {
            (None, None) => Ok(None),
            (Some((id, _)), None) => half(id, names.secret[0]),
            (None, Some((secret, _))) => half(secret, names.id[0]),
            (Some((_, id)), Some((_, secret))) => Ok(Some(Credentials {
                key_id: id.to_owned(),
                secret: Secret::new(secret),
                token: self
                    .first_of(names.token)?
                    .map(|(_, token)| Secret::new(token)),
                expires: None,
            })),
        }
    }

    /// What is said of a section that asks for what nobody here can do.
    pub(in super::super) fn unusable(&self, what: &str) -> String {
        format!(
            "{} has `{what}`, which cannot be followed here: let the option `credential-process` run \
             the tool that can, or leave `profiles` out of `credential-order`",
            self.title
        )
    }
}

/// What is found in the first of `sections` that has it.
pub(in super::super) fn first_in<T>(
    sections: &[Section],
    find: impl Fn(&Section) -> Result<Option<T>, String>,
) -> Result<Option<T>, String> {
    let found = |section| find(section).transpose();
    sections.iter().find_map(found).transpose()
}

/// A section that the tool passes over, and that somebody may have meant for the profile.
#[derive(Debug)]
pub(super) struct Near {
    pub(super) heading: String,
    pub(super) path: PathBuf,
    pub(super) section: Section,
}

impl Near {
    pub(super) fn told(&self) -> String {
        format!(
            "[{}] in {} holds credentials, and is not how that file names the profile",
            self.heading,
            self.path.display()
        )
    }
}
