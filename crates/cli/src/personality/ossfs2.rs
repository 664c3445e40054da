//! The command line of ossfs 2.0.
//!
//! `ossfs2 mount MOUNTPOINT -c FILE [--option=value ...]`, the form that fstab leads to
//! (`ossfs2 BUCKET MOUNTPOINT -o words`), and `ossfs2 stats`.

use std::path::{Path, PathBuf};

use super::{Program, collector::Collector, flags, flags::Setting, ossfs2_options::OPTIONS, stats};
use crate::{
    commands::mount::{self, MountRequest},
    environment::Environment,
    failure::{Failure, Outcome},
    options::{Origin, config_file, table},
    output,
};

pub(crate) static PROGRAM: Program = Program {
    name: "ossfs2",
    introduction: "`ossfs2 mount MOUNTPOINT -c FILE [--option=value ...]` with a file of \
                   `--option=value` lines, `ossfs2 BUCKET MOUNTPOINT -o option=value,...` as fstab \
                   leads to, and `ossfs2 stats`. Files and directories have mode 0777, other users \
                   may use the mount, fsync returns at once and a missing name is asked for every \
                   time, as ossfs 2.0 does by default.",
    options: OPTIONS,
    defaults: &[
        (&table::FILE_MODE, "0777"),
        (&table::DIR_MODE, "0777"),
        (&table::ALLOW_OTHER, "on"),
        (&table::ATTR_TIMEOUT, "60s"),
        (&table::NEGATIVE_TIMEOUT, "0s"),
        (&table::FSYNC, "off"),
        (&table::SYMLINKS, "off"),
        (&table::RENAME_LIMIT, "2000000"),
    ],
    run,
};

const USAGE: &str = "\
Usage: ossfs2 mount MOUNTPOINT -c FILE [--OPTION=VALUE ...]
       ossfs2 BUCKET MOUNTPOINT -o OPTION=VALUE,...
       ossfs2 stats show|set [-p PID] [-l] [-i SECONDS] [-f FILTER]

This is Penstock, which takes the command line of ossfs 2.0.
docs/compatibility.md lists the options and what each of them means here.
";

fn run(arguments: &[String], environment: &Environment) -> Outcome {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] | ["-h" | "--help" | "help", ..] | ["mount", "-h" | "--help", ..] => {
            output::print(USAGE)
        }
        ["-v" | "--version", ..] => {
            let version = env!("CARGO_PKG_VERSION");
            output::print_line(&format!("ossfs2 command line of penstock {version}"))
        }
        ["stats", ..] => stats::run(&arguments[1..], environment),
        ["mount", ..] => {
            let parsed = flags::parse_arguments(&PROGRAM, &arguments[1..])?;
            start(parsed, environment)
        }
        [bucket, mountpoint, "-o", list] => {
            start(from_fstab(bucket, mountpoint, list), environment)
        }
        _ => Err(Failure::usage(
            format!("`{}` is not a command of ossfs2", words[0]),
            "write `ossfs2 mount MOUNTPOINT -c FILE`",
        )),
    }
}

/// What mount(8) passes: every word is an option without its dashes.
pub(super) fn from_fstab(bucket: &str, mountpoint: &str, list: &str) -> flags::Parsed {
    let mut settings: Vec<_> = flags::parse_words(list).collect();
    settings.push(Setting {
        name: "oss_bucket".to_owned(),
        text: bucket.to_owned(),
        origin: Origin::CommandLine,
    });
    flags::Parsed {
        settings,
        positionals: vec![mountpoint.to_owned()],
    }
}

fn start(parsed: flags::Parsed, environment: &Environment) -> Outcome {
    let request = request(parsed, environment)?;
    mount::perform(request, environment)
}

/// The mount that a command line asks for.
pub(super) fn request(parsed: flags::Parsed, environment: &Environment) -> Outcome<MountRequest> {
    let [mountpoint] = &parsed.positionals[..] else {
        return Err(Failure::usage(
            "there must be exactly one mount point",
            "write `ossfs2 mount MOUNTPOINT -c FILE`",
        ));
    };
    let mountpoint = PathBuf::from(mountpoint);
    let mut collector = Collector::new(&PROGRAM);
    for file in configuration_files(&parsed.settings) {
        read_file(&mut collector, &file)?;
    }
    collector.extend(parsed.settings)?;
    let source = source(&collector)?;
    place_log(&mut collector, environment)?;
    place_metrics(&mut collector);
    if collector.own_switch("d") {
        collector.set(&table::FOREGROUND, "d", "on");
        collector.set(&table::LOG_LEVEL, "d", "debug");
    }
    MountRequest::new(source, mountpoint, collector.finish(), environment)
        .map(MountRequest::announced)
}

fn configuration_files(settings: &[Setting]) -> Vec<PathBuf> {
    settings
        .iter()
        .filter(|setting| matches!(setting.name.as_str(), "c" | "conf" | "flagfile"))
        .map(|setting| PathBuf::from(&setting.text))
        .collect()
}

fn read_file(collector: &mut Collector, path: &Path) -> Outcome {
    let text = config_file::read_text(path)?;
    let settings = flags::parse_file(&PROGRAM, path, &text)?;
    collector.extend(settings)
}

/// `oss://bucket/prefix`.
fn source(collector: &Collector) -> Outcome<String> {
    let Some(bucket) = collector.own("oss_bucket") else {
        return Err(missing("oss_bucket"));
    };
    if !collector.has(&table::ENDPOINT) {
        return Err(missing("oss_endpoint"));
    }
    let prefix = collector.own("oss_bucket_prefix").unwrap_or_default();
    let prefix = prefix.trim_matches('/');
    if prefix.is_empty() {
        return Ok(format!("oss://{bucket}"));
    }
    Ok(format!("oss://{bucket}/{prefix}"))
}

fn missing(option: &str) -> Failure {
    Failure::usage(
        format!("`{option}` is not set"),
        format!("write `--{option}=VALUE` into the file for -c; every line begins with `--`"),
    )
}

/// The log goes to `LOG_DIR/USER/ossfs2.log`, where users of the program look for it.
fn place_log(collector: &mut Collector, environment: &Environment) -> Outcome {
    let directory = match collector.own("log_dir").map(str::to_owned) {
        None => return Ok(()),
        Some(place) if place == "/dev/stdout" || place == "syslog" => return Ok(()),
        Some(place) => PathBuf::from(place),
    };
    if !directory.is_absolute() {
        return Err(Failure::usage(
            format!("`log_dir` cannot be `{}`", directory.display()),
            "it must be an absolute path",
        ));
    }
    let uid = penstock_base::user_id().to_string();
    let user = environment.variable("USER").unwrap_or(&uid);
    let file = directory.join(user).join("ossfs2.log");
    collector.set(&table::LOG_FILE, "log_dir", &file.to_string_lossy());
    Ok(())
}

fn place_metrics(collector: &mut Collector) {
    let port = collector.own("metrics_port").unwrap_or("0");
    if port != "0" {
        let address = collector.own("metrics_ip").unwrap_or("127.0.0.1");
        let address = format!("{address}:{port}");
        collector.set(&table::METRICS_ADDRESS, "metrics_port", &address);
    }
}
