//! Places that hold credentials for OSS.

use std::path::PathBuf;

use reqsign_aliyun_oss::{
    AssumeRoleCredentialProvider, AssumeRoleWithOidcCredentialProvider, Credential,
    CredentialsUriCredentialProvider, EcsRamRoleCredentialProvider,
};
use reqsign_core::{Context, ProvideCredential, Result};

use super::{
    CredentialOrigin, CredentialPlace, CredentialSettings, RoleSettings,
    bridge::{Base, Bridge},
    chain::{Chain, SetUp},
    environment_place::{Variables, fixed_or},
    origin::Assumed,
    password_file::PasswordFiles,
    process::Process,
    profiles::{
        Format, Judged, KeyNames, Means, NamedProfile, Profile, ProfileFile, ProfileFiles, Section,
        first_in,
    },
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
    profile: &["OSS_PROFILE"],
    files: &[ProfileFile {
        variable: "OSS_CREDENTIAL_PROFILES_FILE",
        usual: ".oss/credentials",
        format: Format::Ini,
    }],
};

/// The files of the other SDKs of Alibaba Cloud.
const CREDENTIALS: ProfileFiles = ProfileFiles {
    profile: &["ALIBABA_CLOUD_PROFILE"],
    files: &[
        ProfileFile {
            variable: "ALIBABA_CLOUD_CREDENTIALS_FILE",
            usual: ".alibabacloud/credentials.ini",
            format: Format::Ini,
        },
        ProfileFile {
            variable: "ALIBABA_CLOUD_CREDENTIALS_FILE",
            usual: ".aliyun/credentials.ini",
            format: Format::Ini,
        },
    ],
};

/// The file of the command line tool.
const CONFIG: ProfileFiles = ProfileFiles {
    profile: &["ALIBABA_CLOUD_PROFILE"],
    files: &[ProfileFile {
        variable: "ALIBABA_CLOUD_CONFIG_FILE",
        usual: ".aliyun/config.json",
        format: Format::Json,
    }],
};

/// Names of the entries that hold keys.
const KEYS: KeyNames = KeyNames {
    id: &["access_key_id", "accesskeyid"],
    secret: &["access_key_secret", "accesskeysecret"],
    token: &["security_token", "sts_token", "session_token", "token"],
};

/// What a profile without a kind may have besides, by which its tool finds credentials and we do not.
const ELSEWHERE: &[&str] = &[
    "role_arn",
    "ram_role_arn",
    "oidc_provider_arn",
    "credentials_uri",
    "process_command",
    "private_key_file",
    "bearer_token",
];

/// The kinds of profiles that hold keys, in every spelling.
const KINDS_OF_KEYS: &[&str] = &["access_key", "ak", "sts", "sts_token", "ststoken"];

/// The kinds that stand for the role of the instance, which another place reads.
const KINDS_OF_INSTANCE: &[&str] = &["ecs_ram_role", "ecsramrole"];

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
        CredentialPlace::Profiles => add_profiles(chain, name, settings),
        CredentialPlace::WebIdentity => add_web_identity(chain, name, settings, bridge),
        CredentialPlace::Metadata => add_metadata(chain, name, settings, bridge),
    }
}

fn add_web_identity(
    chain: &mut Chain,
    name: &'static str,
    settings: &CredentialSettings,
    bridge: &Bridge,
) {
    let provider = AssumeRoleWithOidcCredentialProvider::new();
    let origin = "web identity: ALIBABA_CLOUD_ROLE_ARN and ALIBABA_CLOUD_OIDC_TOKEN_FILE";
    let is_set_up = settings.environment.has_all(&[
        "ALIBABA_CLOUD_OIDC_TOKEN_FILE",
        "ALIBABA_CLOUD_ROLE_ARN",
        "ALIBABA_CLOUD_OIDC_PROVIDER_ARN",
    ]);
    chain.push(name, SetUp::when(is_set_up, bridge.place(provider, origin)));
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
    let has = |variable| settings.environment.get(variable).is_some();
    let service = CredentialsUriCredentialProvider::new();
    let origin = "the service that ALIBABA_CLOUD_CREDENTIALS_URI names";
    let is_set_up = has("ALIBABA_CLOUD_CREDENTIALS_URI");
    chain.push(name, SetUp::when(is_set_up, bridge.place(service, origin)));
    let instance = instance_role(role);
    let origin = "the metadata service of the instance, for its RAM role";
    let is_named = role.is_some()
        || has("ALIBABA_CLOUD_ECS_METADATA")
        || has("ALIBABA_CLOUD_ECS_METADATA_SERVICE_ENDPOINT");
    if is_named {
        chain.push(name, bridge.place(instance, origin));
    } else {
        chain.push(name, bridge.probed(instance, origin));
    }
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

fn add_profiles(chain: &mut Chain, name: &'static str, settings: &CredentialSettings) {
    let named = |tools| NamedProfile {
        tools,
        settings: settings.clone(),
    };
    for files in [SDK, CREDENTIALS, CONFIG] {
        let profile = Profile {
            files,
            settings: settings.clone(),
            judge,
        };
        chain.push(name, profile);
        // A setting means the first tool that has the profile, a variable the tool whose it is.
        if settings.profile.is_none() && files.profile == SDK.profile {
            chain.push(name, named(vec![SDK]));
        }
    }
    chain.push(name, named(vec![SDK, CREDENTIALS, CONFIG]));
}

/// Whether the profile holds keys.
fn judge(sections: &[Section]) -> Judged {
    first_in(sections, judge_one)
}

fn judge_one(section: &Section) -> Judged {
    match section
        .get("enable")?
        .map(str::to_ascii_lowercase)
        .as_deref()
    {
        None | Some("true" | "1" | "yes" | "on") => {}
        Some("false" | "0" | "no" | "off") => return Ok(None),
        Some(_) => return Err(section.unusable("enable")),
    }
    let kind = section.first_of(&["type", "mode"])?;
    let kind = kind.map(|(_, kind)| kind.to_ascii_lowercase());
    match kind.as_deref() {
        Some(kind) if KINDS_OF_INSTANCE.contains(&kind) => return Ok(None),
        Some(kind) if !KINDS_OF_KEYS.contains(&kind) => {
            return Err(section.unusable(&format!("type {kind}")));
        }
        _ => {}
    }
    if let Some(keys) = section.keys(&KEYS)? {
        return Ok(Some(Means::Keys(keys)));
    }
    match (kind, section.first_of(ELSEWHERE)?) {
        (None, Some((name, _))) => Err(section.unusable(name)),
        _ => Ok(None),
    }
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
        .with_role_session_name(super::SESSION_NAME);
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
