//! What is in an archive.

use std::io::Read;

use penstock_base::text;

use super::{Compression, Kind, Member, Reader, Selection, is_final, names, tell_damage};
use crate::{Report, Stop};

/// Tells of each member of the archive that `input` has.
pub fn list(input: Box<dyn Read + Send>, selection: &Selection, report: &Report, stop: &Stop) {
    let mut reader = match Compression::reader(input) {
        Ok(input) => Reader::new(input),
        Err(error) => return tell_damage(&error.into(), report, stop),
    };
    let mut seen = vec![false; selection.members.len()];
    let mut is_whole = false;
    while !stop.is_set() && !is_whole {
        match reader.next_member() {
            Ok(None) => is_whole = true,
            Ok(Some(member)) => tell(&member, selection, &mut seen, report),
            Err(damage) => {
                tell_damage(&damage, report, stop);
                if is_final(&damage) {
                    break;
                }
            }
        }
    }
    if is_whole
        && !stop.is_set()
        && let Err(damage) = reader.drain()
    {
        tell_damage(&damage, report, stop);
    }
    if !stop.is_set() {
        tell_missing(selection, &seen, report);
    }
}

/// Notes which of the wanted members were not there.
pub(super) fn tell_missing(selection: &Selection, seen: &[bool], report: &Report) {
    for (name, _) in selection
        .members
        .iter()
        .zip(seen)
        .filter(|(_, seen)| !**seen)
    {
        report.fail(format_args!(
            "'{}' is not in the archive",
            String::from_utf8_lossy(name)
        ));
    }
}

fn tell(member: &Member, selection: &Selection, seen: &mut [bool], report: &Report) {
    let parts: Vec<&[u8]> = names::steps(&member.name).collect();
    let is_directory = member.kind == Kind::Directory;
    if !selection.has(&parts, is_directory, seen) {
        return;
    }
    if is_directory {
        report.directories.add(1);
    } else {
        report.files.add(1);
    }
    report.bytes.add(member.size);
    report.tell(|| match selection.is_long {
        true => long(member),
        false => String::from_utf8_lossy(&member.name).into_owned(),
    });
}

/// One line, as `ls -l` has it.
fn long(member: &Member) -> String {
    let letter = match member.kind {
        Kind::File => '-',
        Kind::HardLink => 'h',
        Kind::Symlink => 'l',
        Kind::Character => 'c',
        Kind::Block => 'b',
        Kind::Directory => 'd',
        Kind::Fifo => 'p',
        Kind::Other(_) => '?',
    };
    let bits = (0..9).rev().map(|bit| match member.mode >> bit & 1 {
        0 => '-',
        _ => ['x', 'w', 'r'][bit % 3],
    });
    let name = |name: &[u8], number: u64| match name {
        b"" => number.to_string(),
        name => String::from_utf8_lossy(name).into_owned(),
    };
    let size = match member.kind {
        Kind::Character | Kind::Block => format!("{},{}", member.device.0, member.device.1),
        _ => member.size.to_string(),
    };
    let owner = format!(
        "{}/{}",
        name(&member.owner_names.0, member.owner.0),
        name(&member.owner_names.1, member.owner.1)
    );
    let when = std::time::UNIX_EPOCH
        + std::time::Duration::from_secs(member.modified.0.max(0).cast_unsigned());
    let link = match member.kind {
        Kind::Symlink => format!(" -> {}", String::from_utf8_lossy(&member.link)),
        Kind::HardLink => format!(" link to {}", String::from_utf8_lossy(&member.link)),
        _ => String::new(),
    };
    format!(
        "{letter}{} {owner} {size:>10} {} {}{link}",
        bits.collect::<String>(),
        text::timestamp(when),
        String::from_utf8_lossy(&member.name)
    )
}
