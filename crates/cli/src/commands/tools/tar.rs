//! `penstock tar`, `partar`: makes, takes apart and lists archives by many threads.

use std::{
    ffi::{OsStr, OsString},
    io::{self, BufWriter, IsTerminal, Read, Write},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use clap::{Arg, ArgGroup, ArgMatches, Command, builder::PossibleValuesParser, value_parser};
use penstock_base::ByteSize;
use penstock_tools::{
    Report, Stop,
    archive::{
        self, Compression, CreateSettings, ExtractSettings, FileId, Format, NewArchive, Selection,
        Sources, StoredArchive, WholeFile,
    },
    direct::{Place, VolumePlace},
    flush,
};

use super::{
    Work, check_local,
    cp::{store_arguments, umask},
    direct::{Opening, is_url},
    exclude_arguments, json_argument, lettered, patterns, threads, threads_argument,
};
use crate::{
    command_line::{self, flag},
    environment::Environment,
    failure::{Exit, Failure, Outcome},
    options::Scope,
};

use super::{console::Ending, pipes::Patient};

/// Members that an archive may have, if nothing else is said.
const MEMBERS_MAX: u64 = 1 << 30;
/// Bytes that are written at once to what is no file.
const BUFFER_BYTES: usize = 64 << 10;
/// Letters that take a value, in the old way of writing options.
const VALUED: &[u8] = b"fCPX";

const EXAMPLES: &str = "\
Examples:
  partar -c -P 16 -f data.tar.zst -a data    # zstd by the name; -z, -J and --zstd say it
  partar -x -f data.tar.zst -C /srv
  partar -tv -f data.tar
  partar -x -f data.tar.zst s3://bucket/data # into a bucket, without a mount
  partar -c -f data.tar.zst -a s3://bucket/data # out of one
  partar -x -f s3://bucket/data.tar.zst -C /srv # an archive that lies in a bucket
  partar -c -f - data | ssh host partar -x -C /srv

Exit status: 0 success, 1 files changed while they were read, 2 failures, 130 interrupted.";

pub(crate) fn command() -> Command {
    Command::new("tar")
        .about("Make, extract and list archives by many threads (partar)")
        .long_about(
            "Makes, extracts and lists tar archives by many threads: files are read ahead of the archive and \
             written behind it. Reads ustar, PAX and GNU with long names and holes, compressed with gzip, zstd or \
             xz, and writes PAX unless told otherwise. Members whose names or links lead out of the tree are refused. Where members go, and \
             what is archived, may be in a bucket or a fileset, which needs no mount: s3://BUCKET[/PATH], oss://BUCKET[/PATH], \
             file:///DIRECTORY or fileset://NAME[/PATH], after -C or as a PATH of -x or -c; without another PATH -c takes all below it. \
             So may ARCHIVE.",
        )
        .arg(
            Arg::new("path")
                .value_name("PATH")
                .num_args(0..)
                .value_parser(value_parser!(PathBuf))
                .help("What goes in; or which members are meant, with what is below them; a URL is what -C says"),
        )
        .args(what_arguments())
        .group(ArgGroup::new("what").args(["create", "extract", "list"]).required(true))
        .arg(
            Arg::new("file")
                .short('f')
                .long("file")
                .value_name("ARCHIVE")
                .value_parser(value_parser!(PathBuf))
                .help("The archive [default: -, standard input or output]"),
        )
        .arg(
            Arg::new("directory")
                .short('C')
                .long("directory")
                .value_name("DIRECTORY")
                .value_parser(value_parser!(PathBuf))
                .help("Where PATHs begin, and where members go [default: .]"),
        )
        .args(compression_arguments())
        .args(exclude_arguments("the archive's root"))
        .args(create_arguments())
        .args(extract_arguments())
        .arg(lettered("verbose", 'v', "Tell of each member"))
        .arg(threads_argument())
        .arg(json_argument())
        .args(store_arguments())
        .after_help(EXAMPLES)
}

fn what_arguments() -> [Arg; 3] {
    [
        lettered("create", 'c', "Make an archive"),
        lettered("extract", 'x', "Extract an archive").visible_alias("get"),
        lettered(
            "list",
            't',
            "List an archive; with -v also sizes, times and owners",
        ),
    ]
}

fn compression_arguments() -> [Arg; 4] {
    [
        lettered("gzip", 'z', "Compress with gzip"),
        lettered("xz", 'J', "Compress with xz, by many threads"),
        flag("zstd", "Compress with zstd, by many threads"),
        lettered(
            "auto-compress",
            'a',
            "Compress as the end of ARCHIVE's name says",
        ),
    ]
}

fn create_arguments() -> [Arg; 2] {
    [
        Arg::new("format")
            .long("format")
            .value_name("FORMAT")
            .value_parser(PossibleValuesParser::new(["pax", "posix", "gnu", "ustar"]))
            .default_value("pax")
            .help("How to write: pax keeps everything"),
        flag("one-file-system", "Leave out what is mounted below PATH"),
    ]
}

fn extract_arguments() -> [Arg; 9] {
    [
        lettered("keep-old-files", 'k', "Do not replace what is there"),
        lettered(
            "preserve-permissions",
            'p',
            "Ignore the umask; what root does anyway",
        )
        .visible_alias("same-permissions"),
        flag(
            "same-owner",
            "Give files their owners; what root does anyway",
        ),
        flag("no-same-owner", "Own what is extracted"),
        flag(
            "numeric-owner",
            "Users and groups are numbers, whatever their names",
        ),
        flag(
            "allow-links-out",
            "Make also symbolic links that lead out of the tree",
        ),
        Arg::new("strip-components")
            .long("strip-components")
            .value_name("N")
            .value_parser(value_parser!(u16))
            .default_value("0")
            .help("Leave away N names at the beginning of paths"),
        Arg::new("max-bytes")
            .long("max-bytes")
            .value_name("SIZE")
            .value_parser(value_parser!(ByteSize))
            .help(
                "Leave an archive with more content [default: what the file system has room for]",
            ),
        Arg::new("max-members")
            .long("max-members")
            .value_name("N")
            .value_parser(value_parser!(u64))
            .help("Leave an archive with more members"),
    ]
}

/// A command line as tar(1) has had it since its beginning: `cvf ARCHIVE ...` for `-c -v -f ARCHIVE ...`.
pub(crate) fn from_old_style(arguments: &[OsString]) -> Vec<OsString> {
    let Some((first, rest)) = arguments.split_first() else {
        return Vec::new();
    };
    let letters = first.as_bytes();
    let is_old = matches!(letters.first(), Some(b'c' | b'x' | b't'))
        && letters.iter().all(u8::is_ascii_alphabetic)
        && letters.len() < 10;
    if !is_old {
        return arguments.to_vec();
    }
    let mut rest = rest.iter();
    let mut modern = Vec::new();
    for letter in letters {
        modern.push(OsString::from(format!("-{}", *letter as char)));
        if VALUED.contains(letter) {
            modern.extend(rest.next().cloned());
        }
    }
    modern.extend(rest.cloned());
    modern
}

pub(crate) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let file = matches
        .get_one::<PathBuf>("file")
        .filter(|path| *path != Path::new("-"));
    let is_create = matches.get_flag("create");
    let base = match matches.get_flag("list") {
        true => None,
        false => url(matches)?,
    };
    if base.is_none() && !file.is_some_and(|file| is_url(file)) {
        return run_here(matches, file);
    }
    let opening = opening(matches, environment);
    match is_create {
        true => create_with(&opening, base.as_deref(), file, matches),
        false => take_with(&opening, base, file, matches),
    }
}

