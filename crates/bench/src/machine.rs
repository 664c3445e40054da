//! The machine that is measured on, and what time it is there.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{proc_fs, record::Machine};

const SECONDS_PER_DAY: u64 = 86_400;

/// What the kernel says about this machine.
pub(crate) fn facts() -> Machine {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = read("/proc/meminfo");
    let release = read("/etc/os-release");
    Machine {
        processor: processor_name(&read("/proc/cpuinfo")),
        processors: u32::try_from(processors).unwrap_or(u32::MAX),
        memory_bytes: proc_fs::kibibytes_after(&memory, "MemTotal:").unwrap_or(0),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        system: system_name(&release),
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn processor_name(text: &str) -> String {
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line
        .and_then(|line| line.split_once(':'))
        .map(|(_, name)| name.trim());
    name.unwrap_or("unknown").to_owned()
}

fn system_name(text: &str) -> String {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.unwrap_or("unknown").trim_matches('"').to_owned()
}

/// A moment as RFC 3339, in UTC.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let (year, month, day) = date(seconds / SECONDS_PER_DAY);
    let of_day = seconds % SECONDS_PER_DAY;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a number of days since 1970, counted off: the benchmark asks once.
fn date(mut days: u64) -> (u64, usize, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn known_moments() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_702_743_657, "2023-12-16T16:20:57Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn this_machine_has_facts() {
        let machine = facts();
        assert!(machine.processors >= 1 && machine.memory_bytes > 1 << 20);
        assert!(!machine.kernel.is_empty());
        assert_eq!(
            processor_name("a: b\nmodel name\t: X 5 @ 2GHz\n"),
            "X 5 @ 2GHz"
        );
        assert_eq!(system_name("NAME=a\nPRETTY_NAME=\"D 12\"\n"), "D 12");
    }
}
