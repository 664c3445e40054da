//! What Penstock asks of an object store.
//!
//! [`Store`] is the seam: methods in their most general form, each with an options struct. Everything above speaks [`Key`], [`ETag`], [`ObjectInfo`] and [`ObjectError`]; nothing
//! above names an HTTP type.
//!
//! Bodies never pass through a general stream. A GET fills the caller's own [`BodySink`], which
//! for file data is pooled memory that the kernel reads from directly; a PUT sends the caller's
//! [`penstock_base::Payload`] slice by slice.
//!
//! Cross-cutting concerns are layers: each wraps a `Store` and is one.

mod alphabet;
mod assembled;
pub mod credentials;
mod error;
mod flat;
mod http;
mod key;
pub mod layers;
mod local;
mod open;
mod oss;
mod rest;
pub mod rules;
mod s3;
pub mod sealed;
pub mod settings;
mod sign;
mod sink;
mod store;
mod types;
mod url;
#[cfg(not(feature = "testing"))]
#[allow(unreachable_pub, reason = "fuzz targets use what is public in it")]
mod xml;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod xml;

pub use alphabet::Alphabet;
pub use assembled::tags_of_parts;
pub use error::{ErrorKind, ObjectError, ObjectResult, Operation};
pub use flat::{FlatObject, FlatPage, FlatTime};
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub use http::fuzzing;
pub use http::{CertificateFacts, TlsReport, TrustedBy, read_system_trust, room_for_seals};
pub use key::{ETag, KEY_LENGTH_MAX, Key, KeyError, UploadId};
pub use local::{LocalSettings, LocalStore};
pub use open::{open, open_backend, report_tls};
pub use penstock_base::{Checksum, ChecksumKind};
pub use rest::BULK_DELETES;
pub use settings::{
    Addressing, ChecksumChoice, ClientCertificate, Encryption, ListVersion, RetrySettings,
    SettingsError, SignatureChoice, StoreSettings, Timeouts, WriteSettings,
};
pub use sink::BodySink;
pub use store::{Below, DELETE_MANY_MAX, Store};
pub use types::{
    Ability, Appended, AtHand, ByteRange, Capabilities, Compared, CompleteOptions, CopyOptions,
    DeleteFailure, Description, GetOptions, Got, HEADER_MARK, HeadOptions, Known, ListOptions,
    ListPage, ListedObject, ObjectInfo, ObjectKind, Part, PartCopy, PartNumber, PutOptions, Stored,
    Upload, UploadPage, UserMetadata, WriteCondition,
};
pub use url::{BucketUrl, StoreUrl, StoreUrlError};
pub use xml::{is_expressible, parse_time};
