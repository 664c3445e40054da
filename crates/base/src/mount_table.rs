//! What is mounted where, as the kernel writes it in `/proc/self/mountinfo` (proc(5)). Reading that
//! touches no mount, so it works when one hangs.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// Where the kernel shows it.
const TABLE: &str = "/proc/self/mountinfo";

/// The table as it is now. Fails where that is not known, which is not the same as nothing.
pub fn read() -> io::Result<Vec<u8>> {
    fs::read(TABLE)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot read {TABLE}: {error}")))
}

/// One mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// The number of the mount, which no other has as long as it is there.
    pub id: u64,
    /// `major:minor`.
    pub device: String,
    /// Which directory of the file system that is; `/` unless another one was bound there.
    pub root: PathBuf,
    /// Where it is.
    pub mountpoint: PathBuf,
    /// The type, such as `ext4` or `fuse.penstock`.
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// The number of the user who mounted it, where a FUSE daemon serves it.
    pub user: Option<u32>,
}

impl MountEntry {
    /// Whether it is one that this program serves through FUSE, alive or dead.
    pub fn is_ours(&self) -> bool {
        self.kind == "fuse.penstock"
    }

    /// Whether a FUSE daemon serves it.
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind == "fuseblk" || self.kind.starts_with("fuse.")
    }
}

/// Reads the table, in which later mounts lie over earlier ones. Lines that are not understood are
/// passed over.
pub fn parse(table: &[u8]) -> impl DoubleEndedIterator<Item = MountEntry> {
    table.split(|byte| *byte == b'\n').filter_map(parse_line)
}

/// The uppermost mount at `place`, an absolute path without symbolic links.
pub fn find(table: &[u8], place: &Path) -> Option<MountEntry> {
    parse(table).rfind(|entry| entry.mountpoint == place)
}

/// A line has six fields, optional ones up to a lone `-`, then type, source and options.
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = text(fields.next()?).parse().ok()?;
    let device = text(fields.nth(1)?);
    let root = OsString::from_vec(unescape(fields.next()?)).into();
    let mountpoint = OsString::from_vec(unescape(fields.next()?)).into();
    fields.find(|field| *field == b"-")?;
    Some(MountEntry {
        id,
        device,
        root,
        mountpoint,
        kind: text(fields.next()?),
        source: text(fields.next()?),
        user: fields.next().and_then(user),
    })
}

/// Reads `user_id=N` among options.
fn user(options: &[u8]) -> Option<u32> {
    let mut options = options.split(|byte| *byte == b',');
    let number = options.find_map(|option| option.strip_prefix(b"user_id="))?;
    text(number).parse().ok()
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
    use proptest::prelude::*;

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
        let entry = parse(TABLE).nth(1).expect("three lines");
        assert_eq!((&entry.source[..], entry.is_fuse()), ("s3://x", true));
        assert!(entry.is_ours());
        assert_eq!(entry.user, None);
    }

    #[test]
    fn reads_mount_points_with_blanks_and_optional_tags() {
        let table = b"36 35 98:0 /root /mnt\\040a rw,noatime shared:1 master:2 - ext4 /dev/x rw\n\
                      37 35 0:50 / /mnt/b rw - fuse.penstock file:///x\\134y rw\n";
        let entries: Vec<_> = parse(table).collect();
        assert_eq!(entries[0].mountpoint, Path::new("/mnt a"));
        assert_eq!(entries[0].root, Path::new("/root"));
        assert_eq!(entries[0].kind, "ext4");
        assert_eq!(entries[1].source, r"file:///x\y");
    }

    #[test]
    fn a_line_is_read_with_its_blanks() {
        let line = br"36 35 0:45 / /tmp/a\040b rw,nosuid shared:1 - fuse.s3fs s3fs rw,user_id=0";
        assert_eq!(
            parse(line).next(),
            Some(MountEntry {
                id: 36,
                device: "0:45".to_owned(),
                root: "/".into(),
                mountpoint: "/tmp/a b".into(),
                kind: "fuse.s3fs".to_owned(),
                source: "s3fs".to_owned(),
                user: Some(0),
            })
        );
    }

    #[test]
    fn nonsense_is_no_mount() {
        assert_eq!(parse(b"nonsense").next(), None);
    }

    proptest! {
        #[test]
        fn never_panics(table: Vec<u8>) {
            parse(&table).for_each(drop);
        }
    }
}
