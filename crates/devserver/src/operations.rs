//! What requests ask for, and the handlers that do it.

mod answer;
mod append;
mod buckets;
mod conditions;
mod copy;
mod delete;
mod get;
mod list;
mod multipart;
mod parts;
mod put;
mod receive;
mod route;
mod symlink;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use answer::refuse;
pub(crate) use route::route;

use crate::{
    address::Address,
    dialect::Dialect,
    http::{body::Body, request::Request, response::Response},
    lacks::Lack,
    refusal::{Code, Trouble},
    service::{Flow, Service},
    store::{Bucket, Object},
};

macro_rules! operations {
    ($($variant:ident $name:literal $handler:path;)*) => {
        /// The operations of both dialects, as counters and fault rules name them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[allow(missing_docs)]
        pub enum Operation {
            $($variant,)*
        }

        impl Operation {
            /// Every operation, for tables indexed by `operation as usize`.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in counters and fault rules.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        /// Carries the operation out.
        pub(crate) fn perform(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
            match exchange.operation {
                $(Operation::$variant => $handler(exchange),)*
            }
        }
    };
}

operations! {
    ListBuckets "list_buckets" buckets::list_buckets;
    CreateBucket "create_bucket" buckets::create_bucket;
    DeleteBucket "delete_bucket" buckets::delete_bucket;
    HeadBucket "head_bucket" buckets::head_bucket;
    GetBucketLocation "get_bucket_location" buckets::location;
    GetBucketInfo "get_bucket_info" buckets::info;
    GetBucketStat "get_bucket_stat" buckets::stat;
    GetBucketAcl "get_bucket_acl" buckets::acl;
    GetBucketVersioning "get_bucket_versioning" buckets::versioning;
    ListObjects "list_objects" list::list_objects;
    ListObjectsV2 "list_objects_v2" list::list_objects_v2;
    ListUploads "list_uploads" parts::list_uploads;
    DeleteObjects "delete_objects" delete::delete_objects;
    HeadObject "head_object" get::get_object;
    GetObject "get_object" get::get_object;
    GetObjectMeta "get_object_meta" get::object_meta;
    GetObjectAcl "get_object_acl" buckets::acl;
    PutObject "put_object" put::put_object;
    AppendObject "append_object" append::append_object;
    CopyObject "copy_object" copy::copy_object;
    DeleteObject "delete_object" delete::delete_object;
    CreateUpload "create_upload" multipart::create_upload;
    UploadPart "upload_part" multipart::upload_part;
    UploadPartCopy "upload_part_copy" copy::upload_part_copy;
    CompleteUpload "complete_upload" multipart::complete_upload;
    AbortUpload "abort_upload" multipart::abort_upload;
    ListParts "list_parts" parts::list_parts;
    PutSymlink "put_symlink" symlink::put_symlink;
    GetSymlink "get_symlink" symlink::get_symlink;
    Unknown "unknown" unknown;
}

/// One request on its way through the server.
pub(crate) struct Exchange<'a> {
    pub(crate) service: &'a Service,
    pub(crate) flow: Flow<'a>,
    pub(crate) request: &'a Request,
    pub(crate) dialect: Dialect,
    pub(crate) operation: Operation,
    pub(crate) address: Address,
    pub(crate) body: Body<'a>,
    /// Index of a byte of the request's body to damage, as a fault rule wants it.
    pub(crate) flip_received: Option<u64>,
}

impl Exchange<'_> {
    pub(crate) fn bucket(&self) -> Result<Arc<Bucket>, Trouble> {
        let found = self.service.data.bucket(&self.address.bucket);
        found.ok_or_else(|| answer::no_such_bucket(&self.address.bucket).into())
    }

    /// The object at the request's key.
    pub(crate) fn object(&self) -> Result<Arc<Object>, Trouble> {
        let found = self.bucket()?.get(&self.address.key);
        found.ok_or_else(|| answer::no_such_key(&self.address.key).into())
    }

    /// A header of the request's dialect: `copy-source` is `x-amz-copy-source` in S3.
    pub(crate) fn dialect_header(&self, name: &str) -> Option<&str> {
        self.request.header(&self.dialect.header(name))
    }

    pub(crate) fn lacks(&self, lack: Lack) -> bool {
        self.service.faults.lacks(lack)
    }

    pub(crate) fn is_oss(&self) -> bool {
        self.dialect == Dialect::Oss
    }
}

fn unknown(_exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    Err(Code::NotImplemented.into())
}
