//! Standard output and standard error: data and prompts, nothing else.

use std::io::{self, Write};

use crate::failure::{Exit, Failure, Outcome};

/// Writes `text` to standard output.
pub(crate) fn print(text: &str) -> Outcome {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|error| unwritable(&error))
}

/// Writes `text` and a line end to standard output.
pub(crate) fn print_line(text: &str) -> Outcome {
    print(&format!("{text}\n"))
}

/// Writes one message to standard error. There is nobody left to tell when that fails.
pub(crate) fn complain(message: &str) {
    let _ = writeln!(io::stderr().lock(), "penstock: {message}");
}

fn unwritable(error: &io::Error) -> Failure {
    let failure = Failure::new(
        format!("cannot write to standard output: {error}"),
        "check where it is redirected to",
    );
    if error.kind() == io::ErrorKind::BrokenPipe {
        return failure.with_exit(Exit::Quiet);
    }
    failure
}
