//! Profiles in the files of a provider's tools.
//!
//! `reqsign` reads the keys. To it, a file that cannot be read, a profile that is missing and one of a
//! kind that it does not know are all "nothing here"; a mount would go on with the credentials of
//! the machine instead of those that somebody set up. So each tool's files are read here
//! first, and what they hold decides whether the tool counts as set up.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use ini::Ini;
use penstock_base::run_blocking;

use super::{
    CredentialSettings, Environment,
    chain::{Nothing, Place},
    origin::Found,
};

/// Bytes in the largest file that is read.
const SIZE_MAX: u64 = 1 << 20;

/// The files of a tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProfileFiles {
    /// The variable that names the profile.
    pub(super) profile: &'static str,
    pub(super) files: &'static [ProfileFile],
}

/// A file with a section for each profile.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProfileFile {
    /// The variable that names the file.
    pub(super) variable: &'static str,
    /// Where it is otherwise, below the home directory.
    pub(super) usual: &'static str,
    pub(super) format: Format,
}

/// How a file is written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Format {
    /// `[NAME]`
    Ini,
    /// `[profile NAME]`, and `[default]`.
    IniOfAws,
    /// `{"current": NAME, "profiles": [{"name": NAME, ...}]}`
    Json,
}

/// What a profile says in one file.
#[derive(Debug)]
pub(super) struct Section {
    path: PathBuf,
    entries: HashMap<String, String>,
}

impl Section {
    /// An entry that is there and not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let value = self.entries.get(name).map(|value| value.trim());
        value.filter(|value| !value.is_empty())
    }

    /// The first of `names` that is there.
    pub(super) fn first_of(&self, names: &[&'static str]) -> Option<&'static str> {
        let mut names = names.iter().copied();
        names.find(|name| self.get(name).is_some())
    }

    /// What is said of a section that asks for what nobody here can do.
    pub(super) fn unusable(&self, what: &str) -> String {
        let path = self.path.display();
        format!(
            "the profile in {path} has `{what}`, which cannot be followed here: let the option \
             `credential-process` run the tool that can, or leave `profiles` out of `credential-order`"
        )
    }
}

/// What a tool's files say of the profile.
#[derive(Debug)]
pub(super) enum Verdict {
    /// No credentials: the tool is not set up.
    Nothing,
    /// The place with that number reads them.
    ReadBy(usize),
    /// Something that cannot be followed.
    Unusable(String),
}

impl ProfileFiles {
    /// The profile that somebody asked for.
    fn named<'a>(&self, settings: &'a CredentialSettings) -> Option<&'a str> {
        let profile = settings.profile.as_deref();
        profile.or_else(|| settings.environment.get(self.profile))
    }

    /// Names the profile, and the files of it that exist.
    pub(super) fn describe(&self, settings: &CredentialSettings) -> String {
        let paths = self.paths(&settings.environment).into_iter();
        let existing = paths.filter(|(path, _)| path.exists());
        let files: Vec<_> = existing
            .map(|(path, _)| path.display().to_string())
            .collect();
        format!(
            "the profile `{}` of {}",
            self.named(settings).unwrap_or("default"),
            files.join(" and ")
        )
    }

    fn paths(&self, environment: &Environment) -> Vec<(PathBuf, Format)> {
        let mut paths = Vec::new();
        for file in self.files {
            let named = environment.get(file.variable).map(PathBuf::from);
            let usual = || Some(environment.home()?.join(file.usual));
            paths.extend(named.or_else(usual).map(|path| (path, file.format)));
        }
        paths.dedup_by(|one, other| one.0 == other.0);
        paths
    }

    /// What the files that exist say of the profile.
    fn sections(&self, settings: &CredentialSettings) -> Result<Vec<Section>, String> {
        let mut sections = Vec::new();
        for (path, format) in self.paths(&settings.environment) {
            let unusable = |error: String| format!("cannot use {}: {error}", path.display());
            let Some(text) = read(&path).map_err(|error| unusable(error.to_string()))? else {
                continue;
            };
            let entries = format
                .section(&text, self.named(settings))
                .map_err(unusable)?;
            sections.extend(entries.map(|entries| Section { path, entries }));
        }
        Ok(sections)
    }
}

