//! `penstock bench run`: runs suites and writes the report.

use std::{io::IsTerminal, path::PathBuf, time::Duration};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use penstock_bench::{
    Event, Progress, RunSettings, Target,
    record::{Report, Sample},
    report::terminal,
};

use super::{failed, option, say, show, size, surroundings, table_argument, texts};
use crate::{
    command_line,
    environment::Environment,
    failure::{Failure, Outcome},
    options::duration,
    output,
};

/// The region that requests are signed for if nobody says.
const REGION: &str = "us-east-1";
/// What keys begin with in a bucket of the user's.
const PREFIX: &str = "penstock-bench";
/// Goes to the beginning of the terminal's line and empties it.
const CLEAR_LINE: &str = "\r\x1b[K";
/// What to say to somebody who has seen a first report.
const MORE: &str = "More: `penstock bench list` shows every suite and client; --suite ossfs2 \
                    reproduces a whole guide; --repeat 5 shows the spread; --html FILE draws \
                    charts; --json FILE keeps the report for `penstock bench compare`.";

pub(super) fn command() -> Command {
    Command::new("run")
        .about("Run suites and report")
        .long_about(
            "Runs each row of the suites by each client in turn, on fresh mounts and with an empty \
             page cache, which takes root. Ctrl-C ends it, still reports what was measured, and makes \
             the exit status 1.",
        )
        .args(plan_arguments())
        .args(target_arguments())
        .arg(table_argument())
        .arg(
            option(
                "timeout",
                "DURATION",
                "How long one run may take [default: by its sizes]",
            )
            .value_parser(limit),
        )
        .args(show::file_arguments())
}

/// What is run.
fn plan_arguments() -> Vec<Arg> {
    let list = |name, placeholder, help| {
        option(name, placeholder, help)
            .value_delimiter(',')
            .action(ArgAction::Append)
    };
    vec![
        list("suite", "NAME,...", "Suites to run").default_value("smoke"),
        list("rows", "NAME,...", "Only these rows"),
        list(
            "clients",
            "NAME,...",
            "Clients to run [default: all that are found]",
        ),
        option("repeat", "COUNT", "Runs of each cell")
            .value_parser(value_parser!(u32).range(1..=100))
            .default_value("1"),
        option(
            "scale",
            "FACTOR",
            "What sizes are multiplied with [default: each suite's own]",
        )
        .value_parser(factor),
        list(
            "profiles",
            "NAME,...",
            "Latency profiles: lan, near, region, far, distant [default: each suite's own]",
        ),
        option(
            "bandwidth",
            "SIZE",
            "Bytes per second that the development server sends",
        )
        .value_parser(size),
    ]
}

/// What the clients talk to.
fn target_arguments() -> Vec<Arg> {
    vec![
        option("server", "KIND", "Server to start")
            .value_parser(["devserver", "minio"])
            .default_value("devserver"),
        command_line::flag(
            "tls",
            "Speak HTTPS to the development server, with a certificate made for the run",
        )
        .conflicts_with_all(["endpoint", "dir"]),
        option(
            "endpoint",
            "URL",
            "Use this store instead; credentials from the environment",
        )
        .requires("bucket"),
        option("bucket", "NAME", "A bucket there").requires("endpoint"),
        option("prefix", "PREFIX", "What keys begin with there").default_value(PREFIX),
        option("region", "NAME", "Its region").default_value(REGION),
        option(
            "dir",
            "DIR",
            "Measure this mounted directory instead of mounting clients",
        )
        .value_parser(value_parser!(PathBuf))
        .conflicts_with_all(["clients", "endpoint"]),
    ]
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
    let screen = Screen {
        options: show::terminal_options(environment),
        is_terminal: std::io::stdout().is_terminal(),
    };
    let mut is_stopped = false;
    let report = penstock_bench::run(&settings, &mut |event| {
        is_stopped |= matches!(event, Event::Stopped(_));
        // The report is what counts; a terminal that went away stops nothing.
        let _ = screen.show(event);
        if let Err(failure) = keep(matches, event) {
            let _ = say(&failure.to_string());
        }
    })
    .map_err(failed)?;
    show::write_files(matches, &report)?;
    output::print(&terminal::summary(&report, &screen.options))?;
    if is_stopped {
        return Err(Failure::new(
            "interrupted",
            "what was measured until then is reported",
        ));
    }
    say(MORE)
}

/// Keeps what is complete while the rest runs, so that whatever ends the benchmark loses no row that it told of.
fn keep(matches: &ArgMatches, event: &Event<'_>) -> Outcome {
    match event {
        Event::RowEnds(report, ..) | Event::Stopped(report) => show::keep_json(matches, report),
        _ => Ok(()),
    }
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
        target: target(matches)?,
        tls: matches.get_flag("tls"),
        table: matches.get_one::<PathBuf>("config").cloned(),
        timeout: matches.get_one("timeout").copied(),
        surroundings: surroundings(environment)?,
    })
}

fn target(matches: &ArgMatches) -> Outcome<Target> {
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    if let Some(directory) = matches.get_one::<PathBuf>("dir") {
        return Ok(Target::Directory(directory.clone()));
    }
    if matches.contains_id("endpoint") {
        return Ok(Target::Endpoint {
            url: text("endpoint"),
            bucket: text("bucket"),
            prefix: text("prefix"),
            region: text("region"),
        });
    }
    match text("server").as_str() {
        "minio" if matches.get_flag("tls") => Err(Failure::usage(
            "--tls is for the development server",
            "leave --server out, or name a store with --endpoint https://...",
        )),
        "minio" => Ok(Target::Minio),
        _ => Ok(Target::DevelopmentServer),
    }
}

/// Where people look on.
struct Screen {
    options: terminal::Options,
    is_terminal: bool,
}

impl Screen {
    fn show(&self, event: &Event<'_>) -> Outcome {
        match event {
            Event::Planned(report) => {
                let conditions = terminal::conditions(report, &self.options);
                output::print(&format!("{conditions}\n"))?;
                missing(report)
            }
            Event::Begins(progress) if self.is_terminal => {
                let line = terminal::progress(progress, self.options.width);
                output::print(&format!("{CLEAR_LINE}{line}"))
            }
            Event::Begins(_) => Ok(()),
            Event::Ends(progress, sample) => self.failure(progress, sample),
            Event::RowEnds(report, table, row) => {
                let text = terminal::row(report, table, row, &self.options);
                output::print(&format!("{}{text}\n", self.clear()))
            }
            Event::Stopped(_) => say(&format!(
                "{}stopped; what was measured is reported",
                self.clear()
            )),
        }
    }

    fn clear(&self) -> &'static str {
        if self.is_terminal { CLEAR_LINE } else { "" }
    }

    /// A run that failed is said at once: the rest may take hours.
    fn failure(&self, progress: &Progress<'_>, sample: &Sample) -> Outcome {
        match &sample.failure {
            // The first run has said it.
            Some(why) if why.starts_with("not available: ") && progress.run > 1 => Ok(()),
            Some(why) => say(&format!(
                "{}{} failed: {why}",
                self.clear(),
                progress.current
            )),
            None => Ok(()),
        }
    }
}

fn missing(report: &Report) -> Outcome {
    let missing = report.clients.iter().filter_map(|client| {
        let why = client.missing.as_ref()?;
        Some(format!("{}: {why}", client.name))
    });
    missing.into_iter().try_for_each(|line| say(&line))
}
