//! Where the bucket is and how to speak to it.

use std::time::Duration;

use crate::options::{Default, Group, Kind, Level, OptionSpec, Scope};

const STORE: OptionSpec = OptionSpec {
    group: Group::Store,
    scope: Scope::Store,
    ..OptionSpec::COMMON
};

pub(crate) static ENDPOINT: OptionSpec = OptionSpec {
    name: "endpoint",
    aliases: &["url"],
    kind: Kind::Text("URL"),
    default: Default::Depends("the provider's public endpoint for the region"),
    help: "Address of the object store",
    detail: "Scheme, host and port, such as https://oss-cn-hangzhou-internal.aliyuncs.com or \
             http://127.0.0.1:9000. Without a scheme, HTTPS is used.",
    effect: "Plain HTTP saves about 0.3 CPU seconds per GiB and sends the data in the clear.",
    ..STORE
};

pub(crate) static READ_ENDPOINT: OptionSpec = OptionSpec {
    name: "read-endpoint",
    scope: Scope::Mount,
    kind: Kind::Text("URL"),
    default: Default::Depends("objects are read from the endpoint"),
    help: "Another address of the same bucket, from which objects are read",
    detail: "The content of objects is read there; listings, attributes and every write stay with \
             the endpoint. What it lacks, or has in another version than the one that was opened, \
             is read from the endpoint; so is everything for 30s after it failed.",
    effect: "Splits the load, or lets reads take the cheaper or shorter way. Where it lags, what it \
             lacks costs a second request.",
    ..STORE
};

pub(crate) static REGION: OptionSpec = OptionSpec {
    name: "region",
    kind: Kind::Text("NAME"),
    default: Default::Depends("AWS_REGION or OSS_REGION, else what the endpoint's name tells"),
    help: "Region of the bucket",
    detail: "Requests are signed for it. For oss:// a region selects signature version 4; without \
             one version 1 is used.",
    ..STORE
};

pub(crate) static SIGNATURE: OptionSpec = OptionSpec {
    name: "signature",
    level: Level::Expert,
    kind: Kind::Choice(&["auto", "v1", "v4"]),
    default: Default::Is("auto"),
    help: "Version of the signatures of OSS",
    detail: "`auto` signs with version 4 where the region is known. S3 always has its own version \
             4.",
    ..STORE
};

pub(crate) static ADDRESSING: OptionSpec = OptionSpec {
    name: "addressing",
    kind: Kind::Choice(&["auto", "virtual-host", "path"]),
    default: Default::Is("auto"),
    help: "Whether the bucket stands in the host name or in the path",
    detail: "`auto` puts it into the host name unless the endpoint is an address or localhost, or \
             the bucket's name does not fit into one.",
    ..STORE
};

pub(crate) static CA_FILE: OptionSpec = OptionSpec {
    name: "ca-file",
    kind: Kind::Path,
    default: Default::Depends("what AWS_CA_BUNDLE names, if it does"),
    help: "Certificates to trust beside the system's",
    detail: "A PEM file with one or more certificates, for stores with a private authority \
             or to trust a server's own certificate, which may be signed by anybody. An authority there that has expired, or is \
             not one for servers, vouches for none. The file is read again when it changed, for \
             new connections; a pipe, as of `<(...)`, can be read once, which is enough for `ls` and `stat`. Other than with the tools of AWS the system's stay trusted. What the system trusts is what \
             SSL_CERT_FILE and SSL_CERT_DIR name, if one of them is set.",
    ..STORE
};

pub(crate) static CLIENT_CERT: OptionSpec = OptionSpec {
    name: "client-cert",
    level: Level::Expert,
    kind: Kind::Path,
    default: Default::Depends("none is shown"),
    help: "Certificate to show to a server that asks its clients for one",
    detail: "A PEM file with the certificate and those between it and its authority. It can hold the key as well. Both \
             are read again when they changed, for new connections.",
    ..STORE
};

