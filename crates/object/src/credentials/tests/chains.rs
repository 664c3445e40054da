//! One place of a chain fails: nobody else's credentials are taken. The credentials of the machine,
//! the last place, are there in every test, and nobody may ask for them.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::http::Origin;

/// The beginning of a path, and the answer to it.
type Page = (&'static str, u16, String);

/// A server of pages, which may change, that knows what it was asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Service {
    pages: Arc<Mutex<Vec<Page>>>,
    asked: Arc<Mutex<Vec<String>>>,
    pub(super) url: String,
}

impl Service {
    pub(super) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let url = format!("http://{address}");
        let service = Self {
            url,
            ..Self::default()
        };
        let this = service.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = vec![0; 64 << 10];
                let count = stream.read(&mut head).await.expect("a request");
                let head = String::from_utf8_lossy(&head[..count]).into_owned();
                let (status, text) = this.answer(head.split(' ').nth(1).unwrap_or_default());
                let length = text.len();
                let answer = format!(
                    "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        service
    }

    fn answer(&self, path: &str) -> (u16, String) {
        self.asked.lock().expect("whole").push(path.to_owned());
        let pages = self.pages.lock().expect("whole");
        let mut pages = pages.iter().rev();
        let page = pages.find(|(known, ..)| path.starts_with(known));
        page.map_or((404, String::new()), |(_, status, text)| {
            (*status, text.clone())
        })
    }

    pub(super) fn set(&self, path: &'static str, status: u16, text: &str) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.push((path, status, text.to_owned()));
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("whole").clone()
    }
}

/// Keys as the services of both providers tell them.
pub(super) fn keys(key_id: &str) -> String {
    format!(
        r#"{{"Code":"Success","AccessKeyId":"{key_id}","SecretAccessKey":"s","AccessKeySecret":"s",
            "Token":"t","SecurityToken":"t","Expiration":"2100-01-01T00:00:00Z"}}"#
    )
}

/// The metadata services of both providers.
async fn machine() -> Service {
    let machine = Service::new().await;
    machine.set("/latest/api/token", 200, "metadata-token");
    machine.set("/latest/meta-data/iam/security-credentials/", 200, "node");
    machine.set(
        "/latest/meta-data/iam/security-credentials/node",
        200,
        &keys("node"),
    );
    machine.set("/latest/meta-data/ram/security-credentials/", 200, "node");
    machine.set(
        "/latest/meta-data/ram/security-credentials/node",
        200,
        &keys("node"),
    );
    machine
}

/// A machine with a home directory and a metadata service.
pub(super) struct Scene {
    home: tempfile::TempDir,
    machine: Service,
    pub(super) settings: CredentialSettings,
}

