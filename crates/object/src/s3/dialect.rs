//! How S3 spells requests.

use crate::{
    Ability, Capabilities, Checksum, ChecksumKind, ETag, Operation,
    http::{RequestHeaders, ResponseHeaders},
    rest::{
        Dialect, Names, Proof, Signing, WriteKind, WritePlan, decode_checksum, encode_checksum,
    },
    s3::features::Features,
    settings::StoreSettings,
    sign::{
        AwsScope, SignedRequest, SigningKeys, UNSIGNED_PAYLOAD, aws_authorization, aws_signing_key,
        basic_time,
    },
    xml::WriteAnswer,
};

const GIB: u64 = 1 << 30;

/// What S3 can do, by its documentation.
const CAPABILITIES: Capabilities = Capabilities {
    scheme: "s3",
    object_size_max: 5 << 40,
    put_size_max: 5 * GIB,
    part_size_min: 5 << 20,
    part_size_max: 5 * GIB,
    parts_max: 10_000,
    copy_size_max: 5 * GIB,
    append: false,
    symlinks: false,
    metadata_size_max: 2 << 10,
    write_if_absent: true,
};

/// The same for an endpoint that is not known to respect the conditions of writes.
const CAPABILITIES_WITHOUT_CONDITIONS: Capabilities = Capabilities {
    write_if_absent: false,
    ..CAPABILITIES
};

const CHECKSUM_TYPE: &str = "x-amz-checksum-type";
const FULL_OBJECT: &str = "FULL_OBJECT";

/// The S3 dialect.
#[derive(Debug)]
pub(crate) struct S3 {
    region: String,
    keys: SigningKeys,
    features: Features,
}

impl S3 {
    /// The dialect as the endpoint at `host` is expected to speak it.
    pub(crate) fn new(region: String, host: &str, settings: &StoreSettings) -> Self {
        let original = host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn");
        let features = Features::new(settings.checksum, original);
        Self {
            region,
            keys: SigningKeys::default(),
            features: match settings.look_before_writes {
                true => features,
                false => features.believing(),
            },
        }
    }
}

impl Dialect for S3 {
    const NAMES: Names = Names {
        metadata: "x-amz-meta-",
        metadata_directive: "x-amz-metadata-directive",
        copy_source: "x-amz-copy-source",
        copy_source_if_match: "x-amz-copy-source-if-match",
        copy_source_range: "x-amz-copy-source-range",
        request_payer: "x-amz-request-payer",
        storage_class: "x-amz-storage-class",
        acl: "x-amz-acl",
        encryption: "x-amz-server-side-encryption",
        encryption_kms: "aws:kms",
        encryption_key: "x-amz-server-side-encryption-aws-kms-key-id",
    };

    const AFTER_FLAG: &'static str = "=";

    const LIMITS_TRAFFIC: bool = false;

    fn capabilities(&self) -> &Capabilities {
        if self.features.checks_absence(Operation::Put) {
            &CAPABILITIES
        } else {
            &CAPABILITIES_WITHOUT_CONDITIONS
        }
    }

    fn is_original(&self) -> bool {
        self.features.is_original()
    }

    fn abilities(&self) -> Vec<Ability> {
        self.features.abilities()
    }

    fn sign(&self, signing: &Signing<'_>, headers: &mut RequestHeaders) {
        let Signing {
            draft,
            address,
            credentials,
            time,
        } = signing;
        headers.push("x-amz-date", basic_time(*time));
        headers.push("x-amz-content-sha256", UNSIGNED_PAYLOAD);
        if let Some(token) = &credentials.token {
            headers.push("x-amz-security-token", token.expose().to_owned());
        }
        let scope = AwsScope {
            region: &self.region,
            service: "s3",
        };
        let key = self
            .keys
            .get(credentials.secret.expose(), *time, |secret, date| {
                aws_signing_key(secret, date, scope)
            });
        let signed: Vec<_> = headers.iter().filter(|(name, _)| is_signed(name)).collect();
        let request = SignedRequest {
            method: draft.method,
            path: &address.path(draft.key_text()),
            query: &draft.query.encoded(Self::AFTER_FLAG),
            headers: &signed,
            payload_hash: UNSIGNED_PAYLOAD,
        };
        let value = aws_authorization(&request, &credentials.key_id, &key, scope, *time);
        headers.push("authorization", value);
    }

