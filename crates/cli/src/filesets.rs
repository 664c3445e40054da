//! The file systems of this machine: for each a directory with a record of where its data is and with its metadata.
//!
//! ```text
//! /var/lib/penstock/fileset/NAME/fileset.json     where its data is, and how it is reached: [`Record`]
//! /var/lib/penstock/fileset/NAME/metadata/        its engine's; with a database, who this machine is to it
//! /var/lib/penstock/fileset/NAME/spool/           bytes on their way to the bucket, with `durability=local`
//! ```
//!
//! Where this begins is said by [`crate::places`].

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use penstock_base::{DirectoryLock, DirectoryLockError};
use penstock_fileset::{
    Ahead, Durability, Encryption, FORMAT_VERSION, Inlined, Label, Spool,
    engine::{
        Barrier, EmbeddedEngine, EmbeddedLock, EmbeddedSettings, Engine, EngineError, EngineResult,
        PostgresEngine, PostgresSettings, ShippedEngine, ShippedSettings, has_tables,
    },
};
use penstock_object::Store;
use serde::{Deserialize, Serialize};

use crate::{
    databases::{self, Passwords},
    environment::Environment,
    failure::{Failure, Outcome},
    options::{Given, Group, OptionSpec, Origin, Value, table},
    places,
};

/// How the source of a mount names a fileset.
const SCHEME: &str = "fileset://";
const RECORD: &str = "fileset.json";
const METADATA: &str = "metadata";
const SPOOL: &str = "spool";
/// Letters in the longest name.
const NAME_MAX: usize = 64;

/// What is known of a file system before it is opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub version: u32,
    /// 16 hexadecimal digits, as in the label in the bucket.
    pub identity: String,
    /// The URL of its data.
    pub store: String,
    /// What is durable when.
    #[serde(default)]
    pub durability: Durability,
    /// How it is encrypted, if it is, as its label said when it was last seen: with that it can be mounted while its
    /// bucket is away, and a label that does not say it any more is not believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
    /// The address of the database that has its metadata, if one has. No password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The file with the password for it, if one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_password_file: Option<PathBuf>,
    /// That of the label: which of its engines is meant.
    #[serde(default, skip_serializing_if = "is_first")]
    pub generation: u64,
    /// The engine that had its metadata before it was moved, as long as it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<Box<Record>>,
    /// Options that lead to the store, as they were given when it was made or attached. No credentials.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

fn is_first(generation: &u64) -> bool {
    *generation == 0
}

/// A database, and where the password for it is if that was said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Database<'a> {
    pub address: &'a str,
    pub password_file: Option<&'a Path>,
}

/// Who else may have a file system open, where its engine allows that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    /// Nobody: what is looked at must not change meanwhile.
    Nobody,
    /// Other machines.
    Others,
}

/// Whether an option is kept with a fileset: those of the store are. A proxy's address may hold a password.
fn is_kept(spec: &OptionSpec) -> bool {
    spec.group == Group::Store && spec.name != table::PROXY.name
}

/// Those of `given` that are kept with a fileset, the strongest of each.
pub(crate) fn to_be_kept(mut given: Vec<Given>) -> BTreeMap<String, String> {
    given.retain(|given| is_kept(given.spec));
    given.sort_by_key(|given| given.origin.rank());
    let kept = given.into_iter();
    kept.map(|given| (given.spec.name.to_owned(), lasting(&given)))
        .collect()
}

/// The text of an option that means the same wherever a command runs.
fn lasting(given: &Given) -> String {
    match given.read() {
        Ok(Value::Path(path)) => path.to_string_lossy().into_owned(),
        _ => given.text.clone(),
    }
}

/// The options that are kept with the fileset of this name, if there is one.
pub(crate) fn kept_options(name: &str, environment: &Environment) -> Vec<Given> {
    let record = Fileset::new(name, environment).and_then(|fileset| fileset.record());
    // Who needs the fileset is told what is wrong with it.
    record.map_or(Vec::new(), |record| record.given(name))
}

impl Record {
    /// What a machine knows of the file system of a label, in the store of this URL.
    pub(crate) fn of(label: &Label, store: &str, options: BTreeMap<String, String>) -> Self {
        Self {
            version: label.version,
            identity: label.identity.clone(),
            store: store.to_owned(),
            durability: label.durability,
            encryption: label.encryption.clone(),
            engine: label.engine.clone(),
            engine_password_file: None,
            generation: label.generation,
            moved_from: None,
            options,
        }
    }

