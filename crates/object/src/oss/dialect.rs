//! How OSS spells requests.

use penstock_base::Payload;

use crate::{
    Appended, Capabilities, Checksum, ChecksumKind, Key, ObjectResult, PutOptions, Stored,
    http::{RequestHeaders, ResponseHeaders},
    oss::append::AppendedSums,
    rest::{Dialect, Names, RestStore, Signing, WritePlan},
    sign::{
        OssScope, OssV1Request, OssV4Request, SignedRequest, SigningKeys, UNSIGNED_PAYLOAD,
        basic_time, http_date, oss_v1_authorization, oss_v1_resource, oss_v4_authorization,
        oss_v4_signing_key,
    },
};

const GIB: u64 = 1 << 30;

/// What OSS can do, by its documentation.
const CAPABILITIES: Capabilities = Capabilities {
    scheme: "oss",
    object_size_max: 10_000 * 5 * GIB,
    put_size_max: 5 * GIB,
    part_size_min: 100 << 10,
    part_size_max: 5 * GIB,
    parts_max: 10_000,
    // More would be possible within one bucket, as long as nothing is re-encrypted.
    copy_size_max: 5 * GIB,
    append: true,
    symlinks: true,
    metadata_size_max: 8 << 10,
    write_if_absent: true,
};

const CRC64: &str = "x-oss-hash-crc64ecma";

/// The OSS dialect.
#[derive(Debug)]
pub(crate) struct Oss {
    /// Signatures are of version 4 where the region is known, else of version 1.
    region: Option<String>,
    keys: SigningKeys,
    checksums: bool,
    pub(super) appended: AppendedSums,
}

impl Oss {
    pub(crate) fn new(region: Option<String>, checksums: bool) -> Self {
        Self {
            region,
            keys: SigningKeys::default(),
            checksums,
            appended: AppendedSums::default(),
        }
    }

    fn sign_v4(&self, region: &str, signing: &Signing<'_>, headers: &mut RequestHeaders) {
        let Signing {
            draft,
            address,
            credentials,
            time,
        } = signing;
        headers.push("x-oss-date", basic_time(*time));
        headers.push("x-oss-content-sha256", UNSIGNED_PAYLOAD);
        let scope = OssScope {
            region,
            product: "oss",
        };
        let key = self
            .keys
            .get(credentials.secret.expose(), *time, |secret, date| {
                oss_v4_signing_key(secret, date, scope)
            });
        let fields: Vec<_> = headers.iter().collect();
        let request = OssV4Request {
            request: SignedRequest {
                method: draft.method,
                path: &address.full_path(draft.key_text()),
                query: &draft.query.encoded(Self::AFTER_FLAG),
                headers: &fields,
                payload_hash: UNSIGNED_PAYLOAD,
            },
            additional: &[],
        };
        let value = oss_v4_authorization(&request, &credentials.key_id, &key, scope, *time);
        headers.push("authorization", value);
    }

    fn sign_v1(signing: &Signing<'_>, headers: &mut RequestHeaders) {
        let Signing {
            draft,
            address,
            credentials,
            time,
        } = signing;
        let date = http_date(*time);
        let fields: Vec<_> = headers.iter().collect();
        let request = OssV1Request {
            method: draft.method,
            headers: &fields,
            date: &date,
            resource: &oss_v1_resource(&address.bucket, draft.key_text(), &draft.query, &[]),
        };
        let secret = credentials.secret.expose();
        let value = oss_v1_authorization(&request, &credentials.key_id, secret);
        headers.push("date", date);
        headers.push("authorization", value);
    }
}

impl Dialect for Oss {
    const NAMES: Names = Names {
        metadata: "x-oss-meta-",
        metadata_directive: "x-oss-metadata-directive",
        copy_source: "x-oss-copy-source",
        copy_source_if_match: "x-oss-copy-source-if-match",
        copy_source_range: "x-oss-copy-source-range",
        request_payer: "x-oss-request-payer",
        storage_class: "x-oss-storage-class",
        acl: "x-oss-object-acl",
        encryption: "x-oss-server-side-encryption",
        encryption_kms: "KMS",
        encryption_key: "x-oss-server-side-encryption-key-id",
    };

    const AFTER_FLAG: &'static str = "";

    const LIMITS_TRAFFIC: bool = true;

    fn capabilities(&self) -> &Capabilities {
        &CAPABILITIES
    }

    fn sign(&self, signing: &Signing<'_>, headers: &mut RequestHeaders) {
        if let Some(token) = &signing.credentials.token {
            headers.push("x-oss-security-token", token.expose().to_owned());
        }
        match &self.region {
            Some(region) => self.sign_v4(region, signing, headers),
            None => Self::sign_v1(signing, headers),
        }
    }

    /// Without this a range beyond the end gets the whole object instead of an error.
    fn prepare_read(&self, headers: &mut RequestHeaders) {
        headers.push("x-oss-range-behavior", "standard");
    }

    fn checksum_in(&self, headers: &ResponseHeaders) -> Option<Checksum> {
        let number = headers.number(CRC64).filter(|_| self.checksums)?;
        Some(Checksum::Crc64Ecma(number))
    }

    fn checksum_kind(&self) -> Option<ChecksumKind> {
        self.checksums.then_some(ChecksumKind::Crc64Ecma)
    }

    fn body_checksum(&self, _plan: WritePlan) -> Option<ChecksumKind> {
        self.checksum_kind()
    }

    fn forbid_overwrite(&self, headers: &mut RequestHeaders) {
        headers.push("x-oss-forbid-overwrite", "true");
    }

    async fn append(
        store: &RestStore<Self>,
        key: &Key,
        position: u64,
        body: Payload,
        options: PutOptions,
    ) -> ObjectResult<Appended> {
        store.append(key, position, body, &options).await
    }

    async fn put_symlink(
        store: &RestStore<Self>,
        key: &Key,
        target: &Key,
        options: PutOptions,
    ) -> ObjectResult<Stored> {
        store.put_symlink(key, target, &options).await
    }

    async fn get_symlink(store: &RestStore<Self>, key: &Key) -> ObjectResult<Key> {
        store.get_symlink(key).await
    }
}
