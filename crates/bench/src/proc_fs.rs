//! What the kernel tells about processes and processors under /proc: reading and parsing only.

use std::{collections::BTreeMap, fs, io::Read, os::unix::fs::MetadataExt, time::Duration};

use crate::system;

/// Bytes of a process's environment that are looked at.
const ENVIRONMENT_MAX: u64 = 64 << 10;
/// Bytes in a block of `st_blocks`.
pub(crate) const BLOCK: u64 = 512;

/// What `/proc/PID/stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) parent: u32,
    pub(crate) is_zombie: bool,
    /// Ticks of children that ended and were waited for.
    pub(crate) children_ticks: u64,
    /// Ticks since the machine started; with the id it names a process for good.
    pub(crate) start: u64,
}

/// Every process that can be seen.
pub(crate) fn process_ids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Reads `/proc/PID/stat`.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name of the program stands in parentheses and may itself contain some.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        is_zombie: *fields.first()? == "Z",
        parent: u32::try_from(number(1)?).ok()?,
        children_ticks: number(13)? + number(14)?,
        start: number(19)?,
    })
}

/// Resident memory now and at its peak, in bytes.
pub(crate) fn resident(pid: u32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some((
        kibibytes_after(&status, "VmRSS:")?,
        kibibytes_after(&status, "VmHWM:")?,
    ))
}

/// Whether this is a thread of the kernel that does work for whoever has some.
pub(crate) fn is_kernel_worker(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    // Only the kernel's own have no program.
    name.starts_with("kworker/") && fs::read_link(format!("/proc/{pid}/exe")).is_err()
}

/// Time that a single thread has spent on a processor, exact to the nanosecond.
pub(crate) fn time_on_processor(pid: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let nanoseconds = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// Reads `Name:   123 kB`.
pub(crate) fn kibibytes_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(number * 1024)
}

/// Whether the environment that a process was started with holds `marker`, a `NAME=VALUE` or the
/// beginning of one.
pub(crate) fn environment_has(pid: u32, marker: &str, exactly: bool) -> bool {
    let Ok(file) = fs::File::open(format!("/proc/{pid}/environ")) else {
        return false;
    };
    let mut bytes = Vec::new();
    // What cannot be read belongs to somebody else.
    let _ = file.take(ENVIRONMENT_MAX).read_to_end(&mut bytes);
    let mut entries = bytes.split(|byte| *byte == 0);
    if exactly {
        return entries.any(|entry| entry == marker.as_bytes());
    }
    entries.any(|entry| entry.starts_with(marker.as_bytes()))
}

/// Space on disk of files that a process holds open and that have no name any more, by device
/// and inode.
pub(crate) fn unnamed_files(pid: u32, found: &mut BTreeMap<(u64, u64), u64>) {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    for entry in entries.flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let is_unnamed = target.to_str().is_some_and(|name| {
            name.starts_with('/') && name.ends_with(" (deleted)") && !name.starts_with("/memfd:")
        });
        let Some(metadata) = is_unnamed
            .then(|| fs::metadata(entry.path()).ok())
            .flatten()
        else {
            continue;
        };
        if metadata.is_file() {
            found.insert((metadata.dev(), metadata.ino()), metadata.blocks() * BLOCK);
        }
    }
}

/// Processor time that was used on the whole machine since it started, what the hypervisor gave
/// to others included.
pub(crate) fn machine_busy() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = parse_busy(&text).unwrap_or(0);
    Duration::from_secs_f64(ticks as f64 / system::ticks_per_second())
}

/// user, nice, system, irq, softirq and steal of the first line; idle and iowait are no use.
fn parse_busy(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line
        .split_ascii_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let busy = [0, 1, 2, 5, 6, 7];
    Some(busy.iter().filter_map(|index| fields.get(*index)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "4242 (a) b) S 17 1 1 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 3 0 987 1 2";

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let stat = parse_stat(LINE).expect("well formed");
        assert_eq!(
            stat,
            Stat {
                parent: 17,
                is_zombie: false,
                children_ticks: 15,
                start: 987
            }
        );
        assert_eq!(parse_stat("4242 (cut"), None);
    }

    #[test]
    fn idle_is_not_busy() {
        let text = "cpu  10 20 30 1000 500 6 7 8 9 10\ncpu0 1 1 1 1\n";
        assert_eq!(parse_busy(text), Some(10 + 20 + 30 + 6 + 7 + 8));
    }

    #[test]
    fn this_process_is_seen() {
        let pid = std::process::id();
        assert!(process_ids().contains(&pid));
        assert!(!stat(pid).expect("it runs").is_zombie);
        let (now, peak) = resident(pid).expect("it runs");
        assert!(now > 100_000 && peak >= now / 2);
        assert!(!environment_has(pid, "PENSTOCK_BENCH=never", true));
        assert!(machine_busy() > Duration::ZERO);
    }

    #[test]
    fn a_file_without_a_name_still_takes_space() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        std::io::Write::write_all(&mut file, &[1; 100_000]).expect("written");
        file.sync_all().expect("synced");
        let mut found = BTreeMap::new();
        unnamed_files(std::process::id(), &mut found);
        assert!(found.values().sum::<u64>() >= 100_000);
    }
}
