//! What is mounted where, from /proc/self/mountinfo.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// One mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountEntry {
    pub mountpoint: PathBuf,
    /// The type, such as `ext4` or `fuse.penstock`.
    pub kind: String,
    pub source: String,
}

/// What is mounted on `mountpoint` itself, topmost.
pub(crate) fn find(mountpoint: &Path) -> Option<MountEntry> {
    let table = fs::read("/proc/self/mountinfo").ok()?;
    let entries = parse(&table);
    entries
        .into_iter()
        .rev()
        .find(|entry| entry.mountpoint == mountpoint)
}

/// Reads the table. Lines that are not understood are passed over.
fn parse(table: &[u8]) -> Vec<MountEntry> {
    table
        .split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .collect()
}

/// A line is `id parent device root mountpoint options [tags] - type source options`.
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut words = line.split(|byte| *byte == b' ');
    let mountpoint = words.nth(4)?;
    words.find(|word| *word == b"-")?;
    let text = |word: &[u8]| String::from_utf8_lossy(&unescape(word)).into_owned();
    Some(MountEntry {
        mountpoint: OsString::from_vec(unescape(mountpoint)).into(),
        kind: text(words.next()?),
        source: text(words.next()?),
    })
}

/// Turns `\040` and its like back into bytes.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, behind)) = rest.split_first() {
        let code = behind.get(..3).filter(|_| *first == b'\\').and_then(octal);
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    bytes
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_mount_points_with_blanks_and_optional_tags() {
        let table = b"36 35 98:0 /root /mnt\\040a rw,noatime shared:1 master:2 - ext4 /dev/x rw\n\
                      37 35 0:50 / /mnt/b rw - fuse.penstock file:///x\\134y rw\n";
        let entries = parse(table);
        assert_eq!(entries[0].mountpoint, Path::new("/mnt a"));
        assert_eq!(entries[0].kind, "ext4");
        assert_eq!(entries[1].source, r"file:///x\y");
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(find(Path::new("/")).is_some());
        assert!(find(Path::new("/no/such/place")).is_none());
    }

    proptest! {
        #[test]
        fn never_panics(table: Vec<u8>) {
            let _ = parse(&table);
        }
    }
}
