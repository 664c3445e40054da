//! A tool at work, as the terminal shows it, and how it ends.

use std::{
    sync::{
        Arc, OnceLock,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use penstock_base::{ByteSize, Mutex, clock};
use penstock_tools::{Report, Stop, Summary};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::pipes::Patient;
use crate::{
    failure::{Exit, Failure, Outcome},
    limits, output,
};

/// How often the line on the terminal is drawn anew.
const REDRAW: Duration = Duration::from_millis(200);

/// Per cent of the work that say something of the rest.
const TOLD_FROM: f64 = 1.0;

/// How a tool ends when not everything could be done.
#[derive(Debug, Clone, Copy)]
pub(in crate::commands) struct Ending {
    /// Some of it failed.
    pub failed: Exit,
    /// Files changed while they were read, and nothing else.
    pub changed: Exit,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            done: "done",
            json: false,
            tells_each: false,
            is_list: false,
            is_silent: false,
            ending: Ending {
                failed: Exit::Failed,
                changed: Exit::Failed,
            },
        }
    }
}

/// A tool that runs.
#[derive(Debug, Clone, Copy)]
pub(in crate::commands) struct Work {
    /// What is done to files, in the past tense: "removed".
    pub done: &'static str,
    pub json: bool,
    /// Each thing that is done has a line on standard output.
    pub tells_each: bool,
    /// Those lines are all that it is for.
    pub is_list: bool,
    /// Standard output has other data.
    pub is_silent: bool,
    pub ending: Ending,
}

impl Work {
    /// Runs `tool` until its end or Ctrl-C, and tells what came of it.
    pub(in crate::commands) fn run(self, tool: impl FnOnce(&Report, &Stop) -> Outcome) -> Outcome {
        self.run_counted(|_, _| {}, tool)
    }

    /// The same, while `count` finds out how much there is to do, where a terminal shows how long that takes. It is stopped
    /// when the tool ends.
    pub(in crate::commands) fn run_counted(
        self,
        count: impl FnOnce(&Report, &Stop) + Send,
        tool: impl FnOnce(&Report, &Stop) -> Outcome,
    ) -> Outcome {
        limits::raised_descriptor_limit();
        let stop = Stop::default();
        watch_signals(&stop)?;
        let unwritten = Arc::new(OnceLock::new());
        let report = match self.tells_each {
            true if self.is_silent => Report::telling(Box::new(complain_each)),
            true => Report::telling(self.printer(&unwritten, &stop)),
            false => Report::default(),
        };
        let begun = clock::now();
        let (end, ended) = mpsc::channel::<()>();
        let enough = Stop::default();
        let outcome = thread::scope(|scope| {
            let (report, enough) = (&report, &enough);
            scope.spawn(move || self.draw(report, &ended));
            if output::is_drawn() {
                scope.spawn(move || count(report, enough));
            }
            let outcome = tool(report, &stop);
            enough.set();
            drop(end);
            outcome
        });
        if let Err(failure) = outcome {
            // It ended the work, and is told last.
            tell(&report.summary());
            return Err(failure);
        }
        let concluded = self.conclude(&report, begun.elapsed(), stop.is_set());
        match unwritten.get() {
            None => concluded,
            Some(failure) if failure.exit() != Exit::Quiet => {
                concluded.and(Err(failure.clone().with_exit(self.ending.failed)))
            }
            Some(failure) if self.is_list => Err(failure.clone()),
            Some(_) => concluded,
        }
    }

    /// Prints lines until one cannot be written, which `unwritten` gets. A list that nobody reads on ends there.
    fn printer(
        self,
        unwritten: &Arc<OnceLock<Failure>>,
        stop: &Stop,
    ) -> Box<dyn Fn(&str) + Send + Sync> {
        let (unwritten, stop) = (Arc::clone(unwritten), stop.clone());
        let pipe = Patient::stdout(&stop).map(Mutex::new);
        Box::new(move |line| {
            if unwritten.get().is_some() {
                return;
            }
            let text = format!("{}\n", crate::legible::legible(line));
            let printed = match &pipe {
                Some(pipe) => output::print_to(&mut *pipe.lock(), &text),
                None => output::print(&text),
            };
            if let Err(failure) = printed {
                if self.is_list && failure.exit() == Exit::Quiet {
                    stop.set();
                }
                let _ = unwritten.set(failure);
            }
        })
    }

