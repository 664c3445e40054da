//! Places that hold credentials for S3.

use reqsign_aws_v4::{
    AssumeRoleCredentialProvider, AssumeRoleWithWebIdentityCredentialProvider, Credential,
    ECSCredentialProvider, IMDSv2CredentialProvider, ProcessCredentialProvider,
    ProfileCredentialProvider, RequestSigner,
};
use reqsign_core::{Context, ProvideCredential, Result, Signer};

use super::{
    CredentialOrigin, CredentialPlace, CredentialSettings, RoleSettings,
    bridge::{Base, Bridge},
    chain::Chain,
    environment_place::{Variables, fixed_or},
    origin::{Assumed, ProfileFiles},
    password_file::PasswordFiles,
    process::Process,
};

/// Names of the variables for key id, secret and token.
const VARIABLES: &[[&str; 3]] = &[[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
]];

/// The files of the AWS command line tool.
const PROFILES: ProfileFiles = ProfileFiles {
    profile: "AWS_PROFILE",
    files: &[
        ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
        ("AWS_CONFIG_FILE", ".aws/config"),
    ],
};

/// The places of `settings`, for a bucket of S3.
pub(crate) fn s3_chain(
    settings: &CredentialSettings,
    bucket: &str,
    region: &str,
    bridge: &Bridge,
) -> Chain {
    let mut chain = Chain::new(&settings.origin);
    for place in super::places(settings) {
        add(&mut chain, place, settings, bucket, bridge);
    }
    match &settings.role {
        Some(role) => assume((role, &settings.origin), chain, region, bridge),
        None => chain,
    }
}

fn add(
    chain: &mut Chain,
    place: CredentialPlace,
    settings: &CredentialSettings,
    bucket: &str,
    bridge: &Bridge,
) {
    let name = place.name();
    match place {
        CredentialPlace::Fixed => chain.push(name, fixed_or(&settings.fixed)),
        CredentialPlace::Environment => {
            chain.push(name, Variables::new(&settings.environment, VARIABLES));
        }
        CredentialPlace::PasswordFile => {
            let explicit = settings.password_file.clone();
            chain.push(name, PasswordFiles::explicit(explicit, bucket));
        }
        // The tools of AWS know of none.
        CredentialPlace::UsualPasswordFiles => {}
        CredentialPlace::Process => chain.push(name, Process::of(&settings.process)),
        CredentialPlace::Profiles => add_profiles(chain, name, settings, bridge),
        CredentialPlace::WebIdentity => {
            let provider = AssumeRoleWithWebIdentityCredentialProvider::new();
            let origin = "web identity: AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE";
            chain.push(name, bridge.place(provider, origin));
        }
        CredentialPlace::Metadata => {
            let container = ECSCredentialProvider::new();
            let origin = "the credential service of the container";
            chain.push(name, bridge.place(container, origin));
            let instance = IMDSv2CredentialProvider::new();
            let origin = "the metadata service of the instance";
            chain.push(name, bridge.place(instance, origin));
        }
    }
}

fn add_profiles(
    chain: &mut Chain,
    name: &'static str,
    settings: &CredentialSettings,
    bridge: &Bridge,
) {
    let mut profiles = ProfileCredentialProvider::new();
    let mut processes = ProcessCredentialProvider::new();
    if let Some(profile) = &settings.profile {
        profiles = profiles.with_profile(profile);
        processes = processes.with_profile(profile);
    }
    let origin = PROFILES.describe(settings);
    chain.push(name, bridge.place(profiles, origin.clone()));
    let origin = format!("the credential_process in {origin}");
    chain.push(name, bridge.place(processes, origin));
}

/// A chain of one place: the role, assumed with what `base` finds.
fn assume(
    (role, origin): (&RoleSettings, &CredentialOrigin),
    base: Chain,
    region: &str,
    bridge: &Bridge,
) -> Chain {
    let signer = Signer::new(
        bridge.context(),
        Base(base),
        RequestSigner::new("sts", region),
    );
    let mut provider = AssumeRoleCredentialProvider::new(role.arn.clone(), signer)
        .with_role_session_name(role.session_name().to_owned())
        .with_region(region.to_owned())
        .with_regional_sts_endpoint();
    if let Some(id) = &role.external_id {
        provider = provider.with_external_id(id.clone());
    }
    let mut chain = Chain::new(origin);
    chain.push(
        "role",
        Assumed::new(bridge.place(provider, &role.arn), origin),
    );
    chain
}

impl ProvideCredential for Base {
    type Credential = Credential;

    async fn provide_credential(&self, _context: &Context) -> Result<Option<Credential>> {
        self.find().await
    }
}