impl Format {
    fn section(
        self,
        text: &str,
        named: Option<&str>,
    ) -> Result<Option<HashMap<String, String>>, String> {
        let name = named.unwrap_or("default");
        match self {
            Self::Ini => ini_section(text, name),
            Self::IniOfAws if name == "default" => ini_section(text, name),
            Self::IniOfAws => ini_section(text, &format!("profile {name}")),
            Self::Json => json_section(text, named),
        }
    }
}

fn ini_section(text: &str, name: &str) -> Result<Option<HashMap<String, String>>, String> {
    let file = Ini::load_from_str(text).map_err(|error| format!("line {}", error.line + 1))?;
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let section = file.section(Some(name));
    Ok(section.map(|section| section.iter().map(owned).collect()))
}

fn json_section(
    text: &str,
    named: Option<&str>,
) -> Result<Option<HashMap<String, String>>, String> {
    let file: serde_json::Value =
        serde_json::from_str(text).map_err(|error| format!("line {}", error.line()))?;
    let current = file["current"].as_str();
    let name = named.or(current).unwrap_or("default");
    let mut profiles = file["profiles"].as_array().into_iter().flatten();
    let profile = profiles.find(|profile| profile["name"].as_str() == Some(name));
    let owned = |(name, value): (&String, &serde_json::Value)| {
        Some((name.clone(), value.as_str()?.to_owned()))
    };
    let entries = profile.and_then(serde_json::Value::as_object);
    Ok(entries.map(|entries| entries.iter().filter_map(owned).collect()))
}

/// The text of a file, unless there is none, or it lies where this user may not even look.
fn read(path: &Path) -> io::Result<Option<String>> {
    use io::ErrorKind::{FileTooLarge, NotADirectory, NotFound, PermissionDenied};
    let size = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | PermissionDenied) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    if size > SIZE_MAX {
        return Err(FileTooLarge.into());
    }
    let bytes = std::fs::read(path)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The profile in one tool's files.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) files: ProfileFiles,
    pub(super) settings: CredentialSettings,
    pub(super) judge: fn(&[Section]) -> Verdict,
    /// What reads the credentials.
    pub(super) readers: Vec<Box<dyn Place>>,
}

#[async_trait]
impl Place for Profile {
    async fn look(&self) -> Result<Found, Nothing> {
        let sections = run_blocking(|| self.files.sections(&self.settings))?;
        match (self.judge)(&sections) {
            Verdict::Nothing => Err(Nothing::absent()),
            Verdict::Unusable(what) => Err(Nothing::Broken(what)),
            Verdict::ReadBy(index) => self.readers[index].look().await.map_err(|nothing| {
                let profile = self.files.describe(&self.settings);
                Nothing::Broken(format!("{profile}: {}", nothing.into_text()))
            }),
        }
    }
}

/// Fails where a profile was asked for by its name and no tool's files have it.
#[derive(Debug)]
pub(super) struct NamedProfile {
    pub(super) tools: Vec<ProfileFiles>,
    pub(super) settings: CredentialSettings,
}

#[async_trait]
impl Place for NamedProfile {
    async fn look(&self) -> Result<Found, Nothing> {
        let mut missing = Nothing::absent();
        for tool in &self.tools {
            let Some(name) = tool.named(&self.settings) else {
                continue;
            };
            if !run_blocking(|| tool.sections(&self.settings))?.is_empty() {
                return Err(Nothing::absent());
            }
            missing = Nothing::Broken(format!("no file has a profile `{name}`"));
        }
        Err(missing)
    }
}
