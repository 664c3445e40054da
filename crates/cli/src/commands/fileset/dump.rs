//! `penstock fileset dump NAME`.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_base::{
    BufferPool, ByteSize, FsError, FsResult, MemoryBudget, Mutex, clock, run_blocking,
};
use penstock_fileset::{
    Label, LabelError,
    dumps::{self, FrozenPages, Head, Made, Making, NewDump, Sink, Summary},
    engine::Engine,
};
use penstock_object::Store;
use penstock_transfer::Transfer;
use serde::Serialize;

use super::{
    answered, closed, failure, fileset_values, mount_of, name_argument, named, opened, readable,
    with_store_options,
};
use crate::{
    command_line,
    commands::listing::{self, Look},
    control::{DumpItem, client},
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    filesets::{Company, Fileset, OpenedFileset, Record},
    options::Values,
    output, text_table,
};

/// How long a mount may take for a dump.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// How often the line that shows how far it is changes.
const TELL_INTERVAL: Duration = Duration::from_millis(200);

pub(super) fn command() -> Command {
    let command = Command::new("dump")
        .about("Copy the metadata of a file system into its bucket, or to a file")
        .long_about(
            "Writes one state of all metadata as a stream that `penstock fileset load` reads: \
             compressed, with checksums, and an end without which it is refused. It is an object \
             dump/TIME below the file system's prefix, encrypted as all there is, or with --output \
             a file. Bytes of files are not in it: they are in the bucket. With each dump in the \
             bucket goes a snapshot dump-TIME, so that all files in it can be read for as long as it is \
             kept; the newest --keep of them are. Nothing keeps the bytes of files for a dump in \
             a file: it is good until what it has was changed or removed, unless a snapshot or versions \
             of objects keep that. A file system that is mounted here is dumped by its mount, which saves what is \
             pending first and sends what is on this disk alone. For a dump in a file it must not be mounted, \
             but with --engine.",
        )
        .after_help(
            "Examples:\n  penstock fileset dump home\n  penstock fileset dump home --keep 30\n  \
             penstock fileset dump home --output /backup/home.dump\n  penstock fileset dump home --list --json",
        )
        .arg(name_argument())
        .arg(
            Arg::new("output")
                .long("output")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Write it to this file, which only its owner can read, or to `-`: the standard output"),
        )
        .arg(
            Arg::new("keep")
                .long("keep")
                .value_name("COUNT")
                .value_parser(value_parser!(u64).range(1..=100_000))
                .default_value("7")
                .help("How many dumps stay in the bucket, the new one too"),
        )
        .arg(command_line::flag("list", "Show the dumps in the bucket, and make none"))
        .arg(command_line::flag("json", "Print JSON"));
    with_store_options(command)
}

/// A dump as it is printed.
#[derive(Debug, Serialize)]
struct Dumped {
    name: String,
    /// Of it, compressed.
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<u64>,
    /// Dumps that were removed, since newer ones are kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    removed: Vec<String>,
}

impl From<DumpItem> for Dumped {
    fn from(made: DumpItem) -> Self {
        Self {
            name: made.name,
            bytes: made.bytes,
            keys: Some(made.keys),
            removed: made.removed,
        }
    }
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    let record = fileset.record()?;
    let values = fileset_values(matches, environment)?;
    if matches.get_flag("list") {
        return list(&fileset, &record, (matches, &values, environment));
    }
    let output = matches.get_one::<PathBuf>("output");
    let keep = *matches.get_one::<u64>("keep").expect("it has a default");
    if output.is_none()
        && record.engine.is_none()
        && let Some(mount) = mount_of(&fileset, environment)
    {
        let made = answered(
            &fileset,
            client::dump((&mount.socket, &fileset.name), keep, PATIENCE),
        )?;
        return tell(&Dumped::from(made), matches, None);
    }
    if output.is_some() && record.encryption.is_some() {
        return Err(Failure::usage(
            format!(
                "fileset `{}` is encrypted, and a file would not be",
                fileset.name
            ),
            "leave --output out: in the bucket the dump is encrypted, and can be copied from there",
        ));
    }
    let dumped = listing::block_on(async {
        let look = listing::open(&record.store, &values, environment)?;
        let label = label(&record, &look).await?;
        let way = (&values, &look);
        let bucket = readable(&fileset, &record, way).await?;
        let opened = opened(&fileset, &record, way, Company::Others).await?;
        check_sent(&fileset, &opened)?;
        let engine = Arc::clone(&opened.engine);
        let new = NewDump::now(label);
        let dumped = match output {
            Some(path) => to_file(&*engine, &new.head, path).await,
            None => to_bucket(&*engine, &new, (&bucket, keep)).await,
        };
        output::draw(None);
        closed(&*engine, dumped)
            .await
            .map_err(|error| failure(&fileset, &error))
    })?;
    tell(&dumped, matches, output.map(PathBuf::as_path))
}

fn tell(dumped: &Dumped, matches: &ArgMatches, output: Option<&Path>) -> Outcome {
    if output.is_some_and(is_standard_output) {
        return Ok(());
    }
    if matches.get_flag("json") {
        return output::print_json(dumped);
    }
    let Dumped {
        name, bytes, keys, ..
    } = dumped;
    for removed in &dumped.removed {
        output::print_line(&format!("{removed} is removed"))?;
    }
    let keys = keys.unwrap_or_default();
    output::print_line(&format!("{name}: {keys} keys in {}", ByteSize(*bytes)))
}

