//! The label of a file system: an object beside its data that says what lies there, so that nobody makes a second one
//! in its place and whoever finds the bucket knows what it holds.

use penstock_base::Payload;
#[cfg(any(test, feature = "testing"))]
use penstock_object::sealed::UserKey;
use penstock_object::{
    ETag, ErrorKind, GetOptions, Key, ObjectError, ObjectResult, PutOptions, Store, WriteCondition,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{durability::Durability, encryption::Encryption, schema::Format};

/// Its key, below the prefix of the file system.
const KEY: &str = "fileset.json";

/// What the object says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// The version of the format.
    pub version: u32,
    /// Which file system: 16 hexadecimal digits.
    pub identity: String,
    /// What it was called when it was made.
    pub name: String,
    /// What is durable when.
    #[serde(default)]
    pub durability: Durability,
    /// How its objects are encrypted, all but this one, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
    /// The address of the database that has its metadata, if one has. No password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// How often its metadata was brought to another engine: who has an earlier one has not got the file system any more.
    #[serde(default, skip_serializing_if = "is_first")]
    pub generation: u64,
}

fn is_first(generation: &u64) -> bool {
    *generation == 0
}

/// Why a label could not be read or written.
#[derive(Debug, Error)]
pub enum LabelError {
    /// There is a file system already.
    #[error("there is a file system already: `{}`, {}", .0.name, .0.identity)]
    Taken(Box<Label>),
    /// It was replaced since it was read.
    #[error("fileset.json was changed by somebody else")]
    Replaced,
    /// There is none.
    #[error("there is no file system")]
    Absent,
    /// It says something that this version does not understand.
    #[error("fileset.json is not understood: {0}")]
    Unknown(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] ObjectError),
}

impl Label {
    /// That of a new file system.
    pub fn new(name: &str, format: &Format, durability: Durability) -> Self {
        Self {
            version: format.version,
            identity: spelled(format),
            name: name.to_owned(),
            durability,
            encryption: None,
            engine: None,
            generation: 0,
        }
    }

    /// Whether it is that of the file system that says this of itself, and in this generation.
    pub(crate) fn is_of(&self, format: &Format, generation: u64) -> bool {
        self.identity == spelled(format) && self.generation == generation
    }

    /// Puts it where there is none.
    pub async fn write(&self, store: &dyn Store) -> Result<(), LabelError> {
        match self.put(store, WriteCondition::IfAbsent).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind == ErrorKind::AlreadyExists => {
                Err(LabelError::Taken(Box::new(Self::read(store).await?)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Puts it in the place of the one that was read with this tag.
    pub async fn replace(&self, store: &dyn Store, read: ETag) -> Result<(), LabelError> {
        match self.put(store, WriteCondition::IfMatch(read)).await {
            Err(error) if error.kind == ErrorKind::PreconditionFailed => Err(LabelError::Replaced),
            put => Ok(put?),
        }
    }

    async fn put(&self, store: &dyn Store, condition: WriteCondition) -> ObjectResult<()> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let options = PutOptions {
            content_type: Some("application/json".to_owned()),
            condition,
            ..PutOptions::default()
        };
        let put = store.put(&key(), Payload::from(text), options).await;
        put.map(drop)
    }

    /// Reads it.
    pub async fn read(store: &dyn Store) -> Result<Self, LabelError> {
        Ok(Self::read_tagged(store).await?.0)
    }

    /// Reads it, with the tag of what was read.
    pub async fn read_tagged(store: &dyn Store) -> Result<(Self, ETag), LabelError> {
        let mut text = Vec::new();
        let got = store.get(&key(), GetOptions::default(), &mut text).await;
        let got = got.map_err(|error| match error.kind {
            ErrorKind::NotFound => LabelError::Absent,
            _ => error.into(),
        })?;
        Ok((Self::parse(&text)?, got.info.etag))
    }

    /// Reads the text of one.
    fn parse(text: &[u8]) -> Result<Self, LabelError> {
        serde_json::from_slice(text).map_err(|error| LabelError::Unknown(error.to_string()))
    }

    /// Removes it: the last thing of a file system that goes.
    pub async fn remove(store: &dyn Store) -> Result<(), LabelError> {
        Ok(store.delete(&key()).await?)
    }
}

fn spelled(format: &Format) -> String {
    format!("{:016x}", format.identity)
}

fn key() -> Key {
    Key::new(KEY).expect("it is a valid key")
}

/// Reads bytes as a label, for a fuzz target.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub fn try_to_read_label(bytes: &[u8]) {
    let Ok(label) = Label::parse(bytes) else {
        return;
    };
    let user = UserKey::parse(&[0; 32]).expect("32 bytes");
    if let Some(encryption) = &label.encryption {
        assert!(encryption.data_key(&label.identity, &user).is_err());
    }
}

#[cfg(test)]
mod tests {
    use penstock_object::sealed::DataKey;
    use penstock_object_testing::MemoryStore;

    use super::*;

    #[test]
    fn a_label_of_before_there_was_encryption_is_one_without() {
        let old = br#"{"version":1,"identity":"00","name":"home","durability":"store"}"#;
        let label = Label::parse(old).unwrap();
        assert_eq!(label.encryption, None);
        assert_eq!(serde_json::to_vec(&label).unwrap(), old);
    }

    #[tokio::test]
    async fn a_label_replaces_only_the_one_that_was_read() {
        let store = MemoryStore::new();
        let mut label = Label::new("home", &Format::new(1), Durability::Store);
        label.write(&store).await.unwrap();
        let (_, seen) = Label::read_tagged(&store).await.unwrap();
        let user = UserKey::parse(&[1; 32]).unwrap();
        let data = DataKey::random().unwrap();
        label.encryption = Some(Encryption::new(&label.identity, &data, &user).unwrap());
        label.replace(&store, seen.clone()).await.unwrap();
        assert_eq!(Label::read(&store).await.unwrap(), label);
        let late = label.replace(&store, seen).await.unwrap_err();
        assert!(matches!(late, LabelError::Replaced), "{late}");
    }
}
