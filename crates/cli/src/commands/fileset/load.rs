//! `penstock fileset load NAME --store URL --from DUMP`.

use std::{fs::File, io::Read, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use clap::{Arg, ArgMatches, Command};
use penstock_base::{BufferPool, FsError, FsResult, MemoryBudget, run_blocking};
use penstock_fileset::{
    Durability, Label, LabelError,
    check::{Report, check, check_data},
    dumps::{self, DumpObjectSource, Head, Pages, Reading, Source, carry},
    engine::Engine,
};
use penstock_object::Store;
use penstock_transfer::Transfer;
use serde::Serialize;

use super::{
    dump::progress, engine_arguments, failure, name_argument, named, not_local, password_file,
    recorded, store_argument, with_store_options,
};
use crate::{
    command_line,
    commands::listing::{self, Look},
    databases,
    encryption::{self, KeySource, Known},
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    filesets::{self, Fileset, Record},
    options::{Scope, Values},
    output, stores,
};

/// Bytes of a file that are read at once.
const READ: usize = 1 << 20;
/// What is wrong that is told.
const FINDINGS_TOLD: usize = 20;

pub(super) fn command() -> Command {
    let command = Command::new("load")
        .about("Bring a file system up from a dump of its metadata")
        .long_about(
            "Reads a dump of `penstock fileset dump` from end to end, brings what it has into an \
             engine that has nothing, compares all of it, looks whether all objects are in the bucket, and only then \
             makes the file system visible. A dump that was cut or damaged is refused, and so is \
             an engine in which something is. Who is interrupted says the same command again. \
             Whoever has the file system in its old engine mounts it no more: unmount it everywhere \
             first. What was written since the dump was made is gone, and its objects are \
             removed as leaked ones. Locks and who holds what open are not taken over.",
        )
        .after_help(
            "Examples:\n  penstock fileset load home --store s3://bucket/home --from latest\n  \
             penstock fileset load home --store s3://bucket/home --from /backup/home.dump \\\n    \
             --engine postgres://penstock@db/files --data",
        )
        .arg(name_argument())
        .arg(store_argument())
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("DUMP")
                .required(true)
                .help("A file (with a `/` in it), `latest`, or the name of a dump in the bucket, as `penstock fileset dump NAME --list` shows it"),
        )
        .args(engine_arguments())
        .arg(
            Arg::new("durability")
                .long("durability")
                .value_name("WHERE")
                .value_parser(["local", "store"])
                .help("Where a file is when fsync returns; by default as it was, and with --engine `store`"),
        )
        .arg(command_line::flag("data", "Read all bytes of files, too, and compare them with their checksums"))
        .arg(command_line::flag("accept-damage", "Bring it up also where objects are missing: files that need them fail with EIO"))
        .arg(command_line::flag("json", "Print JSON"));
    with_store_options(command)
}

/// What was loaded, as it is printed.
#[derive(Debug, Serialize)]
struct Loaded {
    name: String,
    dump_taken: u64,
    keys: u64,
    files: u64,
    objects: u64,
    /// What is wrong.
    findings: Vec<String>,
}

/// A file that is read from its beginning.
struct FileSource(File);

#[async_trait]
impl Source for FileSource {
    async fn read(&mut self) -> FsResult<Option<Bytes>> {
        let mut bytes = vec![0; READ];
        let length = run_blocking(|| self.0.read(&mut bytes));
        bytes.truncate(length.map_err(|error| FsError::Io(error.to_string()))?);
        Ok((!bytes.is_empty()).then(|| bytes.into()))
    }
}

/// Where the dump is.
enum Place {
    File(PathBuf),
    Bucket(Arc<dyn Store>, String),
}

impl Place {
    async fn of(text: &str, bucket: &Arc<dyn Store>) -> FsResult<Self> {
        if text.contains('/') {
            return Ok(Self::File(text.into()));
        }
        let name = match text {
            "latest" => {
                dumps::list(&**bucket)
                    .await?
                    .pop()
                    .ok_or(FsError::NotFound)?
                    .name
            }
            name => name.to_owned(),
        };
        Ok(Self::Bucket(Arc::clone(bucket), name))
    }

