//! By which name the program was called, and what that name stands for.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    process::ExitCode,
};

use crate::{
    commands,
    environment::Environment,
    failure::{Exit, Failure, Outcome},
    output, personality,
};

/// Beginnings of names under which mount(8) calls its helpers; the type of file system follows.
const MOUNT_HELPERS: [&str; 2] = ["mount.fuse.", "mount."];

/// What mount(8) expects of a helper that could not mount.
const MOUNT_FAILED: u8 = 32;

/// Runs what the command line asks for.
pub(crate) fn run(environment: &Environment) -> ExitCode {
    let program = program_name(&environment.arguments);
    let helper_of = helped(&program);
    let is_helper = helper_of.is_some();
    let outcome = match helper_of {
        Some(kind) => mount_helper(kind, environment),
        None => called_as(&program, environment),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure.exit() != Exit::Quiet {
                output::complain(&failure.to_string());
            }
            match failure.exit() {
                Exit::Failed if is_helper => MOUNT_FAILED.into(),
                Exit::Usage if is_helper => Exit::Failed.code().into(),
                _ => failure.exit_code(),
            }
        }
    }
}

/// The type of file system that a helper of this name mounts.
fn helped(program: &str) -> Option<&str> {
    let kind = MOUNT_HELPERS
        .iter()
        .find_map(|beginning| program.strip_prefix(beginning))?;
    (kind == "penstock" || personality::find(kind).is_some()).then_some(kind)
}

fn program_name(arguments: &[OsString]) -> String {
    let path = arguments.first().map(Path::new);
    let name = path
        .and_then(Path::file_name)
        .unwrap_or(OsStr::new("penstock"));
    name.to_string_lossy().into_owned()
}

fn called_as(program: &str, environment: &Environment) -> Outcome {
    let rest = environment.arguments.get(1..).unwrap_or_default();
    if let Some(program) = personality::find(program) {
        return program.run(rest, environment);
    }
    if let Some(command) = commands::tools::find(program) {
        return tool(command, rest, environment);
    }
    match rest {
        [word, name, rest @ ..] if word == "as" => as_program(name, rest, environment),
        [word, rest @ ..] if word == "tar" => tool("tar", rest, environment),
        // mount.fuse3, for `mount -t fuse.penstock`, names no command.
        [source, ..] if source.to_string_lossy().contains("://") => {
            let command = [OsString::from("penstock"), OsString::from("mount")];
            commands::dispatch(&[&command[..], rest].concat(), environment)
        }
        _ => commands::dispatch(&environment.arguments, environment),
    }
}

/// `penstock as NAME ...`: as if called by that name, where links cannot be made.
fn as_program(name: &OsStr, rest: &[OsString], environment: &Environment) -> Outcome {
    let name = name.to_string_lossy();
    if let Some(command) = commands::tools::find(&name) {
        return tool(command, rest, environment);
    }
    match personality::find(&name) {
        Some(program) => program.run(rest, environment),
        None => Err(Failure::usage(
            format!("`{name}` is no program that can be stood in for"),
            "ossfs, ossfs2, goofys, parcp, partar and parrm are",
        )),
    }
}

/// `parcp ...` and its like are commands of ours under other names.
fn tool(command: &str, rest: &[OsString], environment: &Environment) -> Outcome {
    let rest = match command {
        "tar" => commands::tools::tar::from_old_style(rest),
        _ => rest.to_vec(),
    };
    let command = ["penstock", command].map(OsString::from);
    commands::dispatch(&[&command[..], &rest].concat(), environment)
}

/// `mount.KIND SOURCE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-t TYPE] [-o WORDS]`. For other programs'
/// names the words are that program's.
fn mount_helper(kind: &str, environment: &Environment) -> Outcome {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut rest = environment.arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            // A dry run: everything but the mount itself.
            Some("-f") => return Ok(()),
            Some("-s" | "-n" | "-v") => {}
            Some("-N" | "-t") => drop(rest.next()),
            _ => arguments.push(argument.clone()),
        }
    }
    if let Some(program) = personality::find(kind) {
        return program.run(&arguments, environment);
    }
    let command = ["penstock", "mount"].map(OsString::from);
    commands::dispatch(&[&command[..], &arguments].concat(), environment)
}
