//! What Penstock asks of an object store.
//!
//! [`Store`] is the seam: about a dozen methods, each in its most general form with an options
//! struct. Everything above speaks [`Key`], [`ETag`], [`ObjectInfo`] and [`ObjectError`]; nothing
//! above names an HTTP type.
//!
//! Bodies never pass through a general stream. A GET fills the caller's own [`BodySink`], which
//! for file data is pooled memory that the kernel reads from directly; a PUT sends the caller's
//! [`penstock_base::Payload`] slice by slice.
//!
//! Cross-cutting concerns are layers: each wraps a `Store` and is one.

mod alphabet;
mod assembled;
pub mod conformance;
pub mod credentials;
mod error;
mod flat;
mod http;
mod key;
pub mod layers;
mod local;
mod memory;
mod multipart;
mod open;
mod oss;
mod range;
mod rest;
mod s3;
pub mod settings;
pub mod sign;
mod sink;
mod store;
mod types;
mod url;
pub mod xml;

pub use alphabet::Alphabet;
pub use assembled::tags_of_parts;
pub use error::{ErrorKind, ObjectError, ObjectResult, Operation};
pub use flat::{FlatObject, FlatPage, FlatTime};
#[doc(hidden)]
pub use http::fuzzing;
pub use key::{ETag, KEY_LENGTH_MAX, Key, KeyError, UploadId};
pub use local::{LocalSettings, LocalStore};
pub use memory::MemoryStore;
pub use open::{open, open_backend};
pub use penstock_base::{Checksum, ChecksumKind};
pub use settings::{
    Addressing, ChecksumChoice, Encryption, ListVersion, RetrySettings, SettingsError,
    SignatureChoice, StoreSettings, Timeouts, WriteSettings,
};
pub use sink::{BodySink, Moved};
pub use store::{DELETE_MANY_MAX, Store};
pub use types::{
    Ability, Appended, ByteRange, Capabilities, CompleteOptions, CopyOptions, DeleteFailure,
    Description, GetOptions, Got, HEADER_MARK, HeadOptions, Known, ListOptions, ListPage,
    ListedObject, ObjectInfo, ObjectKind, Part, PartCopy, PartNumber, PutOptions, Stored, Upload,
    UploadPage, UserMetadata, WriteCondition,
};
pub use url::{BucketUrl, StoreUrl, StoreUrlError};
