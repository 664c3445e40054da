//! Faults between sections of a file. One cause is told in one line: what could not be read is not missed besides.

use std::{collections::HashSet, net::SocketAddr};

use super::{ExportSection, TargetSection};
use crate::options::config_file::{ConfigFile, EXPORT, Reader, TARGET, VOLUME};

/// Bytes in the longest path of an export: longer ones no client can mount.
const PATH_MAX: usize = 1024;
/// Bytes in the longest name of a volume or a mount target.
const NAME_MAX: usize = 64;

impl Reader<'_> {
    /// Names of volumes and targets become parts of the names of sockets, files and metrics.
    pub(super) fn check_name(&mut self, (kind, name): (&str, &str), line: usize) {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = !name.is_empty()
            && !name.starts_with('.')
            && name.len() <= NAME_MAX
            && name.bytes().all(is_plain);
        if !is_name {
            let cause = format!("`{name}` is no name for a {kind}");
            let remedy = format!(
                "use up to {NAME_MAX} letters, digits, `-`, `_` and `.`, and another one than `.` first"
            );
            self.fault(line, &cause, remedy);
        }
    }
}

/// Finds the faults between sections, and completes what may be left out.
pub(in crate::options::config_file) fn check(reader: &mut Reader<'_>, file: &mut ConfigFile) {
    let only = match &file.targets[..] {
        [only] => Some(only.name.clone()),
        _ => None,
    };
    for section in &mut file.exports {
        if section.export.targets.is_empty() {
            section.export.targets.extend(only.clone());
        }
    }
    if file.has_exports() {
        check_addresses(reader, &file.targets);
        check_volumes(reader, file);
        check_targets(reader, file);
        check_paths(reader, file);
    }
}

/// No two may listen where one does.
fn check_addresses(reader: &mut Reader<'_>, targets: &[TargetSection]) {
    let mut taken: Vec<(&str, SocketAddr)> = Vec::new();
    for target in targets {
        let addresses = [Some(target.listen), target.portmap];
        let addresses = addresses.into_iter().flatten();
        for address in addresses.filter(|address| address.port() != 0) {
            if let Some((other, at)) = taken
                .iter()
                .find(|(_, taken)| is_same_place(*taken, address))
            {
                let cause = format!(
                    "[target.{}] listens on `{address}`, which is `{at}` of [target.{other}]",
                    target.name
                );
                reader.fault(target.line, &cause, "give it another address or port");
            }
            taken.push((&target.name, address));
        }
    }
}

fn is_same_place(one: SocketAddr, other: SocketAddr) -> bool {
    let is_all = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && (is_all || one.ip() == other.ip())
}

/// Exports are of volumes that are there.
fn check_volumes(reader: &mut Reader<'_>, file: &ConfigFile) {
    for ExportSection { export, line, .. } in &file.exports {
        let name = &export.volume;
        let is_there = file.volumes.iter().any(|volume| volume.name == *name);
        if !name.is_empty() && !is_there && !reader.is_unread(VOLUME, name) {
            let cause = format!(
                "`{}` exports the volume `{name}`, which is not there",
                export.path
            );
            let remedy = format!("write [volume.{name}], or correct the name");
            reader.fault(*line, &cause, remedy);
        }
    }
    for volume in file.volumes.iter().filter(|volume| !volume.name.is_empty()) {
        let mut exports = file.exports.iter();
        if exports.any(|section| section.export.volume == volume.name) {
            reader.check_name((VOLUME, &volume.name), volume.line);
        }
    }
}

/// Exports are at targets that are there, and no target is without one.
fn check_targets(reader: &mut Reader<'_>, file: &ConfigFile) {
    let has_targets = !file.targets.is_empty() || reader.has_unread(TARGET);
    let has_exports = !file.exports.is_empty() || reader.has_unread(EXPORT);
    if let (false, Some(first)) = (has_targets, file.exports.first()) {
        let remedy = "write [target.NAME] with the address that clients mount from";
        return reader.fault(first.line, "nothing says where exports are", remedy);
    }
    if let (false, Some(first)) = (has_exports, file.targets.first()) {
        return reader.fault(first.line, "nothing is exported", "write [[export]]");
    }
    let mut are_known = !reader.has_unread(EXPORT);
    for section in &file.exports {
        are_known &= is_somewhere(reader, section, &file.targets);
    }
    for target in file.targets.iter().filter(|_| are_known) {
        let mut exports = file.exports.iter();
        if !exports.any(|section| section.export.targets.contains(&target.name)) {
            let cause = format!("[target.{}] exports nothing", target.name);
            let remedy = "name it in the `targets` of an [[export]], or remove it";
            reader.fault(target.line, &cause, remedy);
        }
    }
}

/// Tells where an export is to be that is nowhere. Says whether all of where it is is known.
fn is_somewhere(
    reader: &mut Reader<'_>,
    section: &ExportSection,
    targets: &[TargetSection],
) -> bool {
    let ExportSection {
        export,
        line,
        has_targets,
    } = section;
    let path = &export.path;
    if export.targets.is_empty() && *has_targets && !reader.has_unread(TARGET) {
        let cause = format!("`{path}` does not say at which targets it is");
        reader.fault(*line, &cause, "name them, such as targets = [\"lan\"]");
    }
    let is_there = |name: &&String| targets.iter().any(|target| target.name == **name);
    let missing: Vec<_> = export
        .targets
        .iter()
        .filter(|name| !is_there(name))
        .collect();
    for target in &missing {
        if !reader.is_unread(TARGET, target) {
            let cause = format!("`{path}` is for the target `{target}`, which is not there");
            let remedy = format!("write [target.{target}], or correct the name");
            reader.fault(*line, &cause, remedy);
        }
    }
    missing.is_empty() && !export.targets.is_empty()
}

/// Paths can be mounted, and none leads to two exports of one target.
fn check_paths(reader: &mut Reader<'_>, file: &ConfigFile) {
    let mut taken = HashSet::new();
    for ExportSection { export, line, .. } in &file.exports {
        let path = &export.path;
        // What it is was told.
        if path.is_empty() {
            continue;
        }
        let names: Vec<_> = export.components().collect();
        let has_dots = names.iter().any(|name| [&b"."[..], b".."].contains(name));
        if !path.starts_with('/') || has_dots || path.len() > PATH_MAX {
            let cause = format!("`{path}` is no path that can be mounted");
            let remedy = format!(
                "write one that begins with `/`, without `.` and `..`, of at most {PATH_MAX} bytes"
            );
            reader.fault(*line, &cause, remedy);
        }
        for target in export.targets.iter().collect::<HashSet<_>>() {
            if !taken.insert((names.clone(), target)) {
                let cause = format!("`{path}` is exported twice at the target `{target}`");
                reader.fault(*line, &cause, "give one of them another path");
            }
        }
    }
}
