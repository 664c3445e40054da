//! How the text of another program's option becomes the text of one of ours.

use crate::options::parse_flag;

/// What came of a conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Converted {
    /// Our option gets this text. It may still be out of range.
    Text(String),
    /// Our default is what is meant.
    Default,
    /// The text is not what the program accepts; this is what would be.
    Wrong(&'static str),
}

/// Converts the text of an option.
pub(crate) type Convert = fn(&str) -> Converted;

/// Nothing to convert.
pub(super) fn same(text: &str) -> Converted {
    Converted::Text(text.to_owned())
}

/// Text where an empty one means that there is none.
pub(super) fn nonempty(text: &str) -> Converted {
    if text.is_empty() {
        Converted::Default
    } else {
        same(text)
    }
}

/// A number of seconds.
pub(super) fn seconds(text: &str) -> Converted {
    with_unit(text, "s")
}

/// A number of milliseconds.
pub(super) fn milliseconds(text: &str) -> Converted {
    with_unit(text, "ms")
}

fn with_unit(text: &str, unit: &str) -> Converted {
    match text.parse::<u64>() {
        Ok(number) => Converted::Text(format!("{number}{unit}")),
        Err(_) => Converted::Wrong("a whole number"),
    }
}

/// Seconds, where -1 or 0 means that the option does not apply.
pub(super) fn seconds_if_positive(text: &str) -> Converted {
    match text {
        "-1" | "0" => Converted::Default,
        _ => seconds(text),
    }
}

/// A switch: the text of our option where it is on and where it is off, none for our default.
fn switched(text: &str, on: Option<&str>, off: Option<&str>) -> Converted {
    match parse_flag(text) {
        Some(flag) => (if flag { on } else { off }).map_or(Converted::Default, same),
        None => Converted::Wrong("true or false"),
    }
}

/// A switch that means the opposite of ours.
pub(super) fn inverted(text: &str) -> Converted {
    switched(text, Some("off"), Some("on"))
}

/// A switch that allows renaming directories at all.
pub(super) fn rename_directories(text: &str) -> Converted {
    switched(text, None, Some("0"))
}

/// A switch that turns checksums on.
pub(super) fn checksum(text: &str) -> Converted {
    switched(text, Some("auto"), Some("off"))
}

/// A switch that puts the bucket into the path.
pub(super) fn path_style(text: &str) -> Converted {
    switched(text, Some("path"), None)
}

/// A switch for more messages.
pub(super) fn debug_log(text: &str) -> Converted {
    switched(text, Some("debug"), None)
}

/// The log levels of ossfs 1.x.
pub(super) fn ossfs_level(text: &str) -> Converted {
    let level = match text.to_ascii_lowercase().as_str() {
        "silent" | "critical" | "crit" | "error" | "err" => "error",
        "wan" | "warn" | "warning" => "warn",
        "inf" | "info" | "information" => "info",
        "dbg" | "debug" => "debug",
        _ => return Converted::Wrong("one of crit, err, warn, info, dbg"),
    };
    same(level)
}

/// A number of mebibytes within a range.
fn mebibytes_within(text: &str, least: u64, most: u64, valid: &'static str) -> Converted {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Converted::Text(format!("{number}MiB")),
        _ => Converted::Wrong(valid),
    }
}

/// The size of parts of ossfs 1.x.
pub(super) fn ossfs_part_size(text: &str) -> Converted {
    mebibytes_within(text, 5, 5 << 10, "a whole number of MiB from 5 to 5120")
}

/// The size from which on ossfs 1.x uploads in parts.
pub(super) fn ossfs_part_threshold(text: &str) -> Converted {
    mebibytes_within(text, 6, u64::MAX >> 20, "a whole number of MiB above 5")
}

/// What ossfs 1.x may hold that is not sent; -1 for no limit.
pub(super) fn ossfs_dirty_data(text: &str) -> Converted {
    match text {
        "-1" => same("1TiB"),
        _ => mebibytes_within(text, 50, 1 << 20, "-1 or a whole number of MiB from 50"),
    }
}

