//! `parrm s3://bucket/path`: which objects are meant, and the question before many of them go.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
    path::Path,
    sync::Arc,
};

use clap::ArgMatches;
use penstock_base::processors;
use penstock_object::{ObjectError, StoreUrl};
use penstock_tools::{
    Threads,
    remove::objects::{self, Bucket, ObjectPath, ObjectSettings, Survey},
};
use tokio::runtime::Runtime;

use super::ask;
use crate::{
    commands::{listing, tools::threads},
    environment::Environment,
    explain,
    failure::{Exit, Failure, Outcome},
    options::Values,
    stores,
};

/// The schemes of what is a bucket.
const SCHEMES: [&str; 3] = ["s3://", "oss://", "file://"];
/// Requests under way if nobody says: a store has a limit of deletions, which these reach.
const REQUESTS: usize = 16;
/// What a directory that is a bucket has in it.
const MARK: &str = ".penstock";

/// Whether `path` is in a bucket, and not on this machine's file systems.
pub(super) fn is_meant(path: &Path) -> bool {
    let text = path.as_os_str().as_encoded_bytes();
    SCHEMES
        .iter()
        .any(|scheme| text.starts_with(scheme.as_bytes()))
}

/// Buckets that are open, and where their requests run.
pub(super) struct Buckets {
    values: Values,
    environment: Environment,
    runtime: Runtime,
    open: BTreeMap<String, Arc<Bucket>>,
}

impl Buckets {
    pub(super) fn new(matches: &ArgMatches, environment: &Environment) -> Outcome<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(processors::count())
            .enable_all()
            .build()
            .map_err(|error| Failure::new(format!("cannot start: {error}"), "try again"))?;
        Ok(Self {
            values: listing::values(matches, environment)?,
            environment: environment.clone(),
            runtime,
            open: BTreeMap::new(),
        })
    }

    /// What `path` names, in a bucket that is opened now if it is not yet.
    pub(super) fn path(&mut self, path: &Path) -> Outcome<ObjectPath> {
        let text = path.to_str().ok_or_else(|| {
            let cause = format!("`{}` is not UTF-8", path.display());
            Failure::usage(cause, "keys in a bucket are").with_exit(Exit::Failed)
        })?;
        let Named { url, key } = named(text)?;
        let bucket = match self.open.get(&url) {
            Some(bucket) => Arc::clone(bucket),
            None => self.opened(url)?,
        };
        Ok(ObjectPath { bucket, key })
    }

    fn opened(&mut self, url: String) -> Outcome<Arc<Bucket>> {
        let store = stores::for_removal(&url, &self.values, &self.environment)?;
        let bucket = Arc::new(Bucket {
            url: url.clone(),
            store,
            runtime: self.runtime.handle().clone(),
            explain,
        });
        self.open.insert(url, Arc::clone(&bucket));
        Ok(bucket)
    }
}

fn explain(url: &str, error: &ObjectError) -> String {
    explain::store_error(url, error).to_string()
}

pub(super) fn settings(matches: &ArgMatches) -> ObjectSettings {
    ObjectSettings {
        recursive: matches.get_flag("recursive"),
        force: matches.get_flag("force"),
        root: matches.get_flag("no-preserve-root"),
        threads: match threads(matches) {
            Threads::Measured => Threads::Fixed(REQUESTS),
            fixed @ Threads::Fixed(_) => fixed,
        },
    }
}

/// Refuses what means nothing in a bucket.
pub(super) fn check(matches: &ArgMatches) -> Outcome {
    match matches.get_flag("dir") && !matches.get_flag("recursive") {
        true => Err(Failure::usage(
            "a bucket has no empty directories for -d",
            "use -r for what is below a path",
        )
        .with_exit(Exit::Failed)),
        false => Ok(()),
    }
}

/// Those of `paths` that the user wants to remove with all that is below, once he was told how much that is.
pub(super) fn confirmed(paths: Vec<ObjectPath>, matches: &ArgMatches) -> Outcome<Vec<ObjectPath>> {
    if matches.get_flag("force") {
        return Ok(paths);
    }
    if !matches.get_flag("recursive") {
        return match matches.get_flag("ask-each") {
            true => chosen(paths, |path| ask(&format!("remove '{path}'?"))),
            false => Ok(paths),
        };
    }
    let asks = ["ask-each", "ask-once"];
    let is_asked_for = asks.iter().any(|name| matches.get_flag(name));
    if !is_asked_for && !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "`rm -r` in a bucket asks before it removes, and nobody is there to answer",
            "use -f if all of it shall go",
        )
        .with_exit(Exit::Failed));
    }
    chosen(paths, is_wanted)
}

fn chosen(
    paths: Vec<ObjectPath>,
    is_wanted: impl Fn(&ObjectPath) -> Outcome<bool>,
) -> Outcome<Vec<ObjectPath>> {
    let mut wanted = Vec::new();
    for path in paths {
        if is_wanted(&path)? {
            wanted.push(path);
        }
    }
    Ok(wanted)
}

