//! Profiles in the files of a provider's tools.
//!
//! What these files hold decides whether a tool counts as set up, and they are read in one go: keys,
//! a program, or what nobody here can follow. A file that cannot be read, a profile that is missing and
//! one of a kind that we do not know are never "nothing here"; a mount would go on with the credentials
//! of the machine instead of those that somebody set up. For the same reason whatever speaks against
//! "nothing here" is a doubt, and an error where nothing else is found: a file that a variable
//! names and that is not there, a section whose heading nearly names the profile.

mod format;
mod section;

use std::{
    io,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use penstock_base::run_blocking;

pub(super) use format::Format;
use format::{DEFAULT, Parsed};
use section::Near;
pub(super) use section::{KeyNames, Section, first_in};

use super::{
    CredentialSettings, Credentials, Environment,
    chain::{Nothing, Place},
    origin::Found,
    process::Process,
};

/// Bytes in the largest file that is read.
const SIZE_MAX: u64 = 1 << 20;

/// The files of a tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProfileFiles {
    /// The variables that name the profile; the first that is set counts.
    pub(super) profile: &'static [&'static str],
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

/// Where the credentials of a profile come from.
#[derive(Debug)]
pub(super) enum Means {
    Keys(Credentials),
    /// What this command prints.
    Program(String),
}

/// What is made of a profile: nothing where it holds no credentials, an error where it cannot be followed.
pub(super) type Judged = Result<Option<Means>, String>;

/// What makes it of the profile's sections.
pub(super) type Judge = fn(&[Section]) -> Judged;

/// One of the files of a tool.
struct Location {
    path: PathBuf,
    format: Format,
    /// Whether a variable names it.
    is_named: bool,
}

/// What a tool's files say of the profile.
#[derive(Debug, Default)]
struct Reading {
    sections: Vec<Section>,
    near: Vec<Near>,
    /// Why there should be more.
    doubts: Vec<String>,
}

impl Reading {
    fn add(&mut self, name: &str, path: &Path, parsed: Parsed) {
        let section = |entries| Section::new(name, path, entries);
        self.sections.extend(parsed.entries.map(section));
        let near = parsed.near.into_iter().map(|(heading, entries)| Near {
            heading,
            path: path.to_owned(),
            section: section(entries),
        });
        self.near.extend(near);
        let missed = parsed.missed;
        self.doubts
            .extend(missed.map(|why| format!("{}: {why}", path.display())));
    }

    /// What speaks against going on to another place.
    fn into_doubt(self, judge: Judge) -> Option<String> {
        let holds = |near: &Near| !matches!(judge(std::slice::from_ref(&near.section)), Ok(None));
        let near = self.near.iter().find(|near| holds(near)).map(Near::told);
        near.or_else(|| self.doubts.into_iter().next())
    }
}

impl ProfileFiles {
    /// The profile that somebody asked for.
    fn named<'a>(&self, settings: &'a CredentialSettings) -> Option<&'a str> {
        let profile = settings.profile.as_deref();
        let mut variables = self.profile.iter();
        profile.or_else(|| variables.find_map(|variable| settings.environment.get(variable)))
    }

    /// Names the profile, and the files of it that exist.
    fn describe(&self, settings: &CredentialSettings) -> String {
        let locations = self.locations(&settings.environment).into_iter();
        let existing = locations.filter(|location| location.path.exists());
        let files: Vec<_> = existing
            .map(|location| location.path.display().to_string())
            .collect();
        format!(
            "the profile `{}` of {}",
            self.named(settings).unwrap_or(DEFAULT),
            files.join(" and ")
        )
    }

    fn locations(&self, environment: &Environment) -> Vec<Location> {
        let mut locations = Vec::new();
        for file in self.files {
            let named = environment.get(file.variable);
            let is_named = named.is_some();
            let named = named.map(|path| expanded(path, environment));
            let usual = || Some(environment.home()?.join(file.usual));
            locations.extend(named.or_else(usual).map(|path| Location {
                path,
                format: file.format,
                is_named,
            }));
        }
        locations.dedup_by(|one, other| one.path == other.path);
        locations
    }

    /// What the files say of the profile. An error where one of them cannot be understood.
    fn read(&self, settings: &CredentialSettings) -> Result<Reading, String> {
        let mut reading = Reading::default();
        let named = self.named(settings);
        for location in self.locations(&settings.environment) {
            let path = &location.path;
            let unusable = |error: String| format!("cannot use {}: {error}", path.display());
            match read(path).map_err(|error| unusable(error.to_string()))? {
                Some(text) => {
                    let parsed = location.format.parse(&text, named).map_err(unusable)?;
                    reading.add(named.unwrap_or(DEFAULT), path, parsed);
                }
                None if location.is_named => {
                    let missing = "a variable names this file, and it cannot be found";
                    reading.doubts.push(unusable(missing.to_owned()));
                }
                None => {}
            }
        }
        Ok(reading)
    }
}

/// A path as people write it: `~/` is the home directory.
fn expanded(path: &str, environment: &Environment) -> PathBuf {
    let below_home = path.strip_prefix("~/").zip(environment.home());
    below_home.map_or_else(|| path.into(), |(rest, home)| home.join(rest))
}

/// The text of a file, unless there is none, or it lies where this user may not even look. A link that leads
/// nowhere is a file that cannot be read.
fn read(path: &Path) -> io::Result<Option<String>> {
    use io::ErrorKind::{FileTooLarge, NotADirectory, NotFound, PermissionDenied};
    match std::fs::symlink_metadata(path) {
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | PermissionDenied) => {
            return Ok(None);
        }
        found => found?,
    };
    if std::fs::metadata(path)?.len() > SIZE_MAX {
        return Err(FileTooLarge.into());
    }
    std::fs::read_to_string(path).map(Some)
}

/// The profile in one tool's files.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) files: ProfileFiles,
    pub(super) settings: CredentialSettings,
    pub(super) judge: Judge,
}

#[async_trait]
impl Place for Profile {
    async fn look(&self) -> Result<Found, Nothing> {
        let reading = run_blocking(|| self.files.read(&self.settings))?;
        let means = (self.judge)(&reading.sections)?;
        let profile = self.files.describe(&self.settings);
        match means {
            Some(Means::Keys(credentials)) => Ok(Found {
                credentials,
                origin: profile,
            }),
            Some(Means::Program(command)) => {
                let found = Process::of(&Some(command)).look().await;
                let broken = |why: Nothing| format!("{profile}: {}", why.into_text());
                let Found {
                    credentials,
                    origin,
                } = found.map_err(broken)?;
                let origin = format!("{origin} in {profile}");
                Ok(Found {
                    credentials,
                    origin,
                })
            }
            None => Err(reading
                .into_doubt(self.judge)
                .map_or_else(Nothing::absent, Nothing::Broken)),
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
            if !run_blocking(|| tool.read(&self.settings))?
                .sections
                .is_empty()
            {
                return Err(Nothing::absent());
            }
            missing = Nothing::Broken(format!("no file has a profile `{name}`"));
        }
        Err(missing)
    }
}