pub(crate) static CLIENT_KEY: OptionSpec = OptionSpec {
    name: "client-key",
    level: Level::Expert,
    kind: Kind::Path,
    default: Default::Depends("the file of `client-cert`"),
    help: "Key of the certificate that is shown to the server",
    detail: "A PEM file without a passphrase, which nobody else should be able to read.",
    ..STORE
};

pub(crate) static PROXY: OptionSpec = OptionSpec {
    name: "proxy",
    kind: Kind::Text("URL"),
    default: Default::Depends("none"),
    help: "HTTP proxy that requests go through",
    detail: "Except those to metadata services and others on this machine or its link. Credentials are \
             asked for through the proxy only where it makes a tunnel, for https://.",
    ..STORE
};

pub(crate) static REQUESTER_PAYS: OptionSpec = OptionSpec {
    name: "requester-pays",
    help: "Pay for requests and transfers oneself instead of the bucket's owner",
    ..STORE
};

pub(crate) static LIST_OBJECTS_V2: OptionSpec = OptionSpec {
    name: "listobjectsv2",
    level: Level::Expert,
    default: Default::Is("on"),
    help: "List with the second version of the interface",
    detail: "Off for stores that know only the first one.",
    ..STORE
};

pub(crate) static USE_SSE: OptionSpec = OptionSpec {
    name: "use-sse",
    kind: Kind::Text("aes256|kms|kmsid:ID"),
    default: Default::Depends("as the bucket is set up"),
    help: "How the store encrypts what is written",
    detail: "`aes256` (or 1): with keys that the store makes up. `kms`: with the default key of its \
             key management. `kmsid:ID`: with that key.",
    ..STORE
};

pub(crate) static STORAGE_CLASS: OptionSpec = OptionSpec {
    name: "storage-class",
    kind: Kind::Text("CLASS"),
    default: Default::Depends("the bucket's"),
    help: "Storage class of what is written, as the store calls it",
    detail: "Such as IA for oss:// and STANDARD_IA for s3://. What is in an archive class cannot be \
             read before it is restored.",
    effect: "Cheaper classes charge for reading and for early removal.",
    ..STORE
};

pub(crate) static DEFAULT_ACL: OptionSpec = OptionSpec {
    name: "default-acl",
    level: Level::Expert,
    kind: Kind::Text("ACL"),
    default: Default::Depends("the bucket's"),
    help: "Who may use what is written, as the store calls it, such as public-read",
    ..STORE
};

const TRAFFIC_LIMIT: Kind = Kind::Count {
    min: 0,
    max: 838_860_800,
};

pub(crate) static UPLOAD_TRAFFIC_LIMIT: OptionSpec = OptionSpec {
    name: "upload-traffic-limit",
    level: Level::Expert,
    kind: TRAFFIC_LIMIT,
    default: Default::Is("0"),
    help: "Bits per second of each upload request (OSS), at least 819200; 0 for no limit",
    detail: "The store keeps to it. A file that is sent in parts has several requests at once.",
    ..STORE
};

pub(crate) static DOWNLOAD_TRAFFIC_LIMIT: OptionSpec = OptionSpec {
    name: "download-traffic-limit",
    level: Level::Expert,
    kind: TRAFFIC_LIMIT,
    default: Default::Is("0"),
    help: "Bits per second of each download request (OSS), at least 819200; 0 for no limit",
    ..STORE
};

pub(crate) static CHECKSUM: OptionSpec = OptionSpec {
    name: "checksum",
    kind: Kind::Choice(&["auto", "off"]),
    default: Default::Is("auto"),
    help: "Whether bytes are checked end to end",
    detail: "`auto` sends and compares the strongest checksum that the store is known to keep: \
             CRC-64 for OSS, CRC-64/NVME or CRC-32C for S3. It covers what is written, and files \
             that are fetched whole, as all up to 1 MiB are; stores tell none for a piece of a \
             larger one.",
    effect: "Costs about 0.03 CPU seconds per GiB; without it damage on the way goes unnoticed.",
    ..STORE
};

