//! `penstock mount SOURCE MOUNTPOINT`: makes a bucket usable as files.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_base::DirectoryLock;
use penstock_fuse::MountError;
use tracing::warn;

use super::{stream, umount};
use crate::{
    command_line,
    control::SocketDirectory,
    daemon::{self, Announcer, Plan, READY_DEADLINE, Side},
    doors::{DoorKind, block},
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    filesets,
    guardian::Guardian,
    half_dead, keeper,
    logging::{self, LogFile},
    mount_point::{self, Own},
    options::{Given, Scope, Values, table},
    output, places,
    sharing::{self, Joined},
    stores,
    volumes::{VolumeKind, VolumeSpec},
};

/// Examples, and where options may stand beside the command line.
const AFTER_HELP: &str = "\
Examples:
  penstock mount s3://bucket/prefix /mnt/data --region eu-west-1
  penstock mount oss://bucket /mnt/data --endpoint https://oss-cn-hangzhou.aliyuncs.com --read-only
  penstock mount s3://bucket /mnt/data --endpoint http://127.0.0.1:9000 --memory 2GiB -f
  in /etc/fstab: s3://bucket/prefix /mnt/data fuse.penstock _netdev,allow_other 0 0

Every option may also stand in the environment (PENSTOCK_PART_SIZE=16MiB for --part-size) or in the
file that --config names (part-size = \"16MiB\"). The command line wins over the environment, and
that over the file.

A dead mount that a crash left on MOUNTPOINT is removed first, with a warning. Where a mount fails,
`penstock check SOURCE` with the same options tells what is wrong.";

pub(crate) fn command() -> Command {
    Command::new("mount")
        .about("Mount a bucket")
        .long_about(
            "Mounts a bucket, or a prefix of it. Returns when the mount can be used, or with the \
             reason why not in one line. The mount goes on in the background until `penstock \
             umount`. A fileset that is mounted already gets a further mount point of the same mount, which only \
             root can give it: whether that is read-only, noexec, suid or dev is its own, all else is as the mount has \
             it.",
        )
        .arg(source_argument().help(
            "s3://BUCKET[/PREFIX], oss://BUCKET[/PREFIX], file:///DIRECTORY or fileset://NAME",
        ))
        .arg(
            Arg::new("mountpoint")
                .value_name("MOUNTPOINT")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Empty directory to mount on"),
        )
        .args(command_line::option_arguments(Scope::Mount))
        .after_long_help(AFTER_HELP)
}

/// The argument that names a bucket.
pub(super) fn source_argument() -> Arg {
    Arg::new("source")
        .value_name("SOURCE")
        .required(true)
        .help("s3://BUCKET[/PREFIX], oss://BUCKET[/PREFIX] or file:///DIRECTORY")
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let values = command_line::values(matches, Scope::Mount, environment)?;
    let request = MountRequest {
        volume: VolumeKind::of(matches.get_one::<String>("source").expect("required")),
        source: matches
            .get_one::<String>("source")
            .expect("required")
            .clone(),
        mountpoint: matches
            .get_one::<PathBuf>("mountpoint")
            .expect("required")
            .clone(),
        values,
        announced: false,
    };
    perform(request, environment)
}

/// What to mount where, in whatever way that was asked for.
#[derive(Debug)]
pub(crate) struct MountRequest {
    pub volume: VolumeKind,
    pub source: String,
    pub mountpoint: PathBuf,
    pub values: Values,
    pub announced: bool,
}

impl MountRequest {
    /// A request with the options in `given`, the environment and the configuration file.
    pub(crate) fn new(
        source: String,
        mountpoint: PathBuf,
        given: Vec<Given>,
        environment: &Environment,
    ) -> Outcome<Self> {
        Ok(Self {
            volume: VolumeKind::of(&source),
            values: command_line::collect(given, Some(&source), environment)?,
            source,
            mountpoint,
            announced: false,
        })
    }

    /// The same request, whose success is announced on standard output.
    #[must_use]
    pub(crate) fn announced(self) -> Self {
        Self {
            announced: true,
            ..self
        }
    }
}

/// Mounts in the foreground or in the background.
pub(crate) fn perform(request: MountRequest, environment: &Environment) -> Outcome {
    let values = request.values;
    let store = filesets::place_of(&request.source, environment)?.store;
    stores::check_source(&store, &values)?;
    if request.volume == VolumeKind::Stream {
        // A dead volume may stand on the very mount point.
        stream::clean(environment)?;
    }
    let nonempty = values.flag(&table::NONEMPTY);
    let place = places::sockets(environment);
    if let Ok(mountpoint) = umount::resolve(&request.mountpoint) {
        half_dead::release(&place, &mountpoint)?;
    }
    check_no_volume(&request.mountpoint, environment)?;
    let mountpoint = free_mount_point(&request.mountpoint, nonempty)?;
    if let Some(directory) = stores::local_directory(&store) {
        mount_point::check_apart(&mountpoint, &directory)?;
        if let Some(cache) = values.path(&table::CACHE_DIR) {
            mount_point::check_own_apart(Own::Cache, cache, &directory)?;
        }
    }
    let announcement = request.announced.then(|| {
        let shown = mountpoint.display();
        format!("{} is mounted on {shown}", request.source)
    });
    let volume = VolumeSpec {
        kind: request.volume,
        source: request.source,
        mountpoint,
        values,
        environment: environment.clone(),
    };
    match sharing::join(&volume, &place)? {
        Joined::Shared => announce(announcement),
        Joined::Alone(turn) => begin(volume, place, (announcement, turn)),
    }
}

fn announce(line: Option<String>) -> Outcome {
    line.map_or(Ok(()), |line| output::print_line(&line))
}

/// Starts a process that serves, or does so in this one. The turn ends when the mount is usable, or has failed.
fn begin(
    volume: VolumeSpec,
    place: SocketDirectory,
    (announcement, turn): (Option<String>, Option<DirectoryLock>),
) -> Outcome {
    check_certificates(&volume.values, &volume.mountpoint)?;
    let foreground = volume.values.flag(&table::FOREGROUND);
    let plan = Plan {
        log: open_log(&volume.values, &volume.mountpoint, &volume.environment)?,
        volume,
        door: DoorKind::Kernel,
        place,
        line: None,
        guardian: None,
    };
    if foreground {
        return serve_here(plan, Announcer::Foreground(turn));
    }
    let patience = patience(&plan);
    match daemon::detach()? {
        Side::Parent(waiting) => {
            let ready = waiting.until_ready(patience);
            drop(turn);
            ready?;
            announce(announcement)
        }
        Side::Child(announcer) => {
            // It is the parent's to give back.
            std::mem::forget(turn);
            serve_in_background(plan, announcer)
        }
    }
}

/// How long a mount may take. Building an index shows progress meanwhile.
fn patience(plan: &Plan) -> Duration {
    match plan.volume.opens_slowly() {
        true => Duration::MAX,
        false => READY_DEADLINE,
    }
}

/// Refuses a place on which a volume with block devices is mounted. To the kernel it is a file system
/// like any other.
fn check_no_volume(place: &Path, environment: &Environment) -> Outcome {
    let Ok(place) = umount::resolve(place) else {
        return Ok(());
    };
    match block::volume_at(&place, environment)? {
        None => Ok(()),
        Some(volume) => Err(explain::mount_error(&MountError::Busy {
            place,
            source_name: volume.source,
        })),
    }
}

/// The mount point's absolute path. What a mount that crashed left there is taken away first, so
/// that whoever starts mounts again (an init system, mount(8)) needs no other command in between.
fn free_mount_point(place: &Path, nonempty: bool) -> Outcome<PathBuf> {
    let checked = match penstock_fuse::check_mount_point(place, nonempty) {
        Err(MountError::Dead(dead)) => {
            let removed = penstock_fuse::remove_dead_mounts(&dead);
            if removed.map_err(|error| explain::unmount_error(&error))? > 0 {
                output::complain(&format!(
                    "warning: removed the dead mount on `{}`: its program had ended without \
                     unmounting, and what was being written then is not saved",
                    dead.display()
                ));
            }
            penstock_fuse::check_mount_point(place, nonempty)
        }
        checked => checked,
    };
    checked.map_err(|error| explain::mount_error(&error))
}

/// A stream volume is served on after its process was killed; a bucket's open files are lost with
/// theirs.
fn serve_in_background(plan: Plan, announcer: Announcer) -> Outcome {
    match plan.volume.kind {
        VolumeKind::Bucket | VolumeKind::Fileset => serve_here(plan, announcer),
        VolumeKind::Stream => {
            start_logging(&plan);
            if let Err(failure) = read_trust(&plan) {
                announcer.failed(&failure);
                return Err(failure);
            }
            let mut plan = Some(plan);
            keeper::keep(announcer, |line, announcer| {
                let Some(plan) = plan.take() else {
                    return Ok(());
                };
                let line = Some(line);
                daemon::run(&Plan { line, ..plan }, announcer)
            })
        }
    }
}

/// Reads what the system trusts, if the store is spoken to by TLS: who serves later is forked, in another directory than the one
/// that relative names count from.
fn read_trust(plan: &Plan) -> Outcome {
    let endpoint = plan.volume.values.text(&table::ENDPOINT);
    if stores::local_directory(&plan.volume.source).is_some()
        || endpoint.is_some_and(stores::is_plain)
    {
        return Ok(());
    }
    let remedy = "name files that can be read, or unset the variables";
    let read = penstock_object::read_system_trust();
    read.map_err(|error| Failure::new(error.to_string(), remedy))
}

/// Serves in this process. A bucket's mount has a guardian; a stream volume's in the foreground has none, as the
/// kernel is told nothing of a volume that never changes.
fn serve_here(plan: Plan, announcer: Announcer) -> Outcome {
    start_logging(&plan);
    let guardian = match plan.volume.kind {
        VolumeKind::Bucket | VolumeKind::Fileset => post_guardian(),
        VolumeKind::Stream => None,
    };
    daemon::run(&Plan { guardian, ..plan }, announcer)
}

fn post_guardian() -> Option<Guardian> {
    let posted = Guardian::post();
    if let Err(error) = &posted {
        warn!(%error, "programs may hang when this process is killed: it has no guardian");
    }
    posted.ok()
}

pub(super) fn start_logging(plan: &Plan) {
    logging::start(
        plan.volume.values.choice(&table::LOG_LEVEL),
        plan.log.as_ref(),
    );
    logging::catch_panics();
}

/// Refuses files of certificates in the mount: what is read to reach a store must not come out of it.
fn check_certificates(values: &Values, mountpoint: &Path) -> Outcome {
    for spec in [&table::CA_FILE, &table::CLIENT_CERT, &table::CLIENT_KEY] {
        if let Some(path) = values.path(spec) {
            let typed = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            mount_point::check_outside(mountpoint, &typed, spec.name)?;
            for place in mount_point::steps(&typed) {
                mount_point::check_outside(mountpoint, &place, spec.name)?;
            }
        }
    }
    Ok(())
}

/// The log file, before anything is started. None in the foreground unless one is named.
fn open_log(
    values: &Values,
    mountpoint: &Path,
    environment: &Environment,
) -> Outcome<Option<LogFile>> {
    if let Some(path) = values.path(&table::LOG_FILE) {
        mount_point::check_outside(mountpoint, path, "log file")?;
        return LogFile::open(path).map(Some);
    }
    if values.flag(&table::FOREGROUND) {
        return Ok(None);
    }
    let path = logging::default_path(environment, mountpoint);
    let log = path.and_then(|path| LogFile::open(&path));
    if let Err(failure) = &log {
        output::complain(&format!("warning: nothing will be logged: {failure}"));
    }
    Ok(log.ok())
}