fn list(
    fileset: &Fileset,
    record: &Record,
    (matches, values, environment): (&ArgMatches, &Values, &Environment),
) -> Outcome {
    let kept = listing::block_on(async {
        let look = listing::open(&record.store, values, environment)?;
        let kept = dumps::list(&*look.store).await;
        kept.map_err(|error| failure(fileset, &error))
    })?;
    let listed = kept.into_iter().map(|kept| Dumped {
        name: kept.name,
        bytes: kept.bytes,
        keys: None,
        removed: Vec::new(),
    });
    let listed: Vec<_> = listed.collect();
    if matches.get_flag("json") {
        return output::print_json(&listed);
    }
    if listed.is_empty() {
        return output::print_line("there are no dumps");
    }
    let rows = listed
        .into_iter()
        .map(|dump| vec![dump.name, text_table::bytes(dump.bytes)]);
    let head = ["NAME", "SIZE"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    output::print(&text_table::columns(&rows))
}

/// What lies in the bucket, if that is this file system in this generation.
pub(super) async fn label(record: &Record, look: &Look) -> Outcome<Label> {
    match Label::read(&*look.store).await {
        Err(LabelError::Store(error)) => Err(explain::store_error(&record.store, &error)),
        label => {
            let label = label.ok();
            record.check_label(label.clone())?;
            Ok(label.expect("it was checked"))
        }
    }
}

/// Fails where bytes are in no object of the bucket: whoever has the dump would not have them.
pub(super) fn check_sent(fileset: &Fileset, opened: &OpenedFileset) -> Outcome {
    match opened.ahead.as_ref().map(|ahead| ahead.waiting().0) {
        None | Some(0) => Ok(()),
        Some(bytes) => Err(Failure::new(
            format!(
                "{} of fileset `{}` are in no object of the bucket yet",
                ByteSize(bytes),
                fileset.name
            ),
            "mount it and unmount it, which sends them",
        )),
    }
}

/// Shows how far it is, now and then.
pub(super) fn progress<T: Send>(text: impl Fn(T) -> String + Sync) -> impl Fn(T) + Sync {
    let told = Mutex::new(None);
    move |what| {
        let mut told = told.lock();
        let now = clock::now();
        if told.is_none_or(|told| now.duration_since(told) >= TELL_INTERVAL) {
            *told = Some(now);
            output::draw(Some(&text(what)));
        }
    }
}

fn tell_progress() -> impl Fn(Summary) + Sync {
    progress(|Summary { keys, bytes, .. }| format!("{keys} keys in {}", ByteSize(bytes)))
}

async fn write(engine: &dyn Engine, head: &Head, sink: &mut dyn Sink) -> FsResult<Summary> {
    let mut pages = FrozenPages::of(engine).await?;
    dumps::write(head, &mut pages, (sink, &tell_progress())).await
}

/// Makes a dump in the bucket, and takes away those that are too many.
async fn to_bucket(
    engine: &dyn Engine,
    new: &NewDump,
    (bucket, keep): (&Arc<dyn Store>, u64),
) -> FsResult<Dumped> {
    let pool = BufferPool::new(MemoryBudget::new(super::MEMORY));
    let transfer = Transfer::new(Arc::clone(bucket), pool);
    let making = Making::begin(engine, &transfer, (new, &tell_progress())).await?;
    let made = making.publish(engine).await?;
    let removed = dumps::remove_older(engine, &**bucket, keep).await?;
    Ok(item((made, removed)).into())
}

/// A dump, with those that were removed, as processes tell it to each other.
pub(crate) fn item((made, removed): (Made, Vec<String>)) -> DumpItem {
    DumpItem {
        name: made.name,
        bytes: made.summary.bytes,
        keys: made.summary.keys,
        removed,
    }
}

fn is_standard_output(path: &Path) -> bool {
    path == Path::new("-")
}

/// A file, or what stands for one.
struct Output(Box<dyn Write + Send>);

#[async_trait]
impl Sink for Output {
    async fn write(&mut self, bytes: Bytes) -> FsResult<()> {
        run_blocking(|| self.0.write_all(&bytes)).map_err(|error| io_failure(&error))
    }
}

fn io_failure(error: &io::Error) -> FsError {
    match error.kind() {
        io::ErrorKind::StorageFull => FsError::NoSpace,
        _ => FsError::Io(error.to_string()),
    }
}

/// Writes a dump beside the file, which it replaces when it is whole and on the disk.
async fn to_file(engine: &dyn Engine, head: &Head, path: &Path) -> FsResult<Dumped> {
    let dumped = |Summary { bytes, keys, .. }| Dumped {
        name: path.display().to_string(),
        bytes,
        keys: Some(keys),
        removed: Vec::new(),
    };
    if is_standard_output(path) {
        let mut output = Output(Box::new(io::stdout()));
        return write(engine, head, &mut output).await.map(dumped);
    }
    let mut begun = path.as_os_str().to_owned();
    begun.push(".part");
    let begun = PathBuf::from(begun);
    let mut options = fs::OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(&begun).map_err(|error| io_failure(&error))?;
    let other = file.try_clone().map_err(|error| io_failure(&error))?;
    let written = write(engine, head, &mut Output(Box::new(other))).await;
    let ended = written.and_then(|summary| finish(&file, (&begun, path)).map(|()| summary));
    if ended.is_err() {
        let _ = fs::remove_file(&begun);
    }
    ended.map(dumped)
}

fn finish(file: &File, (begun, path): (&Path, &Path)) -> FsResult<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let replace = || {
        file.sync_all()?;
        fs::rename(begun, path)?;
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    };
    run_blocking(replace).map_err(|error| io_failure(&error))
}