/// Works with files of this machine alone.
fn run_here(matches: &ArgMatches, file: Option<&PathBuf>) -> Outcome {
    for name in ["path", "directory"] {
        let mut given = matches.get_many::<PathBuf>(name).unwrap_or_default();
        given.try_for_each(|path| check_local(path))?;
    }
    let work = work(matches, file);
    let archive = Archive::here(file);
    if matches.get_flag("create") {
        let settings = create_settings(matches, file)?;
        let sources = sources(matches)?;
        let counted = sources.clone();
        return work.run_counted(
            |report, enough| archive::survey(&counted, &settings, report, enough),
            |report, stop| create(&archive, sources, &settings, report, stop),
        );
    }
    let settings = extract_settings(matches)?;
    let base = Place::Local(base(matches));
    let is_list = matches.get_flag("list");
    work.run(|report, stop| {
        take(
            &archive,
            (!is_list).then_some(&base),
            &settings,
            report,
            stop,
        )
    })
}

/// Extracts an archive to `base`, or lists it.
fn take(
    archive: &Archive,
    base: Option<&Place>,
    settings: &ExtractSettings,
    report: &Report,
    stop: &Stop,
) -> Outcome {
    let input = open(archive, report, stop)?;
    match base {
        None => archive::list(input, &settings.selection, report, stop),
        Some(base) => archive::extract(input, base, settings, report, stop),
    }
    Ok(())
}

