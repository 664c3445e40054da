//! Programs that print credentials.

use std::{process::Stdio, time::Duration};

use async_trait::async_trait;
use penstock_base::{Secret, clock};
use reqsign_core::time::Timestamp;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{
    Credentials,
    chain::{Nothing, Place},
    origin::Found,
};

/// How long the program may run.
const RUN_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that the program may print.
const OUTPUT_MAX: u64 = 1 << 20;

/// A program with arguments.
#[derive(Debug)]
pub(super) struct Process {
    /// Separated by white space, as the AWS tools have it.
    command: String,
}

impl Process {
    /// The place of a program that the settings may name.
    pub(super) fn of(command: &Option<String>) -> Self {
        Self {
            command: command.clone().unwrap_or_default(),
        }
    }
}

/// What the program prints. OSS tools use other names for two fields.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    access_key_id: String,
    #[serde(alias = "AccessKeySecret")]
    secret_access_key: String,
    #[serde(alias = "SecurityToken")]
    session_token: Option<String>,
    expiration: Option<String>,
}

#[async_trait]
impl Place for Process {
    async fn look(&self) -> Result<Found, Nothing> {
        let Some(program) = self.command.split_whitespace().next() else {
            return Err(Nothing::absent());
        };
        let printed = printed_by(&self.command).await?;
        let credentials = parse(&printed)
            .ok_or_else(|| format!("`{program}` did not print credentials as JSON"))?;
        Ok(Found {
            credentials,
            origin: format!("the program {program}"),
        })
    }
}

/// What a program of the user's prints: an absolute path with arguments, separated by white space. Fails with why there is
/// nothing, without what was printed.
pub async fn printed_by(command: &str) -> Result<Vec<u8>, String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let (program, arguments) = words.split_first().ok_or("it names no program")?;
    let finished = run(program, arguments).await?;
    match finished.status {
        0 => Ok(finished.stdout),
        // Its error output may hold anything, so it is not repeated.
        status => Err(format!("`{program}` ended with status {status}")),
    }
}

fn parse(output: &[u8]) -> Option<Credentials> {
    let printed: Printed = serde_json::from_slice(output).ok()?;
    let expires = match &printed.expiration {
        Some(text) => Some(text.parse::<Timestamp>().ok()?.as_system_time()),
        None => None,
    };
    Some(Credentials {
        key_id: printed.access_key_id,
        secret: Secret::new(printed.secret_access_key),
        token: printed.session_token.map(Secret::new),
        expires,
    })
}

/// A program that ran to its end.
struct Finished {
    status: i32,
    stdout: Vec<u8>,
}

/// Runs `program` within the limits of time and output. It is killed when the future is dropped.
async fn run(program: &str, arguments: &[&str]) -> Result<Finished, String> {
    if !program.starts_with('/') {
        return Err(format!("`{program}` is not an absolute path"));
    }
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("cannot run `{program}`: {error}"))?;
    let stdout = child.stdout.take();
    let finish = async {
        let output = read_limited(stdout).await;
        (output, child.wait().await)
    };
    let (output, status) = clock::deadline(RUN_TIMEOUT, finish)
        .await
        .map_err(|_| format!("`{program}` did not end within {RUN_TIMEOUT:?}"))?;
    let stdout = output.map_err(|error| format!("`{program}`: {error}"))?;
    let status = status.map_err(|error| format!("`{program}`: {error}"))?;
    Ok(Finished {
        status: status.code().unwrap_or(-1),
        stdout,
    })
}

async fn read_limited(stdout: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, String> {
    let mut output = Vec::new();
    if let Some(stdout) = stdout {
        let mut limited = stdout.take(OUTPUT_MAX + 1);
        let read = limited.read_to_end(&mut output).await;
        read.map_err(|error| error.to_string())?;
    }
    if output.len() as u64 > OUTPUT_MAX {
        return Err("it printed more than 1 MiB".to_owned());
    }
    Ok(output)
}
