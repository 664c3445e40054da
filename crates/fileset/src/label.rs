//! The label of a file system: an object beside its data that says what lies there, so that nobody makes a second one
//! in its place and whoever finds the bucket knows what it holds.

use penstock_base::Payload;
use penstock_object::{ErrorKind, GetOptions, Key, ObjectError, PutOptions, Store, WriteCondition};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{durability::Durability, schema::Format};

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
    /// The address of the database that has its metadata, if one has. No password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
}

/// Why a label could not be read or written.
#[derive(Debug, Error)]
pub enum LabelError {
    /// There is a file system already.
    #[error("there is a file system already: `{}`, {}", .0.name, .0.identity)]
    Taken(Label),
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
            engine: None,
        }
    }

    /// Whether it is that of the file system that says this of itself.
    pub(crate) fn is_of(&self, format: &Format) -> bool {
        self.identity == spelled(format)
    }

    /// Puts it where there is none.
    pub async fn write(&self, store: &dyn Store) -> Result<(), LabelError> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let options = PutOptions {
            content_type: Some("application/json".to_owned()),
            condition: WriteCondition::IfAbsent,
            ..PutOptions::default()
        };
        match store.put(&key()?, Payload::from(text), options).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == ErrorKind::AlreadyExists => {
                Err(LabelError::Taken(Self::read(store).await?))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads it.
    pub async fn read(store: &dyn Store) -> Result<Self, LabelError> {
        let mut text = Vec::new();
        match store.get(&key()?, GetOptions::default(), &mut text).await {
            Ok(_) => {}
            Err(error) if error.kind == ErrorKind::NotFound => return Err(LabelError::Absent),
            Err(error) => return Err(error.into()),
        }
        serde_json::from_slice(&text).map_err(|error| LabelError::Unknown(error.to_string()))
    }

    /// Removes it: the last thing of a file system that goes.
    pub async fn remove(store: &dyn Store) -> Result<(), LabelError> {
        Ok(store.delete(&key()?).await?)
    }
}

fn spelled(format: &Format) -> String {
    format!("{:016x}", format.identity)
}

fn key() -> Result<Key, LabelError> {
    Key::new(KEY).map_err(|error| LabelError::Unknown(error.to_string()))
}
