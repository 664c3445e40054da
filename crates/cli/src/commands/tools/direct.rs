//! Copies from and to buckets and filesets without a mount: each volume is opened in this process.

use std::{
    ffi::CString,
    path::{Path, PathBuf},
    sync::Arc,
};

use penstock_base::{group_id, user_id};
use penstock_tools::{
    Report,
    direct::{Place, VolumePlace},
    volume::VolumeTree,
};
use penstock_vfs::Identity;
use tokio::runtime::{Builder, Runtime};

use crate::{
    command_line,
    environment::Environment,
    failure::{Failure, Outcome},
    filesets::{self, Fileset},
    logging,
    options::{Given, Group, Origin, Scope, Values, table},
    places,
    predecessors::Predecessors,
    resources::Resources,
    stores,
    volumes::{self, Form, OpenedVolume, VolumeKind, VolumeSpec},
};

/// How long what is known of a bucket is believed, unless set otherwise: as long as a copy runs.
const BELIEVED: &str = "1d";
/// Where options of ours come from.
const PROGRAM: Origin = Origin::Program("parcp");
/// Modules that log what becomes a failure of a copy.
const TOLD: [&str; 2] = [
    "penstock_bucket::errors",
    "penstock_bucket::open_file::save",
];
/// No mount point: nothing is mounted.
const NOWHERE: &str = "/dev/null";

/// What a path of the command line names.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Named {
    Local(PathBuf),
    Volume(Url),
}

/// A URL, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Url {
    /// As it was given.
    shown: String,
    kind: VolumeKind,
    /// What is opened.
    volume: String,
    /// The names from there.
    path: Vec<String>,
    /// The last name.
    name: String,
    /// It ends in a slash, and something is above that.
    is_directory: bool,
}

/// Whether a path is a URL, which is never taken for a file of this machine.
pub(super) fn is_url(path: &Path) -> bool {
    let text = path.to_str().unwrap_or_default();
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

impl Named {
    fn of(path: &Path) -> Outcome<Self> {
        match path.to_str().filter(|_| is_url(path)) {
            Some(text) => Url::parse(text).map(Self::Volume),
            None => Ok(Self::Local(path.to_owned())),
        }
    }

    /// Where it is among all that a copy could meet: a scheme and names. Only of places that can overlap.
    fn location(&self) -> (String, Vec<String>) {
        match self {
            Self::Local(path) => ("file".to_owned(), local_names(path)),
            Self::Volume(url) => {
                let (scheme, volume) = url.volume.split_once("://").unwrap_or_default();
                let mut names = match scheme {
                    "file" => local_names(Path::new(volume)),
                    _ => names_in(volume),
                };
                names.extend(url.path.iter().cloned());
                (scheme.to_owned(), names)
            }
        }
    }
}

fn local_names(path: &Path) -> Vec<String> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = absolute.ancestors().find_map(|above| {
        let resolved = above.canonicalize().ok()?;
        Some(resolved.join(absolute.strip_prefix(above).ok()?))
    });
    names_in(&existing.unwrap_or(absolute).to_string_lossy())
}

