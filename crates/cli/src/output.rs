//! Standard output and standard error: data and prompts, nothing else.

use std::io::{self, IsTerminal, Write};

use crate::{
    failure::{Exit, Failure, Outcome},
    legible::legible,
};

/// Writes `text` to standard output.
pub(crate) fn print(text: &str) -> Outcome {
    print_to(&mut io::stdout().lock(), text)
}

/// Writes `text` to what stands for standard output.
pub(crate) fn print_to(output: &mut dyn Write, text: &str) -> Outcome {
    output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
        .map_err(|error| unwritable(&error))
}

/// Writes `text` and a line end to standard output.
pub(crate) fn print_line(text: &str) -> Outcome {
    print(&format!("{text}\n"))
}

/// Writes one message to standard error, fit for a terminal: names and words of a store may be in it. There is nobody left to
/// tell when that fails.
pub(crate) fn complain(message: &str) {
    let lines: Vec<_> = message.split('\n').map(legible).collect();
    let _ = writeln!(io::stderr().lock(), "penstock: {}", lines.join("\n"));
}

/// Writes `value` to standard output, for programs.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Outcome {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(format!("cannot write JSON: {error}"), "report this"))?;
    print_line(&text)
}

/// Shows how far something is, in the place of what was shown before; none takes that away. Says whether there
/// is a terminal to show it on.
pub(crate) fn draw(line: Option<&str>) -> bool {
    let shows = is_drawn();
    let mut stderr = io::stderr().lock();
    if shows {
        let line = line.unwrap_or_default();
        let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
    }
    shows
}

/// Whether there is a terminal to show it on.
pub(crate) fn is_drawn() -> bool {
    io::stderr().is_terminal()
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
