//! `penstock bench`: reproduces published tables, side by side with other clients.
//!
//! Only the command line is here; what it does is in `penstock_bench`. Three of the commands are
//! not for people: the benchmark starts this program again as its server, its watchdog and its
//! worker.

use std::{io, path::PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use penstock_base::Secret;
use penstock_bench::{
    BenchError, Credentials, ServeSettings, Surroundings,
    rw_bench::{self, RwBench},
    watchdog::{self, Estate},
    worker,
};

use crate::{
    command_line,
    environment::Environment,
    failure::{Failure, Outcome},
    output,
};

mod list;
mod md_bench;
mod nfs_load;
mod run;
mod show;

type Make = fn() -> Command;
type Run = fn(&ArgMatches, &Environment) -> Outcome;

/// Every command of the benchmark.
const COMMANDS: [(Make, Run); 10] = [
    (run::command, run::run),
    (list::command, list::run),
    (show::show_command, show::show),
    (show::compare_command, show::run_compare),
    (server_command, run_server),
    (rw_bench_command, run_rw_bench),
    (md_bench::command, md_bench::run),
    (nfs_load::command, nfs_load::run),
    (watchdog_command, run_watchdog),
    (worker_command, run_worker),
];

/// Where temporary files go if nobody says.
const TEMPORARY: &str = "/tmp";
/// Where programs are if nobody says.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

pub(super) fn command() -> Command {
    let commands = COMMANDS
        .iter()
        .map(|(make, _)| command_line::styled(make()));
    Command::new("bench")
        .about("Measure clients side by side: reproduce published tables")
        .long_about(
            "Runs the workloads of published tables by every client that is installed, against a \
             development server on this machine, a store of yours or a mounted directory, and \
             reports speed, processor time, memory and requests.",
        )
        .after_help("Try: penstock bench run --suite smoke --clients penstock,s3fs,rclone")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(commands)
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let Some((name, matches)) = matches.subcommand() else {
        return Err(Failure::usage(
            "no command is given",
            "see `penstock help bench`",
        ));
    };
    let found = COMMANDS.iter().find(|(make, _)| make().get_name() == name);
    match found {
        Some((_, run)) => run(matches, environment),
        None => Err(Failure::usage(
            format!("`{name}` is not a command"),
            "see `penstock help bench`",
        )),
    }
}

fn failed(error: BenchError) -> Failure {
    Failure::new(error.cause, error.remedy)
}

/// An argument with a value.
fn option(name: &'static str, placeholder: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(placeholder).help(help)
}

/// A table of clients, for two commands.
fn table_argument() -> Arg {
    option(
        "config",
        "FILE",
        "Table of clients to merge over the built-in one",
    )
    .value_parser(value_parser!(PathBuf))
}

/// A size that people write, for clap.
fn size(text: &str) -> Result<u64, String> {
    let size: Result<penstock_base::ByteSize, _> = text.parse();
    size.map(|size| size.0).map_err(|error| error.to_string())
}

fn texts(matches: &ArgMatches, name: &str) -> Vec<String> {
    let values = matches.get_many::<String>(name).into_iter().flatten();
    values.cloned().collect()
}

/// What the benchmark needs to know of the environment.
fn surroundings(environment: &Environment) -> Outcome<Surroundings> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(
            format!("cannot find this program: {error}"),
            "call it by its full path",
        )
    })?;
    let first = |names: [&str; 3]| {
        let found = names.iter().find_map(|name| environment.variable(name));
        found.unwrap_or_default().to_owned()
    };
    Ok(Surroundings {
        program,
        path: environment.variable("PATH").unwrap_or(PATH).to_owned(),
        temporary: environment
            .directory("TMPDIR")
            .unwrap_or_else(|| PathBuf::from(TEMPORARY)),
        credentials: Credentials {
            access_key: first([
                "PENSTOCK_ACCESS_KEY_ID",
                "AWS_ACCESS_KEY_ID",
                "OSS_ACCESS_KEY_ID",
            ]),
            secret_key: Secret::new(first([
                "PENSTOCK_ACCESS_KEY_SECRET",
                "AWS_SECRET_ACCESS_KEY",
                "OSS_ACCESS_KEY_SECRET",
            ])),
            session_token: Secret::new(first([
                "PENSTOCK_SECURITY_TOKEN",
                "AWS_SESSION_TOKEN",
                "OSS_SESSION_TOKEN",
            ])),
        },
    })
}

