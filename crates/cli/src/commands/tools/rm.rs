//! `penstock rm`, `parrm`: removes trees by many threads, also in filesets, and objects below paths in buckets.

mod filesets;
mod objects;

use std::{
    io::{self, BufRead, IsTerminal, Write},
    path::PathBuf,
};

use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_tools::{
    Patterns, Report, Stop, Survey,
    remove::{self, Settings, objects::ObjectPath},
};

use self::objects::Buckets;
use super::{Work, json_argument, lettered, threads, threads_argument};
use crate::{
    command_line::{self, flag},
    environment::Environment,
    failure::{Exit, Failure, Outcome},
    options::Scope,
};

/// More names than this are asked about with `-I`, as rm(1) has it.
const ASKED_ONCE_ABOVE: usize = 3;

const EXAMPLES: &str = "\
Examples:
  parrm -rf -P 16 /mnt/nas/old
  parrm -r s3://bucket/logs/2024 --region eu-west-1
  parrm -rf -P 64 oss://bucket/tmp
  parrm -r fileset://home/old

Exit status: 0 all was removed, 1 something was not, 130 interrupted.";

pub(crate) fn command() -> Command {
    Command::new("rm")
        .about("Remove files and trees by many threads (parrm)")
        .long_about(
            "Removes files, and with -r directories and everything below them, by many threads. Never follows a \
             symbolic link. Refuses `/`, `.` and `..`, and directories on which a file system is mounted. What \
             cannot be removed is told at the end.\n\nA PATH such as s3://BUCKET/a, oss://BUCKET/a or \
             file:///DIRECTORY/a is in a bucket, which needs no mount: the object `a`, and with -r all whose keys \
             begin with `a/`. -r asks before, and without a terminal needs -f. Unfinished uploads stay (`penstock \
             uploads` shows them), and so do earlier versions where a bucket keeps them. fileset://NAME/a is in a fileset \
             that is not mounted.",
        )
        .arg(
            Arg::new("path")
                .value_name("PATH")
                .num_args(0..)
                .value_parser(value_parser!(PathBuf))
                .help("What to remove"),
        )
        .arg(lettered("recursive", 'r', "Remove directories and what is in them").visible_short_alias('R'))
        .arg(lettered("force", 'f', "A path that is not there is no failure; ask nothing"))
        .arg(lettered("dir", 'd', "Remove empty directories"))
        .arg(
            Arg::new("ask-each")
                .short('i')
                .action(clap::ArgAction::SetTrue)
                .help("Ask before each PATH"),
        )
        .arg(
            Arg::new("ask-once")
                .short('I')
                .action(clap::ArgAction::SetTrue)
                .help("Ask once before more than three PATHs or with -r"),
        )
        .arg(flag("one-file-system", "Skip directories on which another file system is mounted"))
        .arg(flag("cross-mounts", "Remove also what is in file systems mounted below PATH"))
        .arg(flag("no-preserve-root", "Do not refuse `/`, a whole bucket or a whole fileset"))
        .arg(threads_argument())
        .arg(json_argument())
        .args(command_line::option_arguments(Scope::Fileset))
        .after_help(EXAMPLES)
}

pub(crate) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let settings = Settings {
        recursive: matches.get_flag("recursive"),
        directories: matches.get_flag("dir"),
        force: matches.get_flag("force"),
        root: matches.get_flag("no-preserve-root"),
        one_file_system: matches.get_flag("one-file-system"),
        mounts: matches.get_flag("cross-mounts") && !matches.get_flag("one-file-system"),
        threads: threads(matches),
    };
    let given = matches.get_many::<PathBuf>("path").unwrap_or_default();
    let paths: Vec<PathBuf> = given.cloned().collect();
    if paths.is_empty() && !settings.force {
        return Err(
            Failure::usage("nothing to remove is named", "see `penstock help rm`")
                .with_exit(Exit::Failed),
        );
    }
    let (in_buckets, paths): (Vec<_>, Vec<_>) =
        paths.into_iter().partition(|path| objects::is_meant(path));
    let in_buckets = Remote::open(&in_buckets, matches, environment)?;
    let paths = confirmed(paths, matches, settings.recursive)?;
    let (in_filesets, paths): (Vec<_>, Vec<_>) =
        paths.into_iter().partition(|path| filesets::is_meant(path));
    let in_filesets = filesets::open(&in_filesets, matches, environment)?;
    let work = Work {
        done: "removed",
        json: matches.get_flag("json"),
        ..Work::default()
    };
    // What is not counted would be done without being expected.
    let is_counted = settings.recursive && in_buckets.is_none() && in_filesets.is_none();
    let survey = Survey {
        exclude: &Patterns::default(),
        one_file_system: !settings.mounts,
        with_sizes: false,
    };
    work.run_counted(
        |report, enough| {
            if is_counted {
                survey.count(&paths, report, enough);
            }
        },
        |report, stop| {
            remove::remove(&paths, &settings, report, stop);
            if let Some(remote) = &in_buckets {
                remote.remove(matches, report, stop);
            }
            if let Some(opened) = in_filesets {
                filesets::remove(opened, &settings, report, stop);
            }
            Ok(())
        },
    )
}

/// Paths in buckets.
struct Remote {
    paths: Vec<ObjectPath>,
    /// Where their requests run.
    _buckets: Buckets,
}

impl Remote {
    /// Opens the buckets that `paths` name, if there are any, and asks what there is to ask.
    fn open(
        paths: &[PathBuf],
        matches: &ArgMatches,
        environment: &Environment,
    ) -> Outcome<Option<Self>> {
        if paths.is_empty() {
            return Ok(None);
        }
        objects::check(matches)?;
        let mut buckets = Buckets::new(matches, environment)?;
        let opened = paths.iter().map(|path| buckets.path(path));
        let paths = objects::confirmed(opened.collect::<Outcome<_>>()?, matches)?;
        let _buckets = buckets;
        Ok(Some(Self { paths, _buckets }))
    }

    fn remove(&self, matches: &ArgMatches, report: &Report, stop: &Stop) {
        remove::objects::remove(&self.paths, objects::settings(matches), report, stop);
    }
}

/// What the user wants to remove after all.
fn confirmed(paths: Vec<PathBuf>, matches: &ArgMatches, recursive: bool) -> Outcome<Vec<PathBuf>> {
    if matches.get_flag("force") || paths.is_empty() {
        return Ok(paths);
    }
    if matches.get_flag("ask-once") && (recursive || paths.len() > ASKED_ONCE_ABOVE) {
        let question = format!("remove {} paths?", paths.len());
        return Ok(if ask(&question)? { paths } else { Vec::new() });
    }
    if !matches.get_flag("ask-each") {
        return Ok(paths);
    }
    let mut wanted = Vec::new();
    for path in paths {
        if ask(&format!("remove '{}'?", path.display()))? {
            wanted.push(path);
        }
    }
    Ok(wanted)
}

fn ask(question: &str) -> Outcome<bool> {
    let failed = |error: io::Error| Failure::new(format!("cannot ask: {error}"), "use -f");
    let mut stderr = io::stderr().lock();
    let question = crate::legible::legible(question);
    write!(stderr, "parrm: {question} ").map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    if !io::stdin().is_terminal() {
        writeln!(stderr).map_err(failed)?;
    }
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
