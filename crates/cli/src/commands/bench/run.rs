//! `penstock bench run`: runs suites and writes the report.

use std::{fs, io::IsTerminal, path::PathBuf, time::Duration};

use clap::{ArgAction, ArgMatches, Command, value_parser};
use penstock_bench::{
    Event, Progress, RunSettings, Target,
    record::{Report, Sample},
};

use super::{failed, option, say, size, surroundings, table_argument, texts};
use crate::{
    environment::Environment,
    failure::{Failure, Outcome},
    options::duration,
    output, text_table,
};

/// The region that requests are signed for if nobody says.
const REGION: &str = "us-east-1";
/// What keys begin with in a bucket of the user's.
const PREFIX: &str = "penstock-bench";

pub(super) fn command() -> Command {
    let list = |name, placeholder, help| {
        option(name, placeholder, help)
            .value_delimiter(',')
            .action(ArgAction::Append)
    };
    Command::new("run")
        .about("Run suites and report")
        .long_about(
            "Runs each row of the suites by each client in turn, on fresh mounts and with an empty \
             page cache, which takes root. Ctrl-C ends it and still reports what was measured.",
        )
        .arg(list("suite", "NAME,...", "Suites to run").default_value("smoke"))
        .arg(list("rows", "NAME,...", "Only these rows"))
        .arg(list(
            "clients",
            "NAME,...",
            "Clients to run [default: all that are found]",
        ))
        .arg(
            option("repeat", "COUNT", "Runs of each cell")
                .value_parser(value_parser!(u32).range(1..=100))
                .default_value("1"),
        )
        .arg(
            option(
                "scale",
                "FACTOR",
                "What sizes are multiplied with [default: each suite's own]",
            )
            .value_parser(factor),
        )
        .arg(list(
            "profiles",
            "NAME,...",
            "Latency profiles: lan, region, far [default: each suite's own]",
        ))
        .arg(
            option(
                "bandwidth",
                "SIZE",
                "Bytes per second that the development server sends",
            )
            .value_parser(size),
        )
        .arg(
            option("server", "KIND", "Server to start")
                .value_parser(["devserver", "minio"])
                .default_value("devserver"),
        )
        .arg(
            option(
                "endpoint",
                "URL",
                "Use this store instead; credentials from the environment",
            )
            .requires("bucket"),
        )
        .arg(option("bucket", "NAME", "A bucket there").requires("endpoint"))
        .arg(option("prefix", "PREFIX", "What keys begin with there").default_value(PREFIX))
        .arg(option("region", "NAME", "Its region").default_value(REGION))
        .arg(
            option(
                "dir",
                "DIR",
                "Measure this mounted directory instead of mounting clients",
            )
            .value_parser(value_parser!(PathBuf))
            .conflicts_with_all(["clients", "endpoint"]),
        )
        .arg(table_argument())
        .arg(
            option(
                "timeout",
                "DURATION",
                "How long one run may take [default: by its sizes]",
            )
            .value_parser(limit),
        )
        .arg(
            option("json", "FILE", "Write the report as JSON").value_parser(value_parser!(PathBuf)),
        )
        .arg(
            option("markdown", "FILE", "Write the report as Markdown")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            option("html", "FILE", "Write the report as a page with charts")
                .value_parser(value_parser!(PathBuf)),
        )
}

fn factor(text: &str) -> Result<f64, &'static str> {
    let factor = text
        .parse()
        .ok()
        .filter(|factor: &f64| *factor > 0.0 && *factor <= 100.0);
    factor.ok_or("it must be a number above 0, such as 0.02")
}

fn limit(text: &str) -> Result<Duration, &'static str> {
    duration::parse(text).ok_or("it must be a duration such as 90s or 5m")
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let settings = settings(matches, environment)?;
    let report = penstock_bench::run(&settings, &mut |event| {
        // The report is what counts; a terminal that went away stops nothing.
        let _ = show(event);
    })
    .map_err(failed)?;
    write(matches, &report)?;
    say(
        "More: `penstock bench list` shows every suite; --suite ossfs2 reproduces a whole guide; \
         --repeat 5 shows the spread; --html FILE draws charts.",
    )
}

fn settings(matches: &ArgMatches, environment: &Environment) -> Outcome<RunSettings> {
    Ok(RunSettings {
        suites: texts(matches, "suite"),
        rows: texts(matches, "rows"),
        clients: texts(matches, "clients"),
        repeat: *matches.get_one("repeat").expect("has a default"),
        scale: matches.get_one("scale").copied(),
        profiles: texts(matches, "profiles"),
        bandwidth: matches.get_one("bandwidth").copied(),
        target: target(matches),
        table: matches.get_one::<PathBuf>("config").cloned(),
        timeout: matches.get_one("timeout").copied(),
        surroundings: surroundings(environment)?,
    })
}

fn target(matches: &ArgMatches) -> Target {
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    if let Some(directory) = matches.get_one::<PathBuf>("dir") {
        return Target::Directory(directory.clone());
    }
    if matches.contains_id("endpoint") {
        return Target::Endpoint {
            url: text("endpoint"),
            bucket: text("bucket"),
            prefix: text("prefix"),
            region: text("region"),
        };
    }
    match text("server").as_str() {
        "minio" => Target::Minio,
        _ => Target::DevelopmentServer,
    }
}

fn show(event: &Event<'_>) -> Outcome {
    match event {
        Event::Planned(report) => {
            for client in &report.clients {
                if let Some(why) = &client.missing {
                    say(&format!("{}: {why}", client.name))?;
                }
            }
            Ok(())
        }
        Event::Begins(progress) if std::io::stdout().is_terminal() => {
            output::print(&format!("\r\x1b[K{}", line(progress)))
        }
        Event::Begins(_) => Ok(()),
        Event::Ends(progress, sample) => {
            let start = if std::io::stdout().is_terminal() {
                "\r\x1b[K"
            } else {
                ""
            };
            say(&format!("{start}{}: {}", line(progress), figures(sample)))
        }
        Event::RowEnds(..) => Ok(()),
        Event::Stopped => say("stopped; what was measured is reported"),
    }
}

fn line(progress: &Progress<'_>) -> String {
    let Progress {
        done,
        total,
        suite,
        workload,
        profile,
        client,
        ..
    } = progress;
    format!("{done}/{total} {suite} {workload} at {profile}, {client}")
}

fn figures(sample: &Sample) -> String {
    if let Some(why) = &sample.failure {
        return format!("FAILED: {why}");
    }
    let rate = sample.bytes as f64 / sample.seconds.max(1e-9) / 1e6;
    let mut text = format!(
        "{:.3} s, {rate:.0} MB/s, CPU {:.2} s, {} memory",
        sample.seconds,
        sample.client_cpu_seconds,
        text_table::bytes(sample.peak_resident_bytes)
    );
    if let Some(why) = &sample.disturbed {
        text.push_str(&format!(" ({why})"));
    }
    text
}

/// Writes the files that were asked for.
fn write(matches: &ArgMatches, report: &Report) -> Outcome {
    if let Some(path) = matches.get_one::<PathBuf>("json") {
        let text = serde_json::to_string_pretty(report).expect("numbers and text");
        fs::write(path, text + "\n").map_err(|error| {
            Failure::new(
                format!("cannot write {}: {error}", path.display()),
                "check the path",
            )
        })?;
    }
    Ok(())
}
