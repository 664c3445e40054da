//! The line that tells how far a benchmark is, and how long it may still take.

use super::text::{clean, truncate, width};

/// How far a benchmark is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Runs that are over.
    pub done: usize,
    /// Runs in all.
    pub total: usize,
    /// Since the first began.
    pub seconds: f64,
    /// What runs now: "read-4 · far, s3fs, run 2 of 3".
    pub current: &'a str,
}

/// One line of at most `columns`: a bar, the count, the time left, what runs now. The time left assumes that the runs to
/// come take as long as those that are over, so it is shown from the second on.
#[must_use]
pub fn progress(progress: &Progress<'_>, columns: usize) -> String {
    const BAR: usize = 16;
    let done = progress.done.min(progress.total);
    let filled = BAR * done / progress.total.max(1);
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR - filled));
    let line = format!("{bar} {done}/{}{}", progress.total, left(progress, done));
    let room = columns.saturating_sub(width(&line) + 2);
    match truncate(&clean(progress.current), room) {
        current if current.is_empty() => truncate(&line, columns),
        current => truncate(&format!("{line}  {current}"), columns),
    }
}

fn left(progress: &Progress<'_>, done: usize) -> String {
    if done < 2 || !progress.seconds.is_finite() {
        return String::new();
    }
    let each = progress.seconds / done as f64;
    format!(", {} left", duration(each * (progress.total - done) as f64))
}

/// "40 s", "3 min", "1 h 20 min".
fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match minutes {
        _ if seconds < 90.0 => format!("{seconds:.0} s"),
        0..90 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(done: usize, seconds: f64, columns: usize) -> String {
        let current = "read-4 · far, s3fs, run 2 of 3";
        progress(
            &Progress {
                done,
                total: 12,
                seconds,
                current,
            },
            columns,
        )
    }

    #[test]
    fn the_line_tells_count_time_left_and_what_runs() {
        assert_eq!(
            line(3, 60.0, 80),
            "████░░░░░░░░░░░░ 3/12, 3 min left  read-4 · far, s3fs, run 2 of 3"
        );
        assert_eq!(
            line(1, 60.0, 80),
            "█░░░░░░░░░░░░░░░ 1/12  read-4 · far, s3fs, run 2 of 3"
        );
        assert!(line(2, 3600.0, 80).contains("5 h 0 min left"));
    }

    #[test]
    fn it_never_is_wider_than_the_terminal() {
        for columns in 0..90 {
            assert!(width(&line(4, 100.0, columns)) <= columns, "{columns}");
        }
        assert!(line(99, 1.0, 80).contains("12/12, 0 s left"));
    }
}
