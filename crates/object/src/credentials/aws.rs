//! Places that hold credentials for S3.

use reqsign_aws_v4::{
    AssumeRoleCredentialProvider, AssumeRoleWithWebIdentityCredentialProvider, Credential,
    ECSCredentialProvider, IMDSv2CredentialProvider, ProcessCredentialProvider,
    ProfileCredentialProvider, RequestSigner,
};
use reqsign_core::{Context, ProvideCredential, Result, Signer};

use super::{
    CredentialPlace, CredentialSettings, RoleSettings,
    bridge::{Base, Bridge},
    chain::Chain,
    environment_place::{Variables, fixed_or},
    password_file::PasswordFiles,
    process::Process,
};

/// Names of the variables for key id, secret and token.
const VARIABLES: &[[&str; 3]] = &[[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
]];

/// The places of `settings`, for a bucket of S3.
pub(crate) fn s3_chain(
    settings: &CredentialSettings,
    bucket: &str,
    region: &str,
    bridge: &Bridge,
) -> Chain {
    let mut chain = Chain::default();
    for place in super::places(settings) {
        add(&mut chain, place, settings, bucket, bridge);
    }
    match &settings.role {
        Some(role) => assume(role, chain, region, bridge),
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
        CredentialPlace::PasswordFile => chain.push(
            name,
            PasswordFiles {
                explicit: settings.password_file.clone(),
                usual: Vec::new(),
                bucket: bucket.to_owned(),
            },
        ),
        CredentialPlace::Process => chain.push(name, Process::of(&settings.process)),
        CredentialPlace::Profiles => add_profiles(chain, name, settings, bridge),
        CredentialPlace::WebIdentity => {
            let provider = AssumeRoleWithWebIdentityCredentialProvider::new();
            chain.push(name, bridge.place(provider));
        }
        CredentialPlace::Metadata => {
            chain.push(name, bridge.place(ECSCredentialProvider::new()));
            chain.push(name, bridge.place(IMDSv2CredentialProvider::new()));
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
    chain.push(name, bridge.place(profiles));
    chain.push(name, bridge.place(processes));
}

/// A chain of one place: the role, assumed with what `base` finds.
fn assume(role: &RoleSettings, base: Chain, region: &str, bridge: &Bridge) -> Chain {
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
    let mut chain = Chain::default();
    chain.push("role", bridge.place(provider));
    chain
}

impl ProvideCredential for Base {
    type Credential = Credential;

    async fn provide_credential(&self, _context: &Context) -> Result<Option<Credential>> {
        self.find().await
    }
}
