//! Asks a program whether it can do what a client of the table needs, before anything is mounted.
//!
//! The question is a command that says yes by succeeding. Its first word of complaint is the reason
//! why the client is not available.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
    time::Duration,
};

use penstock_base::clock;

use crate::system;

/// How long a program may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Between looks whether it has.
const LOOK: Duration = Duration::from_millis(5);
/// Bytes of its complaint that are read.
const COMPLAINT_MAX: u64 = 4 << 10;

/// Runs `command` and returns why it did not succeed, if so.
pub(crate) fn ask(command: &[String], path: &str) -> Result<(), String> {
    let Some((program, arguments)) = command.split_first() else {
        return Ok(());
    };
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| format!("{program}: {error}"))?;
    if has_succeeded(&mut child)? {
        return Ok(());
    }
    let mut complaint = Vec::new();
    if let Some(errors) = child.stderr.take() {
        // What was not said is not missed.
        let _ = errors.take(COMPLAINT_MAX).read_to_end(&mut complaint);
    }
    let text = String::from_utf8_lossy(&complaint);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    Err(line.unwrap_or("it refuses without a word").to_owned())
}

fn has_succeeded(child: &mut Child) -> Result<bool, String> {
    let deadline = clock::now() + ANSWER_LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if clock::now() < deadline => system::pause(LOOK),
            Ok(None) => {
                // It may have ended in this moment.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it does not answer within {ANSWER_LIMIT:.0?}"));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask_shell(script: &str) -> Result<(), String> {
        ask(&["/bin/sh", "-c", script].map(str::to_owned), "/bin")
    }

    #[test]
    fn success_is_yes_and_the_first_line_of_a_complaint_is_the_reason() {
        assert_eq!(ask_shell("echo noise; exit 0"), Ok(()));
        let refused = ask_shell("echo >&2; echo 'no such mode' >&2; echo more >&2; exit 2");
        assert_eq!(refused, Err("no such mode".to_owned()));
        let silent = ask_shell("exit 1");
        assert_eq!(silent, Err("it refuses without a word".to_owned()));
        assert!(ask(&["/no/such/program".to_owned()], "/bin").is_err());
        assert_eq!(ask(&[], "/bin"), Ok(()));
    }
}