fn names_in(path: &str) -> Vec<String> {
    let names = path.split('/').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

impl Url {
    fn parse(text: &str) -> Outcome<Self> {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        match scheme {
            "fileset" => Ok(Self::of_fileset(text, rest)),
            "file" => Self::of_directory(text, rest),
            _ => Self::of_bucket(text),
        }
    }

    fn of_fileset(text: &str, rest: &str) -> Self {
        let mut names = names_in(rest);
        let fileset = match names.is_empty() {
            true => String::new(),
            false => names.remove(0),
        };
        Self {
            shown: text.to_owned(),
            kind: VolumeKind::Fileset,
            name: names.last().unwrap_or(&fileset).clone(),
            volume: format!("fileset://{fileset}"),
            path: names,
            is_directory: false,
        }
    }

    /// Of a bucket in a directory that directory is opened, or of what lies in one the directory above.
    fn of_directory(text: &str, rest: &str) -> Outcome<Self> {
        stores::parse(text)?;
        let is_bucket = Path::new(rest).is_dir() || rest.contains('?');
        let names = names_in(rest.split('?').next().unwrap_or_default());
        let name = names.last().cloned().unwrap_or_default();
        let above = names.len().saturating_sub(1);
        Ok(Self {
            shown: text.to_owned(),
            kind: VolumeKind::Bucket,
            volume: match is_bucket {
                true => text.to_owned(),
                false => format!("file:///{}", names[..above].join("/")),
            },
            path: match is_bucket {
                true => Vec::new(),
                false => vec![name.clone()],
            },
            name,
            is_directory: false,
        })
    }

    /// What ends in a slash is opened itself, which needs no rights above it; else what is above, to see what it is.
    fn of_bucket(text: &str) -> Outcome<Self> {
        stores::parse(text)?;
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        refuse_no_names(text, rest)?;
        let mut names = names_in(rest);
        let name = names.last().cloned().unwrap_or_default();
        let is_named = names.len() > 1;
        let is_directory = is_named && rest.ends_with('/');
        let path = match is_named && !is_directory {
            true => names.split_off(names.len() - 1),
            false => Vec::new(),
        };
        Ok(Self {
            shown: text.to_owned(),
            kind: VolumeKind::Bucket,
            volume: format!("{scheme}://{}", names.join("/")),
            path,
            name,
            is_directory,
        })
    }
}

/// Refuses keys with names that no file can have: without those it would be another key.
fn refuse_no_names(shown: &str, path: &str) -> Outcome {
    let path = path.strip_suffix('/').unwrap_or(path);
    let is_none = |name: &str| matches!(name, "" | "." | "..");
    match path.split('/').skip(1).any(is_none) {
        true => Err(Failure::usage(
            format!("`{shown}` has an empty name, `.` or `..` in its path, which no file can have"),
            "rename the object in the store, or name what is above it",
        )),
        false => Ok(()),
    }
}

/// The places that a command line names, with the volumes that they are in.
pub(super) struct Opened {
    pub(super) sources: Vec<Place>,
    pub(super) target: Place,
    volumes: Vec<OpenVolume>,
    /// Goes last.
    runtime: Runtime,
}

struct OpenVolume {
    url: String,
    tree: VolumeTree,
    volume: OpenedVolume,
    /// Something is copied from it.
    is_source: bool,
}

/// How volumes are opened.
#[derive(Debug)]
pub(super) struct Opening<'a> {
    /// The options of the command line.
    pub(super) given: Vec<Given>,
    pub(super) environment: &'a Environment,
    /// Owners, modes and times are to be kept.
    pub(super) keeps_metadata: bool,
    /// The source becomes the target.
    pub(super) is_exact: bool,
    /// What the source has not is removed from the target.
    pub(super) deletes: bool,
}

impl Opening<'_> {
    /// Opens each volume that is named, once.
    pub(super) fn open(&self, sources: &[PathBuf], target: &Path) -> Outcome<Opened> {
        let named: Vec<Named> = sources
            .iter()
            .map(|source| Named::of(source))
            .collect::<Outcome<_>>()?;
        let into = Named::of(target)?;
        for source in &named {
            refuse_overlap(source, &into, (self.is_exact, self.deletes))?;
        }
        let mut opened = Opened::new(Place::Local(target.to_owned()))?;
        opened.target = self.place(&mut opened, into, false)?;
        for source in named {
            let place = self.place(&mut opened, source, true)?;
            opened.sources.push(place);
        }
        Ok(opened)
    }

    /// Opens the volume of an archive that is made of what is at `paths` of this machine.
    pub(super) fn open_archive(&self, archive: &Path, paths: &[PathBuf]) -> Outcome<Opened> {
        let into = Named::of(archive)?;
        for path in paths {
            refuse_overlap(&Named::Local(path.clone()), &into, (true, false))?;
        }
        self.open(&[], archive)
    }

    /// Opens what is read alone, and becomes the file `into`.
    pub(super) fn open_source(&self, source: &Path, into: Option<&Path>) -> Outcome<Opened> {
        let named = Named::of(source)?;
        if let Some(into) = into {
            refuse_overlap(&named, &Named::Local(into.to_owned()), (true, false))?;
        }
        let mut opened = Opened::new(Place::Local(PathBuf::from(NOWHERE)))?;
        let place = self.place(&mut opened, named, true)?;
        opened.sources.push(place);
        Ok(opened)
    }

    fn place(&self, opened: &mut Opened, named: Named, is_source: bool) -> Outcome<Place> {
        let url = match named {
            Named::Local(path) => return Ok(Place::Local(path)),
            Named::Volume(url) => url,
        };
        let at = opened.volumes.iter().position(|one| one.url == url.volume);
        let at = match at {
            Some(at) => at,
            None => {
                let volume = self.open_volume(&opened.runtime, &url)?;
                opened.volumes.push(volume);
                opened.volumes.len() - 1
            }
        };
        let volume = &mut opened.volumes[at];
        volume.is_source |= is_source;
        let names = url.path.into_iter().map(c_string);
        Ok(Place::Volume(VolumePlace {
            tree: volume.tree.clone(),
            keeps_metadata: volume.volume.keeps_owners,
            path: names.collect::<Outcome<_>>()?,
            shown: url.shown,
            name: c_string(url.name)?,
            is_directory: url.is_directory,
        }))
    }

    fn open_volume(&self, runtime: &Runtime, url: &Url) -> Outcome<OpenVolume> {
        let spec = VolumeSpec {
            kind: url.kind,
            source: url.volume.clone(),
            mountpoint: PathBuf::from(NOWHERE),
            values: self.values(url)?,
            environment: self.environment.clone(),
        };
        start_logging(&spec.values);
        let resources = Resources::new(spec.memory());
        let place = places::sockets(self.environment);
        let before = Predecessors::new(&place, &spec.mountpoint);
        let opening = async {
            let place = filesets::place_of(&spec.source, self.environment)?;
            if place.is_needed {
                stores::probe(&place.store, &spec.values, self.environment).await?;
            }
            volumes::open(&spec, &resources, &before, None).await
        };
        let volume = runtime
            .block_on(opening)
            .map_err(|failure| self.explain(url, failure))?;
        let Form::Files(files) = &volume.form else {
            return Err(unknown(&url.shown));
        };
        let by = identity(volume.keeps_owners && url.kind == VolumeKind::Fileset);
        Ok(OpenVolume {
            url: url.volume.clone(),
            tree: VolumeTree::new(Arc::clone(files), by, runtime.handle().clone()),
            volume,
            is_source: false,
        })
    }

    /// Says of a fileset that is mounted how to reach it.
    fn explain(&self, url: &Url, failure: Failure) -> Failure {
        let Some(name) = filesets::name_in(&url.volume) else {
            return failure;
        };
        let fileset = Fileset::new(name, self.environment).ok();
        match fileset.and_then(|fileset| fileset.user()) {
            None => failure,
            Some(process) => Failure::new(
                format!("fileset `{name}` is open in process {process}"),
                "where it is mounted, copy from or to the mount point instead",
            ),
        }
    }

    /// The options of one volume: what is there for mounts, such as a staging directory or a cache, is not for this.
    fn values(&self, url: &Url) -> Outcome<Values> {
        let given = self.given.clone();
        let mut given = command_line::gathered(given, Some(&url.volume), self.environment)?;
        let is_bucket = url.kind == VolumeKind::Bucket;
        given.retain(|given| match given.spec.group {
            Group::Metadata | Group::Files => is_bucket,
            Group::Transfers => is_bucket || given.spec.name == table::MEMORY.name,
            // The key of a fileset says nothing of a bucket that its files are copied to.
            _ if given.spec.scope == Scope::Fileset => !is_bucket,
            _ => given.spec.scope == Scope::Store,
        });
        if is_bucket {
            given.push(ours(&table::ATTR_TIMEOUT, BELIEVED));
        }
        if is_bucket && self.keeps_metadata {
            given.push(ours(&table::POSIX_METADATA, "on"));
        }
        Values::resolve(given)
    }
}

