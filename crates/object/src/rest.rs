//! What S3 and OSS have in common: objects over HTTP, described by headers, listed in XML.
//!
//! [`RestStore`] carries out every operation of [`crate::Store`], under the same name; a [`Dialect`] says how the
//! store at hand spells it: header names, signature, conditions, checksums. Operations are
//! grouped by file: [`read`], [`write`], [`upload`], [`list`]. Each makes a [`Draft`] and sends it
//! through [`exchange`], the one place that signs, counts and turns bad answers into errors.

mod address;
mod attributes;
mod checksum;
mod copy;
mod describe;
mod dialect;
mod doubtful;
mod exchange;
mod failure;
mod feature;
mod list;
mod metrics;
mod plan;
mod proof;
mod provenance;
mod read;
mod skew;
mod upload;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use penstock_base::Payload;

pub(crate) use address::Address;
pub use address::Addressing;
pub(crate) use checksum::{decode as decode_checksum, encode as encode_checksum};
pub(crate) use dialect::{Dialect, Names, Signing};
pub(crate) use exchange::Draft;
pub use feature::BULK_DELETES;
pub(crate) use feature::{Feature, Features};
pub(crate) use metrics::RestMetrics;
pub(crate) use plan::{WriteKind, WritePlan};
pub(crate) use proof::Proof;
pub(crate) use skew::StoreClock;

use crate::{
    Ability, Appended, Below, BodySink, ChecksumKind, CompleteOptions, CopyOptions, DeleteFailure,
    FlatPage, GetOptions, Got, HeadOptions, Key, ListOptions, ListPage, ObjectInfo, ObjectResult,
    Part, PartCopy, PartNumber, PutOptions, Store, Stored, UploadId, UploadPage,
    credentials::CredentialSource,
    http::Client,
    settings::{ListVersion, WriteSettings},
};

/// One bucket behind a REST interface.
#[derive(Debug)]
pub(crate) struct RestStore<D> {
    pub(crate) dialect: D,
    /// What the endpoint turned out to do.
    pub(crate) features: Features,
    pub(crate) address: Address,
    pub(crate) client: Arc<Client>,
    pub(crate) credentials: Arc<CredentialSource>,
    pub(crate) metrics: RestMetrics,
    /// Whether the requester is charged instead of the bucket's owner.
    pub(crate) requester_pays: bool,
    /// What is said of every object that is written.
    pub(crate) writes: WriteSettings,
    pub(crate) listing: ListVersion,
    /// The time that requests are signed with.
    pub(crate) clock: StoreClock,
}

#[async_trait]
impl<D: Dialect> Store for RestStore<D> {
    fn below(&self) -> Below<'_> {
        Below::Service(self.dialect.capabilities())
    }

    fn abilities(&self) -> Vec<Ability> {
        if self.dialect.is_original() {
            return Vec::new();
        }
        let mut abilities = self.dialect.abilities();
        abilities.extend(self.features.abilities());
        abilities
    }

    fn checksum_kind(&self) -> Option<ChecksumKind> {
        self.dialect.checksum_kind()
    }

    async fn head(&self, key: &Key, _options: HeadOptions) -> ObjectResult<ObjectInfo> {
        self.head(key).await
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        self.get(key, &options, sink).await
    }

    async fn put(&self, key: &Key, body: Payload, options: PutOptions) -> ObjectResult<Stored> {
        self.put(key, &body, &options).await
    }

    async fn append(
        &self,
        key: &Key,
        position: u64,
        body: Payload,
        options: PutOptions,
    ) -> ObjectResult<Appended> {
        D::append(self, key, position, body, options).await
    }

    async fn copy(&self, source: &Key, target: &Key, options: CopyOptions) -> ObjectResult<Stored> {
        self.copy(source, target, &options).await
    }

    async fn delete(&self, key: &Key) -> ObjectResult<()> {
        self.delete(key).await
    }

    async fn delete_many(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        self.delete_many(keys).await
    }

    async fn list(&self, options: ListOptions) -> ObjectResult<ListPage> {
        self.list(&options).await
    }

    async fn list_flat(&self, options: ListOptions) -> ObjectResult<FlatPage> {
        self.list_flat(&options).await
    }

    async fn create_upload(&self, key: &Key, options: PutOptions) -> ObjectResult<UploadId> {
        self.create_upload(key, &options).await
    }

    async fn upload_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        body: Payload,
    ) -> ObjectResult<Part> {
        self.upload_part(key, upload, number, &body).await
    }

    async fn copy_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        copy: PartCopy,
    ) -> ObjectResult<Part> {
        self.copy_part(key, upload, number, &copy).await
    }

    async fn complete_upload(
        &self,
        key: &Key,
        upload: &UploadId,
        parts: &[Part],
        options: CompleteOptions,
    ) -> ObjectResult<Stored> {
        self.complete_upload(key, upload, parts, &options).await
    }

    async fn abort_upload(&self, key: &Key, upload: &UploadId) -> ObjectResult<()> {
        self.abort_upload(key, upload).await
    }

    async fn list_uploads(
        &self,
        prefix: &str,
        continuation: Option<&str>,
    ) -> ObjectResult<UploadPage> {
        self.list_uploads(prefix, continuation).await
    }

    async fn put_symlink(
        &self,
        key: &Key,
        target: &Key,
        options: PutOptions,
    ) -> ObjectResult<Stored> {
        D::put_symlink(self, key, target, options).await
    }

    async fn get_symlink(&self, key: &Key) -> ObjectResult<Key> {
        D::get_symlink(self, key).await
    }
}