    fn open(&self) -> FsResult<Box<dyn Source>> {
        match self {
            Self::File(path) => {
                let file = File::open(path);
                let text = |error| FsError::Io(format!("{}: {error}", path.display()));
                Ok(Box::new(FileSource(file.map_err(text)?)))
            }
            Self::Bucket(store, name) => Ok(Box::new(DumpObjectSource::open(store, name)?)),
        }
    }
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    let url = matches.get_one::<String>("store").expect("required");
    let given = command_line::given_by_name(matches, Scope::Fileset);
    let given = command_line::gathered(given, None, environment)?;
    let mut options = filesets::to_be_kept(given.clone());
    let values = Values::resolve(given)?;
    listing::start_logging(&values);
    stores::check_source(url, &values)?;
    if let Some(address) = matches.get_one::<String>("engine") {
        databases::address(address)?;
    }
    let loaded = listing::block_on(async {
        let look = listing::open(url, &values, environment)?;
        let bucket = sealed(&fileset, &look, &values).await?;
        if let Some(source) = KeySource::given(&values)? {
            source.keep(&mut options);
        }
        let told = |error: FsError| refused(matches, &error);
        let from = matches.get_one::<String>("from").expect("required");
        let place = Place::of(from, &bucket).await.map_err(told)?;
        let head = verified(&place).await.map_err(told)?;
        let label = label(&fileset, &look, (&head, matches)).await?;
        let record = Record {
            engine_password_file: password_file(matches)?,
            ..Record::of(&label, url, options)
        };
        let way = (&look, &bucket);
        load(
            &fileset,
            (&record, &label, &head),
            (way, &place, matches),
            environment,
        )
        .await
    });
    output::draw(None);
    let loaded = loaded?;
    if matches.get_flag("json") {
        return output::print_json(&loaded);
    }
    loaded
        .findings
        .iter()
        .try_for_each(|finding| output::print_line(finding))?;
    output::print_line(&format!(
        "fileset {} is here, with {} files in {} objects: mount it with `penstock mount fileset://{} MOUNTPOINT`",
        loaded.name, loaded.files, loaded.objects, loaded.name
    ))
}

/// The bucket as whoever has the key sees it, as far as its label says that there is one.
async fn sealed(fileset: &Fileset, look: &Look, values: &Values) -> Outcome<Arc<dyn Store>> {
    let Ok(label) = Label::read(&*look.store).await else {
        return Ok(Arc::clone(&look.store));
    };
    let known = Known {
        identity: &label.identity,
        label: Some(&label),
        recorded: None,
    };
    let key = encryption::data_key(&fileset.name, &known, values).await?;
    Ok(encryption::sealed(
        Arc::clone(&look.store),
        key.as_ref(),
        super::MEMORY,
    ))
}

/// Reads all of a dump. Returns what it says of itself.
async fn verified(place: &Place) -> FsResult<Head> {
    let mut source = place.open()?;
    let mut reading = Reading::begin(&mut *source).await?;
    let tell = progress(|keys| format!("{keys} keys read"));
    while reading.next().await?.is_some() {
        tell(reading.digest().count());
    }
    Ok(reading.head().clone())
}

/// What the bucket will say: that this is the newest generation of the file system.
async fn label(
    fileset: &Fileset,
    look: &Look,
    (head, matches): (&Head, &ArgMatches),
) -> Outcome<Label> {
    let there = match Label::read(&*look.store).await {
        Ok(label) => Some(label),
        Err(LabelError::Absent) => None,
        Err(LabelError::Store(error)) => return Err(explain::store_error(&look.source, &error)),
        Err(error) => return Err(Failure::new(error.to_string(), "restore fileset.json")),
    };
    let identity = &head.label.identity;
    if there
        .as_ref()
        .is_some_and(|there| there.identity != *identity)
    {
        return Err(Failure::usage(
            format!("{} holds another file system than the dump", look.source),
            "see --store and --from",
        ));
    }
    let newest = there.unwrap_or_else(|| head.label.clone());
    let engine = matches.get_one::<String>("engine").cloned();
    let durability = match matches.get_one::<String>("durability").map(String::as_str) {
        Some("local") if engine.is_some() => return Err(not_local()),
        _ if engine.is_some() => Durability::Store,
        Some("local") => Durability::Local,
        Some(_) => Durability::Store,
        None if head.label.engine.is_some() => Durability::Local,
        None => head.label.durability,
    };
    let next = newest.generation.max(head.label.generation) + 1;
    Ok(Label {
        generation: begun(fileset, identity, next)?,
        engine,
        durability,
        ..newest
    })
}

