//! Options in a TOML file: one key per option.
//!
//! ```toml
//! region = "eu-west-1"            # of whatever is mounted with this file
//!
//! [volume.data]                   # of this source, and of what is below it
//! source = "s3://bucket/data"
//! cache-dir = "/var/cache/data"
//!
//! [target.lan]                    # a mount target of `penstock serve`
//! listen = "10.0.0.5:2049"
//!
//! [[export]]                      # what it exports
//! path = "/data"
//! volume = "data"
//! ```
//!
//! A key in a section wins over the same key at the top, and that of a longer source over that of a shorter
//! one. Values may be strings, or plain numbers and booleans where that is what they are. A mistake is one
//! wherever it stands, also in a section of another source. Every message names the file and the line.

mod exports;

use std::{borrow::Cow, fs, os::unix::fs::MetadataExt, path::Path};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Accepts, Given, OptionSpec, Origin, table};
use crate::failure::{Failure, Outcome};

pub(crate) use exports::{ExportSection, TargetSection};

/// The sections of volumes.
const VOLUME: &str = "volume";

/// The sections of mount targets.
const TARGET: &str = "target";

/// The sections of exports.
const EXPORT: &str = "export";

/// What a section of a volume is about.
const SOURCE: &str = "source";

/// Bytes in the largest file that is read: far more than all options take.
const FILE_SIZE_MAX: u64 = 1 << 20;

/// Permission bits that let others than the owner read a file.
const READABLE_BY_OTHERS: u32 = 0o044;

/// Permission bits that let others than the owner write a file.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Reads the options that `path` has for `source`; without one, those for everything.
pub(crate) fn read(path: &Path, source: Option<&str>) -> Outcome<Vec<Given>> {
    let (file, faults) = read_all(path)?;
    match faults.into_iter().next() {
        Some(fault) => Err(fault),
        None => Ok(file.of(source)),
    }
}

/// Reads everything that `path` says, and finds every fault of it. Fails where it cannot be read at all.
pub(crate) fn read_all(path: &Path) -> Outcome<(ConfigFile, Vec<Failure>)> {
    let text = read_text(path)?;
    let (file, mut faults) = parse(path, &text);
    let secrecy = file
        .all()
        .find_map(|given| check_secrecy(path, given).err());
    faults.extend(secrecy);
    for given in file.all() {
        faults.extend(given.iter().filter_map(|given| given.read().err()));
    }
    Ok((file, faults))
}

/// What a file says.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile {
    /// Of everything.
    top: Vec<Given>,
    pub volumes: Vec<VolumeSection>,
    /// The mount targets, by their names.
    pub targets: Vec<TargetSection>,
    /// What they export.
    pub exports: Vec<ExportSection>,
}

/// What a file says of one volume.
#[derive(Debug)]
pub(crate) struct VolumeSection {
    pub name: String,
    pub source: String,
    given: Vec<Given>,
    line: usize,
}

