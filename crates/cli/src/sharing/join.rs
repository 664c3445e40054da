//! Another mount point for a fileset that is mounted already.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_base::{DirectoryLock, clock, is_root};
use penstock_fuse::{FuseSettings, UnmountMode};

use super::{is_at, is_of_fileset, own_tree};
use crate::{
    control::{
        Phase, Sharing, SocketDirectory, Status,
        client::{self, Found},
    },
    explain,
    failure::{Failure, Outcome},
    filesets::{self, Fileset, Turn},
    mount_table::{self, Unreadable},
    options::{OptionSpec, Origin, Values, table},
    output, predecessors,
    volumes::VolumeSpec,
};

/// How long a mount that starts, or ends, is waited for.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often it is looked at.
const POLL: Duration = Duration::from_millis(100);

/// Options that each mount point has for itself, or that are about the command alone.
const OF_EACH: [&OptionSpec; 7] = [
    &table::READ_ONLY,
    &table::NOEXEC,
    &table::SUID,
    &table::DEV,
    &table::NONEMPTY,
    &table::FOREGROUND,
    &table::CONFIG,
];

/// What became of an attempt to use a mount that is there.
#[derive(Debug)]
pub(crate) enum Joined {
    /// The fileset is at the mount point.
    Shared,
    /// Nobody has it mounted, and nobody else begins to while this is held.
    Alone(Option<DirectoryLock>),
}

/// Puts the fileset of `spec` at its mount point too, if a mount of this user has it; says so then. Fails where that cannot be
/// done and nothing else could. Nothing is opened.
pub(crate) fn join(spec: &VolumeSpec, sockets: &SocketDirectory) -> Outcome<Joined> {
    let Some(name) = filesets::name_in(&spec.source) else {
        return Ok(Joined::Alone(None));
    };
    let fileset = Fileset::new(name, &spec.environment)?;
    let until = clock::now() + PATIENCE;
    let mut turn = None;
    loop {
        let mut candidates = candidates(spec, sockets);
        let starts = candidates.iter().any(|Found { status, .. }| {
            status.phase == Phase::Starting && status.source == spec.source
        });
        if starts && clock::now() < until {
            clock::pause(POLL);
            continue;
        }
        let holder = fileset
            .user_among(|process| candidates.iter().any(|found| found.status.pid == process));
        candidates.retain(|found| Some(found.status.pid) == holder);
        let Some(found) = candidates.first() else {
            // Who else has it is told by who tries to open it.
            if let Some(alone) = turn.take() {
                return Ok(alone);
            }
            turn = own_turn(&fileset, until);
            continue;
        };
        let status = &found.status;
        if status.phase == Phase::Mounted && share(spec, found)? {
            return Ok(Joined::Shared);
        }
        if clock::now() >= until {
            return match status.phase {
                Phase::Saving => Err(predecessors::occupied(&status.mountpoint, status.pid)),
                _ => Ok(Joined::Alone(None)),
            };
        }
        clock::pause(POLL);
    }
}

/// The turn to begin a mount, behind which is looked once more whether there is one by now. Nothing while another command has
/// it, which is waited for so long.
fn own_turn(fileset: &Fileset, until: clock::Instant) -> Option<Joined> {
    match fileset.turn() {
        Turn::Own(lock) => Some(Joined::Alone(lock)),
        Turn::Another if clock::now() < until => {
            clock::pause(POLL);
            None
        }
        Turn::Another => Some(Joined::Alone(None)),
    }
}

/// Processes of this user that may have the fileset: mounts of one of its name, and such as serve any.
fn candidates(spec: &VolumeSpec, sockets: &SocketDirectory) -> Vec<Found> {
    let mut all = client::all(sockets);
    all.retain(|found| found.status.source == spec.source || !found.status.targets.is_empty());
    all
}

/// Makes the bind mount. Returns whether it is one of what is mounted: that may be about to go.
fn share(spec: &VolumeSpec, found: &Found) -> Outcome<bool> {
    let status = &found.status;
    let Some(sharing) = &status.sharing else {
        return Err(unshared(spec, status));
    };
    let holder = Holder {
        source: &spec.source,
        status,
    };
    if sharing.tree != own_tree() {
        return Err(holder.refuses(
            "in another file tree (mount namespace) than this command's",
            "mount in that one, as with `nsenter --mount`, or unmount it there first",
        ));
    }
    let Some(from) = uncovered(sharing)? else {
        return Ok(false);
    };
    holder.check(spec, sharing)?;
    let place = &spec.mountpoint;
    let number = || Ok::<_, Unreadable>(mount_table::find(place)?.map(|entry| entry.id));
    let before = number()?;
    let bound = penstock_fuse::bind(from, &settings(spec));
    bound.map_err(|error| explain::mount_error(&error))?;
    let answered = client::status(&found.socket);
    let stays = answered.is_ok_and(|now| now.phase == Phase::Mounted && is_at(&now, place));
    if stays && is_on(place, sharing)? {
        output::complain(&format!(
            "`{}` shares the mount on `{}`, process {}",
            place.display(),
            from.display(),
            status.pid
        ));
        return Ok(true);
    }
    // It went meanwhile, and what was bound may be the directory below.
    if number()? != before {
        let removed = penstock_fuse::unmount(place, UnmountMode::Lazy);
        removed.map_err(|error| explain::unmount_error(&error))?;
    }
    Ok(false)
}

/// Whether the mount is at a place, with nothing mounted over it.
fn is_on(place: &Path, sharing: &Sharing) -> Result<bool, Unreadable> {
    let entry = mount_table::find(place)?.filter(is_of_fileset);
    Ok(entry.is_some_and(|entry| entry.device == sharing.device && entry.root == Path::new("/")))
}

