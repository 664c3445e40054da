//! The system's mount table. Reading it touches no mount, so it works when a mount hangs.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableEntry {
    /// The number of the mount, which no other has as long as it is there.
    pub(super) id: u64,
    /// `major:minor`.
    pub(super) device: String,
    /// The file system type, such as `fuse.penstock`.
    pub(super) kind: String,
    /// What is mounted.
    pub(super) source: String,
}

impl TableEntry {
    /// Whether this program mounted it.
    pub(super) fn is_ours(&self) -> bool {
        self.kind == "fuse.penstock"
    }

    pub(super) fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind == "fuseblk" || self.kind.starts_with("fuse.")
    }
}

/// The uppermost mount at `place`, an absolute path without symbolic links.
pub(super) fn entry_at(place: &Path) -> Option<TableEntry> {
    let table = fs::read("/proc/self/mountinfo").ok()?;
    find(&table, place)
}

fn find(table: &[u8], place: &Path) -> Option<TableEntry> {
    table
        .split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .filter(|(path, _)| path.as_bytes() == place.as_os_str().as_bytes())
        .map(|(_, entry)| entry)
        .next_back()
}

/// A line has six fields, optional ones up to a lone `-`, then type and source (proc(5)).
fn parse_line(line: &[u8]) -> Option<(OsString, TableEntry)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = text(fields.next()?).parse().ok()?;
    let device = text(fields.nth(1)?);
    let path = unescape(fields.nth(1)?);
    let mut behind = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = text(behind.next()?);
    let source = text(behind.next()?);
    let entry = TableEntry {
        id,
        device,
        kind,
        source,
    };
    Some((OsString::from_vec(path), entry))
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

/// Undoes the kernel's `\040` for blanks and their like.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\')
            .then(|| tail.get(..3).and_then(octal))
            .flatten();
        plain.push(octal.unwrap_or(first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    plain
}

fn octal(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
        90 22 0:50 / /mnt/a\\040b rw,nosuid shared:7 master:2 - fuse.penstock s3://x rw\n\
        91 22 0:51 / /mnt/a\\040b rw - tmpfs none rw\n";

    #[test]
    fn finds_the_uppermost_mount_of_an_escaped_path() {
        let entry = find(TABLE, Path::new("/mnt/a b")).expect("it is in the table");
        assert_eq!((&entry.device[..], &entry.kind[..]), ("0:51", "tmpfs"));
        assert_eq!(entry.id, 91);
        assert!(!entry.is_fuse());
        assert_eq!(find(TABLE, Path::new("/mnt")), None);
    }

    #[test]
    fn passes_over_optional_fields() {
        let line = TABLE
            .split(|byte| *byte == b'\n')
            .nth(1)
            .expect("three lines");
        let (_, entry) = parse_line(line).expect("well formed");
        assert_eq!((&entry.source[..], entry.is_fuse()), ("s3://x", true));
    }
}
