//! Places that hold credentials for OSS.

use std::path::PathBuf;

use reqsign_aliyun_oss::{
    AssumeRoleCredentialProvider, AssumeRoleWithOidcCredentialProvider,
    ConfigFileCredentialProvider, Credential, CredentialsFileCredentialProvider,
    CredentialsUriCredentialProvider, EcsRamRoleCredentialProvider, OssProfileCredentialProvider,
};
use reqsign_core::{Context, ProvideCredential, Result};

use super::{
    CredentialOrigin, CredentialPlace, CredentialSettings, RoleSettings,
    bridge::{Base, Bridge},
    chain::Chain,
    environment_place::{Variables, fixed_or},
    origin::{Assumed, ProfileFiles},
    password_file::PasswordFiles,
    process::Process,
};

/// Names of the variables for key id, secret and token: of ossfs, of the SDKs, of everything
/// else on Alibaba Cloud.
const VARIABLES: &[[&str; 3]] = &[
    ["OSSACCESSKEYID", "OSSSECRETACCESSKEY", "OSSSESSIONTOKEN"],
    [
        "OSS_ACCESS_KEY_ID",
        "OSS_ACCESS_KEY_SECRET",
        "OSS_SESSION_TOKEN",
    ],
    [
        "ALIBABA_CLOUD_ACCESS_KEY_ID",
        "ALIBABA_CLOUD_ACCESS_KEY_SECRET",
        "ALIBABA_CLOUD_SECURITY_TOKEN",
    ],
];

/// The files of the SDKs of OSS.
const SDK: ProfileFiles = ProfileFiles {
    profile: "OSS_PROFILE",
    files: &[("OSS_CREDENTIAL_PROFILES_FILE", ".oss/credentials")],
};

/// The files of the other SDKs of Alibaba Cloud.
const CREDENTIALS: ProfileFiles = ProfileFiles {
    profile: "ALIBABA_CLOUD_PROFILE",
    files: &[
        (
            "ALIBABA_CLOUD_CREDENTIALS_FILE",
            ".alibabacloud/credentials.ini",
        ),
        ("ALIBABA_CLOUD_CREDENTIALS_FILE", ".aliyun/credentials.ini"),
    ],
};

/// The file of the command line tool.
const CONFIG: ProfileFiles = ProfileFiles {
    profile: "ALIBABA_CLOUD_PROFILE",
    files: &[("ALIBABA_CLOUD_CONFIG_FILE", ".aliyun/config.json")],
};

/// What stands before the role's name in the URL of its credentials.
const ROLE_PATH: &str = "/latest/meta-data/ram/security-credentials/";

/// The places of `settings`, for a bucket of OSS.
pub(crate) fn oss_chain(settings: &CredentialSettings, bucket: &str, bridge: &Bridge) -> Chain {
    let mut chain = Chain::new(&settings.origin);
    for place in super::places(settings) {
        add(&mut chain, place, settings, bucket, bridge);
    }
    match &settings.role {
        Some(role) => assume((role, &settings.origin), chain, bridge),
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
        CredentialPlace::UsualPasswordFiles => {
            chain.push(name, usual_password_files(settings, bucket));
        }
        CredentialPlace::Process => chain.push(name, Process::of(&settings.process)),
        CredentialPlace::Profiles => add_profiles(chain, name, settings, bridge),
        CredentialPlace::WebIdentity => {
            let provider = AssumeRoleWithOidcCredentialProvider::new();
            let origin = "web identity: ALIBABA_CLOUD_ROLE_ARN and \
                          ALIBABA_CLOUD_OIDC_TOKEN_FILE";
            chain.push(name, bridge.place(provider, origin));
        }
        CredentialPlace::Metadata => add_metadata(chain, name, settings, bridge),
    }
}

fn add_metadata(
    chain: &mut Chain,
    name: &'static str,
    settings: &CredentialSettings,
    bridge: &Bridge,
) {
    let role = settings.ram_role.as_deref();
    if let Some(url) = role.filter(|role| role.contains("://") && !role.contains(ROLE_PATH)) {
        let service = CredentialsUriCredentialProvider::new().with_uri(url);
        chain.push(
            name,
            bridge.place(service, "the service that ram-role names"),
        );
        return;
    }
    let service = CredentialsUriCredentialProvider::new();
    let origin = "the service that ALIBABA_CLOUD_CREDENTIALS_URI names";
    chain.push(name, bridge.place(service, origin));
    let origin = "the metadata service of the instance, for its RAM role";
    chain.push(name, bridge.place(instance_role(role), origin));
}

fn usual_password_files(settings: &CredentialSettings, bucket: &str) -> PasswordFiles {
    let environment = &settings.environment;
    let own = environment.home().map(|home| home.join(".passwd-ossfs"));
    PasswordFiles {
        explicit: environment.get("OSS_CREDENTIAL_FILE").map(PathBuf::from),
        usual: [own, Some("/etc/passwd-ossfs".into())]
            .into_iter()
            .flatten()
            .collect(),
        bucket: bucket.to_owned(),
    }
}

fn add_profiles(
    chain: &mut Chain,
    name: &'static str,
    settings: &CredentialSettings,
    bridge: &Bridge,
) {
    // To these places the variables mean more than what they are told, and a setting should win.
    let bridge = match &settings.profile {
        Some(profile) => {
            let environment = settings.environment.clone();
            let environment = environment.with(SDK.profile, profile);
            bridge.with_environment(environment.with(CREDENTIALS.profile, profile))
        }
        None => bridge.clone(),
    };
    let sdk = OssProfileCredentialProvider::new();
    let credentials = CredentialsFileCredentialProvider::new();
    let config = ConfigFileCredentialProvider::new();
    chain.push(name, bridge.place(sdk, SDK.describe(settings)));
    chain.push(
        name,
        bridge.place(credentials, CREDENTIALS.describe(settings)),
    );
    chain.push(name, bridge.place(config, CONFIG.describe(settings)));
}

/// The instance's role: any, one by name, or one by the whole URL as ossfs takes it.
fn instance_role(role: Option<&str>) -> EcsRamRoleCredentialProvider {
    let provider = EcsRamRoleCredentialProvider::new();
    match role.map(|text| text.split_once(ROLE_PATH).ok_or(text)) {
        None => provider,
        Some(Err(name)) => provider.with_role_name(name),
        Some(Ok((endpoint, name))) => provider.with_endpoint(endpoint).with_role_name(name),
    }
}

/// A chain of one place: the role, assumed with what `base` finds.
fn assume(
    (role, origin): (&RoleSettings, &CredentialOrigin),
    base: Chain,
    bridge: &Bridge,
) -> Chain {
    let mut provider = AssumeRoleCredentialProvider::new()
        .with_base_provider(OssBase(Base(base)))
        .with_role_arn(&role.arn)
        .with_role_session_name(role.session_name());
    if let Some(id) = &role.external_id {
        provider = provider.with_external_id(id);
    }
    if let Some(endpoint) = &role.sts_endpoint {
        provider = provider.with_sts_endpoint(endpoint);
    }
    let mut chain = Chain::new(origin);
    chain.push(
        "role",
        Assumed::new(bridge.place(provider, &role.arn), origin),
    );
    chain
}

/// [`Base`] with the other crate's type of credentials.
#[derive(Debug)]
struct OssBase(Base);

impl ProvideCredential for OssBase {
    type Credential = Credential;

    async fn provide_credential(&self, _context: &Context) -> Result<Option<Credential>> {
        self.0.find().await
    }
}