/// The size of chunks that ossfs 1.x reads ahead.
pub(super) fn ossfs_chunk_size(text: &str) -> Converted {
    mebibytes_within(text, 1, 32, "a whole number of MiB from 1 to 32")
}

/// What ossfs 1.x may read ahead.
pub(super) fn ossfs_prefetch_limit(text: &str) -> Converted {
    mebibytes_within(text, 128, u64::MAX >> 20, "a whole number of MiB from 128")
}

/// How many parts are read ahead; more than any memory holds is no limit.
pub(super) fn ossfs_prefetch_chunks(text: &str) -> Converted {
    match text.parse::<u64>() {
        Ok(parts) => same(&parts.min(1 << 20).to_string()),
        Err(_) => Converted::Wrong("a whole number"),
    }
}

/// A plain number.
pub(super) fn count(text: &str) -> Converted {
    match text.parse::<u64>() {
        Ok(_) => same(text),
        Err(_) => Converted::Wrong("a whole number"),
    }
}

/// How many attributes are remembered; none at all is a matter of time for us.
pub(super) fn ossfs_stat_cache_size(text: &str) -> Converted {
    match count(text) {
        Converted::Text(number) if number == "0" => Converted::Default,
        converted => converted,
    }
}

/// A limit of bandwidth per request as OSS takes it, in bits per second; 0 for none.
pub(super) fn traffic_limit(text: &str) -> Converted {
    match text.parse::<u64>() {
        Ok(0) => Converted::Default,
        Ok(819_200..=838_860_800) => same(text),
        _ => Converted::Wrong("0 or bits per second from 819200 to 838860800"),
    }
}

fn one_of(text: &str, words: &[&str], valid: &'static str) -> Converted {
    match words.iter().find(|word| word.eq_ignore_ascii_case(text)) {
        Some(word) => same(word),
        None => Converted::Wrong(valid),
    }
}

/// The storage classes of OSS.
pub(super) fn oss_storage_class(text: &str) -> Converted {
    const CLASSES: [&str; 5] = [
        "Standard",
        "IA",
        "Archive",
        "ColdArchive",
        "DeepColdArchive",
    ];
    const VALID: &str = "one of Standard, IA, Archive, ColdArchive, DeepColdArchive";
    one_of(text, &CLASSES, VALID)
}

/// The access rules of new objects in OSS.
pub(super) fn oss_acl(text: &str) -> Converted {
    const RULES: [&str; 4] = ["default", "private", "public-read", "public-read-write"];
    const VALID: &str = "one of default, private, public-read, public-read-write";
    one_of(text, &RULES, VALID)
}

/// Encryption as ossfs 1.x spells it: `1`, `kms`, `kmsid:ID`, `k:ID`, `kmsid`.
pub(super) fn ossfs_encryption(text: &str) -> Converted {
    match text {
        "true" | "1" => same("1"),
        "kms" | "kmsid" => same(text),
        "k" => same("kmsid"),
        _ => {
            let id = text.strip_prefix("kmsid:").or(text.strip_prefix("k:"));
            match id {
                Some(id) if !id.is_empty() => Converted::Text(format!("kmsid:{id}")),
                _ => Converted::Wrong("1, kms, kmsid or kmsid:ID"),
            }
        }
    }
}

/// Seconds with decimals, as the FUSE library takes them.
pub(super) fn decimal_seconds(text: &str) -> Converted {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => {
            Converted::Text(format!("{}ms", (seconds * 1000.0) as u64))
        }
        _ => Converted::Wrong("seconds from 0 to 86400"),
    }
}

/// A umask as the permissions that it leaves of 0777.
pub(super) fn from_umask(text: &str) -> Converted {
    match u16::from_str_radix(text, 8) {
        Ok(mask) if mask <= 0o777 => Converted::Text(format!("{:04o}", 0o777 & !mask)),
        _ => Converted::Wrong("an octal mask from 0 to 777"),
    }
}

/// An octal mask of permissions.
pub(super) fn octal_mask(text: &str) -> Converted {
    match from_umask(text) {
        Converted::Text(_) => same(text),
        wrong => wrong,
    }
}

