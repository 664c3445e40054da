//! Whether a process that was signalled is about to die.

use std::{fs, time::Duration};

use penstock_base::clock;

/// How often a process is looked at.
const DEATH_WATCH: Duration = Duration::from_millis(100);

/// Signals that do nothing when nobody handles them: CHLD, CONT, URG, WINCH; and those that
/// stop: STOP, TSTP, TTIN, TTOU (signal(7)).
const HARMLESS: u64 = mask(&[
    libc::SIGCHLD,
    libc::SIGCONT,
    libc::SIGURG,
    libc::SIGWINCH,
    libc::SIGSTOP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
]);

const fn mask(signals: &[i32]) -> u64 {
    let mut mask = 0;
    let mut index = 0;
    while index < signals.len() {
        mask |= 1 << (signals[index] - 1);
        index += 1;
    }
    mask
}

/// Whether thread `process` has a signal that will end it. When nothing can be known of it (it
/// is gone, or in another PID namespace), the answer is yes, which ends the wait.
pub(crate) fn is_dying(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    status.map_or(true, |status| has_fatal_signal(&status))
}

/// Returns when thread `process` is about to die.
pub(crate) async fn until_dying(process: u32) {
    while !is_dying(process) {
        clock::sleep(DEATH_WATCH).await;
    }
}

fn has_fatal_signal(status: &str) -> bool {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
            .unwrap_or(0)
    };
    let pending = (field("SigPnd:") | field("ShdPnd:")) & !field("SigBlk:");
    let survived = field("SigIgn:") | field("SigCgt:") | HARMLESS;
    pending & (!survived | mask(&[libc::SIGKILL])) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pending: u64, blocked: u64, caught: u64) -> String {
        format!(
            "Name:\tx\nSigPnd:\t{pending:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{blocked:016x}\n\
             SigIgn:\t{:016x}\nSigCgt:\t{caught:016x}\n",
            0, 0
        )
    }

    #[test]
    fn only_what_ends_the_process_counts() {
        let (term, urgent, kill) = (
            mask(&[libc::SIGTERM]),
            mask(&[libc::SIGURG]),
            mask(&[libc::SIGKILL]),
        );
        assert!(has_fatal_signal(&status(term, 0, 0)));
        assert!(has_fatal_signal(&status(kill, 0, u64::MAX)));
        assert!(!has_fatal_signal(&status(term, 0, term)), "caught");
        assert!(!has_fatal_signal(&status(term, term, 0)), "blocked");
        assert!(!has_fatal_signal(&status(urgent, 0, 0)), "harmless");
        assert!(!has_fatal_signal(&status(0, 0, 0)), "none");
    }

    #[test]
    fn a_process_that_is_gone_counts_as_dying() {
        assert!(is_dying(0));
        assert!(!is_dying(std::process::id()));
    }
}