    /// Fails unless its place in the bucket has the label of this file system: what another one stored is not ours.
    pub(crate) fn check_label(&self, label: Option<Label>) -> Outcome {
        match label {
            Some(label) if label.identity == self.identity => self.check_generation(&label),
            _ => Err(Failure::new(
                format!("{} does not hold this file system", self.store),
                "look at its fileset.json, and at the options that lead to the store",
            )),
        }
    }

    /// Fails where the metadata was brought to another engine since.
    fn check_generation(&self, label: &Label) -> Outcome {
        if label.generation == self.generation {
            return Ok(());
        }
        let name = &label.name;
        let place = label.engine.as_deref();
        let place = place.map_or_else(String::new, |engine| format!(", to {engine}"));
        Err(Failure::new(
            format!(
                "the metadata of `{name}` was loaded or moved to another engine{place}: this one is the old one"
            ),
            "say the same `penstock fileset move` or `load` again if it was interrupted; else use it where it is now, or bring \
             it here: `penstock fileset attach`",
        ))
    }

    /// The database that has its metadata, if one has.
    pub(crate) fn database(&self) -> Option<Database<'_>> {
        Some(Database {
            address: self.engine.as_deref()?,
            password_file: self.engine_password_file.as_deref(),
        })
    }

    fn given(&self, name: &str) -> Vec<Given> {
        let known = table::ALL.iter().filter(|spec| is_kept(spec));
        let given = known.filter_map(|spec| {
            Some(Given {
                spec,
                spelling: spec.name.to_owned(),
                text: self.options.get(spec.name)?.clone(),
                origin: Origin::Fileset(name.to_owned()),
            })
        });
        given.collect()
    }
}

/// The name in a source that names a fileset.
pub(crate) fn name_in(source: &str) -> Option<&str> {
    source.strip_prefix(SCHEME)
}

/// The name of a file system, checked: it is that of a directory, too.
pub(crate) fn check_name(name: &str) -> Outcome {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && name.len() <= NAME_MAX && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(Failure::usage(
        format!("`{name}` is no name for a fileset"),
        "use up to 64 letters, digits, `-`, `_` and `.`, a letter or a digit first",
    ))
}

/// What a file system is made of.
#[derive(Debug)]
pub(crate) struct OpenedFileset {
    pub engine: Arc<dyn Engine>,
    /// Its data.
    pub store: Arc<dyn Store>,
    /// What of them waits for the bucket; `store` reads it.
    pub ahead: Option<Ahead>,
}

/// Whose turn it is to begin a mount of a fileset: until there is a process that can be asked, no other command begins one.
#[derive(Debug)]
pub(crate) enum Turn {
    /// This command's, until the lock goes.
    Own(Option<DirectoryLock>),
    /// Another command's.
    Another,
}

/// A file system of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Fileset {
    pub name: String,
    directory: PathBuf,
    /// Which of its engines is meant, if not that of its record.
    generation: Option<u64>,
    passwords: Passwords,
}

impl Fileset {
    /// The one of this name, whether it is there or not.
    pub(crate) fn new(name: &str, environment: &Environment) -> Outcome<Self> {
        check_name(name)?;
        Ok(Self {
            directory: places::filesets(environment).path().join(name),
            name: name.to_owned(),
            generation: None,
            passwords: Passwords::of(environment),
        })
    }

