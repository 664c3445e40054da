//! Places that hold credentials for S3.

use reqsign_aws_v4::{
    AssumeRoleCredentialProvider, AssumeRoleWithWebIdentityCredentialProvider, Credential,
    ECSCredentialProvider, IMDSv2CredentialProvider, RequestSigner,
};
use reqsign_core::{Context, ProvideCredential, Result, Signer};

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

/// Names of the variables for key id, secret and token.
const VARIABLES: &[[&str; 3]] = &[[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
]];

/// The files of the AWS command line tool.
const PROFILES: ProfileFiles = ProfileFiles {
    profile: &["AWS_PROFILE", "AWS_DEFAULT_PROFILE"],
    files: &[
        ProfileFile {
            variable: "AWS_SHARED_CREDENTIALS_FILE",
            usual: ".aws/credentials",
            format: Format::Ini,
        },
        ProfileFile {
            variable: "AWS_CONFIG_FILE",
            usual: ".aws/config",
            format: Format::IniOfAws,
        },
    ],
};

/// Names of the entries that hold keys.
const KEYS: KeyNames = KeyNames {
    id: &["aws_access_key_id"],
    secret: &["aws_secret_access_key"],
    token: &["aws_session_token"],
};

/// The program that a profile may name.
const PROGRAM: &str = "credential_process";

/// The role of a profile, to which keys beside it are what it is assumed with.
const ROLE: &str = "role_arn";

/// What a profile may have besides, by which the tool finds credentials and we do not.
const ELSEWHERE: &[&str] = &[
    "source_profile",
    "credential_source",
    "web_identity_token_file",
    "sso_session",
    "sso_start_url",
    "sso_account_id",
    "login_session",
];

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
    let provider = AssumeRoleWithWebIdentityCredentialProvider::new();
    let origin = "web identity: AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE";
    let variables = ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"];
    let is_set_up = settings.environment.has_all(&variables);
    chain.push(name, SetUp::when(is_set_up, bridge.place(provider, origin)));
}

fn add_metadata(
    chain: &mut Chain,
    name: &'static str,
    settings: &CredentialSettings,
    bridge: &Bridge,
) {
    let environment = &settings.environment;
    let has = |variable| environment.get(variable).is_some();
    let container = ECSCredentialProvider::new();
    let origin = "the credential service of the container";
    let is_set_up =
        has("AWS_CONTAINER_CREDENTIALS_FULL_URI") || has("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    let container = bridge.place(container, origin);
    chain.push(name, SetUp::when(is_set_up, container));
    let off = environment.get("AWS_EC2_METADATA_DISABLED");
    if off.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return;
    }
    let instance = IMDSv2CredentialProvider::new();
    let origin = "the metadata service of the instance";
    if has("AWS_EC2_METADATA_SERVICE_ENDPOINT") {
        chain.push(name, bridge.place(instance, origin));
    } else {
        chain.push(name, bridge.probed(instance, origin));
    }
}

fn add_profiles(chain: &mut Chain, name: &'static str, settings: &CredentialSettings) {
    let profile = Profile {
        files: PROFILES,
        settings: settings.clone(),
        judge,
    };
    chain.push(name, profile);
    let named = NamedProfile {
        tools: vec![PROFILES],
        settings: settings.clone(),
    };
    chain.push(name, named);
}

/// Where the credentials of a profile come from: keys are stronger than programs.
fn judge(sections: &[Section]) -> Judged {
    let refuse = |names: &[&'static str]| {
        let found = first_in(sections, |section| {
            let found = section.first_of(names)?;
            Ok(found.map(|(name, _)| section.unusable(name)))
        })?;
        found.map_or(Ok(()), Err)
    };
    refuse(&[ROLE])?;
    if let Some(keys) = first_in(sections, |section| section.keys(&KEYS))? {
        return Ok(Some(Means::Keys(keys)));
    }
    let program = |section: &Section| Ok(section.get(PROGRAM)?.map(str::to_owned));
    if let Some(command) = first_in(sections, program)? {
        return Ok(Some(Means::Program(command)));
    }
    refuse(ELSEWHERE)?;
    Ok(None)
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
    let provider = AssumeRoleCredentialProvider::new(role.arn.clone(), signer)
        .with_role_session_name(super::SESSION_NAME.to_owned())
        .with_region(region.to_owned())
        .with_regional_sts_endpoint();
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