    /// Shows how far it is until `ended` hangs up.
    fn draw(self, report: &Report, ended: &mpsc::Receiver<()>) {
        let begun = clock::now();
        while ended.recv_timeout(REDRAW) == Err(RecvTimeoutError::Timeout) {
            if !output::draw(Some(&self.line(report, begun.elapsed()))) {
                return;
            }
        }
        output::draw(None);
    }

    fn line(self, report: &Report, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64().max(0.001);
        let files = report.files.get();
        let bytes = report.bytes.get();
        let mut line = format!(
            "{files} files {}, {:.0}/s",
            self.done,
            files as f64 / seconds
        );
        if bytes > 0 {
            let rate = ByteSize((bytes as f64 / seconds) as u64);
            line += &format!(", {}, {rate}/s", ByteSize(bytes));
        }
        if report.failed() > 0 {
            line += &format!(", {} failed", report.failed());
        }
        let (input, total) = (report.input.get(), report.input_total.get());
        if input > 0 && total >= input {
            let left = (total - input) as f64 / input as f64 * seconds;
            line += &format!(
                ", {} % of the archive, {left:.0} s left",
                input * 100 / total
            );
        }
        if let Some(left) = report.left() {
            let done = (1.0 - left) * 100.0;
            line += &format!(", {done:.0} %");
            if done >= TOLD_FROM {
                line += &format!(", about {:.0} s left", seconds * left / (1.0 - left));
            }
        }
        line
    }

    fn conclude(self, report: &Report, elapsed: Duration, is_stopped: bool) -> Outcome {
        let summary = report.summary();
        tell(&summary);
        if self.json && !self.is_silent {
            output::print_json(&as_json(&summary, elapsed, is_stopped))?;
        }
        let said = self.in_words(&summary);
        if is_stopped {
            let remedy = "run it again to go on";
            return Err(
                Failure::new(format!("interrupted; {said}"), remedy).with_exit(Exit::Interrupted)
            );
        }
        if summary.failed > 0 {
            let kept = summary.failures.len() as u64;
            let beyond = match summary.failed.saturating_sub(kept) {
                0 => String::new(),
                more => format!(" ({more} are not shown)"),
            };
            let failures = match summary.failed {
                1 => "1 failure".to_owned(),
                count => format!("{count} failures"),
            };
            let cause = format!("{failures}{beyond}; {said}");
            return Err(Failure::new(cause, "").with_exit(self.ending.failed));
        }
        if report.has_changed() {
            return Err(Failure::new(said, "").with_exit(self.ending.changed));
        }
        Ok(())
    }

    fn in_words(self, summary: &Summary) -> String {
        let mut said = format!(
            "{} files and {} directories were {}",
            summary.files, summary.directories, self.done
        );
        if summary.unchanged > 0 {
            said += &format!(", {} were there already", summary.unchanged);
        }
        said
    }
}

fn as_json(summary: &Summary, elapsed: Duration, is_stopped: bool) -> serde_json::Value {
    let mut value = json!(summary);
    value["seconds"] = json!(elapsed.as_secs_f64());
    value["interrupted"] = json!(is_stopped);
    value
}

/// Tells of what was done otherwise than asked, and of what was not.
fn tell(summary: &Summary) {
    for line in summary.remarks.iter().chain(&summary.failures) {
        output::complain(&crate::legible::legible(line));
    }
}

fn complain_each(line: &str) {
    output::complain(&crate::legible::legible(line));
}

/// Sets `stop` when the user or the system asks to end. A second Ctrl-C ends the process at once.
fn watch_signals(stop: &Stop) -> Outcome {
    let stop = stop.clone();
    let (ready, watching) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let kinds = (SignalKind::interrupt(), SignalKind::terminate());
            let (Ok(mut interrupt), Ok(mut terminate)) = (signal(kinds.0), signal(kinds.1)) else {
                return;
            };
            let _ = ready.send(());
            for count in 0.. {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                stop.set();
                if count > 0 {
                    crate::system::end_at_once(Exit::Interrupted.code());
                }
            }
        });
    });
    watching
        .recv()
        .map_err(|_| Failure::new("cannot watch for signals", "try again"))
}
