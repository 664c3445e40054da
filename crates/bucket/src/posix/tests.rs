use std::time::{Duration, UNIX_EPOCH};

use penstock_object::{ETag, ObjectKind};
use penstock_vfs::SpecialFile;
use proptest::prelude::*;

use super::*;

fn metadata(pairs: &[(&str, &str)]) -> UserMetadata {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn decoded(pairs: &[(&str, &str)]) -> PosixAttributes {
    PosixAttributes::decode(&metadata(pairs))
}

fn info(metadata: UserMetadata, content_type: &str) -> ObjectInfo {
    ObjectInfo {
        size: 0,
        etag: ETag::new("tag"),
        modified: UNIX_EPOCH,
        kind: ObjectKind::Normal,
        storage_class: String::new(),
        content_type: content_type.to_owned(),
        metadata,
        checksum: None,
    }
}

/// The headers that Debian's s3fs sends for a file.
#[test]
fn the_form_of_s3fs_is_read() {
    let attributes = decoded(&[
        ("uid", "12"),
        ("gid", "34"),
        ("mode", "33257"),
        ("mtime", "981173106.123456789"),
        ("atime", "981173106"),
        ("ctime", "1795316891"),
        (
            "xattr",
            "%7B%22user.a%20b/%C3%A9%22%3A%22eA%3D%3D%22%2C%22user.color%22%3A%22Ymx1ZQ%3D%3D%22%7D",
        ),
    ]);
    assert_eq!((attributes.uid, attributes.gid), (Some(12), Some(34)));
    assert_eq!(attributes.mode, Some(0o100_751));
    let modified = UNIX_EPOCH + Duration::new(981_173_106, 123_456_789);
    assert_eq!(attributes.modified, Some(modified));
    let accessed = UNIX_EPOCH + Duration::from_secs(981_173_106);
    assert_eq!(attributes.accessed, Some(accessed));
    let xattr = |name: &str| attributes.xattrs.get(name).map(Vec::as_slice);
    assert_eq!(xattr("user.color"), Some(b"blue".as_slice()));
    assert_eq!(xattr("user.a b/é"), Some(b"x".as_slice()));
}

#[test]
fn the_form_of_s3fs_is_written() {
    let pairs = [
        ("atime", "981173106"),
        ("ctime", "-2.500000000"),
        ("gid", "34"),
        ("mode", "33257"),
        ("mtime", "981173106.000000789"),
        ("uid", "12"),
        ("xattr", "%7B%22user.a%20b/%C3%A9%22%3A%22eA%3D%3D%22%7D"),
    ];
    let mut written = UserMetadata::new();
    decoded(&pairs).encode(&mut written);
    assert_eq!(written, metadata(&pairs));
}

#[test]
fn modes_of_rclone_are_octal_and_those_of_s3fs_decimal() {
    let cases = [
        ("33188", Some(0o100_644)),
        ("16841", Some(0o040_711)),
        ("41471", Some(0o120_777)),
        // s3fs makes directories without type bits.
        ("493", Some(0o755)),
        ("4516", Some(0o010_644)),
        ("100644", Some(0o100_644)),
        ("40755", Some(0o040_755)),
        ("41777", Some(0o041_777)),
        ("120777", Some(0o120_777)),
        ("70000", None),
        ("-1", None),
        ("rw", None),
        ("", None),
    ];
    for (text, expected) in cases {
        assert_eq!(decoded(&[("mode", text)]).mode, expected, "{text}");
    }
}

#[test]
fn times_of_rclone_are_read() {
    let at = |seconds, nanos| Some(UNIX_EPOCH + Duration::new(seconds, nanos));
    let cases = [
        ("1.5", at(1, 500_000_000)),
        ("1.1234567891234", at(1, 123_456_789)),
        ("1.", at(1, 0)),
        ("2001-02-03T04:05:06.5Z", at(981_173_106, 500_000_000)),
        ("2001-02-03T06:05:06+02:00", at(981_173_106, 0)),
        ("2000-02-29T00:00:00-00:30", at(951_784_200, 0)),
        ("2001-13-03T04:05:06Z", None),
        ("2001-02-03T04:05:06", None),
        ("T", None),
        ("1.-5", None),
        ("99999999999999999999", None),
        ("", None),
    ];
    for (text, expected) in cases {
        assert_eq!(decoded(&[("mtime", text)]).modified, expected, "{text}");
    }
}

#[test]
fn other_forms_are_read_where_the_own_one_is_missing() {
    let foreign = [
        ("owner", "1"),
        ("group", "2"),
        ("permissions", "420"),
        ("goog-reserved-posix-uid", "3"),
        ("goog-reserved-file-mtime", "7"),
    ];
    let attributes = decoded(&foreign);
    assert_eq!((attributes.uid, attributes.gid), (Some(1), Some(2)));
    assert_eq!(attributes.mode, Some(0o644));
    assert_eq!(
        attributes.modified,
        Some(UNIX_EPOCH + Duration::from_secs(7))
    );
    let google = decoded(&[("goog-reserved-posix-mode", "100640")]);
    assert_eq!(google.mode, Some(0o100_640));
    let both = decoded(&[("owner", "1"), ("uid", "5")]);
    assert_eq!(both.uid, Some(5));
    assert_eq!(decoded(&[("uid", "five"), ("owner", "1")]).uid, Some(1));
}

#[test]
fn links_in_metadata_are_read() {
    let link = |text| decoded(&[("symlink-target", text)]).link;
    let header = |target: &str| Some(LinkTarget::Header(target.to_owned()));
    assert_eq!(link("header:8:..%2Fa%20b"), header("../a b"));
    assert_eq!(link("header:1:a"), header("a"));
    assert_eq!(link("body:0:"), Some(LinkTarget::Body));
    for text in ["header:0:", "header", "other:1:a", "header:3:a%00b", ""] {
        assert_eq!(link(text), None, "{text}");
    }
    assert_eq!(LinkTarget::new(&"x".repeat(3000)), LinkTarget::Body);
    assert_eq!(
        decoded(&[("symlink-target", "body:0:")]).kind(),
        Some(FileKind::Symlink)
    );
}

#[test]
fn pipes_sockets_and_devices_are_told_by_their_mode() {
    let kind = |mode: u32| decoded(&[("mode", &mode.to_string()), ("rdev", "103")]).kind();
    let special = |special| Some(FileKind::Special(special));
    let device = Device(0x103);
    assert_eq!(kind(0o010_644), special(SpecialFile::Pipe));
    assert_eq!(kind(0o140_755), special(SpecialFile::Socket));
    let character = special(SpecialFile::CharacterDevice(device));
    assert_eq!(kind(0o020_600), character);
    assert_eq!(kind(0o060_600), special(SpecialFile::BlockDevice(device)));
    // s3fs and ossfs do not say which device it is.
    let unknown = decoded(&[("mode", "8576")]).kind();
    assert_eq!(unknown, special(SpecialFile::CharacterDevice(Device(0))));
}

#[test]
fn what_nobody_here_knows_survives_a_rewrite() {
    let pairs = [("colour", "blue"), ("md5chksum", "abc"), ("owner", "7")];
    let kept = KeptMetadata::of(&info(metadata(&pairs), "text/plain"));
    let expected = metadata(&[("colour", "blue"), ("md5chksum", "abc"), ("uid", "7")]);
    assert_eq!(kept.metadata(), expected);
    assert_eq!(kept.content_type().as_deref(), Some("text/plain"));
}

#[test]
fn objects_mark_directories_by_mode_or_type() {
    let marks = |pairs: &[(&str, &str)], content_type, size| {
        KeptMetadata::of(&info(metadata(pairs), content_type)).marks_directory(size)
    };
    assert!(marks(&[], "application/x-directory", 0));
    assert!(marks(&[], "httpd/unix-directory; charset=UTF-8", 0));
    assert!(!marks(&[], "application/x-directory", 1));
    assert!(!marks(&[], "application/octet-stream", 0));
    assert!(marks(&[("mode", "16877")], "binary/octet-stream", 0));
    assert!(!marks(&[("mode", "33188")], "application/x-directory", 0));
    // Without type bits the media type decides.
    assert!(marks(&[("mode", "493")], "application/x-directory", 0));
}

#[test]
fn privileges_are_dropped_as_a_kernel_does() {
    let dropped = |mode| {
        let mut attributes = PosixAttributes {
            mode: Some(mode),
            ..PosixAttributes::default()
        };
        attributes.drop_privileges();
        attributes.mode
    };
    assert_eq!(dropped(0o106_755), Some(0o100_755));
    assert_eq!(dropped(0o106_744), Some(0o102_744));
    assert_eq!(dropped(0o042_775), Some(0o042_775));
}

fn times() -> impl Strategy<Value = SystemTime> {
    (-4_000_000_000_i64..40_000_000_000, 0_u32..1_000_000_000).prop_map(|(seconds, nanos)| {
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let start = if seconds < 0 {
            UNIX_EPOCH - whole
        } else {
            UNIX_EPOCH + whole
        };
        start + Duration::from_nanos(nanos.into())
    })
}

fn kinds() -> impl Strategy<Value = FileKind> {
    prop_oneof![
        Just(FileKind::Regular),
        Just(FileKind::Special(SpecialFile::Pipe)),
        any::<u32>()
            .prop_map(|device| { FileKind::Special(SpecialFile::CharacterDevice(Device(device))) }),
    ]
}

prop_compose! {
    fn attributes()(
        uid in any::<Option<u32>>(),
        gid in any::<Option<u32>>(),
        permissions in prop::option::of(0_u32..0o7777),
        modified in prop::option::of(times()),
        accessed in prop::option::of(times()),
        changed in prop::option::of(times()),
        xattrs in prop::collection::btree_map("\\PC{1,20}", prop::collection::vec(any::<u8>(), 0..40), 0..4),
        kind in kinds(),
        target in prop::option::of("[^\\x00]{1,30}"),
    ) -> PosixAttributes {
        let link = target.as_deref().map(LinkTarget::new);
        let kind = if link.is_some() { FileKind::Symlink } else { kind };
        let permissions = permissions.map(|mode| if link.is_some() { 0o777 } else { mode });
        let device = match kind {
            FileKind::Special(SpecialFile::CharacterDevice(device)) => Some(device),
            _ => None,
        };
        PosixAttributes {
            uid,
            gid,
            mode: permissions.map(|mode| type_of(kind) | mode),
            device,
            modified,
            accessed,
            changed,
            xattrs,
            link,
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(attributes in attributes()) {
        let mut written = UserMetadata::new();
        attributes.encode(&mut written);
        for value in written.values() {
            prop_assert!(value.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{value}");
        }
        let read = PosixAttributes::decode(&written);
        prop_assert_eq!(read.kind(), attributes.kind());
        prop_assert_eq!(read, attributes);
    }

    #[test]
    fn nothing_that_is_read_panics(
        name in prop::sample::select([OWN_NAMES.as_slice(), FOREIGN_NAMES.as_slice()].concat()),
        value in prop_oneof!["\\PC{0,60}", "[-0-9.:TZ+%{}\"a-z]{0,40}", ".{0,20}"],
    ) {
        let mut written = UserMetadata::new();
        decoded(&[(name, &value)]).encode(&mut written);
    }
}
