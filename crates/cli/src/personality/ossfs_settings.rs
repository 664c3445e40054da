//! What settings of ossfs 1.91 come to that do not map one to one.

use std::path::Path;

use super::{
    collector::Collector,
    convert::{self, Converted},
};
use crate::{
    failure::{Failure, Outcome},
    options::table,
};

/// The longest that attributes can be believed here.
const ATTR_SECONDS_MAX: u64 = 24 * 3600;

/// The longest that a connection can be waited for here.
const CONNECT_SECONDS_MAX: u64 = 60;

/// What the program waits for a connection when nobody says otherwise.
const CONNECT_SECONDS_DEFAULT: u64 = 300;

const MIB: u64 = 1 << 20;

/// Gives our options what the settings ask for. `profile` is that of the command line.
pub(super) fn place(collector: &mut Collector, bucket: &str, profile: Option<&str>) -> Outcome {
    let profile = profile.or(collector.own("profile")).map(str::to_owned);
    place_profile(collector, profile.as_deref())?;
    place_signature(collector);
    place_credentials(collector);
    place_freshness(collector)?;
    place_modes(collector)?;
    place_xattr(collector);
    place_cache(collector, bucket)?;
    place_connect_timeout(collector)
}

/// The defaults of another build.
fn place_profile(collector: &mut Collector, profile: Option<&str>) -> Outcome {
    match profile {
        None => Ok(()),
        Some("ack") => {
            collector.default(&table::PART_SIZE, "30MiB");
            collector.default(&table::UPLOAD_CONCURRENCY, "20");
            collector.default(&table::LOG_LEVEL, "warn");
            Ok(())
        }
        Some(other) => Err(Failure::usage(
            format!("there is no profile `{other}`"),
            "`ack` is the only one: the defaults of the build for container services",
        )),
    }
}

fn place_signature(collector: &mut Collector) {
    for (name, version) in [("sigv1", "v1"), ("sigv4", "v4")] {
        if collector.own_switch(name) {
            collector.set(&table::SIGNATURE, name, version);
        }
    }
}

/// Credentials are looked for where the program looks, and nowhere else.
fn place_credentials(collector: &mut Collector) {
    match collector.own("ram_role").map(str::to_owned) {
        Some(role) if role == "true" => collector.set(&table::RAM_ROLE, "ram_role", "auto"),
        Some(role) => collector.set(&table::RAM_ROLE, "ram_role", &role),
        None => {}
    }
    let order = if collector.has(&table::CREDENTIAL_PROCESS) {
        "process"
    } else if collector.has(&table::PASSWORD_FILE) {
        "password-file"
    } else {
        "fixed:environment:usual-password-files"
    };
    collector.default(&table::CREDENTIAL_ORDER, order);
}

fn place_freshness(collector: &mut Collector) -> Outcome {
    for name in ["stat_cache_expire", "stat_cache_interval_expire"] {
        let Some(text) = collector.own(name).map(str::to_owned) else {
            continue;
        };
        let seconds = match text.as_str() {
            "-1" => u64::MAX,
            text => number(name, text)?,
        };
        if seconds > ATTR_SECONDS_MAX {
            collector.pass_over(name, "a day is the longest that attributes are believed");
        }
        let text = format!("{}s", seconds.min(ATTR_SECONDS_MAX));
        collector.set(&table::ATTR_TIMEOUT, name, &text);
        if name == "stat_cache_interval_expire" {
            collector.set(&table::STAT_CACHE_INTERVAL_EXPIRE, name, &text);
        }
    }
    if collector.own_switch("disable_noobj_cache") {
        collector.set(&table::NEGATIVE_TIMEOUT, "disable_noobj_cache", "0s");
    }
    if collector.own("max_stat_cache_size") == Some("0") {
        collector.set(&table::ATTR_TIMEOUT, "max_stat_cache_size", "0s");
        collector.set(&table::NEGATIVE_TIMEOUT, "max_stat_cache_size", "0s");
    }
    Ok(())
}