impl VolumeSection {
    /// Whether a source is the one of the section, or below it.
    fn is_about(&self, source: &str) -> bool {
        let rest = source.strip_prefix(self.source.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl ConfigFile {
    fn all(&self) -> impl Iterator<Item = &[Given]> {
        let sections = self.volumes.iter().map(|volume| volume.given.as_slice());
        std::iter::once(self.top.as_slice()).chain(sections)
    }

    /// The options for a source, those that win last.
    pub(crate) fn of(&self, source: Option<&str>) -> Vec<Given> {
        let mut given = self.top.clone();
        let is_about = |volume: &&VolumeSection| source.is_some_and(|of| volume.is_about(of));
        let mut volumes: Vec<_> = self.volumes.iter().filter(is_about).collect();
        volumes.sort_by_key(|volume| volume.source.len());
        given.extend(volumes.into_iter().flat_map(|volume| volume.given.clone()));
        given
    }

    /// Whether it says what `penstock serve` is to export.
    pub(crate) fn has_exports(&self) -> bool {
        !self.targets.is_empty() || !self.exports.is_empty()
    }
}

/// Reads a small text file that the user named.
pub(crate) fn read_text(path: &Path) -> Outcome<String> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| {
        Failure::usage(
            format!("cannot read the configuration file `{shown}`: {error}"),
            "check the path and its permissions",
        )
    };
    let metadata = fs::metadata(path).map_err(unreadable)?;
    let (size, mode) = (metadata.len(), metadata.mode());
    // Who writes options has the credentials sent to wherever he likes.
    if metadata.is_file() && mode & WRITABLE_BY_OTHERS != 0 {
        return Err(Failure::usage(
            format!(
                "other users may write the configuration file `{shown}` (mode {:04o})",
                mode & 0o7777
            ),
            format!("run `chmod go-w {shown}`"),
        ));
    }
    if size > FILE_SIZE_MAX {
        return Err(Failure::usage(
            format!("the configuration file `{shown}` has {size} bytes"),
            format!("it may have at most {FILE_SIZE_MAX}; is it the right file?"),
        ));
    }
    fs::read_to_string(path).map_err(unreadable)
}

/// Reads `text`, which came from `path`, as far as it can be understood, and finds its faults.
pub(crate) fn parse(path: &Path, text: &str) -> (ConfigFile, Vec<Failure>) {
    let document = match DeTable::parse(text) {
        Ok(document) => document,
        Err(error) => {
            let start = error.span().map_or(0, |span| span.start);
            let fault = malformed(path, line_at(text, start), error.message());
            return (ConfigFile::default(), vec![fault]);
        }
    };
    let mut reader = Reader {
        path,
        text,
        faults: Vec::new(),
        unread: Vec::new(),
    };
    let mut file = ConfigFile::default();
    for (key, value) in document.get_ref() {
        match (key.get_ref().as_ref(), value.get_ref()) {
            (VOLUME, DeValue::Table(sections)) => {
                let volumes = sections
                    .iter()
                    .filter_map(|(name, section)| reader.volume(name, section.get_ref()));
                file.volumes.extend(volumes);
            }
            (TARGET, DeValue::Table(sections)) => {
                let targets = sections
                    .iter()
                    .filter_map(|(name, section)| reader.target(name, section.get_ref()));
                file.targets.extend(targets);
            }
            (EXPORT, value @ (DeValue::Table(_) | DeValue::Array(_))) => {
                file.exports = reader.exports(key, value);
            }
            _ => file.top.extend(reader.option(key, value.get_ref())),
        }
    }
    exports::check(&mut reader, &mut file);
    let mut faults = reader.faults;
    faults.sort_by_key(|(line, _)| *line);
    (file, faults.into_iter().map(|(_, fault)| fault).collect())
}

/// A key, and where it stands.
type Key<'a> = Spanned<Cow<'a, str>>;

/// Reads parts of a file.
struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    /// What is wrong, with the lines of it.
    faults: Vec<(usize, Failure)>,
    /// Sections that are there and could not be read, by their kinds and names.
    unread: Vec<(&'static str, String)>,
}

impl Reader<'_> {
    fn volume(&mut self, name: &Key<'_>, section: &DeValue<'_>) -> Option<VolumeSection> {
        let section = self.section((VOLUME, name), section)?;
        let (mut source, mut given) = (None, Vec::new());
        for (key, value) in section {
            match key.get_ref().as_ref() {
                SOURCE => source = text_of(value.get_ref()),
                _ => given.extend(self.option(key, value.get_ref())),
            }
        }
        let name_text = name.get_ref();
        let Some(source) = source else {
            let told = format!("[volume.{name_text}] has no source, such as \"s3://bucket\"");
            self.malformed(self.line(name), &told);
            self.unread.push((VOLUME, name_text.to_string()));
            return None;
        };
        Some(VolumeSection {
            name: name_text.to_string(),
            source: source.trim_end_matches('/').to_owned(),
            given,
            line: self.line(name),
        })
    }

    /// The keys of a section with a name.
    fn section<'t, 'v>(
        &mut self,
        (kind, name): (&'static str, &Key<'_>),
        section: &'t DeValue<'v>,
    ) -> Option<&'t DeTable<'v>> {
        let DeValue::Table(section) = section else {
            let told = format!("`{}` must be a section, [{kind}.{0}]", name.get_ref());
            self.malformed(self.line(name), &told);
            self.unread.push((kind, name.get_ref().to_string()));
            return None;
        };
        Some(section)
    }

    fn option(&mut self, key: &Key<'_>, value: &DeValue<'_>) -> Option<Given> {
        let line = self.line(key);
        let given =
            option_of(self.path, line, key.get_ref()).and_then(|spec| self.given(spec, key, value));
        self.understood(line, given)
    }

    /// An option with a value, however its key is spelled.
    fn given(
        &self,
        spec: &'static OptionSpec,
        key: &Key<'_>,
        value: &DeValue<'_>,
    ) -> Outcome<Given> {
        let line = self.line(key);
        let text = text_of(value).ok_or_else(|| {
            let told = format!("`{}` must be one value", key.get_ref());
            malformed(self.path, line, &told)
        })?;
        Ok(Given {
            spec,
            spelling: key.get_ref().to_string(),
            text,
            origin: Origin::File {
                path: self.path.to_owned(),
                line,
            },
        })
    }

    /// What was understood of a line; what was not is a fault.
    fn understood<T>(&mut self, line: usize, outcome: Outcome<T>) -> Option<T> {
        match outcome {
            Ok(understood) => Some(understood),
            Err(fault) => {
                self.faults.push((line, fault));
                None
            }
        }
    }

    /// Whether a section is there that could not be read.
    fn is_unread(&self, kind: &str, name: &str) -> bool {
        let mut unread = self.unread.iter();
        unread.any(|(of, known)| *of == kind && known == name)
    }

    /// Whether any section of a kind is.
    fn has_unread(&self, kind: &str) -> bool {
        self.unread.iter().any(|(of, _)| *of == kind)
    }

    fn line(&self, key: &Key<'_>) -> usize {
        line_at(self.text, key.span().start)
    }

    fn malformed(&mut self, line: usize, message: &str) {
        self.faults
            .push((line, malformed(self.path, line, message)));
    }

    /// The same with a remedy of its own.
    fn fault(&mut self, line: usize, cause: &str, remedy: impl Into<String>) {
        let cause = format!("{}:{line}: {cause}", self.path.display());
        self.faults.push((line, Failure::usage(cause, remedy)));
    }
}

fn option_of(path: &Path, line: usize, key: &str) -> Outcome<&'static OptionSpec> {
    let known = table::find(key).filter(|spec| spec.accepts != Accepts::NotInFile);
    known.ok_or_else(|| {
        let hint = table::nearest(key, table::ALL.into_iter())
            .map_or(String::new(), |near| format!(", but `{near}` is"));
        malformed(path, line, &format!("`{key}` is not an option{hint}"))
    })
}

