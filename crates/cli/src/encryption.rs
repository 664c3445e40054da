//! The key of an encrypted fileset: where it is read from, and what is seen with it.
//!
//! What is made of it, and what is written with it, is in `penstock_object::sealed`; how it is kept in the bucket in
//! `penstock_fileset::Encryption`.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use penstock_base::run_blocking;
use penstock_fileset::{Encryption, EncryptionError, Label};
use penstock_object::{
    Store, credentials,
    sealed::{DataKey, Sealed, UserKey},
};

use crate::{
    failure::{Failure, Outcome},
    filesets::Record,
    options::{OptionSpec, Origin, Values, table},
    secret_file,
};

/// Bytes of a key file that are looked at: more than any key has.
const FILE_MAX: u64 = 4 << 10;
/// What the owner of a key file may do with it; others nothing.
const OWNERS_MODE: u32 = 0o600;

/// The options that name a key.
pub(crate) const OPTIONS: [&OptionSpec; 2] =
    [&table::ENCRYPTION_KEY_FILE, &table::ENCRYPTION_KEY_COMMAND];

/// Where the user's key is read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySource {
    File(PathBuf),
    Command(String),
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Command(command) => write!(f, "what `{command}` prints"),
        }
    }
}

impl KeySource {
    /// What the options name; of a file and a command the one that was given in the stronger place.
    pub(crate) fn given(values: &Values) -> Outcome<Option<Self>> {
        let rank = |spec| values.origin(spec).map(Origin::rank);
        let [of_file, of_command] = OPTIONS.map(rank);
        if of_file.is_some() && of_file == of_command {
            return Err(Failure::usage(
                "both a file and a command are given for the key",
                "leave one of them out",
            ));
        }
        let file = values.path(&table::ENCRYPTION_KEY_FILE);
        let file = file.filter(|_| of_file > of_command);
        let command = values.text(&table::ENCRYPTION_KEY_COMMAND);
        let file = file.map(|path| Self::File(path.to_owned()));
        Ok(file.or_else(|| command.map(|command| Self::Command(command.to_owned()))))
    }

    /// Keeps it among the options of a fileset, alone.
    pub(crate) fn keep(&self, options: &mut BTreeMap<String, String>) {
        for spec in OPTIONS {
            options.remove(spec.name);
        }
        let (spec, text) = match self {
            Self::File(path) => (OPTIONS[0], path.to_string_lossy().into_owned()),
            Self::Command(command) => (OPTIONS[1], command.clone()),
        };
        options.insert(spec.name.to_owned(), text);
    }

    /// Reads the key.
    pub(crate) async fn read(&self) -> Outcome<UserKey> {
        let remedy = "`openssl rand -hex 32` prints a new key; keep it in a file of mode 600";
        let text = match self {
            Self::File(path) => run_blocking(|| read_file(path))?,
            Self::Command(command) => {
                let printed = credentials::printed_by(command).await;
                printed.map_err(|error| {
                    Failure::new(format!("the key: {error}"), "see --encryption-key-command")
                })?
            }
        };
        UserKey::taken(text).map_err(|error| Failure::new(format!("{self}: {error}"), remedy))
    }
}

fn read_file(path: &Path) -> Outcome<Vec<u8>> {
    let (text, mode) = secret_file::read(path, FILE_MAX).map_err(|error| {
        Failure::new(
            format!("cannot read the key {}: {error}", path.display()),
            "see --encryption-key-file",
        )
    })?;
    if mode & !OWNERS_MODE != 0 {
        return Err(Failure::new(
            format!(
                "the key {} is open to others (mode {mode:03o})",
                path.display()
            ),
            format!("run chmod {OWNERS_MODE:03o} on it"),
        ));
    }
    Ok(text)
}

/// What is known of how a fileset is encrypted.
#[derive(Debug)]
pub(crate) struct Known<'a> {
    pub identity: &'a str,
    /// What lies in the bucket, if it could be read.
    pub label: Option<&'a Label>,
    /// What this machine saw there before.
    pub recorded: Option<&'a Encryption>,
}

impl<'a> Known<'a> {
    pub(crate) fn of(record: &'a Record, label: Option<&'a Label>) -> Self {
        Self {
            identity: &record.identity,
            label,
            recorded: record.encryption.as_ref(),
        }
    }

    /// How it is encrypted. A label that does not say any more that it is would have the next file written in the open.
    fn encryption(&self, name: &str) -> Outcome<Option<&'a Encryption>> {
        let Some(label) = self.label else {
            return Ok(self.recorded);
        };
        match (&label.encryption, self.recorded) {
            (None, Some(_)) => Err(Failure::new(
                format!(
                    "fileset `{name}` is encrypted, and its fileset.json does not say so any more"
                ),
                "restore fileset.json: somebody has changed it",
            )),
            (said, _) => Ok(said.as_ref()),
        }
    }
}

/// The key of the data of a fileset, if it is encrypted. Fails where there is no key or another one, and where there is a
/// key for what is not encrypted.
pub(crate) async fn data_key(
    name: &str,
    known: &Known<'_>,
    values: &Values,
) -> Outcome<Option<DataKey>> {
    let encryption = known.encryption(name)?;
    let source = KeySource::given(values)?;
    match (encryption, source) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(not_encrypted(name)),
        (Some(_), None) => Err(no_key(&format!("fileset `{name}` is encrypted"))),
        (Some(encryption), Some(source)) => {
            let user = source.read().await?;
            let data = encryption.data_key(known.identity, &user);
            data.map(Some).map_err(|error| failure(name, &error))
        }
    }
}

/// A store as whoever has the key sees it: the one place in which what lies in a bucket is encrypted. Bodies that are
/// being written take `memory` bytes at most.
pub(crate) fn sealed(store: Arc<dyn Store>, key: Option<&DataKey>, memory: u64) -> Arc<dyn Store> {
    match key {
        Some(key) => Arc::new(Sealed::new(store, key.clone(), memory)),
        None => store,
    }
}

/// Refuses a key for what is no fileset.
pub(crate) fn check_no_key(values: &Values) -> Outcome {
    let mut given = OPTIONS
        .into_iter()
        .filter(|spec| values.origin(spec).is_some());
    match given.next() {
        None => Ok(()),
        Some(spec) => Err(Failure::usage(
            format!(
                "`--{}` means nothing for a bucket: only filesets are encrypted",
                spec.name
            ),
            "leave it out, also of the environment and the configuration file",
        )),
    }
}

pub(crate) fn no_key(cause: &str) -> Failure {
    Failure::usage(
        cause,
        "give --encryption-key-file or --encryption-key-command",
    )
}

pub(crate) fn not_encrypted(name: &str) -> Failure {
    Failure::usage(
        format!("fileset `{name}` is not encrypted, and a key is given"),
        "leave --encryption-key-file and --encryption-key-command out, or make another fileset with them",
    )
}

pub(crate) fn failure(name: &str, error: &EncryptionError) -> Failure {
    match error {
        EncryptionError::OtherKey => Failure::new(
            format!("this is not the key of fileset `{name}`"),
            "give the key that it was made with, or that `penstock fileset rekey` gave it",
        ),
        EncryptionError::Damaged => Failure::new(
            format!("fileset `{name}`: {error}"),
            "restore fileset.json in its bucket",
        ),
        EncryptionError::UnknownCipher(_) => Failure::new(
            format!("fileset `{name}`: {error}"),
            "use the version of penstock that made it",
        ),
    }
}