fn place_modes(collector: &mut Collector) -> Outcome {
    // Where files keep modes of their own, those without one look as they do there, and the mount
    // point lets in whoever may use it.
    collector.default(&table::FILE_MODE, "0640");
    collector.default(&table::DIR_MODE, "0750");
    if collector.own_switch("allow_other") {
        collector.default(&table::MP_UMASK, "0000");
    }
    let Some(mask) = collector.own("umask").map(str::to_owned) else {
        return Ok(());
    };
    let Converted::Text(mode) = convert::from_umask(&mask) else {
        return Err(Failure::usage(
            format!("`umask` cannot be `{mask}`"),
            "it must be an octal mask from 0 to 777",
        ));
    };
    collector.set(&table::UMASK, "umask", &mask);
    collector.set(&table::FILE_MODE, "umask", &mode);
    collector.set(&table::DIR_MODE, "umask", &mode);
    Ok(())
}

/// The program keeps extended attributes only for who asks.
fn place_xattr(collector: &mut Collector) {
    if collector.own_switch("use_xattr") {
        collector.set(&table::USE_XATTR, "use_xattr", "on");
    } else {
        collector.default(&table::USE_XATTR, "off");
    }
}

/// The cache lies in a directory for the bucket, as that of the program does, but in one of its own:
/// neither reads the other's files.
fn place_cache(collector: &mut Collector, bucket: &str) -> Outcome {
    let Some(directory) = collector.own("use_cache").map(str::to_owned) else {
        warn_without_cache(collector);
        return Ok(());
    };
    if collector.own_switch("direct_read") {
        collector.pass_over("use_cache", "direct_read reads without a disk");
        return Ok(());
    }
    if collector.own_switch("check_cache_dir_exist") && !Path::new(&directory).is_dir() {
        return Err(Failure::usage(
            format!("`use_cache` names `{directory}`, where there is no directory"),
            "create it, or leave `check_cache_dir_exist` out",
        ));
    }
    let name = bucket.trim_end_matches('/').replace([':', '/'], "-");
    let place = format!("{}/{name}.penstock", directory.trim_end_matches('/'));
    collector.set(&table::CACHE_DIR, "use_cache", &place);
    if collector.own_switch("del_cache") {
        collector.set(&table::CACHE_DISCARD, "del_cache", "on");
    }
    place_free_space(collector)
}

/// Settings that only a cache obeys.
fn warn_without_cache(collector: &mut Collector) {
    for name in [
        "check_cache_dir_exist",
        "del_cache",
        "ensure_diskfree",
        "free_space_ratio",
    ] {
        if collector
            .own(name)
            .is_some_and(|text| text != "0" && text != "false")
        {
            collector.pass_over(name, "there is no use_cache");
        }
    }
}

/// Whoever says what must stay free means no more than that.
fn place_free_space(collector: &mut Collector) -> Outcome {
    if let Some(text) = collector.own("ensure_diskfree").map(str::to_owned) {
        let part = match collector.own("multipart_size") {
            Some(text) => number("multipart_size", text)?,
            None => 10,
        };
        let bytes = number("ensure_diskfree", &text)?.max(part) * MIB;
        collector.set(
            &table::CACHE_FREE_SPACE,
            "ensure_diskfree",
            &bytes.to_string(),
        );
        collector.set(&table::CACHE_FREE_RATIO, "ensure_diskfree", "0");
    }
    if let Some(text) = collector.own("free_space_ratio").map(str::to_owned) {
        collector.set(&table::CACHE_FREE_RATIO, "free_space_ratio", &text);
    }
    Ok(())
}

fn place_connect_timeout(collector: &mut Collector) -> Outcome {
    let name = "connect_timeout";
    let Some(text) = collector.own(name).map(str::to_owned) else {
        return Ok(());
    };
    let asked = number(name, &text)?;
    if asked > CONNECT_SECONDS_MAX && asked != CONNECT_SECONDS_DEFAULT {
        collector.pass_over(
            name,
            "a minute is the longest that a connection is waited for",
        );
    }
    let seconds = asked.min(CONNECT_SECONDS_MAX);
    collector.set(&table::CONNECT_TIMEOUT, name, &format!("{seconds}s"));
    Ok(())
}

/// The largest number that stays one in bytes when it counts mebibytes.
const NUMBER_MAX: u64 = u64::MAX / MIB;

fn number(name: &str, text: &str) -> Outcome<u64> {
    match text.parse() {
        Ok(number) if number <= NUMBER_MAX => Ok(number),
        _ => Err(Failure::usage(
            format!("`{name}` cannot be `{text}`"),
            "it must be a whole number",
        )),
    }
}
