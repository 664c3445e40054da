//! Symbolic links between objects.

use super::Oss;
use crate::{
    ETag, ErrorKind, Key, ObjectResult, Operation, PutOptions, Stored,
    rest::{Draft, RestStore, WritePlan},
    sign::{Query, encode_value},
};

/// The target's key, percent-encoded.
const TARGET: &str = "x-oss-symlink-target";

impl RestStore<Oss> {
    pub(super) async fn put_symlink(
        &self,
        key: &Key,
        target: &Key,
        options: &PutOptions,
    ) -> ObjectResult<Stored> {
        let mut draft = Draft::new(Operation::PutSymlink, "PUT")
            .about(key)
            .with_query(Query::new().flag("symlink"));
        self.describe_object(&mut draft, options)?;
        draft.headers.push(TARGET, encode_value(target.as_str()));
        self.make_conditional(&mut draft, &options.condition, WritePlan::FULL)
            .await?;
        let response = self.send_only(&draft).await?;
        Ok(Stored {
            etag: ETag::new(response.headers.get("etag").unwrap_or_default()),
            checksum: None,
        })
    }

    pub(super) async fn get_symlink(&self, key: &Key) -> ObjectResult<Key> {
        let draft = Draft::new(Operation::GetSymlink, "GET")
            .about(key)
            .with_query(Query::new().flag("symlink"));
        let response = self.send_only(&draft).await?;
        let encoded = response.headers.get(TARGET).unwrap_or_default();
        let target = percent_encoding::percent_decode_str(encoded).decode_utf8_lossy();
        Key::new(target).map_err(|error| {
            draft.error(ErrorKind::Protocol, format!("the link's target: {error}"))
        })
    }
}
