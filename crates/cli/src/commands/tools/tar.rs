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
        self, Compression, CreateSettings, ExtractSettings, FileId, Format, Selection, Sources,
        WholeFile,
    },
    direct::Place,
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
             file:///DIRECTORY or fileset://NAME[/PATH], after -C or as a PATH of -x or -c; without another PATH -c takes all below it.",
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
    if !matches.get_flag("list")
        && let Some(url) = url(matches)?
    {
        if let Some(file) = file {
            check_local(file)?;
        }
        return match matches.get_flag("create") {
            true => create_of(&url, file, matches, environment),
            false => extract_into(&url, file, matches, environment),
        };
    }
    for name in ["path", "file", "directory"] {
        let mut given = matches.get_many::<PathBuf>(name).unwrap_or_default();
        given.try_for_each(|path| check_local(path))?;
    }
    let is_list = matches.get_flag("list");
    let work = work(matches, file);
    if matches.get_flag("create") {
        let settings = create_settings(matches, file)?;
        let sources = sources(matches)?;
        return work.run(|report, stop| create(file, sources, &settings, report, stop));
    }
    let settings = extract_settings(matches)?;
    work.run(|report, stop| {
        let input = open(file, report, stop)?;
        let base = base(matches);
        match is_list {
            true => archive::list(input, &settings.selection, report, stop),
            false => archive::extract(input, &Place::Local(base), &settings, report, stop),
        }
        Ok(())
    })
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

/// Extracts into a bucket or a fileset.
fn extract_into(
    url: &Path,
    file: Option<&PathBuf>,
    matches: &ArgMatches,
    environment: &Environment,
) -> Outcome {
    let settings = extract_settings(matches)?;
    let opened = opening(matches, environment).open(&[], url)?;
    work(matches, file).run(|report, stop| {
        let input = open(file, report, stop);
        let extracted = input.map(|input| {
            archive::extract(input, &opened.target, &settings, report, stop);
        });
        opened.shut_down(report);
        extracted
    })
}

/// Makes an archive of what is in a bucket or a fileset.
fn create_of(
    url: &Path,
    file: Option<&PathBuf>,
    matches: &ArgMatches,
    environment: &Environment,
) -> Outcome {
    let settings = create_settings(matches, file)?;
    let mut opened = opening(matches, environment).open_source(url, file.map(PathBuf::as_path))?;
    let paths = matches.get_many::<PathBuf>("path").unwrap_or_default();
    let mut paths: Vec<PathBuf> = paths.filter(|path| !is_url(path)).cloned().collect();
    if paths.is_empty() {
        paths.push(PathBuf::from("."));
    }
    let sources = Sources {
        base: opened.sources.remove(0),
        paths,
        except: Vec::new(),
    };
    work(matches, file).run(|report, stop| {
        let created = create(file, sources, &settings, report, stop);
        opened.shut_down(report);
        created
    })
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
    file: Option<&PathBuf>,
    sources: Sources,
    settings: &CreateSettings,
    report: &Report,
    stop: &Stop,
) -> Outcome {
    if file.is_none() && io::stdout().is_terminal() {
        return Err(Failure::usage(
            "an archive is not for a terminal",
            "say where with -f",
        ));
    }
    let name = file.map_or(OsStr::new("standard output"), |path| path.as_os_str());
    create_in(file, sources, settings, report, stop).map_err(|error| unwritable(name, &error))
}

/// Makes an archive in a file, or in what has its name and is none.
fn create_in(
    file: Option<&PathBuf>,
    mut sources: Sources,
    settings: &CreateSettings,
    report: &Report,
    stop: &Stop,
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
        return match created {
            // An end on request is no failure.
            Err(_) if stop.is_set() => Ok(()),
            created => created.and_then(|()| flush(output)),
        };
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

fn open(file: Option<&PathBuf>, report: &Report, stop: &Stop) -> Outcome<Box<dyn Read + Send>> {
    let opened = match file {
        None => Patient::stdin(stop).map(|input| (0, input)),
        Some(path) => Patient::open(path, stop).and_then(|file| Ok((file.size()?, file))),
    };
    let (size, input) = opened.map_err(|error| {
        let name = file.map_or(Path::new("standard input"), PathBuf::as_path);
        Failure::new(
            format!("cannot open the archive `{}`: {error}", name.display()),
            "check the name after -f",
        )
        .with_exit(Exit::Fatal)
    })?;
    report.input_total.set(size);
    Ok(Box::new(input))
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
