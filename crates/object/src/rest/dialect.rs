//! Where S3 and OSS differ.

use std::{fmt::Debug, future::Future, time::SystemTime};

use penstock_base::Payload;

use super::{Address, Draft, Proof, RestStore, WriteKind, WritePlan};
use crate::{
    Ability, Appended, Capabilities, Checksum, ChecksumKind, ETag, ErrorKind, Key, ObjectError,
    ObjectResult, Operation, PutOptions, Stored,
    credentials::Credentials,
    http::{RequestHeaders, ResponseHeaders},
    xml::WriteAnswer,
};

/// How a dialect spells the headers that both have.
#[derive(Debug)]
pub(crate) struct Names {
    /// Before the names of user metadata.
    pub(crate) metadata: &'static str,
    pub(crate) metadata_directive: &'static str,
    pub(crate) copy_source: &'static str,
    pub(crate) copy_source_if_match: &'static str,
    pub(crate) copy_source_range: &'static str,
    pub(crate) request_payer: &'static str,
    pub(crate) storage_class: &'static str,
    pub(crate) acl: &'static str,
    pub(crate) encryption: &'static str,
    /// The word for keys of the store's key management.
    pub(crate) encryption_kms: &'static str,
    pub(crate) encryption_key: &'static str,
}

/// What a signature is made from.
#[derive(Debug)]
pub(crate) struct Signing<'a> {
    pub(crate) draft: &'a Draft,
    pub(crate) address: &'a Address,
    pub(crate) credentials: &'a Credentials,
    pub(crate) time: SystemTime,
}

/// One way to spell requests.
pub(crate) trait Dialect: Debug + Send + Sync + Sized + 'static {
    const NAMES: Names;

    /// What follows a query parameter that has no value.
    const AFTER_FLAG: &'static str;

    /// Whether requests can be slowed down by the store.
    const LIMITS_TRAFFIC: bool;

    fn capabilities(&self) -> &Capabilities;

    /// Whether the store is the one whose dialect this is, and no imitation.
    fn is_original(&self) -> bool {
        true
    }

    /// What imitations may lack, and whether this one does.
    fn abilities(&self) -> Vec<Ability> {
        Vec::new()
    }

    /// Adds the headers that authorise the request. `headers` holds all others already.
    fn sign(&self, signing: &Signing<'_>, headers: &mut RequestHeaders);

    /// Asks a read for what makes it verifiable.
    fn prepare_read(&self, headers: &mut RequestHeaders);

    /// Whether to prepare reads: the ways to try one in, best first.
    fn ways_to_read(&self) -> &'static [bool] {
        &[true]
    }

    /// Learns that a read went through, prepared or not.
    fn settle_read(&self, _prepared: bool) {}

    /// The checksum of the whole object that an answer carries.
    fn checksum_in(&self, headers: &ResponseHeaders) -> Option<Checksum>;

    /// See [`crate::Store::checksum_kind`].
    fn checksum_kind(&self) -> Option<ChecksumKind>;

    /// Which checksum is made of bodies that are sent with `plan`.
    fn body_checksum(&self, plan: WritePlan) -> Option<ChecksumKind>;

    /// The ways to try a write in, best first.
    fn plans(&self, _kind: WriteKind) -> Vec<WritePlan> {
        vec![WritePlan::FULL]
    }

    /// Learns that a write went through with `plan`. `echoed` tells whether the store confirmed
    /// the checksum, where that can be seen.
    fn settle(&self, _kind: WriteKind, _plan: WritePlan, _echoed: Option<bool>) {}

    /// Makes a write fail when the key is taken.
    fn forbid_overwrite(&self, headers: &mut RequestHeaders);

    /// Whether the store is known to respect [`Dialect::forbid_overwrite`].
    fn checks_absence(&self, _operation: Operation) -> bool {
        true
    }

    /// Makes a write fail when the key has another version, where that can be said.
    fn require_version(&self, _tag: &ETag, _headers: &mut RequestHeaders) {}

    /// Whether the store is known to respect [`Dialect::require_version`].
    fn checks_version(&self, _operation: Operation) -> bool {
        false
    }

    /// What is known of the condition of such a write, where that has to be found out.
    fn proof(&self, _kind: WriteKind) -> Option<&Proof> {
        None
    }

    /// Sends the checksum of a body along with it, where the store does not compute it by itself and tell it.
    fn declare_body(&self, _checksum: Checksum, _headers: &mut RequestHeaders) {}

    /// Tells a new upload which checksum its parts will have, where that has to be told.
    fn declare_upload(&self, _headers: &mut RequestHeaders) {}

    /// Sends the checksum of the whole object when an upload is completed.
    fn declare_whole(&self, _checksum: Checksum, _headers: &mut RequestHeaders) {}

    /// How a part's checksum is repeated when its upload is completed, if it is: element name and value.
    fn part_element(&self, _checksum: Checksum) -> Option<(&'static str, String)> {
        None
    }

    /// The checksum of a part that the store made by copying.
    fn checksum_of_copy(&self, _answer: &WriteAnswer) -> Option<Checksum> {
        None
    }

    /// The checksum of the whole object in the answer to a completed upload.
    fn checksum_of_whole(&self, _answer: &WriteAnswer) -> Option<Checksum> {
        None
    }

    /// See [`crate::Store::append`].
    fn append(
        _store: &RestStore<Self>,
        key: &Key,
        _position: u64,
        _body: Payload,
        _options: PutOptions,
    ) -> impl Future<Output = ObjectResult<Appended>> + Send {
        std::future::ready(Err(unsupported(Operation::Append, key)))
    }

    /// See [`crate::Store::put_symlink`].
    fn put_symlink(
        _store: &RestStore<Self>,
        key: &Key,
        _target: &Key,
        _options: PutOptions,
    ) -> impl Future<Output = ObjectResult<Stored>> + Send {
        std::future::ready(Err(unsupported(Operation::PutSymlink, key)))
    }

    /// See [`crate::Store::get_symlink`].
    fn get_symlink(
        _store: &RestStore<Self>,
        key: &Key,
    ) -> impl Future<Output = ObjectResult<Key>> + Send {
        std::future::ready(Err(unsupported(Operation::GetSymlink, key)))
    }
}

fn unsupported(operation: Operation, key: &Key) -> ObjectError {
    let message = "S3 cannot do this; OSS can, with an oss:// source";
    ObjectError::new(ErrorKind::Unsupported, operation, message).about(key)
}
