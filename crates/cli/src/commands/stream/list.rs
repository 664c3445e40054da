//! `penstock stream list`: volumes with block devices, alive and dead.

use clap::{ArgMatches, Command};
use penstock_block::{DeviceRecord, Record};
use serde::Serialize;

use crate::{
    command_line, doors::block, environment::Environment, failure::Outcome, output, text_table,
};

pub(super) fn command() -> Command {
    Command::new("list")
        .about("List volumes with their block devices")
        .long_about(
            "Lists the volumes of this machine that have block devices, also those whose program \
             was killed: `penstock stream detach` removes what is left of them. Volumes mounted \
             through FUSE are among those that `penstock stats` lists.",
        )
        .arg(command_line::flag("json", "Print JSON"))
}

/// A volume and whether its program runs.
#[derive(Serialize)]
struct Listed {
    alive: bool,
    #[serde(flatten)]
    record: Record,
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let state = block::state_directory(environment);
    let alive = penstock_block::volumes(&state).into_iter();
    let alive = alive.map(|record| Listed {
        alive: true,
        record,
    });
    let dead = penstock_block::dead_volumes(&state).into_iter();
    let dead = dead.map(|record| Listed {
        alive: false,
        record,
    });
    let listed: Vec<_> = alive.chain(dead).collect();
    if matches.get_flag("json") {
        return output::print_json(&listed);
    }
    if listed.is_empty() {
        return output::print_line("there are no volumes with block devices");
    }
    output::print(&table(&listed))
}

fn table(listed: &[Listed]) -> String {
    let head = ["MOUNTPOINT", "SOURCE", "FS", "DEVICES", "PID", "STATE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(listed.iter().map(|Listed { alive, record }| {
        let state = match (alive, record.mounted) {
            (true, true) => "mounted",
            (true, false) => "starting",
            (false, _) => "dead",
        };
        vec![
            record.mount_point.display().to_string(),
            record.source.clone(),
            record.file_system.clone(),
            devices(&record.devices),
            record.pid.to_string(),
            state.to_owned(),
        ]
    }));
    text_table::columns(&rows)
}

fn devices(devices: &[DeviceRecord]) -> String {
    let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
    names.join(",")
}