fn malformed(path: &Path, line: usize, message: &str) -> Failure {
    Failure::usage(
        format!("{}:{line}: {message}", path.display()),
        "docs/options.md and `penstock mount --help-all` list the keys and their values",
    )
}

/// The text of a plain value; none for lists and tables.
fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// The number of the line that byte `offset` is on, from 1.
pub(crate) fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// Refuses a file that holds a secret and that others may read.
pub(crate) fn check_secrecy(path: &Path, given: &[Given]) -> Outcome {
    let secret = given
        .iter()
        .find(|given| given.spec.accepts == Accepts::Privately);
    let Some(secret) = secret else {
        return Ok(());
    };
    let mode = fs::metadata(path).map_or(0, |metadata| metadata.mode());
    if mode & READABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    let shown = path.display();
    Err(Failure::usage(
        format!(
            "`{shown}` holds `{}` and other users may read it (mode {:04o})",
            secret.spelling,
            mode & 0o7777
        ),
        format!("run `chmod 600 {shown}`"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Values;
    use proptest::prelude::*;

    fn parse_text(text: &str) -> Outcome<Vec<Given>> {
        given_for(None, text)
    }

    fn given_for(source: Option<&str>, text: &str) -> Outcome<Vec<Given>> {
        let (file, faults) = parse(Path::new("/etc/p.toml"), text);
        match faults.into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(file.of(source)),
        }
    }

    #[test]
    fn keys_are_options_and_know_their_line() {
        let given =
            parse_text("# note\nmemory = \"1GiB\"\nfsync = false\nuid = 7\n").expect("valid");
        let mut found: Vec<_> = given
            .iter()
            .map(|given| {
                (
                    given.origin.to_string(),
                    given.spec.name,
                    given.text.as_str(),
                )
            })
            .collect();
        found.sort();
        assert_eq!(
            found,
            [
                ("/etc/p.toml:2".to_owned(), "memory", "1GiB"),
                ("/etc/p.toml:3".to_owned(), "fsync", "false"),
                ("/etc/p.toml:4".to_owned(), "uid", "7"),
            ]
        );
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, message) in [
            ("a = 1\n", "/etc/p.toml:1: `a` is not an option"),
            (
                "\nmemry = 1\n",
                "/etc/p.toml:2: `memry` is not an option, but `memory` is",
            ),
            ("\n\nuid = [1]\n", "/etc/p.toml:3: `uid` must be one value"),
            ("uid = 1\nuid = 2\n", "/etc/p.toml:2: "),
            ("fsync = \n", "/etc/p.toml:1: "),
            ("config = \"x\"", "/etc/p.toml:1: `config` is not an option"),
            (
                "[volume.data]\nuid = 1\n",
                "/etc/p.toml:1: [volume.data] has no source",
            ),
            (
                "[volume.data]\nsource = \"s3://a\"\nmemry = 1\n",
                "/etc/p.toml:3: `memry` is not an option, but `memory` is",
            ),
            (
                "[volume]\ndata = 1\n",
                "/etc/p.toml:2: `data` must be a section, [volume.data]",
            ),
        ] {
            let failure = parse_text(text).expect_err(text).to_string();
            assert!(failure.starts_with(message), "{failure}");
        }
    }

    #[test]
    fn sections_are_of_one_volume_and_win_over_the_top() {
        let text = "[volume.b]\nsource = \"s3://bucket/b/\"\nuid = 3\n\
                    [volume.a]\nsource = \"s3://bucket\"\nuid = 2\ngid = 2\n";
        let text = format!("uid = 1\n{text}");
        for (source, uid, gid) in [
            (None, 1, None),
            (Some("s3://other"), 1, None),
            (Some("s3://bucket2"), 1, None),
            (Some("s3://bucket"), 2, Some(2)),
            (Some("s3://bucket/"), 2, Some(2)),
            (Some("s3://bucket/b"), 3, Some(2)),
            (Some("s3://bucket/b/c"), 3, Some(2)),
            (Some("s3://bucket/bc"), 2, Some(2)),
        ] {
            let values = Values::resolve(given_for(source, &text).expect("valid"));
            let values = values.expect("valid");
            assert_eq!(values.count(&table::UID), Some(uid), "{source:?}");
            assert_eq!(values.count(&table::GID), gid, "{source:?}");
        }
    }

    #[test]
    fn a_mistake_in_a_section_of_another_volume_is_one() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("p.toml");
        let text = "[volume.a]\nsource = \"s3://a\"\nmemory = \"1K\"\n";
        fs::write(&path, text).expect("written");
        let failure = read(&path, Some("s3://other")).expect_err("too little");
        assert!(failure.to_string().contains("p.toml:3"), "{failure}");
    }

    #[test]
    fn a_file_with_a_secret_must_be_private() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("p.toml");
        fs::write(&path, "access-key-secret = \"hunter2\"\n").expect("written");
        for (mode, fine) in [(0o600, true), (0o644, false), (0o640, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
            let outcome = read(&path, None);
            assert_eq!(outcome.is_ok(), fine, "{mode:o}");
            let text = outcome
                .err()
                .map_or(String::new(), |failure| failure.to_string());
            assert!(!text.contains("hunter2"));
        }
    }

    #[test]
    fn a_file_that_others_may_write_is_not_believed() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("p.toml");
        fs::write(&path, "endpoint = \"http://127.0.0.1\"\n").expect("written");
        for (mode, fine) in [(0o644, true), (0o664, false), (0o646, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
            assert_eq!(read(&path, None).is_ok(), fine, "{mode:o}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text: String) {
            let _ = parse_text(&text);
        }
    }
}
