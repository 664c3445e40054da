//! `penstock cp`, `parcp`: copies trees by many threads.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use penstock_tools::{
    Report, Stop, Survey,
    copy::{self, Preserve, Settings, Unchanged},
    direct,
};

use super::{
    Work,
    direct::{Opening, is_url},
    exclude_arguments, json_argument, lettered, patterns, threads, threads_argument,
};
use crate::{
    command_line::{self, flag},
    environment::Environment,
    failure::{Failure, Outcome},
    options::Scope,
};

const EXAMPLES: &str = "\
Examples:
  parcp -P 16 --restore /data /backup/data           # a whole tree with everything that it has
  parcp --restore --delete /data /backup/data        # the same once more, and remove what went
  parcp -a --exclude '*.o' --exclude /cache /src /mnt # into /mnt/src, without some of it
  parcp -P 64 -r /data s3://bucket/data              # into a bucket, without a mount
  parcp --restore s3://bucket/data /back             # and out of it
  parcp -a fileset://home/a s3://bucket/a            # from a fileset into a bucket

Exit status: 0 all was copied, 1 something was not or changed while it was read, 130 interrupted.";

pub(crate) fn command() -> Command {
    Command::new("cp")
        .about("Copy files and trees by many threads (parcp)")
        .long_about(
            "Copies SOURCE to TARGET, or several into the directory TARGET, by many threads. A copy has its name \
             only when it is whole. With -a or --restore what is there already with the same size and time is \
             not copied again, so that a copy that was cut off goes on where it was. What cannot be copied is told \
             at the end. SOURCE and TARGET may be in buckets and filesets, which need no mount: s3://BUCKET[/PATH], \
             oss://BUCKET[/PATH], file:///DIRECTORY and fileset://NAME[/PATH].",
        )
        .arg(
            Arg::new("path")
                .value_name("SOURCE... TARGET")
                .num_args(2..)
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("What to copy, and where"),
        )
        .arg(lettered("recursive", 'r', "Copy directories with what is in them, links as links").visible_short_alias('R'))
        .arg(lettered(
            "archive",
            'a',
            "-r, and keep everything: hard links, owners, modes, times, attributes, lists, holes, \
             devices; stay in one file system",
        ))
        .arg(flag("restore", "As -a, and SOURCE becomes TARGET itself also where that is a directory"))
        .arg(lettered("preserve", 'p', "Keep modes, owners and times"))
        .arg(lettered("one-file-system", 'x', "Leave out what is mounted below SOURCE"))
        .arg(lettered("no-target-directory", 'T', "SOURCE becomes TARGET itself also where that is a directory"))
        .arg(flag("delete", "With --restore or -aT, remove from TARGET what SOURCE has not"))
        .arg(lettered("update", 'u', "Leave files that are as new as their source, or newer"))
        .arg(flag("checksum", "Compare contents to see what is the same, not size and time"))
        .arg(flag("verify", "Read each copy from the disk again and compare"))
        .arg(lettered("dry-run", 'n', "Tell what would be done, and do nothing"))
        .args(exclude_arguments("SOURCE"))
        .arg(lettered("verbose", 'v', "Tell of each file").action(ArgAction::SetTrue))
        .arg(threads_argument())
        .arg(json_argument())
        .args(store_arguments())
        .after_help(EXAMPLES)
}

/// Options of stores and of the keys of filesets. `--checksum` is the one of copies: what an upload says of its bytes is
/// set in the environment or the configuration file.
pub(super) fn store_arguments() -> Vec<Arg> {
    let mut arguments = command_line::option_arguments(Scope::Fileset);
    arguments.retain(|argument| argument.get_id() != "checksum");
    arguments
}

pub(crate) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let given = matches.get_many::<PathBuf>("path").unwrap_or_default();
    let mut sources: Vec<PathBuf> = given.cloned().collect();
    let target = sources.pop().unwrap_or_default();
    let settings = settings(matches, sources.len())?;
    let work = Work {
        done: "copied",
        json: matches.get_flag("json"),
        tells_each: matches.get_flag("verbose") || settings.dry_run,
        ..Work::default()
    };
    let is_remote = sources.iter().any(|source| is_url(source));
    let count = |report: &Report, enough: &Stop| {
        if !is_remote {
            survey(&settings).count(&sources, report, enough);
        }
    };
    if is_remote || is_url(&target) {
        let opening = Opening {
            given: command_line::given_by_name(matches, Scope::Fileset),
            environment,
            keeps_metadata: settings.preserve != Preserve::NOTHING,
            is_exact: settings.exact,
            deletes: settings.delete,
        };
        let opened = opening.open(&sources, &target)?;
        return work.run_counted(count, |report, stop| {
            direct::copy(&opened.sources, &opened.target, &settings, report, stop);
            opened.shut_down(report);
            Ok(())
        });
    }
    work.run_counted(count, |report, stop| {
        copy::copy(&sources, &target, &settings, report, stop);
        Ok(())
    })
}

fn survey(settings: &Settings) -> Survey<'_> {
    Survey {
        exclude: &settings.exclude,
        one_file_system: settings.one_file_system,
        with_sizes: true,
    }
}

fn settings(matches: &ArgMatches, sources: usize) -> Outcome<Settings> {
    let restore = matches.get_flag("restore");
    let archive = restore || matches.get_flag("archive");
    let delete = matches.get_flag("delete");
    let exact = matches.get_flag("no-target-directory") || (restore && sources == 1);
    if delete && !(archive && exact) {
        return Err(Failure::usage(
            "`--delete` makes a mirror, and of that nothing was said",
            "use it with --restore and one SOURCE",
        ));
    }
    Ok(Settings {
        recursive: archive || matches.get_flag("recursive"),
        one_file_system: archive || matches.get_flag("one-file-system"),
        preserve: preserve(matches, archive),
        unchanged: match (matches.get_flag("checksum"), archive) {
            (true, _) => Unchanged::ByContent,
            (false, true) => Unchanged::ByTime,
            (false, false) => Unchanged::Never,
        },
        exact,
        delete,
        update: matches.get_flag("update"),
        dry_run: matches.get_flag("dry-run"),
        verify: matches.get_flag("verify"),
        exclude: patterns(matches)?,
        umask: umask(),
        threads: threads(matches),
    })
}

fn preserve(matches: &ArgMatches, archive: bool) -> Preserve {
    if archive {
        return Preserve::ALL;
    }
    let some = matches.get_flag("preserve");
    Preserve {
        mode: some,
        owner: some,
        times: some,
        ..Preserve::NOTHING
    }
}

/// The permission bits that new files of this process lack. Asking umask(2) would change it.
pub(super) fn umask() -> u32 {
    const USUAL: u32 = 0o022;
    let status = fs::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok())
        .unwrap_or(USUAL)
}