    /// All that are there.
    pub(crate) fn all(environment: &Environment) -> Vec<Self> {
        let place = places::filesets(environment).path();
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut all: Vec<_> = names
            .filter_map(|name| Self::new(&name, environment).ok())
            .filter(Self::exists)
            .collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// The same with another one of its engines.
    pub(crate) fn at(&self, generation: u64) -> Self {
        Self {
            generation: Some(generation),
            ..self.clone()
        }
    }

    /// The directory of its engine.
    fn metadata(&self) -> PathBuf {
        let recorded = || self.record().map_or(0, |record| record.generation);
        self.directory
            .join(match self.generation.unwrap_or_else(recorded) {
                0 => METADATA.to_owned(),
                generation => format!("{METADATA}-{generation}"),
            })
    }

    pub(crate) fn exists(&self) -> bool {
        self.directory.join(RECORD).exists()
    }

    /// What is known of it.
    pub(crate) fn record(&self) -> Outcome<Record> {
        let path = self.directory.join(RECORD);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Failure::new(
                    format!("there is no fileset `{}` on this machine", self.name),
                    "`penstock fileset list` shows those that are there, `penstock fileset create` makes one",
                ));
            }
            Err(error) => return Err(unusable(&path, &error)),
        };
        let record: Record = serde_json::from_slice(&text).map_err(|error| {
            Failure::new(format!("{}: {error}", path.display()), "restore the file")
        })?;
        if record.version != FORMAT_VERSION {
            return Err(Failure::new(
                format!("fileset `{}` has format {}", self.name, record.version),
                "use the version of penstock that made it",
            ));
        }
        Ok(record)
    }

    /// Makes its directory, private to this user.
    pub(crate) fn make(&self, environment: &Environment) -> Outcome {
        let place = places::filesets(environment);
        let made = place
            .make()
            .and_then(|_| penstock_base::make_private_directory(&self.directory));
        made.map(drop)
            .map_err(|error| unusable(&self.directory, &error))
    }

    /// Writes its record, in the place of one that is there: from then on it is there.
    pub(crate) fn write_record(&self, record: &Record) -> Outcome {
        let path = self.directory.join(RECORD);
        let begun = path.with_extension("new");
        let write = || {
            let mut options = fs::OpenOptions::new();
            let options = options.write(true).create(true).truncate(true);
            let mut file = options.mode(0o600).open(&begun)?;
            file.write_all(&serde_json::to_vec_pretty(record)?)?;
            file.sync_all()?;
            fs::rename(&begun, &path)?;
            fs::File::open(&self.directory)?.sync_all()
        };
        write().map_err(|error: std::io::Error| unusable(&path, &error))
    }

    fn settings(&self, memory: u64) -> EmbeddedSettings {
        EmbeddedSettings {
            directory: self.metadata(),
            memory,
        }
    }

    /// The same with its bucket, `store`. Fails where `identity` is none.
    pub(crate) fn shipped(
        &self,
        identity: &str,
        memory: u64,
        store: &Arc<dyn Store>,
    ) -> Outcome<ShippedSettings> {
        Ok(ShippedSettings {
            local: self.settings(memory),
            store: Arc::clone(store),
            identity: number_of(identity)?,
        })
    }

    /// The same with the database that has its metadata.
    pub(crate) fn on_database(
        &self,
        identity: &str,
        memory: u64,
        database: Database<'_>,
    ) -> Outcome<PostgresSettings> {
        let address = databases::address(database.address)?;
        Ok(PostgresSettings {
            directory: self.metadata(),
            password: self.passwords.find(&address, database.password_file)?,
            address,
            identity: number_of(identity)?,
            memory,
            connections: PostgresSettings::CONNECTIONS,
            patience: PostgresSettings::PATIENCE,
            lease: PostgresSettings::LEASE,
            is_shared: true,
        })
    }

    /// Opens what this machine has of its metadata, to look at it; one process at a time has it.
    pub(crate) fn local_engine(&self, memory: u64) -> Outcome<EmbeddedEngine> {
        self.opened(EmbeddedEngine::open(&self.settings(memory)))
    }

    /// Opens its metadata, whose log is in `bucket` if it is, and what of its data is not in the bucket yet, before
    /// `store`, the way to the bucket. One process of this machine at a time has it.
    pub(crate) async fn open(
        &self,
        record: &Record,
        (memory, company): (u64, Company),
        (bucket, store): (&Arc<dyn Store>, Arc<dyn Store>),
    ) -> Outcome<OpenedFileset> {
        if let Some(database) = record.database() {
            let mut settings = self.on_database(&record.identity, memory, database)?;
            settings.is_shared = company == Company::Others;
            let engine = self.opened(PostgresEngine::open(&settings).await)?;
            return Ok(OpenedFileset {
                engine: Arc::new(engine),
                store,
                ahead: None,
            });
        }
        if record.durability == Durability::Store {
            let settings = self.shipped(&record.identity, memory, bucket)?;
            let engine = self.opened(ShippedEngine::open(&settings).await)?;
            let engine: Arc<dyn Engine> = Arc::new(engine);
            let inlined = Inlined::open(Arc::clone(&engine), store).await;
            let inlined = inlined.map_err(|error| {
                let cause = format!("fileset `{}`: {error}", self.name);
                Failure::new(cause, "restore its metadata from a backup")
            })?;
            return Ok(OpenedFileset {
                engine,
                store: inlined.clone(),
                ahead: Some(Ahead::Inlined(inlined)),
            });
        }
        let lock = self.opened(EmbeddedLock::take(&self.settings(memory)))?;
        let directory = self.directory.join(SPOOL);
        let spool = Spool::open(&directory, store, &lock);
        let spool = spool.map_err(|error| unusable(&directory, &error))?;
        let barrier: Arc<dyn Barrier> = spool.clone();
        let engine = EmbeddedEngine::open_locked(lock, Some(barrier));
        Ok(OpenedFileset {
            engine: Arc::new(self.opened(engine)?),
            store: spool.clone(),
            ahead: Some(Ahead::Spool(spool)),
        })
    }

    /// What was opened, or why it was not.
    pub(crate) fn opened<T>(&self, opened: EngineResult<T>) -> Outcome<T> {
        opened.map_err(|error| self.engine_failure(&error))
    }

    fn engine_failure(&self, error: &EngineError) -> Failure {
        let cause = format!("fileset `{}`: {error}", self.name);
        let remedy = match error {
            EngineError::Store(_) => "see to the bucket with `penstock check`, then try again",
            EngineError::Database(_) => {
                "see to the database, and to the password for it: --engine-password-file, PGPASSFILE"
            }
            EngineError::Fenced(_) => {
                "use it where it is now, or attach it here, which shuts out the other one; with a database see \
                 `penstock fileset sessions`"
            }
            EngineError::InUse { .. } => {
                "it is mounted, or another command looks at it: unmount it or wait"
            }
            EngineError::Corrupt(_) => "restore its metadata from a backup",
            EngineError::Full(_) => "make room on the disk that its metadata is on",
            EngineError::TooLarge(_) => "report this: no operation should be that large",
            EngineError::Io(_) => "see to the disk that its metadata is on",
        };
        Failure::new(cause, remedy)
    }

    /// The process that has it open, if one has; 0 if that cannot be seen.
    pub(crate) fn user(&self) -> Option<u32> {
        match DirectoryLock::take(&self.metadata()) {
            Err(DirectoryLockError::InUse { pid }) => Some(pid),
            _ => None,
        }
    }

    /// The same, if it is one of some. While nobody has it a look at the lock keeps who opens it from it for a moment: so
    /// nobody looks where the lock names none of them.
    pub(crate) fn user_among(&self, some: impl Fn(u32) -> bool) -> Option<u32> {
        let named = DirectoryLock::user(&self.metadata()).filter(|process| some(*process))?;
        self.user().filter(|process| *process == named)
    }

    /// The turn to begin a mount of it, unless another command has it.
    pub(crate) fn turn(&self) -> Turn {
        match DirectoryLock::take(&self.directory) {
            Ok(lock) => Turn::Own(Some(lock)),
            Err(DirectoryLockError::InUse { .. }) => Turn::Another,
            // What is in the way is told by who opens it.
            Err(DirectoryLockError::Io(_)) => Turn::Own(None),
        }
    }

    /// Removes the directory of its engine.
    pub(crate) fn remove_metadata(&self) -> Outcome {
        let directory = self.metadata();
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(unusable(&directory, &error))
            }
            _ => Ok(()),
        }
    }

    /// Opens the engine that its metadata is to be brought to, alone; makes it where it is not there. `record` says which.
    pub(crate) async fn new_engine(
        &self,
        record: &Record,
        memory: u64,
        bucket: &Arc<dyn Store>,
    ) -> Outcome<Arc<dyn Engine>> {
        if let Some(database) = record.database() {
            let mut settings = self.on_database(&record.identity, memory, database)?;
            settings.is_shared = false;
            let engine = match self.opened(has_tables(&settings).await)? {
                true => PostgresEngine::open(&settings).await,
                false => PostgresEngine::create(&settings).await,
            };
            return Ok(Arc::new(self.opened(engine)?));
        }
        if record.durability == Durability::Local {
            return Ok(Arc::new(self.local_engine(memory)?));
        }
        let settings = self.shipped(&record.identity, memory, bucket)?;
        let engine = match self.metadata().exists() {
            true => ShippedEngine::open(&settings).await,
            false => ShippedEngine::create(&settings).await,
        };
        Ok(Arc::new(self.opened(engine)?))
    }

    /// Removes all that this machine has of it. Fails while somebody uses it.
    pub(crate) fn remove(&self) -> Outcome {
        let metadata = self.metadata();
        let _lock = match DirectoryLock::take(&metadata) {
            Err(DirectoryLockError::InUse { pid }) => {
                return self.opened(Err(EngineError::InUse { pid }));
            }
            // What cannot be locked, as it is gone or damaged, is not in use.
            taken => taken.ok(),
        };
        fs::remove_dir_all(&self.directory).map_err(|error| unusable(&self.directory, &error))
    }
}