impl Scene {
    pub(super) async fn new() -> Self {
        let mut scene = Self {
            home: tempfile::tempdir().expect("a directory"),
            machine: machine().await,
            settings: CredentialSettings::default(),
        };
        let url = scene.machine.url.clone();
        let home = scene.home.path().to_str().expect("text").to_owned();
        scene.settings.environment = environment(&[
            ("HOME", &home),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url),
            ("ALIBABA_CLOUD_ECS_METADATA_SERVICE_ENDPOINT", &url),
        ]);
        scene
    }

    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.environment = self.settings.environment.with(name, value);
        self
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(super) fn file(self, name: &str, text: &str) -> Self {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        write(&path, text, 0o600);
        self
    }

    pub(super) fn set(mut self, change: impl FnOnce(&mut CredentialSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Fails for that reason, and the machine is not asked.
    fn fails_with(&self, part: &str, found: Result<Credentials, CredentialError>) {
        let error = found.expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
        assert!(!error.contains("hidden"), "{error}");
        assert_eq!(self.machine.asked(), Vec::<String>::new(), "{part}");
    }

    pub(super) async fn fails_on_s3(self, part: &str) {
        self.fails_with(part, find_s3(&self.settings).await);
    }

    pub(super) async fn fails_on_oss(self, part: &str) {
        self.fails_with(part, find_oss(&self.settings).await);
    }
}

/// An address where nobody answers.
const NOBODY: &str = "http://127.0.0.1:1";

#[tokio::test]
async fn without_any_other_place_the_machine_is_asked() {
    let scene = Scene::new().await;
    assert_eq!(
        find_s3(&scene.settings).await.expect("found").key_id,
        "node"
    );
    assert_eq!(
        find_oss(&scene.settings).await.expect("found").key_id,
        "node"
    );
}

#[tokio::test]
async fn keys_that_are_half_set_are_not_replaced_by_others() {
    let scene = Scene::new().await.with("AWS_ACCESS_KEY_ID", "hidden");
    scene.fails_on_s3("AWS_SECRET_ACCESS_KEY is not").await;
    let scene = Scene::new().await.with("OSS_ACCESS_KEY_ID", "hidden");
    scene.fails_on_oss("OSS_ACCESS_KEY_SECRET is not").await;
}

#[tokio::test]
async fn a_password_file_of_no_use_is_not_replaced_by_other_keys() {
    let named = |settings: &mut CredentialSettings| {
        settings.password_file = Some("/no/such/file".into());
    };
    Scene::new().await.set(named).fails_on_s3("/no/such").await;
    Scene::new().await.set(named).fails_on_oss("/no/such").await;
    let usual = Scene::new().await.file(".passwd-ossfs", "id:hidden\n");
    write(&usual.path(".passwd-ossfs"), "id:hidden\n", 0o644);
    usual.fails_on_oss("chmod 600").await;
}

#[tokio::test]
async fn a_program_that_fails_is_not_replaced_by_other_keys() {
    let failing = |settings: &mut CredentialSettings| {
        settings.process = Some("/bin/false".to_owned());
    };
    Scene::new()
        .await
        .set(failing)
        .fails_on_s3("status 1")
        .await;
    Scene::new()
        .await
        .set(failing)
        .fails_on_oss("status 1")
        .await;
    let scene = Scene::new().await.file(
        ".aws/config",
        "[default]\ncredential_process = /bin/false\n",
    );
    scene.fails_on_s3("status 1").await;
}

#[tokio::test]
async fn profiles_of_aws_that_cannot_be_followed_are_not_replaced_by_other_keys() {
    for (file, text, part) in [
        (
            ".aws/credentials",
            "[default]\naws_access_key_id = hidden\n",
            "profile `default`",
        ),
        (
            ".aws/config",
            "[default]\naws_secret_access_key = hidden\n",
            "profile `default`",
        ),
        (".aws/credentials", "[default\n", ".aws/credentials"),
        (
            ".aws/config",
            "[default]\nrole_arn = hidden\n",
            "`role_arn`",
        ),
        (
            ".aws/config",
            "[default]\nsso_session = hidden\n",
            "`sso_session`",
        ),
    ] {
        let scene = Scene::new().await.file(file, text);
        scene.fails_on_s3(part).await;
    }
    // Nobody can read a directory, not even root.
    let scene = Scene::new().await;
    std::fs::create_dir_all(scene.path(".aws/credentials")).expect("made");
    scene.fails_on_s3(".aws/credentials").await;
    let scene = Scene::new().await.with("AWS_PROFILE", "dev");
    scene.fails_on_s3("profile `dev`").await;
    let other = Scene::new()
        .await
        .set(|settings| settings.profile = Some("dev".to_owned()));
    let keys = "[other]\naws_access_key_id = hidden\naws_secret_access_key = hidden\n";
    other
        .file(".aws/credentials", keys)
        .fails_on_s3("profile `dev`")
        .await;
}

#[tokio::test]
async fn profiles_of_alibaba_that_cannot_be_followed_are_not_replaced_by_other_keys() {
    for (file, text, part) in [
        (
            ".oss/credentials",
            "[default]\naccess_key_id = hidden\n",
            "profile `default`",
        ),
        (".oss/credentials", "[default\n", ".oss/credentials"),
        (
            ".alibabacloud/credentials.ini",
            "[default]\ntype = ram_role_arn\n",
            "type ram_role_arn",
        ),
        (
            ".aliyun/credentials.ini",
            "[default]\naccess_key_id = hidden\n",
            "profile `default`",
        ),
        (
            ".aliyun/config.json",
            "{\"current\": \"a\", \"profiles\": [",
            ".aliyun/config.json",
        ),
        (
            ".aliyun/config.json",
            r#"{"current": "a", "profiles": [{"name": "a", "mode": "RamRoleArn", "access_key_id": "hidden"}]}"#,
            "type ramrolearn",
        ),
        (
            ".aliyun/config.json",
            r#"{"current": "a", "profiles": [{"name": "a", "mode": "AK", "access_key_id": "hidden"}]}"#,
            "profile",
        ),
    ] {
        let scene = Scene::new().await.file(file, text);
        scene.fails_on_oss(part).await;
    }
    for variable in ["OSS_PROFILE", "ALIBABA_CLOUD_PROFILE"] {
        let scene = Scene::new().await.with(variable, "dev");
        scene.fails_on_oss("profile `dev`").await;
    }
    let named = Scene::new()
        .await
        .set(|settings| settings.profile = Some("dev".to_owned()));
    named.fails_on_oss("profile `dev`").await;
}

#[tokio::test]
async fn profiles_without_keys_leave_the_choice_to_the_next_place() {
    let scene = Scene::new()
        .await
        .file(".aws/config", "[default]\nregion = eu-west-1\n")
        .file(
            ".aliyun/credentials.ini",
            "[default]\nenable = false\ntype = ram_role_arn\n",
        )
        .file(
            ".aliyun/config.json",
            r#"{"current": "a", "profiles": [{"name": "a", "mode": "EcsRamRole"}]}"#,
        );
    assert_eq!(
        find_s3(&scene.settings).await.expect("found").key_id,
        "node"
    );
    assert_eq!(
        find_oss(&scene.settings).await.expect("found").key_id,
        "node"
    );
}

#[tokio::test]
async fn web_identities_that_fail_are_not_replaced_by_the_machine() {
    let token = |scene: Scene, variable| {
        let path = scene.path("token");
        let scene = scene.file("token", "hidden");
        scene.with(variable, path.to_str().expect("text"))
    };
    let aws = token(Scene::new().await, "AWS_WEB_IDENTITY_TOKEN_FILE");
    aws.fails_on_s3("AWS_ROLE_ARN is not").await;
    let aws = Scene::new()
        .await
        .with("AWS_WEB_IDENTITY_TOKEN_FILE", "/no/such/token")
        .with("AWS_ROLE_ARN", "arn");
    aws.fails_on_s3("web identity token").await;
    // The token service of AWS has a name of its own, to which this proxy does not lead.
    let aws = token(Scene::new().await, "AWS_WEB_IDENTITY_TOKEN_FILE");
    let aws = aws.with("AWS_ROLE_ARN", "arn");
    let http = HttpSettings {
        proxy: Some(Origin::parse(NOBODY).expect("valid")),
        ..HttpSettings::default()
    };
    let bridge = Bridge::new(&http, aws.settings.environment.clone());
    let chain = s3_chain(&aws.settings, "bucket", "us-east-1", &bridge);
    aws.fails_with("web-identity", chain.find().await);
    let throttled = Service::new().await;
    throttled.set("/", 503, "Throttling");
    for (endpoint, part) in [(&*throttled.url, "Throttling"), (NOBODY, "connect")] {
        let oss = token(Scene::new().await, "ALIBABA_CLOUD_OIDC_TOKEN_FILE")
            .with("ALIBABA_CLOUD_ROLE_ARN", "arn")
            .with("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "provider")
            .with("ALIBABA_CLOUD_STS_ENDPOINT", endpoint);
        oss.fails_on_oss(part).await;
    }
    let oss = token(Scene::new().await, "ALIBABA_CLOUD_OIDC_TOKEN_FILE");
    oss.fails_on_oss("ALIBABA_CLOUD_ROLE_ARN is not").await;
}

#[tokio::test]
async fn services_of_a_container_that_fail_are_not_replaced_by_the_machine() {
    let failing = Service::new().await;
    failing.set("/", 500, "later");
    for (url, part) in [(&*failing.url, "later"), (NOBODY, "ECS credentials")] {
        let scene = Scene::new().await;
        let scene = scene.with("AWS_CONTAINER_CREDENTIALS_FULL_URI", url);
        scene.fails_on_s3(part).await;
    }
    for (url, part) in [(&*failing.url, "later"), (NOBODY, "credentials URI")] {
        let scene = Scene::new()
            .await
            .with("ALIBABA_CLOUD_CREDENTIALS_URI", url);
        scene.fails_on_oss(part).await;
    }
}

#[tokio::test]
async fn a_role_is_not_assumed_with_the_credentials_of_the_machine_instead() {
    let sts = Service::new().await;
    sts.set("/", 503, "Throttling");
    let endpoint = sts.url.clone();
    let role = |settings: &mut CredentialSettings| {
        settings.role = Some(RoleSettings {
            arn: "acs:ram::1:role/x".to_owned(),
            sts_endpoint: Some(endpoint),
        });
    };
    let broken = Scene::new().await.set(role.clone());
    let broken = broken.with("OSS_ACCESS_KEY_ID", "hidden");
    broken.fails_on_oss("OSS_ACCESS_KEY_SECRET is not").await;
    let scene = Scene::new().await.set(role);
    let scene = scene
        .with("OSS_ACCESS_KEY_ID", "id")
        .with("OSS_ACCESS_KEY_SECRET", "s");
    scene.fails_on_oss("Throttling").await;
}

/// What was there once and is gone, or fails, is waited for.
#[tokio::test]
async fn a_place_that_was_used_is_never_left_for_another() {
    let keys_of_aws = "[default]\naws_access_key_id = own\naws_secret_access_key = s\n";
    let scene = Scene::new().await.file(".aws/credentials", keys_of_aws);
    let bridge = bridge(scene.settings.environment.clone());
    let chain = s3_chain(&scene.settings, "bucket", "us-east-1", &bridge);
    assert_eq!(chain.find().await.expect("found").key_id, "own");
    std::fs::remove_file(scene.path(".aws/credentials")).expect("removed");
    scene.fails_with("profiles", chain.find().await);
    let scene = scene.file(".aws/credentials", keys_of_aws);
    assert_eq!(chain.find().await.expect("it is back").key_id, "own");

    let keys_of_oss = "[default]\naccess_key_id = own\naccess_key_secret = s\n";
    let scene = scene.file(".oss/credentials", keys_of_oss);
    let chain = oss_chain(&scene.settings, "bucket", &bridge);
    assert_eq!(chain.find().await.expect("found").key_id, "own");
    std::fs::remove_file(scene.path(".oss/credentials")).expect("removed");
    scene.fails_with("profiles", chain.find().await);
}

#[tokio::test]
async fn a_machine_that_was_asked_once_is_not_left_for_another_place() {
    let keys_of_aws = "[default]\naws_access_key_id = other\naws_secret_access_key = s\n";
    let order = |settings: &mut CredentialSettings| {
        settings.order = vec![CredentialPlace::Metadata, CredentialPlace::Profiles];
    };
    let scene = Scene::new()
        .await
        .file(".aws/credentials", keys_of_aws)
        .set(order);
    let bridge = bridge(scene.settings.environment.clone());
    let chain = s3_chain(&scene.settings, "bucket", "us-east-1", &bridge);
    assert_eq!(chain.find().await.expect("found").key_id, "node");
    scene.machine.set("/latest/meta-data/iam/", 503, "later");
    let error = chain.find().await.expect_err("it fails").to_string();
    assert!(error.contains("later"), "{error}");
}

/// Only a service that answers is set up, where nothing names it.
#[tokio::test]
async fn a_machine_without_a_metadata_service_has_none_and_one_whose_service_fails_has() {
    use reqsign_aliyun_oss::EcsRamRoleCredentialProvider;
    use reqsign_aws_v4::IMDSv2CredentialProvider;

    let bridge = bridge(Environment::default());
    let service = Service::new().await;
    let of_aws =
        |url: &str| bridge.probed(IMDSv2CredentialProvider::new().with_endpoint(url), "aws");
    let of_oss = |url: &str| {
        bridge.probed(
            EcsRamRoleCredentialProvider::new().with_endpoint(url),
            "oss",
        )
    };
    let absent = |looked| matches!(looked, Err(Nothing::Absent(_)));
    for url in [NOBODY, &service.url] {
        assert!(absent(of_aws(url).look().await), "{url}");
        assert!(absent(of_oss(url).look().await), "{url}");
    }
    service.set("/", 503, "later");
    let broken = |looked| matches!(looked, Err(Nothing::Broken(_)));
    assert!(broken(of_aws(&service.url).look().await));
    assert!(broken(of_oss(&service.url).look().await));
}
