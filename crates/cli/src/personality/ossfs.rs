//! The command line of ossfs 1.91.
//!
//! `ossfs BUCKET[:/PATH] MOUNTPOINT [-o option[=value],...]`, options also joined to their `-o`, the
//! form `ossfs#BUCKET MOUNTPOINT` of old fstab lines, and the utility mode that looks after
//! unfinished uploads ([`super::ossfs_uploads`]).
//!
//! A command line is taken apart here. What its settings are checked against stands in
//! [`super::ossfs_checks`], what they come to beyond the table in [`super::ossfs_settings`].

use std::path::PathBuf;

use super::{
    Program, collector::Collector, flags, ossfs_checks, ossfs_options::OPTIONS, ossfs_settings,
    ossfs_uploads,
};
use crate::{
    commands::mount::{self, MountRequest},
    environment::Environment,
    failure::{Failure, Outcome},
    options::table,
    output,
};

pub(crate) static PROGRAM: Program = Program {
    name: "ossfs",
    introduction: "`ossfs BUCKET[:/PATH] MOUNTPOINT [-o option[=value],...] [-f] [-s] [-d]`, \
                   `ossfs#BUCKET` and `mount -t fuse.ossfs` as fstab leads to, and `ossfs -u BUCKET`, \
                   which lists unfinished uploads, or removes them with \
                   `--incomplete-mpu-abort[=all|=AGE]`. Defaults are those of ossfs 1.91; those of its \
                   build for container services come with `--profile ack` or `-o profile=ack`. \
                   SIGHUP opens the log file again, SIGUSR1 writes the counters into it and SIGUSR2 \
                   moves on to the next log level. Messages go to a file, not to syslog.",
    options: OPTIONS,
    defaults: &[
        (&table::FILE_MODE, "0777"),
        (&table::DIR_MODE, "0777"),
        (&table::ATTR_TIMEOUT, "900s"),
        (&table::PART_SIZE, "10MiB"),
        (&table::UPLOAD_CONCURRENCY, "5"),
        (&table::LOG_LEVEL, "error"),
        (&table::ENDPOINT, "https://oss-cn-hangzhou.aliyuncs.com"),
        (&table::MODE, "staged"),
        (&table::MAX_DIRTY_DATA, "5120MiB"),
        (&table::MULTIPART_THRESHOLD, "25MiB"),
    ],
    run,
};

const USAGE: &str = "\
Usage: ossfs BUCKET[:/PATH] MOUNTPOINT [-o OPTION[=VALUE],...] [-f] [-s] [-d] [--profile ack]
       ossfs -u|--incomplete-mpu-list BUCKET [-o OPTION[=VALUE],...]
       ossfs --incomplete-mpu-abort[=all|=AGE] BUCKET [-o OPTION[=VALUE],...]

This is Penstock, which takes the command line of ossfs 1.91.

";

/// What a command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task {
    Mount,
    Uploads(ossfs_uploads::Wanted),
}

fn run(arguments: &[String], environment: &Environment) -> Outcome {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] | ["-h" | "--help", ..] => {
            return output::print(&format!("{USAGE}{}", PROGRAM.help()));
        }
        ["--version" | "-V", ..] => {
            let version = env!("CARGO_PKG_VERSION");
            return output::print_line(&format!("ossfs command line of penstock {version}"));
        }
        _ => {}
    }
    let parsed = parse(arguments)?;
    match parsed.task {
        Task::Mount => mount::perform(request(&parsed, environment)?, environment),
        Task::Uploads(wanted) => {
            let (bucket, collector) = bucket(&parsed, environment)?;
            ossfs_uploads::perform(wanted, source(&bucket)?, collector, environment)
        }
    }
}

/// A command line, taken apart.
#[derive(Debug)]
pub(super) struct Parsed {
    task: Task,
    lists: Vec<String>,
    positionals: Vec<String>,
    profile: Option<String>,
    foreground: bool,
    single_thread: bool,
    /// How often more messages were asked for.
    debug: u8,
}