    fn prepare_read(&self, headers: &mut RequestHeaders) {
        if self.features.checksum_kind().is_some() {
            headers.push("x-amz-checksum-mode", "ENABLED");
        }
    }

    fn ways_to_read(&self) -> &'static [bool] {
        self.features.ways_to_read()
    }

    fn settle_read(&self, prepared: bool) {
        self.features.settle_read(prepared);
    }

    fn checksum_in(&self, headers: &ResponseHeaders) -> Option<Checksum> {
        self.features.checksum_kind()?;
        // A checksum of the parts' checksums says nothing about bytes that come in one piece.
        let whole = headers
            .get(CHECKSUM_TYPE)
            .is_none_or(|kind| kind == FULL_OBJECT);
        [ChecksumKind::Crc64Nvme, ChecksumKind::Crc32c]
            .into_iter()
            .filter(|_| whole)
            .find_map(|kind| decode_checksum(kind, headers.get(header_of(kind))?))
    }

    fn checksum_kind(&self) -> Option<ChecksumKind> {
        self.features.part_checksum_kind()
    }

    fn body_checksum(&self, plan: WritePlan) -> Option<ChecksumKind> {
        self.features.checksum_kind().filter(|_| plan.checksum)
    }

    fn plans(&self, kind: WriteKind) -> Vec<WritePlan> {
        self.features.plans(kind)
    }

    fn settle(&self, kind: WriteKind, plan: WritePlan, echoed: Option<bool>) {
        self.features.settle(kind, plan, echoed);
    }

    fn forbid_overwrite(&self, headers: &mut RequestHeaders) {
        headers.push("if-none-match", "*");
    }

    fn checks_absence(&self, operation: Operation) -> bool {
        self.features.checks_absence(operation)
    }

    fn require_version(&self, tag: &ETag, headers: &mut RequestHeaders) {
        headers.push("if-match", format!("\"{tag}\""));
    }

    fn checks_version(&self, operation: Operation) -> bool {
        self.features.checks_version(operation)
    }

    fn proof(&self, kind: WriteKind) -> Option<&Proof> {
        self.features.proof(kind)
    }

    fn declare_body(&self, checksum: Checksum, headers: &mut RequestHeaders) {
        let name = header_of(checksum.kind());
        headers.push(name, encode_checksum(checksum));
    }

    fn declare_upload(&self, headers: &mut RequestHeaders) {
        let name = match self.features.checksum_kind() {
            Some(ChecksumKind::Crc32c) => "CRC32C",
            Some(_) => "CRC64NVME",
            None => return,
        };
        if self.features.declares_uploads() {
            headers.push("x-amz-checksum-algorithm", name);
            headers.push(CHECKSUM_TYPE, FULL_OBJECT);
        }
    }

    fn declare_whole(&self, checksum: Checksum, headers: &mut RequestHeaders) {
        if self.features.declares_uploads() {
            self.declare_body(checksum, headers);
            headers.push(CHECKSUM_TYPE, FULL_OBJECT);
        }
    }

    fn part_element(&self, checksum: Checksum) -> Option<(&'static str, String)> {
        if !self.features.declares_uploads() {
            return None;
        }
        let name = match checksum {
            Checksum::Crc64Nvme(_) => "ChecksumCRC64NVME",
            Checksum::Crc32c(_) => "ChecksumCRC32C",
            Checksum::Crc64Ecma(_) => return None,
        };
        Some((name, encode_checksum(checksum)))
    }

    fn checksum_of_copy(&self, answer: &WriteAnswer) -> Option<Checksum> {
        match self.features.checksum_kind()? {
            kind @ ChecksumKind::Crc32c => decode_checksum(kind, &answer.crc32c),
            kind => decode_checksum(kind, &answer.crc64nvme),
        }
    }

    fn checksum_of_whole(&self, answer: &WriteAnswer) -> Option<Checksum> {
        let whole = answer.checksum_type.is_empty() || answer.checksum_type == FULL_OBJECT;
        self.checksum_of_copy(answer).filter(|_| whole)
    }
}

fn header_of(kind: ChecksumKind) -> &'static str {
    match kind {
        ChecksumKind::Crc32c => "x-amz-checksum-crc32c",
        ChecksumKind::Crc64Nvme | ChecksumKind::Crc64Ecma => "x-amz-checksum-crc64nvme",
    }
}

fn is_signed(name: &str) -> bool {
    name.starts_with("x-amz-") || matches!(name, "host" | "content-md5" | "content-type")
}