/// The generation that an attempt before this one came to, if there was one; fails where another file system is.
fn begun(fileset: &Fileset, identity: &str, next: u64) -> Outcome<u64> {
    let before = recorded(fileset, identity)?;
    Ok(before.map_or(next, |record| record.generation.max(next - 1)))
}

async fn load(
    fileset: &Fileset,
    (record, label, head): (&Record, &Label, &Head),
    ((look, bucket), place, matches): ((&Look, &Arc<dyn Store>), &Place, &ArgMatches),
    environment: &Environment,
) -> Outcome<Loaded> {
    let told = |error: FsError| refused(matches, &error);
    fileset.make(environment)?;
    let target = fileset.at(label.generation);
    let engine = target.new_engine(record, super::MEMORY, bucket).await?;
    let mut source = place.open().map_err(told)?;
    let mut reading = Reading::begin(&mut *source).await.map_err(told)?;
    let tell = progress(|keys| format!("{keys} keys brought"));
    let carried = carry(&mut reading, (&*engine, head.dump), &tell).await;
    let carried = carried.map_err(told)?;
    let report = report(&*engine, bucket, matches.get_flag("data")).await;
    let report = report.map_err(|error| failure(fileset, &error))?;
    if !report.is_clean() && !matches.get_flag("accept-damage") {
        return Err(unsound(&report));
    }
    let keys = carried.keys();
    put_label(look, label).await?;
    fileset.write_record(record)?;
    let published = carried.publish(&*engine, label.generation).await;
    super::closed(&*engine, published)
        .await
        .map_err(|error| failure(fileset, &error))?;
    Ok(Loaded {
        name: fileset.name.clone(),
        dump_taken: head.taken,
        keys,
        files: report.files,
        objects: report.objects,
        findings: report.findings,
    })
}

async fn report(engine: &dyn Engine, bucket: &Arc<dyn Store>, with_data: bool) -> FsResult<Report> {
    if !with_data {
        return check(engine, &**bucket, None).await;
    }
    let pool = BufferPool::new(MemoryBudget::new(super::MEMORY));
    check_data(engine, Transfer::new(Arc::clone(bucket), pool), None).await
}

/// From then on who has an older generation has not got the file system any more.
pub(super) async fn put_label(look: &Look, label: &Label) -> Outcome {
    let put = match Label::read_tagged(&*look.store).await {
        Ok((there, _)) if there == *label => Ok(()),
        Ok((_, tag)) => label.replace(&*look.store, tag).await,
        Err(LabelError::Absent) => label.write(&*look.store).await,
        Err(error) => Err(error),
    };
    put.map_err(|error| match error {
        LabelError::Store(error) => explain::store_error(&look.source, &error),
        error => Failure::new(
            format!("{}: {error}", look.source),
            "say the same command again",
        ),
    })
}

fn refused(matches: &ArgMatches, error: &FsError) -> Failure {
    let from = matches.get_one::<String>("from").map_or("", String::as_str);
    match error {
        FsError::AlreadyExists => Failure::usage(
            "a file system is in that engine already",
            "take another database, or `penstock fileset destroy NAME --yes --local-only` for what this machine has",
        ),
        FsError::NotFound => Failure::usage(
            format!("there is no dump `{from}`"),
            "see `penstock fileset dump NAME --list`; a file has a `/` in its name",
        ),
        error => Failure::new(
            format!("{from}: {error}"),
            "nothing of it can be seen; take another dump, or say the same command again",
        ),
    }
}

fn unsound(report: &Report) -> Failure {
    let findings = report.findings.iter().take(FINDINGS_TOLD);
    let findings: String = findings.map(|finding| format!("\n  {finding}")).collect();
    let count = report.findings.len() as u64 + report.more;
    Failure::new(
        format!("{count} things are wrong with what the dump has:{findings}"),
        "put the missing objects back, take another dump, or say --accept-damage",
    )
}