fn work(matches: &ArgMatches, file: Option<&PathBuf>) -> Work {
    let is_create = matches.get_flag("create");
    let is_list = matches.get_flag("list");
    Work {
        done: match (is_create, is_list) {
            (true, _) => "archived",
            (_, true) => "listed",
            _ => "extracted",
        },
        json: matches.get_flag("json"),
        tells_each: is_list || matches.get_flag("verbose"),
        is_list,
        is_silent: is_create && file.is_none(),
        ending: Ending {
            failed: Exit::Fatal,
            changed: Exit::Failed,
        },
    }
}

/// The one URL that says where PATHs begin or where members go, after `-C` or among the paths.
fn url(matches: &ArgMatches) -> Outcome<Option<PathBuf>> {
    let paths = matches.get_many::<PathBuf>("path").unwrap_or_default();
    let after = matches.get_one::<PathBuf>("directory");
    let mut urls = paths.chain(after).filter(|path| is_url(path));
    let url = urls.next().cloned();
    let is_elsewhere = url.is_some() && after.is_some_and(|after| !is_url(after));
    match urls.next().is_some() || is_elsewhere {
        true => Err(Failure::usage(
            "there is one place where PATHs begin, or where members go",
            "name it once, after -C or as a URL",
        )),
        false => Ok(url),
    }
}

/// Where an archive is.
enum Archive {
    /// Standard input or output.
    Standard,
    Local(PathBuf),
    Stored(VolumePlace),
}

impl Archive {
    fn here(file: Option<&PathBuf>) -> Self {
        file.map_or(Self::Standard, |path| Self::Local(path.clone()))
    }

    /// What was opened as `place`, if that is in a volume.
    fn of(file: Option<&PathBuf>, place: Option<&Place>) -> Self {
        match place {
            Some(Place::Volume(place)) => Self::Stored(place.clone()),
            _ => Self::here(file),
        }
    }

    fn name(&self) -> &OsStr {
        match self {
            Self::Standard => OsStr::new("standard input or output"),
            Self::Local(path) => path.as_os_str(),
            Self::Stored(place) => OsStr::new(&place.shown),
        }
    }
}

/// Extracts or lists where the archive, or where it is extracted to, is in a bucket or a fileset.
fn take_with(
    opening: &Opening<'_>,
    url: Option<PathBuf>,
    file: Option<&PathBuf>,
    matches: &ArgMatches,
) -> Outcome {
    let settings = extract_settings(matches)?;
    let is_list = matches.get_flag("list");
    let stored: Vec<_> = file
        .into_iter()
        .filter(|file| is_url(file))
        .cloned()
        .collect();
    let opened = match stored.first().filter(|_| is_list) {
        Some(file) => opening.open_source(file, None),
        None => opening.open(&stored, &url.unwrap_or_else(|| base(matches))),
    };
    let opened = opened.map_err(unopened)?;
    work(matches, file).run(|report, stop| {
        let archive = Archive::of(file, opened.sources.first());
        let base = (!is_list).then_some(&opened.target);
        let taken = take(&archive, base, &settings, report, stop);
        drop(archive);
        opened.shut_down(report);
        taken
    })
}

/// Makes an archive where it, or what goes in, is in a bucket or a fileset.
fn create_with(
    opening: &Opening<'_>,
    url: Option<&Path>,
    file: Option<&PathBuf>,
    matches: &ArgMatches,
) -> Outcome {
    let settings = &create_settings(matches, file)?;
    let stored = file.filter(|file| is_url(file));
    let here = match url {
        None => Some(sources(matches)?),
        Some(_) => None,
    };
    let opened = match (url, stored) {
        (Some(url), Some(stored)) => opening.open(&[url.to_owned()], stored),
        (Some(url), None) => opening.open_source(url, file.map(PathBuf::as_path)),
        (None, stored) => {
            let base = base(matches);
            let paths = here.iter().flat_map(|here| &here.paths);
            let paths: Vec<_> = paths.map(|path| base.join(path)).collect();
            opening.open_archive(stored.map_or(Path::new("."), PathBuf::as_path), &paths)
        }
    };
    let mut opened = opened.map_err(unopened)?;
    let sources = match here {
        Some(here) => here,
        None => Sources {
            base: opened.sources.remove(0),
            paths: paths_below(matches),
            except: Vec::new(),
        },
    };
    let counted = sources.clone();
    work(matches, file).run_counted(
        |report, enough| archive::survey(&counted, settings, report, enough),
        |report, stop| {
            let archive = Archive::of(file, stored.map(|_| &opened.target));
            let created = create(&archive, sources, settings, report, stop);
            drop(archive);
            opened.shut_down(report);
            created
        },
    )
}

