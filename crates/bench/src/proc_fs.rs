//! What the kernel tells about processes, processors, mounts and the machine under /proc.

use std::{
    collections::BTreeMap, fs, io::Read, os::unix::fs::MetadataExt, path::Path, time::Duration,
};

use penstock_base::mount_table::{self, MountEntry};
use rustix::param::clock_ticks_per_second;

use crate::{record::Machine, system};

/// Bytes of a process's environment that are looked at.
const ENVIRONMENT_MAX: u64 = 64 << 10;
/// Where FUSE connections are controlled.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// Bytes in a block of `st_blocks`.
pub(crate) const BLOCK: u64 = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) parent: u32,
    pub(crate) is_zombie: bool,
    /// Processor time of children that ended and were waited for.
    pub(crate) children: Duration,
    /// Ticks since the machine started; with the id it names a process for good.
    pub(crate) start: u64,
}

pub(crate) fn process_ids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

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
        children: ticks(number(13)? + number(14)?),
        start: number(19)?,
    })
}

fn ticks(count: u64) -> Duration {
    Duration::from_secs_f64(count as f64 / clock_ticks_per_second() as f64)
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

/// Processor time of a process and of all that descend from it, those that ended included; `None` when there is no such
/// process.
pub(crate) fn family_time(pid: u32) -> Option<Duration> {
    let parents: Vec<(u32, u32)> = process_ids()
        .into_iter()
        .filter_map(|child| Some((child, stat(child)?.parent)))
        .collect();
    let own = |pid| Some(system::processor_time(pid)? + stat(pid)?.children);
    let mut time = own(pid)?;
    let mut family = vec![pid];
    while let Some(member) = family.pop() {
        let children = parents.iter().filter(|(_, parent)| *parent == member);
        for (child, _) in children {
            // One that has just ended is its parent's.
            time += own(*child).unwrap_or_default();
            family.push(*child);
        }
    }
    Some(time)
}

/// Time that a single thread has spent on a processor, exact to the nanosecond.
pub(crate) fn time_on_processor(pid: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let nanoseconds = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// Reads `Name:   123 kB`.
fn kibibytes_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(number * 1024)
}

/// Whether the environment that a process was started with holds a `NAME=VALUE` that begins like this.
pub(crate) fn environment_has(pid: u32, beginning: &str) -> bool {
    let Ok(file) = fs::File::open(format!("/proc/{pid}/environ")) else {
        return false;
    };
    let mut bytes = Vec::new();
    // What cannot be read belongs to somebody else.
    let _ = file.take(ENVIRONMENT_MAX).read_to_end(&mut bytes);
    let mut entries = bytes.split(|byte| *byte == 0);
    entries.any(|entry| entry.starts_with(beginning.as_bytes()))
}

/// Space on disk of files that a process holds open and that have no name any more, by device
/// and inode.
pub(crate) fn unnamed_files(pid: u32, found: &mut BTreeMap<(u64, u64), u64>) {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    for path in entries.flatten().map(|entry| entry.path()) {
        let target = fs::read_link(&path).unwrap_or_default();
        let is_unnamed = target.to_str().is_some_and(|name| {
            name.starts_with('/') && name.ends_with(" (deleted)") && !name.starts_with("/memfd:")
        });
        let file = is_unnamed.then(|| fs::metadata(&path));
        if let Some(Ok(file)) = file.filter(|file| file.as_ref().is_ok_and(fs::Metadata::is_file)) {
            found.insert((file.dev(), file.ino()), file.blocks() * BLOCK);
        }
    }
}

/// Processor time that was used on the whole machine since it started, what the hypervisor gave
/// to others included.
pub(crate) fn machine_busy() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    ticks(parse_busy(&text).unwrap_or(0))
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

/// Ends the FUSE connection of a mount: whoever waits for an answer gets an error.
pub(crate) fn abort(mount: &MountEntry) {
    // A connection is named by the second half of the device number.
    let minor = mount.device.split_once(':').map(|(_, minor)| minor);
    if let Some(minor) = minor.filter(|_| mount.is_fuse()) {
        // Without permission, or when it is gone already, there is nothing more to try.
        let _ = fs::write(format!("{CONNECTIONS}/{minor}/abort"), "1");
    }
}

/// Everything that is mounted at `path`, or below it with `below`, the latest mount first.
pub(crate) fn mounts(path: &Path, below: bool) -> Vec<MountEntry> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let is_wanted = |mount: &MountEntry| {
        mount.mountpoint == path || below && mount.mountpoint.starts_with(path)
    };
    mount_table::parse(&table).rev().filter(is_wanted).collect()
}

pub(crate) fn mount_at(path: &Path) -> Option<MountEntry> {
    mounts(path, false).into_iter().next()
}

pub(crate) fn machine() -> Machine {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    Machine {
        processor: line_of(&read("/proc/cpuinfo"), "model name"),
        processors: u32::try_from(processors).unwrap_or(u32::MAX),
        memory_bytes: kibibytes_after(&read("/proc/meminfo"), "MemTotal:").unwrap_or(0),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        system: line_of(&read("/etc/os-release"), "PRETTY_NAME"),
    }
}

/// The value of a line `NAME: VALUE` or `NAME="VALUE"`.
fn line_of(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|line| line.split_once([':', '=']));
    value
        .map_or("unknown", |(_, value)| value.trim().trim_matches('"'))
        .to_owned()
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
                children: ticks(15),
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
        assert!(!environment_has(pid, "PENSTOCK_BENCH=never"));
        assert!(machine_busy() > Duration::ZERO);
    }

    #[test]
    fn children_are_of_the_family_while_they_run_and_when_they_ended() {
        let script =
            "(i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; read word); echo; read word";
        let mut parent = std::process::Command::new("sh")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a shell");
        let pid = parent.id();
        let time = || family_time(pid).expect("it runs");
        let busy = Duration::from_millis(20);
        let limit = Duration::from_secs(60);
        let seen = system::until(limit, system::LOOK, || (time() > busy).then_some(()));
        assert!(seen.is_some(), "a child that runs");
        let mut input = parent.stdin.take().expect("piped");
        std::io::Write::write_all(&mut input, b"go\n").expect("it reads");
        let mut ended = [0];
        let output = parent.stdout.as_mut().expect("piped");
        output.read_exact(&mut ended).expect("the child has ended");
        assert!(time() > busy, "a child that ended");
        drop(input);
        parent.wait().expect("our own child");
        assert_eq!(family_time(pid), None);
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

    #[test]
    fn the_root_and_what_is_below_it_is_mounted() {
        assert!(!mounts(Path::new("/"), false).is_empty());
        assert!(mounts(Path::new("/"), true).len() > 1);
        assert!(mount_at(Path::new("/no/such/place")).is_none());
    }

    #[test]
    fn this_machine_has_facts() {
        let machine = machine();
        assert!(machine.processors >= 1 && machine.memory_bytes > 1 << 20);
        assert!(!machine.kernel.is_empty());
        assert_eq!(
            line_of("a: b\nmodel name\t: X 5 @ 2GHz\n", "model name"),
            "X 5 @ 2GHz"
        );
        assert_eq!(
            line_of("NAME=a\nPRETTY_NAME=\"D 12\"\n", "PRETTY_NAME"),
            "D 12"
        );
    }
}