fn is_wanted(path: &ObjectPath) -> Outcome<bool> {
    let survey =
        objects::survey(path).map_err(|error| explain::store_error(&path.bucket.url, &error))?;
    // Nothing to lose: the tool says that there is none.
    Ok(survey.objects == 0 || ask(&question(path, survey))?)
}

fn question(path: &ObjectPath, survey: Survey) -> String {
    let Survey { objects, bytes, .. } = survey;
    match survey.is_cut {
        true => format!(
            "remove more than {objects} objects, the first of which have {bytes} bytes, at '{path}'?"
        ),
        false if objects == 1 => format!("remove 1 object with {bytes} bytes at '{path}'?"),
        false => format!("remove {objects} objects with {bytes} bytes at '{path}'?"),
    }
}

/// A bucket and a key in it.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    url: String,
    key: String,
}

/// Takes a path apart. Keys are taken as they are: a slash at the end, or two in a row, are part of them.
fn named(text: &str) -> Outcome<Named> {
    if let StoreUrl::File { .. } = stores::parse(text)? {
        refuse_ways_back(text)?;
        return Ok(named_directory(text));
    }
    let begin = text.find("://").map_or(0, |at| at + "://".len());
    let end = text[begin..].find('/').map_or(text.len(), |at| begin + at);
    Ok(Named {
        url: text[..end].to_owned(),
        key: text.get(end + 1..).unwrap_or_default().to_owned(),
    })
}

/// Refuses a directory whose path does not say where it is.
fn refuse_ways_back(text: &str) -> Outcome {
    match text.split(['/', '?']).any(|name| name == "..") {
        true => Err(Failure::usage(
            format!("`{text}` has `..` in its path, which no object has in its key"),
            "write the path without it, as `realpath` shows it",
        )),
        false => Ok(()),
    }
}

/// The same of a bucket in a directory: `?prefix=` says where it ends. Else it is the nearest directory that is known to be
/// one, or that in which the last name lies.
fn named_directory(text: &str) -> Named {
    if let Some((url, prefix)) = text.split_once("?prefix=") {
        return Named {
            url: url.to_owned(),
            key: prefix.to_owned(),
        };
    }
    let path = text.strip_prefix("file://").unwrap_or(text);
    let directories = || Path::new(path).ancestors();
    let known = directories().find(|directory| directory.join(MARK).is_dir());
    let parent = directories().nth(1);
    // A piece of the text, and so the text of one.
    let bucket = known.or(parent).and_then(Path::to_str).unwrap_or("/");
    let below = path.strip_prefix(bucket).unwrap_or_default();
    Named {
        url: format!("file://{bucket}"),
        key: below.trim_start_matches('/').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> (String, String) {
        let Named { url, key } = named(text).expect("a source");
        (url, key)
    }

    fn pair(url: &str, key: &str) -> (String, String) {
        (url.to_owned(), key.to_owned())
    }

    #[test]
    fn keys_are_taken_as_they_are_written() {
        assert_eq!(split("s3://bucket"), pair("s3://bucket", ""));
        assert_eq!(split("s3://bucket/"), pair("s3://bucket", ""));
        assert_eq!(split("oss://bucket/a/b"), pair("oss://bucket", "a/b"));
        assert_eq!(split("s3://bucket/a/"), pair("s3://bucket", "a/"));
        assert_eq!(split("s3://bucket//a?b"), pair("s3://bucket", "/a?b"));
        assert!(named("s3://").is_err() && named("file://a").is_err());
    }

    #[test]
    fn a_way_back_in_the_path_of_a_directory_is_refused() {
        for url in ["file:///b/../c", "file:///b/..", "file:///b/..?prefix=c"] {
            assert!(named(url).is_err(), "{url}");
        }
        assert!(named("file:///b/..c").is_ok() && named("s3://bucket/../c").is_ok());
    }

    #[test]
    fn a_directory_that_is_a_bucket_is_found_above_a_path() {
        let folder = tempfile::tempdir().expect("room");
        let root = folder.path().display().to_string();
        let (plain, bucket) = (format!("{root}/plain"), format!("{root}/bucket"));
        std::fs::create_dir_all(format!("{bucket}/.penstock")).expect("room");
        let url = |path: &str| format!("file://{path}");
        assert_eq!(split(&url(&format!("{plain}/a"))), pair(&url(&plain), "a"));
        assert_eq!(
            split(&url(&format!("{plain}/a/"))),
            pair(&url(&plain), "a/")
        );
        assert_eq!(
            split(&url(&format!("{bucket}/a/b"))),
            pair(&url(&bucket), "a/b")
        );
        assert_eq!(split(&url(&bucket)), pair(&url(&bucket), ""));
        assert_eq!(
            split(&url(&format!("{plain}?prefix=a/b"))),
            pair(&url(&plain), "a/b")
        );
        assert_eq!(split("file:///"), pair("file:///", ""));
        assert_eq!(split("file:///a"), pair("file:///", "a"));
    }
}
