//! The command line of ossfs 1.91.
//!
//! `ossfs BUCKET[:/PATH] MOUNTPOINT [-o option[=value],...]`, options also joined to their `-o`, and
//! the form `ossfs#BUCKET MOUNTPOINT` of old fstab lines. What ossfs 1.91 does through files on a
//! local disk, this program does by streaming: random writes are refused.

use std::path::PathBuf;

use super::{
    Program, collector::Collector, convert, convert::Converted, flags::Setting,
    ossfs_options::OPTIONS,
};
use crate::{
    commands::mount::{self, MountRequest},
    environment::Environment,
    failure::{Failure, Outcome},
    options::{Origin, mount_words, table},
    output,
};

pub(crate) static PROGRAM: Program = Program {
    name: "ossfs",
    introduction: "`ossfs BUCKET[:/PATH] MOUNTPOINT [-o option[=value],...]`. Files are written from \
                   front to back, as ossfs 2.0 does; random writes are refused.",
    options: OPTIONS,
    defaults: &[
        (&table::FILE_MODE, "0777"),
        (&table::DIR_MODE, "0777"),
        (&table::ATTR_TIMEOUT, "900s"),
        (&table::LOG_LEVEL, "error"),
        (&table::ENDPOINT, "https://oss-cn-hangzhou.aliyuncs.com"),
    ],
    run,
};

const USAGE: &str = "\
Usage: ossfs BUCKET[:/PATH] MOUNTPOINT [-o OPTION[=VALUE],...] [-f] [-d]

This is Penstock, which takes the command line of ossfs 1.91.
docs/options.md lists the options and what each of them means here.
Unfinished uploads: penstock uploads oss://BUCKET
";

fn run(arguments: &[String], environment: &Environment) -> Outcome {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] | ["-h" | "--help", ..] => output::print(USAGE),
        ["--version", ..] => {
            let version = env!("CARGO_PKG_VERSION");
            output::print_line(&format!("ossfs command line of penstock {version}"))
        }
        [
            "-u" | "--incomplete-mpu-list" | "--incomplete-mpu-abort",
            ..,
        ] => Err(Failure::usage(
            "unfinished uploads are listed by another command",
            "run `penstock uploads oss://BUCKET`, with --abort to remove them",
        )),
        _ => mount::perform(request(arguments, environment)?, environment),
    }
}

/// A command line, taken apart.
#[derive(Debug, Default)]
struct Parsed {
    lists: Vec<String>,
    positionals: Vec<String>,
    foreground: bool,
    debug: bool,
}

fn parse(arguments: &[String]) -> Outcome<Parsed> {
    let mut parsed = Parsed::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "-o" => parsed.lists.extend(rest.next().cloned()),
            "-f" => parsed.foreground = true,
            "-d" | "--debug" => parsed.debug = true,
            "-s" => {}
            _ => match argument.strip_prefix("-o") {
                Some(list) => parsed.lists.push(list.to_owned()),
                None if argument.starts_with('-') => {
                    return Err(Failure::usage(
                        format!("ossfs has no option `{argument}`"),
                        "options follow `-o`; docs/options.md lists them",
                    ));
                }
                None => parsed.positionals.push(argument.clone()),
            },
        }
    }
    Ok(parsed)
}

/// The mount that a command line asks for.
pub(super) fn request(arguments: &[String], environment: &Environment) -> Outcome<MountRequest> {
    let parsed = parse(arguments)?;
    let mut collector = Collector::new(&PROGRAM);
    let words = parsed
        .lists
        .iter()
        .flat_map(|list| mount_words::split(list));
    let settings = words
        .filter(|word| !word.is_passed_over())
        .map(|word| Setting {
            name: word.name,
            text: word.value.unwrap_or_else(|| "true".to_owned()),
            origin: Origin::MountWord,
        });
    collector.extend(settings.collect())?;
    let (bucket, mountpoint) = places(&collector, &parsed.positionals)?;
    let source = source(&bucket)?;
    if parsed.foreground || parsed.debug {
        collector.set(&table::FOREGROUND, "-f", "on");
    }
    if parsed.debug {
        collector.set(&table::LOG_LEVEL, "-d", "debug");
    }
    place_settings(&mut collector)?;
    MountRequest::new(source, mountpoint, collector.finish(), environment)
}

fn places(collector: &Collector, positionals: &[String]) -> Outcome<(String, PathBuf)> {
    match (positionals, collector.own("bucket")) {
        ([bucket, mountpoint], _) => {
            let bucket = bucket.strip_prefix("ossfs#").unwrap_or(bucket);
            Ok((bucket.to_owned(), PathBuf::from(mountpoint)))
        }
        ([mountpoint], Some(bucket)) => Ok((bucket.to_owned(), PathBuf::from(mountpoint))),
        _ => Err(Failure::usage(
            "there must be a bucket and a mount point",
            "write `ossfs BUCKET[:/PATH] MOUNTPOINT -o url=ENDPOINT`",
        )),
    }
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

/// Settings that do not map one to one.
fn place_settings(collector: &mut Collector) -> Outcome {
    for name in ["stat_cache_expire", "stat_cache_interval_expire"] {
        match collector.own(name).map(str::to_owned) {
            Some(text) if text == "-1" => collector.set(&table::ATTR_TIMEOUT, name, "1d"),
            Some(text) => collector.set(&table::ATTR_TIMEOUT, name, &text),
            None => {}
        }
    }
    if collector.own_switch("disable_noobj_cache") {
        collector.set(&table::NEGATIVE_TIMEOUT, "disable_noobj_cache", "0s");
    }
    if let Some(mask) = collector.own("umask").map(str::to_owned) {
        let Converted::Text(mode) = convert::from_umask(&mask) else {
            return Err(Failure::usage(
                format!("`umask` cannot be `{mask}`"),
                "it must be an octal mask from 0 to 777",
            ));
        };
        collector.set(&table::FILE_MODE, "umask", &mode);
        collector.set(&table::DIR_MODE, "umask", &mode);
    }
    if let Some(seconds) = collector
        .own("connect_timeout")
        .and_then(|text| text.parse().ok())
    {
        // The program waits up to five minutes for a connection; a minute is the most here.
        let seconds: u64 = std::cmp::min(seconds, 60);
        collector.set(
            &table::CONNECT_TIMEOUT,
            "connect_timeout",
            &seconds.to_string(),
        );
    }
    if collector.own_switch("sigv4") && !collector.has(&table::REGION) {
        return Err(Failure::usage(
            "`sigv4` needs a region",
            "add `-o region=REGION`, such as cn-hangzhou",
        ));
    }
    match collector.own("ram_role").map(str::to_owned) {
        Some(role) if role == "true" => collector.set(&table::RAM_ROLE, "ram_role", "auto"),
        Some(role) => collector.set(&table::RAM_ROLE, "ram_role", &role),
        None => {}
    }
    Ok(())
}