/// Logs what was asked for, else warnings but those of files that could not be copied, which are told at the end.
fn start_logging(values: &Values) {
    match values.origin(&table::LOG_LEVEL) {
        Some(_) => logging::start(values.choice(&table::LOG_LEVEL), None),
        None => logging::start_without("warn", &TOLD),
    }
}

fn ours(spec: &'static crate::options::OptionSpec, text: &str) -> Given {
    Given {
        spec,
        spelling: spec.name.to_owned(),
        text: text.to_owned(),
        origin: PROGRAM,
    }
}

fn identity(is_checked: bool) -> Identity {
    if !is_checked {
        return Identity::trusted(user_id(), group_id());
    }
    let groups = rustix::process::getgroups().unwrap_or_default();
    let groups: Vec<u32> = groups
        .into_iter()
        .map(rustix::process::Gid::as_raw)
        .collect();
    Identity::new(user_id(), group_id(), groups)
}

fn c_string(name: String) -> Outcome<CString> {
    let shown = name.clone();
    CString::new(name).map_err(|_| unknown(&shown))
}

fn unknown(shown: &str) -> Failure {
    Failure::usage(
        format!("`{shown}` cannot be copied from or to"),
        "name s3://BUCKET[/PATH], oss://BUCKET[/PATH], file:///DIRECTORY, fileset://NAME[/PATH] or a path",
    )
}

/// Refuses a source that the copy would lie in, and one that a mirror would remove. What is in one volume is looked at again once that is open.
fn refuse_overlap(source: &Named, target: &Named, (is_exact, deletes): (bool, bool)) -> Outcome {
    if matches!((source, target), (Named::Local(_), Named::Local(_))) {
        return Ok(());
    }
    let ((from, source_names), (into, target_names)) = (source.location(), target.location());
    if from != into {
        return Ok(());
    }
    let mut copy = target_names.clone();
    copy.extend(source_names.last().cloned().filter(|_| !is_exact));
    if target_names.starts_with(&source_names) || copy == source_names {
        return Err(Failure::usage(
            "the copy would lie in its own source, or in its place",
            "name another TARGET",
        ));
    }
    if deletes && source_names.starts_with(&copy) {
        return Err(Failure::usage(
            "the source lies in the target, where --delete would remove it",
            "name another TARGET, or leave out --delete",
        ));
    }
    Ok(())
}