fn server_command() -> Command {
    let repeated = |argument: Arg| argument.action(ArgAction::Append);
    Command::new("server")
        .about("Serve objects from memory, as the benchmark does")
        .arg(option("address", "ADDRESS", "Where to listen; port 0 picks a free one").default_value("127.0.0.1:0"))
        .arg(repeated(option("bucket", "NAME", "Create this bucket; may be repeated")))
        .arg(repeated(option(
            "fill",
            "BUCKET/PREFIX:COUNT:SIZE",
            "Make objects at once, such as bench/small/:10000:128KiB; may be repeated",
        )))
        .arg(repeated(option(
            "crowd",
            "BUCKET/PREFIX:COUNT:SIZE:DIRECTORIES",
            "Let objects be there that take no memory, such as bench/many/:10000000:100KiB:1000; may be repeated",
        )))
        .arg(repeated(option("credentials", "KEY:SECRET", "Refuse requests that are not signed with one of these; for tests, as every user can read it")))
        .arg(option("tls", "FILE", "Speak HTTPS, too, with a certificate made for the run; the one to trust is written to FILE").value_parser(value_parser!(PathBuf)))
        .arg(option("profile", "NAME", "Latency: lan, near, region, far or distant"))
        .arg(
            option("prepared-memory", "SIZE", "Memory to make ready at the start")
                .value_parser(size)
                .default_value("0"),
        )
}

fn run_server(matches: &ArgMatches, _: &Environment) -> Outcome {
    let address = matches.get_one::<String>("address").expect("has a default");
    let settings = ServeSettings {
        address: address.parse().map_err(|_| {
            Failure::usage(
                format!("`{address}` is no address"),
                "write it as 127.0.0.1:9000",
            )
        })?,
        buckets: texts(matches, "bucket"),
        fills: texts(matches, "fill"),
        crowds: texts(matches, "crowd"),
        credentials: texts(matches, "credentials"),
        tls: matches.get_one::<PathBuf>("tls").cloned(),
        profile: matches.get_one::<String>("profile").cloned(),
        prepared_memory: *matches.get_one("prepared-memory").expect("has a default"),
    };
    penstock_bench::serve(settings, &mut io::stdout()).map_err(failed)
}

fn rw_bench_command() -> Command {
    Command::new("rw-bench")
        .about("Write or read many files of one size with many threads")
        .arg(
            option(
                "dir",
                "DIR",
                "Directory that holds the files and nothing else",
            )
            .required(true)
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            option("threads", "COUNT", "Files at a time")
                .value_parser(value_parser!(usize))
                .default_value("8"),
        )
        .arg(command_line::flag("write", "Write instead of read"))
        .arg(
            option("file-size-KB", "KIB", "Size of each file")
                .value_parser(value_parser!(u64))
                .default_value("128"),
        )
        .arg(
            option("file-count", "COUNT", "Files to write")
                .value_parser(value_parser!(u64))
                .default_value("0"),
        )
        .arg(command_line::flag("shuffle", "Read in random order"))
        .arg(
            option(
                "files-per-thread",
                "COUNT",
                "Read so many files for each thread [default: all that are there]",
            )
            .value_parser(value_parser!(u64).range(1..)),
        )
        .arg(command_line::flag(
            "json",
            "Print the figures as a line of JSON too",
        ))
}

fn run_rw_bench(matches: &ArgMatches, _: &Environment) -> Outcome {
    let bench = RwBench {
        directory: matches.get_one::<PathBuf>("dir").expect("required").clone(),
        threads: *matches.get_one("threads").expect("has a default"),
        write: matches.get_flag("write"),
        file_size_kib: *matches.get_one("file-size-KB").expect("has a default"),
        file_count: *matches.get_one("file-count").expect("has a default"),
        shuffle: matches.get_flag("shuffle"),
        files_per_thread: matches.get_one("files-per-thread").copied(),
        json: matches.get_flag("json"),
    };
    rw_bench::run(&bench, &mut io::stdout()).map_err(failed)
}

fn watchdog_command() -> Command {
    let path = |name: &'static str| Arg::new(name).value_parser(value_parser!(PathBuf));
    Command::new("watchdog")
        .about("Clean up after a benchmark when standard input ends")
        .hide(true)
        .arg(Arg::new("token").required(true))
        .arg(path("directory").required(true))
        .arg(path("elsewhere"))
}

fn run_watchdog(matches: &ArgMatches, _: &Environment) -> Outcome {
    let estate = Estate {
        token: matches
            .get_one::<String>("token")
            .expect("required")
            .clone(),
        directory: matches
            .get_one::<PathBuf>("directory")
            .expect("required")
            .clone(),
        elsewhere: matches.get_one::<PathBuf>("elsewhere").cloned(),
    };
    watchdog::guard(&estate, &mut io::stdin(), &mut io::stdout()).map_err(failed)
}

fn worker_command() -> Command {
    Command::new("worker")
        .about("Touch files for a benchmark")
        .hide(true)
        .arg(
            Arg::new("job")
                .required(true)
                .value_parser(value_parser!(PathBuf)),
        )
}

fn run_worker(matches: &ArgMatches, _: &Environment) -> Outcome {
    let job = matches.get_one::<PathBuf>("job").expect("required");
    worker::work(job, &mut io::stdout()).map_err(failed)
}

/// Prints a line to people while data may go to a file.
fn say(line: &str) -> Outcome {
    output::print_line(line)
}