/// Where the data of a source lies.
pub(crate) struct StorePlace {
    /// The URL: that of the fileset that the source names, or the source itself.
    pub(crate) store: String,
    /// Whether nothing can be mounted without it. A fileset whose metadata is on this machine can.
    pub(crate) is_needed: bool,
}

/// Where the data of `source` lies.
pub(crate) fn place_of(source: &str, environment: &Environment) -> Outcome<StorePlace> {
    let Some(name) = name_in(source) else {
        return Ok(StorePlace {
            store: source.to_owned(),
            is_needed: true,
        });
    };
    let record = Fileset::new(name, environment)?.record()?;
    Ok(StorePlace {
        is_needed: record.durability == Durability::Store,
        store: record.store,
    })
}

fn number_of(identity: &str) -> Outcome<u64> {
    u64::from_str_radix(identity, 16).map_err(|_| {
        Failure::new(
            format!("`{identity}` is no identity of a fileset"),
            "restore fileset.json",
        )
    })
}

fn unusable(path: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::new(
        format!("{}: {error}", path.display()),
        "see to that directory, which must be this user's",
    )
}

#[cfg(test)]
mod tests {
    use penstock_object::{LocalSettings, LocalStore};

    use super::*;

    fn home(place: &tempfile::TempDir) -> Fileset {
        Fileset {
            name: "home".to_owned(),
            directory: place.path().to_owned(),
            generation: Some(0),
            passwords: Passwords::of(&Environment::of(&[])),
        }
    }

