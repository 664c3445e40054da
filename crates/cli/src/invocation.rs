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

/// Names under which mount(8) calls its helpers.
const MOUNT_HELPERS: [&str; 2] = ["mount.penstock", "mount.fuse.penstock"];

/// What mount(8) expects of a helper that could not mount.
const MOUNT_FAILED: u8 = 32;

/// Runs what the command line asks for.
pub(crate) fn run(environment: &Environment) -> ExitCode {
    let program = program_name(&environment.arguments);
    let is_helper = MOUNT_HELPERS.contains(&program.as_str());
    let outcome = if is_helper {
        mount_helper(environment)
    } else {
        called_as(&program, environment)
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
    match rest {
        [word, name, rest @ ..] if word == "as" => as_program(name, rest, environment),
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
    match personality::find(&name.to_string_lossy()) {
        Some(program) => program.run(rest, environment),
        None => Err(Failure::usage(
            format!(
                "`{}` is no program that can be stood in for",
                name.display()
            ),
            "ossfs, ossfs2 and goofys are",
        )),
    }
}

/// `mount.penstock SOURCE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-t TYPE] [-o WORDS]`.
fn mount_helper(environment: &Environment) -> Outcome {
    let mut arguments: Vec<OsString> = ["penstock", "mount"].map(OsString::from).into();
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
    commands::dispatch(&arguments, environment)
}
