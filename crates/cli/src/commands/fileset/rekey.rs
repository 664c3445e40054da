//! `penstock fileset rekey NAME --encryption-key-file NEW`.

use clap::{ArgMatches, Command};
use penstock_fileset::{Encryption, EncryptionError, Label, LabelError};
use penstock_object::sealed::{DataKey, UserKey};

use super::{name_argument, named, with_store_options};
use crate::{
    command_line,
    commands::listing,
    encryption::{self, KeySource},
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    filesets::{self, Fileset, Record},
    options::{Scope, Values},
    output,
};

pub(super) fn command() -> Command {
    let command = Command::new("rekey")
        .about("Give an encrypted file system another key")
        .long_about(
            "Wraps the key of the data with the key that is given, in the place of the one that is kept \
             with the fileset on this machine. No data is written anew: who has both the old key and an \
             old copy of fileset.json can read it still. Other machines are to be told of the new key, \
             with an option of `mount` or `attach`. It may be mounted meanwhile.",
        )
        .arg(name_argument());
    with_store_options(command)
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    let mut record = fileset.record()?;
    let kept = filesets::kept_options(&fileset.name, environment);
    let given = command_line::given_by_name(matches, Scope::Fileset);
    let given = command_line::gathered(given, None, environment)?;
    let new = KeySource::given(&Values::resolve(given.clone())?)?;
    let new = new.ok_or_else(|| encryption::no_key("the new key is missing"))?;
    let values = Values::resolve([given, kept.clone()].concat())?;
    listing::start_logging(&values);
    let old = KeySource::given(&Values::resolve(kept)?)?;
    listing::block_on(async {
        let look = listing::open(&record.store, &values, environment)?;
        let failed = |error| failed(&record, &error);
        let read = Label::read_tagged(&*look.store).await;
        let (mut label, tag) = read.map_err(failed)?;
        record.check_label(Some(label.clone()))?;
        let user = new.read().await?;
        let data = data_key(&fileset, &label, (old.as_ref(), &user)).await?;
        if let Some(data) = data {
            let made = Encryption::new(&label.identity, &data, &user);
            let made = made.map_err(|error| Failure::new(error.to_string(), "try again"))?;
            label.encryption = Some(made);
            label.replace(&*look.store, tag).await.map_err(failed)?;
        }
        record.encryption = label.encryption;
        new.keep(&mut record.options);
        fileset.write_record(&record)
    })?;
    output::print_line(&format!("fileset {} has another key: {new}", fileset.name))
}

/// The key of the data as the old key tells it; none if it is wrapped by the new one already, as an attempt before this
/// one left it.
async fn data_key(
    fileset: &Fileset,
    label: &Label,
    (old, new): (Option<&KeySource>, &UserKey),
) -> Outcome<Option<DataKey>> {
    let name = &fileset.name;
    let Some(made) = &label.encryption else {
        return Err(encryption::not_encrypted(name));
    };
    match made.data_key(&label.identity, new) {
        Ok(_) => return Ok(None),
        Err(EncryptionError::OtherKey) => {}
        Err(error) => return Err(encryption::failure(name, &error)),
    }
    let old =
        old.ok_or_else(|| encryption::no_key("the key that it has now is not kept with it"))?;
    let data = made.data_key(&label.identity, &old.read().await?);
    data.map(Some)
        .map_err(|error| encryption::failure(name, &error))
}

fn failed(record: &Record, error: &LabelError) -> Failure {
    match error {
        LabelError::Store(error) => explain::store_error(&record.store, error),
        error => Failure::new(
            format!("{}: {error}", record.store),
            "nothing was changed: try again",
        ),
    }
}