/// The endpoint of ossfs 1.x: HTTP when no scheme is given.
pub(super) fn endpoint_http(text: &str) -> Converted {
    let text = text.trim_end_matches('/');
    if text.contains("://") {
        same(text)
    } else {
        Converted::Text(format!("http://{text}"))
    }
}

/// The memory limit of ossfs 2: 0 leaves it open, and less than 256 MiB is raised to that.
pub(super) fn ossfs2_memory(text: &str) -> Converted {
    const AT_LEAST: u64 = 256 << 20;
    match text.parse::<penstock_base::ByteSize>() {
        Ok(size) if size.0 == 0 => Converted::Default,
        Ok(size) => Converted::Text(size.0.max(AT_LEAST).to_string()),
        Err(_) => Converted::Wrong("a size such as 2G"),
    }
}

/// A part size of ossfs 2: rounded up to whole mebibytes.
pub(super) fn part_size(text: &str) -> Converted {
    const MIB: u64 = 1 << 20;
    match text.parse::<penstock_base::ByteSize>() {
        Ok(size) => Converted::Text(size.0.div_ceil(MIB).saturating_mul(MIB).to_string()),
        Err(_) => Converted::Wrong("a size in bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Convert; 28] = [
        same,
        nonempty,
        seconds,
        milliseconds,
        seconds_if_positive,
        inverted,
        rename_directories,
        checksum,
        path_style,
        debug_log,
        ossfs_level,
        from_umask,
        endpoint_http,
        ossfs2_memory,
        part_size,
        ossfs_part_size,
        ossfs_part_threshold,
        ossfs_dirty_data,
        ossfs_chunk_size,
        ossfs_prefetch_limit,
        count,
        ossfs_stat_cache_size,
        traffic_limit,
        oss_storage_class,
        oss_acl,
        ossfs_encryption,
        decimal_seconds,
        octal_mask,
    ];

    fn text(text: &str) -> Converted {
        Converted::Text(text.to_owned())
    }

    #[test]
    fn converts_units_and_meanings() {
        assert_eq!(seconds("60"), text("60s"));
        assert_eq!(seconds("1m"), Converted::Wrong("a whole number"));
        assert_eq!(inverted("true"), text("off"));
        assert_eq!(from_umask("0022"), text("0755"));
        assert_eq!(endpoint_http("oss.example/"), text("http://oss.example"));
        assert_eq!(
            endpoint_http("https://oss.example"),
            text("https://oss.example")
        );
        assert_eq!(ossfs2_memory("100M"), text("268435456"));
        assert_eq!(ossfs2_memory("0"), Converted::Default);
        assert_eq!(part_size("8388609"), text("9437184"));
    }

    #[test]
    fn converts_what_ossfs_1_accepts_and_nothing_else() {
        assert_eq!(ossfs_part_size("30"), text("30MiB"));
        assert!(matches!(ossfs_part_size("4"), Converted::Wrong(_)));
        assert!(matches!(ossfs_part_threshold("5"), Converted::Wrong(_)));
        assert_eq!(ossfs_dirty_data("-1"), text("1TiB"));
        assert!(matches!(ossfs_dirty_data("49"), Converted::Wrong(_)));
        assert!(matches!(ossfs_chunk_size("33"), Converted::Wrong(_)));
        assert_eq!(traffic_limit("0"), Converted::Default);
        assert!(matches!(traffic_limit("8192"), Converted::Wrong(_)));
        assert_eq!(oss_storage_class("ia"), text("IA"));
        assert_eq!(ossfs_encryption("k:id"), text("kmsid:id"));
        assert_eq!(ossfs_encryption("true"), text("1"));
        assert!(matches!(ossfs_encryption("kmsid:"), Converted::Wrong(_)));
        assert_eq!(decimal_seconds("1.5"), text("1500ms"));
    }

    proptest! {
        #[test]
        fn never_panics(text: String) {
            for convert in ALL {
                let _ = convert(&text);
            }
        }
    }
}
