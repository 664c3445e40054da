//! Standard output and standard error: data and prompts, nothing else.

use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write},
};

use rustix::termios::tcgetwinsize;

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
        let columns = tcgetwinsize(&stderr).map_or(0, |size| usize::from(size.ws_col));
        let line = cut(line.unwrap_or_default(), columns);
        let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
    }
    shows
}

/// What of a line fits into so many columns, of a terminal that does not say 0: one that is longer goes on in the next line, and
/// is not taken away with the present one.
fn cut(line: &str, columns: usize) -> Cow<'_, str> {
    if columns == 0 || line.chars().count() < columns {
        return line.into();
    }
    let kept = line.chars().take(columns.saturating_sub(2));
    kept.chain(['…']).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_drawn_stays_in_one_line() {
        assert_eq!(cut("9 of 20 files", 80), "9 of 20 files");
        assert_eq!(cut("9 of 20 files", 14), "9 of 20 files");
        assert_eq!(cut("9 of 20 files", 13), "9 of 20 fil…");
        assert_eq!(cut("fünf", 4), "fü…");
        assert_eq!(cut("five", 1), "…");
        assert_eq!(cut("9 of 20 files", 0), "9 of 20 files");
    }
}
