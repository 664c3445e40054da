//! Unfinished multipart uploads.

use std::{collections::BTreeMap, time::SystemTime};

use md5::{Digest, Md5};
use penstock_base::{Payload, clock, random};

use super::object::{self, Object};
use penstock_object::{
    Capabilities, Checksum, CompleteOptions, ETag, ErrorKind, Key, ObjectError, ObjectResult,
    Operation, Part, PartNumber, PutOptions, Upload, UploadId, UploadPage, WriteCondition, rules,
};

/// Uploads in a page.
const PAGE_MAX: usize = 1000;

/// Uploads by key and id.
#[derive(Default)]
pub(super) struct Uploads(BTreeMap<(String, String), Unfinished>);

pub(super) struct Unfinished {
    key: Key,
    options: PutOptions,
    initiated: SystemTime,
    parts: BTreeMap<PartNumber, (Part, Payload)>,
}

impl Uploads {
    pub(super) fn create(&mut self, key: &Key, options: PutOptions) -> UploadId {
        let id = random::token();
        let unfinished = Unfinished {
            key: key.clone(),
            options,
            initiated: clock::wall_time(),
            parts: BTreeMap::new(),
        };
        self.0
            .insert((key.as_str().to_owned(), id.clone()), unfinished);
        UploadId::new(&id)
    }

    pub(super) fn find(
        &mut self,
        operation: Operation,
        key: &Key,
        id: &UploadId,
    ) -> ObjectResult<&mut Unfinished> {
        self.0.get_mut(&name(key, id)).ok_or_else(|| {
            let message = "no such upload: it was completed or aborted; start a new one";
            ObjectError::new(ErrorKind::NoSuchUpload, operation, message).about(key)
        })
    }

    pub(super) fn forget(&mut self, key: &Key, id: &UploadId) {
        self.0.remove(&name(key, id));
    }

    /// One page; its continuation is `ID KEY` of its last upload.
    pub(super) fn page(&self, prefix: &str, continuation: Option<&str>) -> UploadPage {
        let after = continuation.and_then(|text| text.split_once(' '));
        let mut wanted = self
            .0
            .iter()
            .filter(|((key, id), _)| {
                key.starts_with(prefix)
                    && after.is_none_or(|(last_id, last_key)| {
                        (key.as_str(), id.as_str()) > (last_key, last_id)
                    })
            })
            .map(|((_, id), unfinished)| unfinished.described(id));
        let uploads: Vec<Upload> = wanted.by_ref().take(PAGE_MAX).collect();
        let continuation = match (wanted.next(), uploads.last()) {
            (Some(_), Some(last)) => Some(format!("{} {}", last.id.as_str(), last.key)),
            _ => None,
        };
        UploadPage {
            uploads,
            continuation,
        }
    }
}

impl Unfinished {
    pub(super) fn condition(&self) -> &WriteCondition {
        &self.options.condition
    }

    pub(super) fn add(&mut self, number: PartNumber, body: Payload) -> ObjectResult<Part> {
        let part = Part {
            number,
            etag: object::content_tag(&body),
            size: body.len() as u64,
            checksum: Some(object::sum(&body)),
        };
        self.parts.insert(number, (part.clone(), body));
        Ok(part)
    }

    /// The object that `parts` make up. Leaves the upload as it is.
    pub(super) fn assemble(
        &self,
        capabilities: &Capabilities,
        parts: &[Part],
        options: &CompleteOptions,
    ) -> ObjectResult<Object> {
        rules::check_order(capabilities, &self.key, parts)?;
        let mut body = Payload::new();
        let mut tags = Md5::new();
        for (index, part) in parts.iter().enumerate() {
            let stored = self.part(part)?;
            let last = index + 1 == parts.len();
            if !last && (stored.len() as u64) < capabilities.part_size_min {
                let message = format!("part {} is smaller than the minimum", part.number);
                return Err(self.refused(ErrorKind::InvalidRequest, &message));
            }
            tags.update(part.etag.as_str());
            body.append(stored.clone());
        }
        if body.len() as u64 > capabilities.object_size_max {
            return Err(self.refused(ErrorKind::TooLarge, "the parts exceed the largest object"));
        }
        let etag = ETag::new(&format!(
            "{}-{}",
            object::hex(&tags.finalize()),
            parts.len()
        ));
        let object = Object::assembled(body, etag, &self.options);
        self.check_sum(&object, options)?;
        Ok(object)
    }

    fn check_sum(&self, object: &Object, options: &CompleteOptions) -> ObjectResult<()> {
        match (options.checksum, object.stored().checksum) {
            (Some(Checksum::Crc64Ecma(sent)), Some(Checksum::Crc64Ecma(stored)))
                if sent != stored =>
            {
                let message = "the parts do not add up to the checksum that was sent";
                Err(self.refused(ErrorKind::ChecksumMismatch, message))
            }
            _ => Ok(()),
        }
    }

    fn part(&self, wanted: &Part) -> ObjectResult<&Payload> {
        match self.parts.get(&wanted.number) {
            Some((part, body)) if part.etag == wanted.etag => Ok(body),
            _ => {
                let message = format!("part {} is missing or was replaced", wanted.number);
                Err(self.refused(ErrorKind::InvalidRequest, &message))
            }
        }
    }

    fn refused(&self, kind: ErrorKind, message: &str) -> ObjectError {
        ObjectError::new(kind, Operation::CompleteUpload, message).about(&self.key)
    }

    fn described(&self, id: &str) -> Upload {
        Upload {
            key: self.key.clone(),
            id: UploadId::new(id),
            initiated: self.initiated,
        }
    }
}

fn name(key: &Key, id: &UploadId) -> (String, String) {
    (key.as_str().to_owned(), id.as_str().to_owned())
}
