//! `penstock stream SOURCE MOUNTPOINT`: a snapshot of a bucket path as a disk of the kernel.

mod build;
mod detach;
mod list;

pub(crate) use detach::{clean, clean_at};

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::mount::{self, MountRequest, source_argument};
use crate::{
    command_line,
    environment::Environment,
    failure::{Failure, Outcome},
    options::Scope,
    volumes::{VolumeKind, stream},
};

/// Examples, and what the words of other programs mean.
const AFTER_HELP: &str = "\
Examples:
  penstock stream s3://bucket/imagenet /mnt/data --region eu-west-1 --direct
  penstock stream oss://bucket /mnt/data --tier 4c8g --refresh
  penstock stream /mnt/data -o bucket=imagenet,path=/train,url=oss-cn-hangzhou-internal.aliyuncs.com
  penstock stream build s3://bucket/imagenet -o /srv/imagenet.erofs
  penstock stream list
  penstock umount /mnt/data

What is in the bucket is listed once, and shown as it was then. An object that changed since cannot
be read (EIO) until the volume is mounted again with --refresh. Nothing can be written.";

pub(crate) fn command() -> Command {
    Command::new("stream")
        .about("Mount a snapshot of a bucket path with millions of small files, read-only")
        .long_about(
            "Lists a path of a bucket once, builds a compact file-system image of its names, sizes \
             and times, and gives the kernel a read-only disk whose data is fetched from the store \
             as it is read. `find`, `ls` and `stat` never leave the kernel, and opening a file \
             costs nothing. Returns when the mount can be used, or with the reason why not in one \
             line; the first mount of a path takes as long as listing it. The index is kept, and \
             the next mount of the same path starts at once. The mount goes on in the background \
             until `penstock umount`.",
        )
        .override_usage(
            "penstock stream [OPTIONS] SOURCE MOUNTPOINT\n       penstock stream build SOURCE [-o \
             IMAGE]\n       penstock stream list\n       penstock stream detach [MOUNTPOINT]",
        )
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
        .subcommands([build::command(), list::command(), detach::command()])
        .arg(listed_source())
        .arg(
            Arg::new("mountpoint")
                .value_name("MOUNTPOINT")
                .value_parser(value_parser!(PathBuf))
                .help("Empty directory to mount on"),
        )
        .args(command_line::option_arguments(Scope::Stream))
        .after_long_help(AFTER_HELP)
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    match matches.subcommand() {
        Some(("build", matches)) => return build::run(matches, environment),
        Some(("list", matches)) => return list::run(matches, environment),
        Some(("detach", matches)) => return detach::run(matches, environment),
        _ => {}
    }
    let values = command_line::values(matches, Scope::Stream, environment)?;
    let first = matches.get_one::<String>("source").expect("required");
    // Where words name the bucket, the mount point comes first.
    let (source, mountpoint) = match matches.get_one::<PathBuf>("mountpoint") {
        Some(mountpoint) => (Some(first.as_str()), mountpoint.clone()),
        None if first.contains("://") => return Err(no_mountpoint()),
        None => (None, PathBuf::from(first)),
    };
    let request = MountRequest {
        volume: VolumeKind::Stream,
        source: stream::source(source, &values)?,
        mountpoint,
        values,
        announced: false,
    };
    mount::perform(request, environment)
}

fn no_mountpoint() -> Failure {
    Failure::usage(
        "no MOUNTPOINT is given",
        "name an empty directory after the source; `penstock stream --help` explains",
    )
}

/// The argument that names what is listed.
fn listed_source() -> Arg {
    source_argument().help("s3://BUCKET[/PATH], oss://BUCKET[/PATH] or file:///DIRECTORY")
}
