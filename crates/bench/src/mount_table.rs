//! What is mounted where, as the kernel says it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where FUSE connections are controlled.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The second half of the device number, by which a FUSE connection is named.
    pub(crate) minor: u32,
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Its type: `fuse.s3fs`, `ext4`, ...
    pub(crate) kind: String,
}

impl Mount {
    /// Ends the FUSE connection: whoever waits for an answer gets an error.
    pub(crate) fn abort(&self) {
        if self.kind.starts_with("fuse") {
            // Without permission, or when it is gone already, there is nothing more to try.
            let _ = fs::write(format!("{CONNECTIONS}/{}/abort", self.minor), "1");
        }
    }
}

/// Everything that is mounted at `path`, or below it with `below`, the latest mount first.
pub(crate) fn mounts(path: &Path, below: bool) -> Vec<Mount> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found: Vec<_> = table
        .lines()
        .filter_map(parse)
        .filter(|mount| mount.path == path || below && mount.path.starts_with(path))
        .collect();
    found.reverse();
    found
}

/// The mount that is seen at `path`.
pub(crate) fn mount_at(path: &Path) -> Option<Mount> {
    mounts(path, false).into_iter().next()
}

/// Reads a line of mountinfo: `36 35 0:45 / /mnt rw,noatime - fuse.s3fs s3fs rw`.
fn parse(line: &str) -> Option<Mount> {
    let (head, tail) = line.split_once(" - ")?;
    let mut fields = head.split(' ');
    let device = fields.nth(2)?;
    let path = fields.nth(1)?;
    Some(Mount {
        minor: device.split_once(':')?.1.parse().ok()?,
        path: PathBuf::from(unescape(path)),
        kind: tail.split(' ').next()?.to_owned(),
    })
}

/// Blanks and a few others are written as `\040`.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_with_its_blanks() {
        let line = r"36 35 0:45 / /tmp/a\040b rw,nosuid shared:1 - fuse.s3fs s3fs rw,user_id=0";
        assert_eq!(
            parse(line),
            Some(Mount {
                minor: 45,
                path: PathBuf::from("/tmp/a b"),
                kind: "fuse.s3fs".to_owned()
            })
        );
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn the_root_and_what_is_below_it_is_mounted() {
        assert!(!mounts(Path::new("/"), false).is_empty());
        assert!(mounts(Path::new("/"), true).len() > 1);
        assert!(mount_at(Path::new("/no/such/place")).is_none());
    }
}