impl OpenVolume {
    /// What cannot be shown as a file was not copied, and is no less of the source for that.
    fn tell_hidden(&self, report: &Report) {
        let hidden = self.volume.hidden();
        if hidden > 0 {
            report.fail(format_args!(
                "'{}': {hidden} entries of listings cannot be shown as files and were not copied",
                self.url
            ));
        }
    }
}

impl Opened {
    fn new(target: Place) -> Outcome<Self> {
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .worker_threads(penstock_base::processors::count())
            .build()
            .map_err(|error| Failure::new(format!("cannot start: {error}"), "try again"))?;
        Ok(Self {
            sources: Vec::new(),
            target,
            volumes: Vec::new(),
            runtime,
        })
    }

    /// Makes everything durable. What could not be is told.
    pub(super) fn shut_down(self, report: &Report) {
        let Self {
            sources,
            target,
            volumes,
            runtime,
        } = self;
        for open in &volumes {
            for (path, error) in open.tree.shut_down() {
                report.fail(format_args!("'{}/{path}': {error}", open.url));
            }
            if open.is_source {
                open.tell_hidden(report);
            }
            open.volume.close();
        }
        let entered = runtime.enter();
        drop((sources, target, volumes));
        drop(entered);
        runtime.shutdown_background();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> (String, Vec<String>, String, bool) {
        let url = Url::parse(text).expect("a URL");
        (url.volume, url.path, url.name, url.is_directory)
    }

    fn parts(
        volume: &str,
        path: &[&str],
        name: &str,
        slash: bool,
    ) -> (String, Vec<String>, String, bool) {
        let path = path.iter().map(|&name| name.to_owned()).collect();
        (volume.to_owned(), path, name.to_owned(), slash)
    }

    #[test]
    fn a_bucket_is_opened_where_the_path_ends_in_a_slash_and_else_above_its_last_name() {
        assert_eq!(url("s3://bkt"), parts("s3://bkt", &[], "bkt", false));
        assert_eq!(url("s3://bkt/"), parts("s3://bkt", &[], "bkt", false));
        assert_eq!(url("s3://bkt/a/b"), parts("s3://bkt/a", &["b"], "b", false));
        assert_eq!(
            url("oss://bkt/a/b/"),
            parts("oss://bkt/a/b", &[], "b", true)
        );
    }

    #[test]
    fn a_fileset_is_opened_at_its_root() {
        let expected = parts("fileset://home", &["a", "b"], "b", false);
        assert_eq!(url("fileset://home/a/b"), expected);
        assert_eq!(
            url("fileset://home"),
            parts("fileset://home", &[], "home", false)
        );
    }

    #[test]
    fn only_a_scheme_makes_a_url() {
        assert!(is_url(Path::new("s3://b/x")) && is_url(Path::new("gopher://b")));
        assert!(!is_url(Path::new("./s3://b/x")) && !is_url(Path::new("/a/b")));
        assert!(Url::parse("gopher://b").is_err());
    }

    #[test]
    fn a_copy_into_its_own_source_is_refused() {
        let refuses_with = |source: &str, target: &str, how| {
            let named = |text| Named::of(Path::new(text)).expect("named");
            refuse_overlap(&named(source), &named(target), how).is_err()
        };
        let refuses =
            |source: &str, target: &str, is_exact| refuses_with(source, target, (is_exact, false));
        assert!(refuses("s3://bkt/a", "s3://bkt/a/b", false));
        assert!(refuses("s3://bkt/a", "s3://bkt/a", true));
        assert!(refuses("s3://bkt/x/a", "s3://bkt/x", false));
        assert!(!refuses("s3://bkt/x/a", "s3://bkt/x", true));
        assert!(!refuses("s3://bkt/a", "s3://bkt/ab", false));
        assert!(!refuses("s3://bkt/a", "oss://bkt/a/b", false));
        assert!(refuses("/nowhere/a", "file:///nowhere/a/b", false));
        for (source, target) in [
            ("s3://bkt/x/a", "s3://bkt/x"),
            ("s3://bkt/x/a/", "s3://bkt/x/"),
            ("/nowhere/x/a", "file:///nowhere/x"),
            ("file:///nowhere/x/a", "/nowhere/x"),
            ("fileset://home/x/a", "fileset://home/x"),
        ] {
            assert!(
                refuses_with(source, target, (true, true)),
                "{source} {target}"
            );
            assert!(
                !refuses_with(source, target, (true, false)),
                "{source} {target}"
            );
        }
    }

    #[test]
    fn a_key_with_names_that_no_file_has_is_not_taken_for_another() {
        for text in [
            "s3://bkt/a//b",
            "s3://bkt//a",
            "s3://bkt/a/../b",
            "oss://bkt/./a",
            "s3://bkt/a//",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
