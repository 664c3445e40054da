//! `penstock bench nfs-load`: one operation of NFS, asked of a mount target.

use std::{io, time::Duration};

use clap::{Arg, ArgMatches, Command, builder::PossibleValuesParser, value_parser};
use penstock_bench::nfs_load::{self, Amount, NfsLoad, Operation, Server};

use super::{failed, option, size};
use crate::{command_line, environment::Environment, failure::Outcome};

pub(super) fn command() -> Command {
    Command::new("nfs-load")
        .about("Ask one operation of an NFS mount target, over and over, on several connections")
        .arg(
            Arg::new("address")
                .value_name("ADDRESS")
                .help("HOST or HOST:PORT of the server; the port is 2049 if not given")
                .required(true),
        )
        .args(place_arguments())
        .args(load_arguments())
        .arg(
            option(
                "server-pid",
                "PID",
                "Tell the processor time of this process and of its children too",
            )
            .value_parser(value_parser!(u32)),
        )
        .arg(command_line::flag(
            "json",
            "Print the figures as a line of JSON too",
        ))
}

fn place_arguments() -> [Arg; 3] {
    [
        option(
            "export",
            "PATH",
            "Path of the export; what is made lies in nfs-load in it, and stays",
        )
        .default_value("/"),
        option(
            "mount-port",
            "PORT",
            "Port of MOUNT [default: that of ADDRESS]",
        )
        .value_parser(value_parser!(u16).range(1..))
        .conflicts_with("portmap"),
        command_line::flag(
            "portmap",
            "Ask the port mapper for the ports; ADDRESS is its own then, with port 111 if not given",
        ),
    ]
}

fn load_arguments() -> [Arg; 8] {
    [
        option(
            "operation",
            "OPERATION",
            "What is asked; `write` commits each 64 MiB, `create` what it writes",
        )
        .required(true)
        .value_parser(PossibleValuesParser::new(
            Operation::ALL.map(Operation::name),
        )),
        option("connections", "COUNT", "Connections, each with a thread")
            .value_parser(value_parser!(usize))
            .default_value("4"),
        option("depth", "COUNT", "Calls outstanding on each connection")
            .value_parser(value_parser!(usize))
            .default_value("16"),
        option(
            "size",
            "SIZE",
            "Bytes of a READ or WRITE [default: 1MiB], or of a file that is made [default: 0]",
        )
        .value_parser(size),
        option(
            "file-size",
            "SIZE",
            "Bytes of a file that is read or written",
        )
        .value_parser(size)
        .default_value("256MiB"),
        command_line::flag(
            "in-order",
            "Read a part of the file from its begin on with each connection, instead of here and there",
        ),
        option("seconds", "SECONDS", "Begin operations for so long")
            .value_parser(value_parser!(u64).range(1..=86_400))
            .default_value("5"),
        option(
            "operations",
            "COUNT",
            "Do so many in all, however long that takes",
        )
        .value_parser(value_parser!(u64).range(1..))
        .conflicts_with("seconds"),
    ]
}

pub(super) fn run(matches: &ArgMatches, _: &Environment) -> Outcome {
    let text = |name: &str| {
        matches
            .get_one::<String>(name)
            .expect("has a value")
            .clone()
    };
    let operation = Operation::named(&text("operation")).expect("one of the possible ones");
    let size_of_operation = match operation {
        Operation::Read | Operation::Write => 1 << 20,
        Operation::Getattr | Operation::Lookup | Operation::Create => 0,
    };
    let seconds = *matches.get_one("seconds").expect("has a default");
    let load = NfsLoad {
        server: Server {
            address: text("address"),
            mount_port: matches.get_one("mount-port").copied(),
            asks_port_mapper: matches.get_flag("portmap"),
            export: text("export"),
        },
        operation,
        connections: *matches.get_one("connections").expect("has a default"),
        depth: *matches.get_one("depth").expect("has a default"),
        size: matches
            .get_one("size")
            .copied()
            .unwrap_or(size_of_operation),
        file_size: *matches.get_one("file-size").expect("has a default"),
        reads_in_order: matches.get_flag("in-order"),
        amount: match matches.get_one("operations") {
            Some(count) => Amount::Operations(*count),
            None => Amount::Time(Duration::from_secs(seconds)),
        },
        server_process: matches.get_one("server-pid").copied(),
        json: matches.get_flag("json"),
    };
    nfs_load::run(&load, &mut io::stdout()).map_err(failed)
}