pub(super) fn parse(arguments: &[String]) -> Outcome<Parsed> {
    let mut parsed = Parsed {
        task: Task::Mount,
        lists: Vec::new(),
        positionals: Vec::new(),
        profile: None,
        foreground: false,
        single_thread: false,
        debug: 0,
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "-o" => parsed.lists.extend(rest.next().cloned()),
            "-f" => parsed.foreground = true,
            "-s" => parsed.single_thread = true,
            "-d" | "--debug" => parsed.debug = parsed.debug.saturating_add(1),
            "-u" | "--incomplete-mpu-list" => {
                parsed.task = Task::Uploads(ossfs_uploads::Wanted::List);
            }
            "--profile" => parsed.profile = rest.next().cloned(),
            other => take(other, &mut parsed)?,
        }
    }
    Ok(parsed)
}

/// Takes an argument that is more than a word of its own.
fn take(argument: &str, parsed: &mut Parsed) -> Outcome {
    if let Some(list) = argument.strip_prefix("-o") {
        parsed.lists.push(list.to_owned());
    } else if let Some(name) = argument.strip_prefix("--profile=") {
        parsed.profile = Some(name.to_owned());
    } else if let Some(age) = argument.strip_prefix("--incomplete-mpu-abort") {
        parsed.task = Task::Uploads(ossfs_uploads::Wanted::abort(age)?);
    } else if argument.starts_with('-') {
        return Err(Failure::usage(
            format!("ossfs has no option `{argument}`"),
            "options follow `-o`; `ossfs -h` lists them",
        ));
    } else {
        parsed.positionals.push(argument.to_owned());
    }
    Ok(())
}

/// The mount that a command line asks for.
pub(super) fn request(parsed: &Parsed, environment: &Environment) -> Outcome<MountRequest> {
    let (bucket, mut collector) = bucket(parsed, environment)?;
    let mountpoint = match &parsed.positionals[..] {
        [_, mountpoint] => PathBuf::from(mountpoint),
        [mountpoint] if collector.own("bucket").is_some() => PathBuf::from(mountpoint),
        _ => return Err(misplaced()),
    };
    if parsed.foreground || parsed.debug > 1 {
        collector.set(&table::FOREGROUND, "-f", "on");
    }
    if parsed.single_thread {
        collector.set(&table::FUSE_THREADS, "-s", "1");
    }
    match parsed.debug {
        0 => {}
        1 => collector.set(&table::LOG_LEVEL, "-d", "info"),
        _ => collector.set(&table::LOG_LEVEL, "-d", "debug"),
    }
    MountRequest::new(
        source(&bucket)?,
        mountpoint,
        collector.finish(),
        environment,
    )
}

/// The bucket with its path, and every setting.
pub(super) fn bucket(parsed: &Parsed, environment: &Environment) -> Outcome<(String, Collector)> {
    let mut collector = Collector::new(&PROGRAM);
    let lists = parsed.lists.iter();
    let settings = lists.flat_map(|list| flags::parse_words(list));
    collector.extend(settings.collect())?;
    let bucket = match (&parsed.positionals[..], collector.own("bucket")) {
        ([bucket, _], _) | ([bucket], None) => bucket.strip_prefix("ossfs#").unwrap_or(bucket),
        ([_] | [], Some(bucket)) => bucket,
        _ => return Err(misplaced()),
    };
    let bucket = bucket.to_owned();
    ossfs_checks::check(&bucket, &collector, environment)?;
    let profile = parsed.profile.as_deref();
    ossfs_settings::place(&mut collector, &bucket, profile)?;
    Ok((bucket, collector))
}

fn misplaced() -> Failure {
    Failure::usage(
        "there must be a bucket and a mount point",
        "write `ossfs BUCKET[:/PATH] MOUNTPOINT -o url=ENDPOINT`",
    )
}

/// `oss://bucket/path` for `bucket:/path`.
fn source(bucket: &str) -> Outcome<String> {
    let Some((name, path)) = bucket.split_once(':') else {
        return Ok(format!("oss://{bucket}"));
    };
    if !path.starts_with('/') {
        return Err(Failure::usage(
            format!("the path in `{bucket}` does not begin with /"),
            format!("write `{name}:/{path}`"),
        ));
    }
    let path = path.trim_matches('/');
    let slash = if path.is_empty() { "" } else { "/" };
    Ok(format!("oss://{name}{slash}{path}"))
}
