//! The `penstock` command: the one place that joins volumes to doors and reads the command line,
//! the environment and configuration files.
//!
//! [`invocation`] finds out by which name it was called, [`commands`] has one module per command,
//! [`options`] the table from which everything about options is made. [`volumes`] opens what is
//! shown, [`doors`] opens the ways to it, and [`daemon`] keeps both alive until the mount ends.

mod command_line;
mod commands;
mod daemon;
mod databases;
mod descriptors;
mod doors;
mod encryption;
mod environment;
mod explain;
mod failure;
mod filesets;
mod generate;
mod guardian;
mod half_dead;
mod invocation;
mod keeper;
mod legible;
mod limits;
mod logging;
mod memory;
mod mount_point;
mod mount_table;
mod options;
mod output;
mod personality;
mod places;
mod predecessors;
mod prometheus;
mod resources;
mod secret_file;
mod serving;
mod sharing;
mod stores;
// The only unsafe code here: a few system calls that std does not have.
#[allow(unsafe_code)]
mod system;
mod text_table;
mod volumes;

use std::process::ExitCode;

use penstock_control as control;

fn main() -> ExitCode {
    let mut environment = environment::Environment::read();
    if let Some(count) = environment.take_pretended_processors() {
        penstock_base::processors::pretend(count);
    }
    invocation::run(&environment)
}