/// What of a URL goes in: all of it, unless paths are named.
fn paths_below(matches: &ArgMatches) -> Vec<PathBuf> {
    let given = matches.get_many::<PathBuf>("path").unwrap_or_default();
    let paths: Vec<PathBuf> = given.filter(|path| !is_url(path)).cloned().collect();
    match paths.is_empty() {
        true => vec![PathBuf::from(".")],
        false => paths,
    }
}

fn opening<'a>(matches: &ArgMatches, environment: &'a Environment) -> Opening<'a> {
    Opening {
        given: command_line::given_by_name(matches, Scope::Fileset),
        environment,
        keeps_metadata: true,
        is_exact: true,
        deletes: false,
    }
}

fn base(matches: &ArgMatches) -> PathBuf {
    let given = matches.get_one::<PathBuf>("directory");
    given.cloned().unwrap_or_else(|| PathBuf::from("."))
}

fn sources(matches: &ArgMatches) -> Outcome<Sources> {
    let given = matches.get_many::<PathBuf>("path").unwrap_or_default();
    let paths: Vec<PathBuf> = given.cloned().collect();
    if paths.is_empty() {
        return Err(Failure::usage(
            "an archive of nothing is not made",
            "name what goes in",
        ));
    }
    Ok(Sources {
        base: Place::Local(base(matches)),
        paths,
        except: Vec::new(),
    })
}

fn create_settings(matches: &ArgMatches, file: Option<&PathBuf>) -> Outcome<CreateSettings> {
    let by_name = || file.map_or(Compression::None, |path| Compression::of_name(path));
    let compression = [
        ("gzip", Compression::Gzip),
        ("xz", Compression::Xz),
        ("zstd", Compression::Zstd),
        ("auto-compress", by_name()),
    ];
    let asked = compression
        .into_iter()
        .find(|(name, _)| matches.get_flag(name));
    Ok(CreateSettings {
        format: match matches.get_one::<String>("format").map(String::as_str) {
            Some("gnu") => Format::Gnu,
            Some("ustar") => Format::Ustar,
            _ => Format::Pax,
        },
        compression: asked.map_or(Compression::None, |(_, compression)| compression),
        exclude: patterns(matches)?,
        one_file_system: matches.get_flag("one-file-system"),
        numeric: matches.get_flag("numeric-owner"),
        threads: threads(matches),
    })
}

fn extract_settings(matches: &ArgMatches) -> Outcome<ExtractSettings> {
    let members = matches.get_many::<PathBuf>("path").unwrap_or_default();
    let is_root = rustix::process::geteuid().is_root();
    let is_given = |name| matches.get_flag(name);
    Ok(ExtractSettings {
        selection: Selection {
            members: members
                .filter(|path| !is_url(path))
                .map(|path| path.as_os_str().as_bytes().to_vec())
                .collect(),
            exclude: patterns(matches)?,
            is_long: is_given("verbose"),
        },
        strip: usize::from(
            matches
                .get_one::<u16>("strip-components")
                .copied()
                .unwrap_or_default(),
        ),
        same_owner: (is_root || is_given("same-owner")) && !is_given("no-same-owner"),
        numeric: is_given("numeric-owner"),
        same_mode: is_root || is_given("preserve-permissions"),
        keep: is_given("keep-old-files"),
        links_out: is_given("allow-links-out"),
        bytes_max: matches.get_one::<ByteSize>("max-bytes").map(|size| size.0),
        members_max: matches
            .get_one::<u64>("max-members")
            .copied()
            .unwrap_or(MEMBERS_MAX),
        umask: umask(),
        threads: threads(matches),
    })
}

