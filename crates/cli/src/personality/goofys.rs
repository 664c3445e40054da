//! The command line of goofys 0.24.
//!
//! `goofys [--option value ...] BUCKET[:PREFIX] MOUNTPOINT`. As fstab leads to it, the options are
//! the words after `-o` that begin with a dash.

use std::path::PathBuf;

use super::{Program, collector::Collector, flags, flags::Setting, goofys_options::OPTIONS};
use crate::{
    commands::mount::{self, MountRequest},
    environment::Environment,
    failure::{Failure, Outcome},
    options::{Scope, duration, mount_words, table},
    output,
};

pub(crate) static PROGRAM: Program = Program {
    name: "goofys",
    introduction: "`goofys [--option value ...] BUCKET[:PREFIX] MOUNTPOINT`, or with the options as \
                   words after `-o`, as fstab leads to. The S3 dialect is spoken, also to other \
                   providers' endpoints.",
    options: OPTIONS,
    defaults: &[
        (&table::FILE_MODE, "0644"),
        (&table::DIR_MODE, "0755"),
        (&table::ATTR_TIMEOUT, "60s"),
    ],
    run,
};

const USAGE: &str = "\
Usage: goofys [--OPTION VALUE ...] BUCKET[:PREFIX] MOUNTPOINT

This is Penstock, which takes the command line of goofys 0.24.
docs/compatibility.md lists the options and what each of them means here.
";

fn run(arguments: &[String], environment: &Environment) -> Outcome {
    let parsed = parse(arguments)?;
    let asks_for = |names: [&str; 2]| {
        let mut settings = parsed.settings.iter();
        settings.any(|setting| names.contains(&setting.name.as_str()))
    };
    if arguments.is_empty() || asks_for(["h", "help"]) {
        return output::print(USAGE);
    }
    if asks_for(["v", "version"]) {
        let version = env!("CARGO_PKG_VERSION");
        return output::print_line(&format!("goofys command line of penstock {version}"));
    }
    mount::perform(request(parsed, environment)?, environment)
}

/// Takes the command line apart; options among the words after `-o` become options.
pub(super) fn parse(arguments: &[String]) -> Outcome<flags::Parsed> {
    let mut parsed = flags::parse_arguments(&PROGRAM, arguments)?;
    let (lists, mut settings): (Vec<_>, Vec<_>) = parsed
        .settings
        .into_iter()
        .partition(|setting| setting.name == "o");
    for list in lists {
        let (options, words): (Vec<_>, Vec<_>) = list
            .text
            .split(',')
            .map(str::to_owned)
            .partition(|word| word.starts_with('-'));
        settings.extend(flags::parse_arguments(&PROGRAM, &options)?.settings);
        settings.push(Setting {
            text: words.join(","),
            ..list
        });
    }
    parsed.settings = settings;
    Ok(parsed)
}

/// The mount that a command line asks for.
pub(super) fn request(parsed: flags::Parsed, environment: &Environment) -> Outcome<MountRequest> {
    let [bucket, mountpoint] = &parsed.positionals[..] else {
        return Err(Failure::usage(
            "there must be a bucket and a mount point",
            "write `goofys [--OPTION VALUE ...] BUCKET[:PREFIX] MOUNTPOINT`",
        ));
    };
    let source = source(bucket)?;
    let mountpoint = PathBuf::from(mountpoint);
    let words: Vec<String> = parsed
        .settings
        .iter()
        .filter(|setting| setting.name == "o")
        .map(|setting| setting.text.clone())
        .collect();
    let mut collector = Collector::new(&PROGRAM);
    collector.extend(parsed.settings)?;
    place_bucket_name(&mut collector);
    place_timeout(&mut collector)?;
    let mut given = collector.finish();
    given.extend(mount_words::given(&words.join(","), Scope::Mount)?);
    MountRequest::new(source, mountpoint, given, environment)
}

/// `s3://bucket/prefix` for `bucket:prefix`.
fn source(bucket: &str) -> Outcome<String> {
    let bucket = bucket.strip_prefix("s3://").unwrap_or(bucket);
    if let Some((scheme, _)) = bucket.split_once("://") {
        return Err(Failure::usage(
            format!("`{scheme}://` is not a store that can be mounted"),
            "name a bucket of S3 or of a store that speaks its dialect",
        ));
    }
    let (bucket, prefix) = bucket.split_once(':').unwrap_or((bucket, ""));
    let prefix = prefix.trim_matches('/');
    if prefix.is_empty() {
        return Ok(format!("s3://{bucket}"));
    }
    Ok(format!("s3://{bucket}/{prefix}"))
}

/// goofys puts the bucket into the path of an endpoint that is named, unless told otherwise.
fn place_bucket_name(collector: &mut Collector) {
    if collector.has(&table::ENDPOINT) && !collector.own_switch("subdomain") {
        collector.set(&table::ADDRESSING, "subdomain", "path");
    }
}

/// goofys has two caches where we have one: the shorter time holds.
fn place_timeout(collector: &mut Collector) -> Outcome {
    let mut shortest = None;
    for name in ["stat-cache-ttl", "type-cache-ttl"] {
        let Some(text) = collector.own(name) else {
            continue;
        };
        let Some(time) = duration::parse(text) else {
            return Err(Failure::usage(
                format!("`{name}` cannot be `{text}`"),
                "it must be a duration such as 60s or 1m0s",
            ));
        };
        shortest = Some(shortest.map_or(time, |shortest| time.min(shortest)));
    }
    if let Some(time) = shortest {
        let text = duration::display(time);
        collector.set(&table::ATTR_TIMEOUT, "stat-cache-ttl", &text);
    }
    Ok(())
}
