//! CPU time of the server's processes, of this one and of all, as the kernel counts it.

use std::{fs, time::Duration};

use crate::database::Server;

/// A tick of the kernel's counters.
const TICK: Duration = Duration::from_millis(10);

/// CPU time so far.
pub struct Usage {
    pub server: Duration,
    pub own: Duration,
    /// Of all processes of this computer, and of its kernel.
    pub all: Duration,
}

impl Usage {
    pub fn of(server: &Server) -> Self {
        Self {
            server: of_server(server.main_process()),
            own: ticks("self", 0..2),
            all: of_all(),
        }
    }
}

/// Cores that all processes had in the last while: of a computer that is to be calm.
pub async fn cores_in(time: Duration) -> f64 {
    let before = of_all();
    tokio::time::sleep(time).await;
    (of_all() - before).as_secs_f64() / time.as_secs_f64()
}

/// The first line of `/proc/stat`, without what was idle: user, nice, system, two kinds of waiting, interrupts.
fn of_all() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = stat.split_whitespace().skip(1).take(8).enumerate();
    let busy = fields.filter(|(place, _)| !matches!(place, 3 | 4));
    busy.map(|(_, ticks)| TICK * ticks.parse::<u32>().unwrap())
        .sum()
}

/// Fields of `stat` behind the name: from `utime` on they are times of the process and of its children that ended.
fn ticks(process: &str, which: std::ops::Range<usize>) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let times = fields
        .split_whitespace()
        .skip(11 + which.start)
        .take(which.len());
    times
        .map(|ticks| TICK * ticks.parse::<u32>().unwrap())
        .sum()
}

/// The server's processes but its main one. The kernel leaves some out while one ends: so the list is read until it stays
/// the same.
fn children(main: u32) -> String {
    let list = || {
        std::thread::sleep(Duration::from_millis(3));
        let path = format!("/proc/{main}/task/{main}/children");
        fs::read_to_string(path).unwrap_or_default()
    };
    let mut last = list();
    loop {
        let next = list();
        if next == last {
            return next;
        }
        last = next;
    }
}

fn of_server(main: u32) -> Duration {
    let living = children(main);
    let living = living.split_whitespace().map(|child| {
        let schedule = fs::read_to_string(format!("/proc/{child}/schedstat")).unwrap_or_default();
        let nanoseconds = schedule.split(' ').next().unwrap_or_default();
        Duration::from_nanos(nanoseconds.parse().unwrap_or_default())
    });
    living.sum::<Duration>() + ticks(&main.to_string(), 0..4)
}