fn create(
    archive: &Archive,
    sources: Sources,
    settings: &CreateSettings,
    report: &Report,
    stop: &Stop,
) -> Outcome {
    if matches!(archive, Archive::Standard) && io::stdout().is_terminal() {
        return Err(Failure::usage(
            "an archive is not for a terminal",
            "say where with -f",
        ));
    }
    let created = match archive {
        Archive::Stored(place) => create_stored(place, &sources, settings, (report, stop)),
        Archive::Standard => create_here(None, sources, settings, (report, stop)),
        Archive::Local(path) => create_here(Some(path), sources, settings, (report, stop)),
    };
    match created {
        // An end on request is no failure.
        Err(_) if stop.is_set() => Ok(()),
        created => created.map_err(|error| unwritable(archive.name(), &error)),
    }
}

/// Makes an archive in a bucket or a fileset.
fn create_stored(
    place: &VolumePlace,
    sources: &Sources,
    settings: &CreateSettings,
    (report, stop): (&Report, &Stop),
) -> io::Result<()> {
    let mut output = NewArchive::create(place, umask())?;
    archive::create(sources, settings, Box::new(&mut output), report, stop)?;
    match stop.is_set() {
        true => Ok(()),
        false => output.publish(),
    }
}

/// Makes an archive in a file, or in what has its name and is none.
fn create_here(
    file: Option<&PathBuf>,
    mut sources: Sources,
    settings: &CreateSettings,
    (report, stop): (&Report, &Stop),
) -> io::Result<()> {
    let in_place = match file {
        None => Some(io::stdout().as_fd().try_clone_to_owned()?.into()),
        Some(path) => archive::open_in_place(path)?,
    };
    if let Some(output) = in_place {
        sources.except.extend(FileId::of(&output)?);
        let created = match Patient::pipe(&output, stop) {
            Some(pipe) => create_to(pipe, &sources, settings, (report, stop)),
            None => create_to(&output, &sources, settings, (report, stop)),
        };
        return created.and_then(|()| flush(output));
    }
    let path = file.cloned().unwrap_or_default();
    let output = WholeFile::create(&path, umask())?;
    sources.except = output.except()?;
    archive::create(&sources, settings, Box::new(output.writer()), report, stop)?;
    match stop.is_set() {
        true => Ok(()),
        false => output.publish(),
    }
}

fn create_to(
    output: impl Write + Send,
    sources: &Sources,
    settings: &CreateSettings,
    (report, stop): (&Report, &Stop),
) -> io::Result<()> {
    let writer = BufWriter::with_capacity(BUFFER_BYTES, output);
    archive::create(sources, settings, Box::new(writer), report, stop)
}

/// Nothing was done: 1 stands for files that changed.
fn unopened(failure: Failure) -> Failure {
    match failure.exit() {
        Exit::Failed => failure.with_exit(Exit::Fatal),
        _ => failure,
    }
}

fn unwritable(path: &OsStr, error: &io::Error) -> Failure {
    let failure = Failure::new(
        format!("cannot write the archive `{}`: {error}", path.display()),
        "check its directory and the room there",
    );
    match error.kind() {
        io::ErrorKind::BrokenPipe => failure.with_exit(Exit::Quiet),
        _ => failure.with_exit(Exit::Fatal),
    }
}

fn open(archive: &Archive, report: &Report, stop: &Stop) -> Outcome<Box<dyn Read + Send>> {
    let (size, input) = open_sized(archive, stop).map_err(|error| {
        Failure::new(
            format!(
                "cannot open the archive `{}`: {error}",
                archive.name().display()
            ),
            "check the name after -f",
        )
        .with_exit(Exit::Fatal)
    })?;
    report.input_total.set(size);
    Ok(input)
}

/// The archive, and how many bytes it has where that is known.
fn open_sized(archive: &Archive, stop: &Stop) -> io::Result<(u64, Box<dyn Read + Send>)> {
    Ok(match archive {
        Archive::Standard => (0, Box::new(Patient::stdin(stop)?)),
        Archive::Local(path) => {
            let file = Patient::open(path, stop)?;
            (file.size()?, Box::new(file))
        }
        Archive::Stored(place) => {
            let stored = StoredArchive::open(place, stop)?;
            (stored.size(), Box::new(stored))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_may_be_written_as_they_always_were() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let modern = from_old_style(&words("cfPv a.tar 8 b"));
        assert_eq!(modern, words("-c -f a.tar -P 8 -v b"));
        for text in ["-xf a", "--extract", "cat.tar"] {
            assert_eq!(from_old_style(&words(text)), words(text));
        }
    }
}
