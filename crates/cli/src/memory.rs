//! How much memory a mount takes when nobody says.

use std::{fs, path::Path};

use penstock_base::MIB;

use crate::system;

/// The least that is taken by default.
const DEFAULT_MIN: u64 = 128 * MIB;

/// The most that is taken by default: enough for several streams at full speed.
const DEFAULT_MAX: u64 = 512 * MIB;

/// The part of the memory that is taken by default.
const DEFAULT_DIVISOR: u64 = 4;

/// A quarter of what the machine and the control groups allow, within bounds.
pub(crate) fn default_budget() -> u64 {
    let machine = system::machine_memory();
    let group = group_limit(Path::new("/sys/fs/cgroup"), &own_groups());
    let available = machine.into_iter().chain(group).min();
    budget_of(available.unwrap_or(DEFAULT_MAX * DEFAULT_DIVISOR))
}

fn budget_of(available: u64) -> u64 {
    let quarter = (available / DEFAULT_DIVISOR).clamp(DEFAULT_MIN, DEFAULT_MAX);
    quarter / MIB * MIB
}

fn own_groups() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// The smallest memory limit of the control groups in `groups`, which is in the format of
/// /proc/self/cgroup, and of those above them.
fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let (directory, file, group) = match line.split(':').collect::<Vec<_>>()[..] {
            ["0", "", group] => (root.to_owned(), "memory.max", group),
            [_, controllers, group] if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes", group)
            }
            _ => return Vec::new(),
        };
        let above = Path::new(group.trim_start_matches('/')).ancestors();
        let limit = |group: &Path| read_limit(&directory.join(group).join(file));
        above.filter_map(limit).collect()
    });
    limits.min()
}

/// Reads a limit; `max` and numbers beyond any machine mean that there is none.
fn read_limit(path: &Path) -> Option<u64> {
    const NO_LIMIT: u64 = 1 << 60;
    let text = fs::read_to_string(path).ok()?;
    let limit = text.trim().parse::<u64>().ok()?;
    (limit < NO_LIMIT).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::GIB;

    #[test]
    fn takes_a_quarter_within_bounds() {
        assert_eq!(budget_of(GIB), 256 * MIB);
        assert_eq!(budget_of(100 * MIB), DEFAULT_MIN);
        assert_eq!(budget_of(64 * GIB), DEFAULT_MAX);
    }

    #[test]
    fn the_tightest_group_counts() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let pod = root.path().join("pod");
        let container = pod.join("container");
        fs::create_dir_all(&container).expect("made");
        fs::write(container.join("memory.max"), "max\n").expect("written");
        fs::write(pod.join("memory.max"), "1048576\n").expect("written");
        assert_eq!(
            group_limit(root.path(), "0::/pod/container\n"),
            Some(1_048_576)
        );
        assert_eq!(group_limit(root.path(), "0::/elsewhere\n"), None);
    }

    #[test]
    fn the_first_version_of_control_groups_is_understood() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let group = root.path().join("memory/a");
        fs::create_dir_all(&group).expect("made");
        fs::write(group.join("memory.limit_in_bytes"), "4096\n").expect("written");
        assert_eq!(
            group_limit(root.path(), "3:cpu,memory:/a\n2:cpuset:/b\n"),
            Some(4096)
        );
    }
}
