//! A mount whose program nobody can ask: it is dead, not one of this user's, or listens elsewhere.
//!
//! Nothing can be saved through a dead mount, so it goes; what it staged waits for the next mount, and its
//! record tells where. One that lives is left alone, as nobody could say whether everything in it was
//! saved; told to be lazy this command takes it out of sight, and says that it knows nothing of the rest.

use std::path::{Path, PathBuf};

use penstock_base::mount_table::MountEntry;
use penstock_bucket::has_unsaved;
use penstock_fuse::{Answer, UnmountMode};

use crate::{
    control::{
        SocketDirectory,
        record::{self, Left},
    },
    doors::block,
    environment::Environment,
    explain,
    failure::{Exit, Failure, Outcome},
    mount_table, sharing,
};

/// Unmounts what is on `mountpoint`, if that can be done without its program.
pub(super) fn unmount(
    place: &SocketDirectory,
    mountpoint: &Path,
    lazy: bool,
    environment: &Environment,
) -> Outcome {
    let shown = mountpoint.display();
    let Some(entry) = mount_table::find(mountpoint)? else {
        if let Left::Staged(directories) = record::left(place, mountpoint, has_unsaved) {
            return Err(staged(mountpoint, &directories));
        }
        return Err(Failure::new(
            format!("nothing is mounted on `{shown}`"),
            "`penstock stats` lists the mounts",
        ));
    };
    if !entry.is_ours() && block::volume_at(mountpoint, environment)?.is_none() {
        return Err(Failure::new(
            format!(
                "`{shown}` is a mount of type {}, not of this program",
                entry.kind
            ),
            format!("use `umount {shown}`"),
        ));
    }
    match penstock_fuse::answer(mountpoint) {
        Answer::Dead => {
            // Nothing can be saved through it, so nobody needs to close files in it first.
            detach(mountpoint)?;
            return tell_what_is_left(place, &entry);
        }
        Answer::Silent if entry.is_ours() => return Err(silent(&entry)),
        Answer::Silent | Answer::Alive => {}
    }
    if !lazy || !may_unmount(&entry) {
        return Err(alive(&entry));
    }
    detach(mountpoint)?;
    if !entry.is_ours() {
        // Nothing is written to a volume with block devices.
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "`{shown}` is out of sight, but its program cannot be asked: nobody waits until \
             everything in it is saved"
        ),
        "its log tells what became of unsaved files",
    ))
}

/// Fails where a dead mount may have left something unsaved. A fileset stages nothing.
fn tell_what_is_left(place: &SocketDirectory, entry: &MountEntry) -> Outcome {
    let mountpoint = &entry.mountpoint;
    match record::left(place, mountpoint, has_unsaved) {
        Left::Nothing => Ok(()),
        Left::Unknown if sharing::is_of_fileset(entry) => Ok(()),
        Left::Staged(directories) => Err(staged(mountpoint, &directories)),
        Left::Unknown => Err(Failure::new(
            format!(
                "the program behind `{}` is gone, and it is not known whether something is unsaved",
                mountpoint.display()
            ),
            "if it was mounted with --mode=staged, the next mount with the same options saves it",
        )
        .with_exit(Exit::Unsaved)),
    }
}

fn staged(mountpoint: &Path, directories: &[PathBuf]) -> Failure {
    let shown = mountpoint.display();
    Failure::new(
        format!("the program behind `{shown}` is gone, and not everything is saved"),
        is_saved_by_the_next_mount(directories),
    )
    .with_exit(Exit::Unsaved)
}

/// Where unsaved files are, and what becomes of them.
pub(super) fn is_saved_by_the_next_mount(directories: &[PathBuf]) -> String {
    let shown = directories.iter().map(|path| path.display().to_string());
    format!(
        "what is unsaved lies in {}, and the next mount with the same options saves it",
        shown.collect::<Vec<_>>().join(" and ")
    )
}

fn detach(mountpoint: &Path) -> Outcome {
    let detached = penstock_fuse::unmount(mountpoint, UnmountMode::Lazy);
    detached.map_err(|error| explain::unmount_error(&error))
}

/// Whether the kernel lets this user take the mount away.
fn may_unmount(entry: &MountEntry) -> bool {
    let user = penstock_base::user_id();
    user == 0 || entry.user == Some(user)
}

/// Why a mount that does not answer is left alone: it may be busy, or dead while the kernel holds a thread of its
/// process. Out of sight it could not be ended by its place any more.
fn silent(entry: &MountEntry) -> Failure {
    let place = entry.mountpoint.display();
    let owner = entry.user.unwrap_or(0);
    Failure::new(
        format!("`{place}` does not answer, and the program behind it cannot be asked"),
        format!(
            "run this as the user who mounted it, number {owner}; if its process has died, `umount -f {place}` as \
             root lets programs go that wait for it"
        ),
    )
}

/// Why a mount that lives is left alone, and what this user can do.
fn alive(entry: &MountEntry) -> Failure {
    let place = entry.mountpoint.display();
    let owner = entry.user.unwrap_or(0);
    let is_own = owner == penstock_base::user_id();
    let ask = match is_own {
        true => "give the XDG_RUNTIME_DIR that it was mounted with".to_owned(),
        false => format!("run this as the user who mounted it, number {owner}"),
    };
    let instead = match penstock_base::user_id() {
        0 => Some(format!("umount {place}")),
        _ if is_own => Some(format!("fusermount3 -u {place}")),
        _ => None,
    };
    let remedy = match instead {
        Some(command) => {
            format!("{ask}; `{command}` works too, but does not wait until everything is saved")
        }
        None => ask,
    };
    Failure::new(
        format!("the program behind `{place}` cannot be asked to save what is unsaved"),
        remedy,
    )
}
