//! Where key ids and secrets come from.
//!
//! A [`CredentialSource`] is asked before every request and answers from memory. Behind it a
//! [`chain::Chain`] looks in the places that [`CredentialSettings::order`] lists, in that order,
//! and the first that has credentials wins. What expires is fetched again well before it does,
//! by one task while all others go on with what they have ([`source`]).
//!
//! Services (web identity, instance metadata, assumed roles) are asked by the `reqsign` crates, to which
//! [`bridge`] lends our HTTP client and files; profiles are read here ([`profiles`]). This
//! crate never reads the process's environment: who opens a store hands in what there is of it
//! as an [`Environment`].
//!
//! Where credentials were found is told through a [`CredentialOrigin`], for people who wonder.
//!
//! Secrets are kept in [`Secret`] and never written to logs, errors or debug output.

mod aliyun;
mod aws;
mod bridge;
mod chain;
mod environment;
mod environment_place;
mod origin;
mod password_file;
mod process;
mod profiles;
mod sender;
mod source;

#[cfg(test)]
mod tests;

use std::{path::PathBuf, time::SystemTime};

use penstock_base::Secret;

pub(crate) use aliyun::oss_chain;
pub(crate) use aws::s3_chain;
pub(crate) use bridge::Bridge;
pub(crate) use chain::Chain;
pub use environment::Environment;
pub use origin::CredentialOrigin;
pub use process::printed_by;
pub(crate) use source::CredentialSource;

use crate::ErrorKind;

/// What a request is signed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The public part.
    pub key_id: String,
    /// The part that signs.
    pub secret: Secret,
    /// Sent along with temporary credentials.
    pub token: Option<Secret>,
    /// When they stop working; `None` for never.
    pub expires: Option<SystemTime>,
}

/// A place to look for credentials in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialPlace {
    /// [`CredentialSettings::fixed`].
    Fixed,
    /// The variables `AWS_ACCESS_KEY_ID` and so on; for OSS `OSS_ACCESS_KEY_ID`,
    /// `OSSACCESSKEYID` or `ALIBABA_CLOUD_ACCESS_KEY_ID` and so on.
    Environment,
    /// A file of `key:secret` lines: [`CredentialSettings::password_file`].
    PasswordFile,
    /// The same where nobody named one (OSS): the file that `OSS_CREDENTIAL_FILE` names, else
    /// `~/.passwd-ossfs`, else `/etc/passwd-ossfs`.
    UsualPasswordFiles,
    /// The profiles of the AWS or Alibaba Cloud command line tools.
    Profiles,
    /// The program [`CredentialSettings::process`].
    Process,
    /// A token file of Kubernetes, exchanged for a role's credentials (IRSA, RRSA).
    WebIdentity,
    /// The metadata service of the container or of the machine.
    Metadata,
}

impl CredentialPlace {
    /// All places in the order in which they are looked in by default.
    pub const AUTO: [Self; 8] = [
        Self::Fixed,
        Self::PasswordFile,
        Self::Environment,
        Self::UsualPasswordFiles,
        Self::Process,
        Self::Profiles,
        Self::WebIdentity,
        Self::Metadata,
    ];

    /// The name in settings and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Environment => "environment",
            Self::PasswordFile => "password-file",
            Self::UsualPasswordFiles => "usual-password-files",
            Self::Profiles => "profiles",
            Self::Process => "process",
            Self::WebIdentity => "web-identity",
            Self::Metadata => "metadata",
        }
    }

    /// The place with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::AUTO.into_iter().find(|place| place.name() == name)
    }
}

/// How credentials are found.
#[derive(Debug, Clone, Default)]
pub struct CredentialSettings {
    /// Where to look, in this order. Empty means [`CredentialPlace::AUTO`], where [`Self::profile`] is named
    /// without the variables and files of keys that nobody named.
    pub order: Vec<CredentialPlace>,
    /// Credentials that were given outright.
    pub fixed: Option<Credentials>,
    /// A file of `key:secret` or `bucket:key:secret` lines.
    pub password_file: Option<PathBuf>,
    /// The profile to take instead of the default one.
    pub profile: Option<String>,
    /// A program with an absolute path, and its arguments, separated by spaces, that prints
    /// credentials as JSON (the `credential_process` of the AWS tools).
    pub process: Option<String>,
    /// A role to assume with the credentials that were found.
    pub role: Option<RoleSettings>,
    /// A RAM role of the ECS instance (OSS): its name, the whole URL
    /// `http://100.100.100.200/latest/meta-data/ram/security-credentials/NAME`, or any other URL
    /// that answers with credentials in the same JSON.
    pub ram_role: Option<String>,
    /// What there is of the process's environment.
    pub environment: Environment,
    /// Is told where credentials were found.
    pub origin: CredentialOrigin,
}

/// A role to assume.
#[derive(Debug, Clone, Default)]
pub struct RoleSettings {
    /// The role's resource name, such as `arn:aws:iam::1:role/x` or `acs:ram::1:role/x`.
    pub arn: String,
    /// The address of the token service (OSS), if not the usual one.
    pub sts_endpoint: Option<String>,
}

/// What the provider's logs call the session of an assumed role.
const SESSION_NAME: &str = "penstock";

/// The places to look in.
fn places(settings: &CredentialSettings) -> Vec<CredentialPlace> {
    if !settings.order.is_empty() {
        return settings.order.clone();
    }
    let mut places = CredentialPlace::AUTO.to_vec();
    if settings.profile.is_some() {
        // Keys that are always there would stand for the profile.
        let unnamed = [
            CredentialPlace::Environment,
            CredentialPlace::UsualPasswordFiles,
        ];
        places.retain(|place| !unnamed.contains(place));
    }
    places
}

/// No credentials could be had.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub(crate) struct CredentialError {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
}

impl CredentialError {
    fn new(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::NoCredentials,
            message: message.into(),
        }
    }
}