/// A mount point with nothing mounted over it.
fn uncovered(sharing: &Sharing) -> Result<Option<&PathBuf>, Unreadable> {
    for place in &sharing.places {
        if is_on(place, sharing)? {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// What the kernel keeps for each mount point.
fn settings(spec: &VolumeSpec) -> FuseSettings {
    let values = &spec.values;
    FuseSettings {
        read_only: values.flag(&table::READ_ONLY),
        noexec: values.flag(&table::NOEXEC),
        suid: values.flag(&table::SUID),
        dev: values.flag(&table::DEV),
        ..FuseSettings::new(&spec.mountpoint, &spec.source)
    }
}

/// The process that has the fileset mounted.
struct Holder<'a> {
    source: &'a str,
    status: &'a Status,
}

impl Holder<'_> {
    /// Why there can be no further mount point: `cause` follows what is mounted where.
    fn refuses(&self, cause: &str, remedy: &str) -> Failure {
        let Status {
            mountpoint, pid, ..
        } = self.status;
        let first = mountpoint.display();
        Failure::new(
            format!(
                "`{}` is mounted on `{first}` by process {pid}, {cause}",
                self.source
            ),
            remedy,
        )
    }

    /// Refuses what a further mount point cannot be.
    fn check(&self, spec: &VolumeSpec, sharing: &Sharing) -> Outcome {
        let (values, place) = (&spec.values, &spec.mountpoint);
        let first = self.status.mountpoint.display();
        if place.to_str().is_none() {
            return Err(self.refuses(
                "which knows further mount points by UTF-8 names alone",
                "choose another directory",
            ));
        }
        if !is_root() {
            return Err(self.refuses(
                "and a further mount point of it is a bind mount, which only root may make",
                &format!(
                    "use `{first}`, have root say `mount --bind {first} MOUNTPOINT`, or unmount it first"
                ),
            ));
        }
        if values.flag(&table::FOREGROUND) {
            return Err(self.refuses(
                "which serves further mount points, too: no other process could stay in the foreground",
                "leave -f out",
            ));
        }
        let read_only = table::READ_ONLY.name;
        if !values.flag(&table::READ_ONLY)
            && sharing.options.get(read_only) != Some(&"off".to_owned())
        {
            return Err(self.refuses(
                "read-only, and so is each further mount point",
                &format!(
                    "give --{read_only}, or unmount `{first}` and mount it without that first"
                ),
            ));
        }
        let held: Vec<_> = held(values, sharing)
            .map(|name| format!("--{name}"))
            .collect();
        if held.is_empty() {
            return Ok(());
        }
        Err(self.refuses(
            &format!(
                "which decides for all its mount points about {}",
                held.join(", ")
            ),
            &format!("leave that out, or unmount `{first}` first"),
        ))
    }
}

/// Options on the command line to which the running mount is not set.
fn held<'a>(values: &'a Values, sharing: &'a Sharing) -> impl Iterator<Item = &'static str> + 'a {
    let of_all = table::ALL.into_iter().filter(|spec| {
        let of_each = OF_EACH.iter().any(|each| each.name == spec.name);
        let origin = values.origin(spec);
        !of_each && origin.is_some_and(Origin::is_public)
    });
    let held = of_all.filter(|spec| {
        let told = values.told(spec);
        told.is_none() || told.as_ref() != sharing.options.get(spec.name)
    });
    held.map(|spec| spec.name)
}

/// Why what another process does with the fileset leaves no room for a mount.
fn unshared(spec: &VolumeSpec, status: &Status) -> Failure {
    let Status {
        pid, mountpoint, ..
    } = status;
    match status.targets.first() {
        Some(target) => Failure::new(
            format!(
                "`{}` is in use by process {pid}, which serves it at {}",
                spec.source, target.address
            ),
            "mount what it exports with `mount -t nfs`, or end that process",
        ),
        None => Failure::new(
            format!(
                "`{}` is in use by process {pid} for `{}`, of version {} of the program, which knows one mount point alone",
                spec.source,
                mountpoint.display(),
                status.version
            ),
            "unmount it, and mount it again with this version",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Given;

    fn values(given: &[(&'static OptionSpec, &str, Origin)]) -> Values {
        let given = given.iter().map(|(spec, text, origin)| Given {
            spec,
            spelling: format!("--{}", spec.name),
            text: (*text).to_owned(),
            origin: origin.clone(),
        });
        Values::resolve(given.collect()).expect("valid")
    }

    #[test]
    fn what_the_running_mount_decides_is_told_where_it_was_asked_for_and_is_not_so() {
        let memory = (&table::MEMORY, "1GiB", Origin::CommandLine);
        let running = Sharing {
            device: "0:50".to_owned(),
            tree: own_tree(),
            places: vec!["/mnt/x".into()],
            options: super::super::told(&values(std::slice::from_ref(&memory))),
        };
        let held = |given: &[_]| held(&values(given), &running).collect::<Vec<_>>();
        assert!(held(std::slice::from_ref(&memory)).is_empty());
        assert!(held(&[(&table::MEMORY, "2GiB", Origin::Environment)]).is_empty());
        let other = (&table::MEMORY, "2GiB", Origin::MountWord);
        assert_eq!(held(&[other]), ["memory"]);
        let of_each = OF_EACH.map(|spec| (spec, "on", Origin::CommandLine));
        assert!(held(&of_each[..6]).is_empty());
        let hidden = (&table::PROXY, "http://a:b@c", Origin::CommandLine);
        assert_eq!(held(&[memory, hidden.clone()]), ["proxy"]);
        let told = super::super::told(&values(&[hidden]));
        assert!(!told.values().any(|text| text.contains("a:b")), "{told:?}");
    }
}
