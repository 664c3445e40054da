//! `penstock bench md-bench`: the phases of mdtest.

use std::{io, path::PathBuf};

use clap::{ArgMatches, Command, builder::PossibleValuesParser, value_parser};
use penstock_bench::md_bench::{self, MdBench, Phase};

use super::{failed, option, size};
use crate::{command_line, environment::Environment, failure::Outcome};

pub(super) fn command() -> Command {
    Command::new("md-bench")
        .about("Create, write, stat, read, rename or remove many small files with many threads")
        .arg(
            option("dir", "DIR", "Directory below which the files lie")
                .required(true)
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            option(
                "phase",
                "PHASE",
                "What is done with each file; `store` is `write` with an fsync",
            )
            .required(true)
            .value_parser(PossibleValuesParser::new(Phase::ALL.map(Phase::name))),
        )
        .arg(
            option("count", "COUNT", "Files in all")
                .required(true)
                .value_parser(value_parser!(u64)),
        )
        .arg(
            option(
                "directories",
                "COUNT",
                "Directories that they are spread over; 0 for all files in DIR itself",
            )
            .value_parser(value_parser!(u64))
            .default_value("0"),
        )
        .arg(
            option(
                "threads",
                "COUNT",
                "Files at a time; each thread has directories of its own where there are enough",
            )
            .value_parser(value_parser!(usize))
            .default_value("1"),
        )
        .arg(
            option("size", "SIZE", "Size of each file")
                .value_parser(size)
                .default_value("0"),
        )
        .arg(command_line::flag(
            "json",
            "Print the figures as a line of JSON too",
        ))
}

pub(super) fn run(matches: &ArgMatches, _: &Environment) -> Outcome {
    let phase = matches.get_one::<String>("phase").expect("required");
    let bench = MdBench {
        directory: matches.get_one::<PathBuf>("dir").expect("required").clone(),
        phase: Phase::named(phase).expect("one of the possible ones"),
        count: *matches.get_one("count").expect("required"),
        directories: *matches.get_one("directories").expect("has a default"),
        threads: *matches.get_one("threads").expect("has a default"),
        size: *matches.get_one("size").expect("has a default"),
        json: matches.get_flag("json"),
    };
    md_bench::run(&bench, &mut io::stdout()).map_err(failed)
}