pub(crate) static CONNECT_TIMEOUT: OptionSpec = OptionSpec {
    name: "connect-timeout",
    level: Level::Expert,
    kind: Kind::Duration {
        min: Duration::from_millis(100),
        max: Duration::from_secs(60),
    },
    default: Default::Is("10s"),
    help: "How long a connection may take to be made",
    effect: "Shorter finds a dead address of the store sooner; too short fails on slow networks.",
    ..STORE
};

pub(crate) static REQUEST_TIMEOUT: OptionSpec = OptionSpec {
    name: "request-timeout",
    kind: Kind::Duration {
        min: Duration::from_secs(1),
        max: Duration::from_secs(900),
    },
    default: Default::Is("20s"),
    help: "How long the store may stay silent within one request",
    detail: "A request that is not answered for so long, or whose body makes no progress for half \
             of that, is given up and tried again. Requests that make the store copy have at least \
             two minutes.",
    ..STORE
};

pub(crate) static RETRY_TIMEOUT: OptionSpec = OptionSpec {
    name: "retry-timeout",
    kind: Kind::Duration {
        min: Duration::from_secs(1),
        max: Duration::from_secs(3600),
    },
    default: Default::Is("120s"),
    help: "How long a failing operation is retried before a program sees the error",
    effect: "Longer rides out longer outages; programs wait meanwhile, and can be interrupted.",
    ..STORE
};

pub(crate) static RETRY_ATTEMPTS: OptionSpec = OptionSpec {
    name: "retry-attempts",
    level: Level::Expert,
    aliases: &["retries"],
    kind: Kind::Count { min: 1, max: 100 },
    default: Default::Is("10"),
    help: "How often a request is sent at most that the store answers with an error",
    detail: "Within retry-timeout. A read that gets some bytes further starts to count anew. \
             Where a mount finds the store away (connections refused or reset, statuses 429, 502, \
             503 and 504) that does not count: it tries until retry-timeout has passed. With 1 \
             nothing is repeated.",
    ..STORE
};

pub(crate) static MAX_REQUESTS: OptionSpec = OptionSpec {
    name: "max-requests",
    kind: Kind::Count { min: 1, max: 4096 },
    default: Default::Is("256"),
    help: "Requests in flight at once",
    effect: "More hides more latency with many small files; each takes a connection.",
    ..STORE
};

pub(crate) static ENCRYPTION_KEY_FILE: OptionSpec = OptionSpec {
    name: "encryption-key-file",
    scope: Scope::Fileset,
    level: Level::Expert,
    kind: Kind::Path,
    default: Default::Depends("the fileset is not encrypted, or has it kept with it"),
    help: "File with the key of an encrypted fileset",
    detail: "32 random bytes, as 64 hexadecimal digits, as base64 or as they are, such as `openssl rand -hex 32` \
             prints. Nobody but its owner may have any right to it (mode 600). `fileset create` encrypts with it; \
             which file it is, not what is in it, is kept with the fileset. Whoever loses the key has lost the file system: \
             nothing can read it again.",
    effect: "Costs about 0.3 CPU seconds for each GiB that goes to the bucket or comes from there.",
    ..STORE
};

pub(crate) static ENCRYPTION_KEY_COMMAND: OptionSpec = OptionSpec {
    name: "encryption-key-command",
    scope: Scope::Fileset,
    level: Level::Expert,
    kind: Kind::Text("COMMAND"),
    default: Default::Depends("none"),
    help: "Program that prints the key of an encrypted fileset",
    detail: "An absolute path with arguments, in the place of `encryption-key-file`. It prints what that file would \
             hold, within 10s, and is run once by each command and each mount.",
    ..STORE
};
