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

/// A number of mebibytes.
pub(super) fn mebibytes(text: &str) -> Converted {
    with_unit(text, "MiB")
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

/// A switch that means the opposite of ours.
pub(super) fn inverted(text: &str) -> Converted {
    match parse_flag(text) {
        Some(on) => same(if on { "off" } else { "on" }),
        None => Converted::Wrong("true or false"),
    }
}

/// A switch that allows renaming directories at all.
pub(super) fn rename_directories(text: &str) -> Converted {
    match parse_flag(text) {
        Some(true) => Converted::Default,
        Some(false) => same("0"),
        None => Converted::Wrong("true or false"),
    }
}

/// A switch that turns checksums on.
pub(super) fn checksum(text: &str) -> Converted {
    match parse_flag(text) {
        Some(true) => same("auto"),
        Some(false) => same("off"),
        None => Converted::Wrong("true or false"),
    }
}

/// A switch that puts the bucket into the path.
pub(super) fn path_style(text: &str) -> Converted {
    match parse_flag(text) {
        Some(true) => same("path"),
        Some(false) => Converted::Default,
        None => Converted::Wrong("true or false"),
    }
}

/// A switch for more messages.
pub(super) fn debug_log(text: &str) -> Converted {
    match parse_flag(text) {
        Some(true) => same("debug"),
        Some(false) => Converted::Default,
        None => Converted::Wrong("true or false"),
    }
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

/// A umask as the permissions that it leaves of 0777.
pub(super) fn from_umask(text: &str) -> Converted {
    match u16::from_str_radix(text, 8) {
        Ok(mask) if mask <= 0o777 => Converted::Text(format!("{:04o}", 0o777 & !mask)),
        _ => Converted::Wrong("an octal mask from 0 to 777"),
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

    const ALL: [Convert; 16] = [
        same,
        nonempty,
        seconds,
        milliseconds,
        mebibytes,
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

    proptest! {
        #[test]
        fn never_panics(text: String) {
            for convert in ALL {
                let _ = convert(&text);
            }
        }
    }
}