    /// Else it is in the way of who opens it in that moment.
    #[test]
    fn who_looks_for_a_mount_takes_no_lock_that_names_none_of_those_there_are() {
        let place = tempfile::tempdir().expect("a directory");
        let fileset = home(&place);
        fs::create_dir(fileset.metadata()).expect("new");
        let lock = fileset.metadata().join("lock");
        let named = || fs::read_to_string(&lock).expect("there");
        fs::write(&lock, "1\n").expect("written");
        assert_eq!(fileset.user_among(|process| process == 2), None);
        assert_eq!(named(), "1\n", "it was not taken");
        assert_eq!(fileset.user_among(|process| process == 1), None);
        let own = std::process::id();
        let held = DirectoryLock::take(&fileset.metadata()).expect("free");
        assert_eq!(fileset.user_among(|process| process == own), Some(own));
        assert_eq!(fileset.user_among(|process| process != own), None);
        drop(held);
        assert_eq!(fileset.user_among(|process| process == own), None);
    }

    /// Until the other one is gone it may add to what waits for the bucket.
    #[tokio::test]
    async fn who_is_refused_has_not_looked_at_what_waits_for_the_bucket() {
        let place = tempfile::tempdir().expect("a directory");
        let fileset = home(&place);
        let record = Record {
            version: FORMAT_VERSION,
            identity: "1".to_owned(),
            store: String::new(),
            durability: Durability::Local,
            encryption: None,
            engine: None,
            engine_password_file: None,
            generation: 0,
            moved_from: None,
            options: BTreeMap::new(),
        };
        let bucket = tempfile::tempdir().expect("a directory");
        let bucket = LocalStore::open(bucket.path(), LocalSettings::default());
        let bucket: Arc<dyn Store> = Arc::new(bucket.expect("it is there"));
        let open = || {
            fileset.open(
                &record,
                (8 << 20, Company::Others),
                (&bucket, bucket.clone()),
            )
        };
        let other = fileset.local_engine(8 << 20).expect("it is new");
        let refused = open().await.expect_err("it is in use");
        assert!(refused.to_string().contains("in use"), "{refused}");
        assert!(!place.path().join(SPOOL).exists());
        drop(other);
        assert!(open().await.is_ok());
    }
}
