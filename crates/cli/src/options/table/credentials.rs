//! Who we are to the store.

use crate::options::{Accepts, Default, Group, Kind, Level, OptionSpec, Scope};

const CREDENTIALS: OptionSpec = OptionSpec {
    group: Group::Credentials,
    scope: Scope::Store,
    ..OptionSpec::COMMON
};

const PRIVATE: OptionSpec = OptionSpec {
    kind: Kind::Secret,
    accepts: Accepts::Privately,
    default: Default::Depends("the next source of credentials"),
    ..CREDENTIALS
};

pub(crate) static PROFILE: OptionSpec = OptionSpec {
    name: "profile",
    kind: Kind::Text("NAME"),
    default: Default::Depends("AWS_PROFILE or AWS_DEFAULT_PROFILE, else `default`"),
    help: "Section of the files in which the provider's tools keep credentials",
    detail: "Where it is given, and `credential-order` is not, keys in environment variables and in the \
             usual password files do not count. AWS_PROFILE and its like only choose the section: keys in \
             variables still come first.",
    ..CREDENTIALS
};

pub(crate) static PASSWORD_FILE: OptionSpec = OptionSpec {
    name: "password-file",
    aliases: &["passwd-file"],
    kind: Kind::Path,
    default: Default::Depends("for oss:// ~/.passwd-ossfs, then /etc/passwd-ossfs"),
    help: "File with ID:SECRET or BUCKET:ID:SECRET lines",
    detail: "Also OSSAccessKeyId=ID and OSSSecretKey=SECRET on two lines; # begins a comment. The line \
             of the bucket wins over one without a bucket. Nobody but its owner may have any right to \
             it (mode 600); the group may read /etc/passwd-ossfs (640). Where it is given, no other \
             place is looked in.",
    ..CREDENTIALS
};

pub(crate) static CREDENTIAL_ORDER: OptionSpec = OptionSpec {
    name: "credential-order",
    level: Level::Expert,
    kind: Kind::Text("PLACE:PLACE..."),
    default: Default::Depends(
        "fixed, password-file, environment, usual-password-files, process, profiles, \
         web-identity, metadata; only fixed and password-file where that option is given; without \
         environment and usual-password-files where `profile` is given",
    ),
    help: "Places to look for credentials in, the first one that is set up decides",
    detail: "Names from the default, joined by `:`. When a place that is set up fails, that is an \
             error: no later place is asked, and a mount never goes on as somebody else. `fixed` are those among the options; \
             `usual-password-files` are, for oss://, the file that OSS_CREDENTIAL_FILE names, \
             ~/.passwd-ossfs and /etc/passwd-ossfs.",
    ..CREDENTIALS
};

pub(crate) static CREDENTIAL_PROCESS: OptionSpec = OptionSpec {
    name: "credential-process",
    kind: Kind::Text("COMMAND"),
    default: Default::Depends("none"),
    help: "Program that prints credentials",
    detail: "An absolute path with arguments. It prints JSON with AccessKeyId, the secret, and \
             perhaps a token and an expiration, and is run again before they expire.",
    ..CREDENTIALS
};

pub(crate) static RAM_ROLE: OptionSpec = OptionSpec {
    name: "ram-role",
    kind: Kind::Text("auto|NAME|URL"),
    default: Default::Depends("asked for last, when nothing else yields credentials"),
    help: "Role of the cloud machine to take credentials from",
    detail: "Read from the metadata service of ECS or EC2. `auto` takes the role that is \
             attached to the machine; a URL names a service that answers with credentials.",
    ..CREDENTIALS
};

pub(crate) static ROLE: OptionSpec = OptionSpec {
    name: "role",
    kind: Kind::Text("ARN"),
    default: Default::Depends("none"),
    help: "Role to assume with the credentials that were found",
    ..CREDENTIALS
};

pub(crate) static ANONYMOUS: OptionSpec = OptionSpec {
    name: "anonymous",
    aliases: &["public-bucket"],
    help: "Send unsigned requests",
    detail: "For public buckets. No credentials are looked for.",
    ..CREDENTIALS
};

pub(crate) static ACCESS_KEY_ID: OptionSpec = OptionSpec {
    name: "access-key-id",
    help: "Access key, for configuration files and the environment",
    detail: "Refused on the command line, where every user of the machine could read it. A file \
             that holds it must not be readable by others.",
    ..PRIVATE
};

pub(crate) static ACCESS_KEY_SECRET: OptionSpec = OptionSpec {
    name: "access-key-secret",
    aliases: &["secret-access-key"],
    help: "Secret of the access key, for configuration files and the environment",
    detail: "See access-key-id.",
    ..PRIVATE
};

pub(crate) static SESSION_TOKEN: OptionSpec = OptionSpec {
    name: "session-token",
    aliases: &["security-token"],
    help: "Token of temporary credentials, for configuration files and the environment",
    detail: "See access-key-id.",
    ..PRIVATE
};
