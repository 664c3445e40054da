//! Whether a process that was signalled wants to stop waiting, and whether one that is ending
//! was killed.

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

/// What Ctrl-C and Ctrl-\\ send.
const KEYBOARD: u64 = mask(&[libc::SIGINT, libc::SIGQUIT]);

const fn mask(signals: &[i32]) -> u64 {
    let mut mask = 0;
    let mut index = 0;
    while index < signals.len() {
        mask |= 1 << (signals[index] - 1);
        index += 1;
    }
    mask
}

/// Whether thread `process` has a signal that will end it, or one from the keyboard, which means
/// that somebody wants it to stop, whatever the process then makes of it. When nothing can be known of it (it
/// is gone, or in another PID namespace), the answer is yes, which ends the wait.
pub(crate) fn wants_out(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    status.map_or(true, |status| has_ending_signal(&status))
}

/// Returns when thread `process` wants to stop waiting.
pub(crate) async fn until_out(process: u32) {
    while !wants_out(process) {
        clock::sleep(DEATH_WATCH).await;
    }
}

/// Whether thread `process` is on its way out because of a signal: it can neither hear of an
/// error any more nor be signalled again.
pub(crate) fn was_killed(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| ended_by_signal(&stat))
}

/// Fields of proc(5), counted behind the name, which may hold anything: `flags` is the 9th of
/// all, `exit_code` the 52nd, in the form of waitpid(2).
fn ended_by_signal(stat: &str) -> bool {
    const EXITING: u64 = 0x4;
    const SIGNAL_BITS: u64 = 0x7f;
    let Some((_, fields)) = stat.rsplit_once(')') else {
        return false;
    };
    let field = |number: usize| -> u64 {
        let text = fields.split_whitespace().nth(number - 3);
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    field(9) & EXITING != 0 && field(52) & SIGNAL_BITS != 0
}

fn has_ending_signal(status: &str) -> bool {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
            .unwrap_or(0)
    };
    let pending = (field("SigPnd:") | field("ShdPnd:")) & !field("SigBlk:");
    let survived = field("SigIgn:") | field("SigCgt:") | HARMLESS;
    let keyboard = KEYBOARD & !field("SigIgn:");
    pending & (!survived | keyboard | mask(&[libc::SIGKILL])) != 0
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
    fn only_what_ends_the_process_or_comes_from_the_keyboard_counts() {
        let [term, urgent, kill, interrupt] =
            [libc::SIGTERM, libc::SIGURG, libc::SIGKILL, libc::SIGINT]
                .map(|signal| mask(&[signal]));
        assert!(has_ending_signal(&status(interrupt, 0, interrupt)));
        assert!(!has_ending_signal(&status(interrupt, interrupt, interrupt)));
        assert!(has_ending_signal(&status(term, 0, 0)));
        assert!(has_ending_signal(&status(kill, 0, u64::MAX)));
        assert!(!has_ending_signal(&status(term, 0, term)), "caught");
        assert!(!has_ending_signal(&status(term, term, 0)), "blocked");
        assert!(!has_ending_signal(&status(urgent, 0, 0)), "harmless");
        assert!(!has_ending_signal(&status(0, 0, 0)), "none");
    }

    #[test]
    fn a_process_that_is_gone_counts_as_dying() {
        assert!(wants_out(0));
        assert!(!wants_out(std::process::id()));
    }

    #[test]
    fn who_was_killed_is_told_from_who_ended() {
        let stat = |flags: u32, exit_code: i32| {
            let between = "0 ".repeat(42);
            format!("7 (a ) b) R 1 1 1 0 -1 {flags} {between}{exit_code}\n")
        };
        assert!(ended_by_signal(&stat(0x4, libc::SIGKILL)));
        assert!(ended_by_signal(&stat(0x40_0044, libc::SIGINT)));
        assert!(
            !ended_by_signal(&stat(0x4, 0x100)),
            "it exited with status 1"
        );
        assert!(
            !ended_by_signal(&stat(0, libc::SIGKILL)),
            "it is not ending"
        );
        assert!(!ended_by_signal(""));
        assert!(!was_killed(std::process::id()));
    }
}
