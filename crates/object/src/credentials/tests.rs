//! Where credentials are found, and when they are fetched again.

use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use penstock_base::clock;

use super::{
    chain::{Chain, Nothing, Place},
    origin::Found,
    password_file::read_password_file,
    *,
};
use crate::http::HttpSettings;

fn bridge(environment: Environment) -> Bridge {
    Bridge::new(&HttpSettings::default(), environment)
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Environment::new(variables.iter().map(owned))
}

async fn find_s3(settings: &CredentialSettings) -> Result<Credentials, CredentialError> {
    let bridge = bridge(settings.environment.clone());
    s3_chain(settings, "bucket", "us-east-1", &bridge)
        .find()
        .await
}

async fn find_oss(settings: &CredentialSettings) -> Result<Credentials, CredentialError> {
    let bridge = bridge(settings.environment.clone());
    oss_chain(settings, "bucket", &bridge).find().await
}

fn only(place: CredentialPlace) -> CredentialSettings {
    CredentialSettings {
        order: vec![place],
        ..CredentialSettings::default()
    }
}

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("changed");
}

#[tokio::test]
async fn variables_of_every_family_are_read() {
    for [key_id, secret] in [
        ["OSSACCESSKEYID", "OSSSECRETACCESSKEY"],
        ["OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET"],
        [
            "ALIBABA_CLOUD_ACCESS_KEY_ID",
            "ALIBABA_CLOUD_ACCESS_KEY_SECRET",
        ],
    ] {
        let mut settings = only(CredentialPlace::Environment);
        settings.environment = environment(&[(key_id, "id"), (secret, "s")]);
        let found = find_oss(&settings).await.expect("found");
        assert_eq!((found.key_id.as_str(), found.secret.expose()), ("id", "s"));
    }
    let mut settings = only(CredentialPlace::Environment);
    settings.environment = environment(&[
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
        ("AWS_SESSION_TOKEN", "t"),
    ]);
    let found = find_s3(&settings).await.expect("found");
    assert_eq!(found.token, Some(Secret::new("t")));
}

#[tokio::test]
async fn half_a_pair_is_named() {
    let mut settings = only(CredentialPlace::Environment);
    settings.environment = environment(&[("AWS_ACCESS_KEY_ID", "id")]);
    let error = find_s3(&settings).await.expect_err("half").to_string();
    assert!(error.contains("AWS_SECRET_ACCESS_KEY is not"), "{error}");
}

#[tokio::test]
async fn the_order_decides() {
    let mut settings = CredentialSettings {
        order: vec![CredentialPlace::Environment, CredentialPlace::Fixed],
        fixed: Some(credentials("fixed", None)),
        environment: environment(&[("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "s")]),
        ..CredentialSettings::default()
    };
    assert_eq!(find_s3(&settings).await.expect("found").key_id, "id");
    settings.order.reverse();
    assert_eq!(find_s3(&settings).await.expect("found").key_id, "fixed");
}

#[tokio::test]
async fn profiles_are_read_from_the_home_directory() {
    let home = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(home.path().join(".aws")).expect("made");
    let text = "[default]\naws_access_key_id = id\naws_secret_access_key = s\n\
                [other]\naws_access_key_id = id2\naws_secret_access_key = s2\n";
    write(&home.path().join(".aws/credentials"), text, 0o600);
    let mut settings = only(CredentialPlace::Profiles);
    settings.environment = environment(&[("HOME", home.path().to_str().expect("text"))]);
    assert_eq!(find_s3(&settings).await.expect("found").key_id, "id");
    settings.profile = Some("other".to_owned());
    assert_eq!(
        find_s3(&settings).await.expect("found").secret,
        Secret::new("s2")
    );
}

/// Settings with keys for both providers in the environment, and a home with a profile `dev` of both.
fn with_keys_and_profile(home: &Path) -> CredentialSettings {
    for directory in [".aws", ".oss"] {
        std::fs::create_dir_all(home.join(directory)).expect("made");
    }
    let text = "[dev]\naws_access_key_id = profile\naws_secret_access_key = s\n";
    write(&home.join(".aws/credentials"), text, 0o600);
    let text = "[dev]\naccess_key_id = profile\naccess_key_secret = s\n";
    write(&home.join(".oss/credentials"), text, 0o600);
    write(&home.join(".passwd-ossfs"), "file:s\n", 0o600);
    let variables = [
        ("HOME", home.to_str().expect("text")),
        ("AWS_ACCESS_KEY_ID", "variable"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
        ("OSS_ACCESS_KEY_ID", "variable"),
        ("OSS_ACCESS_KEY_SECRET", "s"),
        ("AWS_PROFILE", "dev"),
        ("OSS_PROFILE", "dev"),
    ];
    CredentialSettings {
        environment: environment(&variables),
        ..CredentialSettings::default()
    }
}

#[tokio::test]
async fn a_profile_that_is_named_wins_over_keys_that_nobody_named() {
    let home = tempfile::tempdir().expect("a directory");
    let mut settings = with_keys_and_profile(home.path());
    let found = async |settings: &CredentialSettings| {
        let found = [find_s3(settings).await, find_oss(settings).await];
        found.map(|found| found.map_or_else(|error| error.message, |found| found.key_id))
    };
    assert_eq!(found(&settings).await, ["variable"; 2]);
    settings.profile = Some("dev".to_owned());
    assert_eq!(found(&settings).await, ["profile"; 2]);
    settings.environment = environment(&[("HOME", home.path().to_str().expect("text"))]);
    assert_eq!(found(&settings).await, ["profile"; 2], "also over a file");

    let mut settings = with_keys_and_profile(home.path());
    settings.profile = Some("missing".to_owned());
    for told in found(&settings).await {
        assert!(told.contains("no file has a profile `missing`"), "{told}");
    }
    settings.order = CredentialPlace::AUTO.to_vec();
    assert_eq!(found(&settings).await, ["variable"; 2], "an order is one");
}

#[tokio::test]
async fn it_is_told_where_credentials_were_found_and_never_what_they_are() {
    let home = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(home.path().join(".aws")).expect("made");
    std::fs::create_dir_all(home.path().join(".aliyun")).expect("made");
    let aws = home.path().join(".aws/credentials");
    let text = "[dev]\naws_access_key_id = hidden\naws_secret_access_key = hidden\n";
    write(&aws, text, 0o600);
    let aliyun = home.path().join(".aliyun/credentials.ini");
    let text = "[dev]\ntype = access_key\naccess_key_id = hidden\naccess_key_secret = hidden\n";
    write(&aliyun, text, 0o600);
    let passwords = home.path().join("passwd");
    write(&passwords, "hidden:hidden\n", 0o600);
    let keys = [
        ("AWS_ACCESS_KEY_ID", "hidden"),
        ("AWS_SECRET_ACCESS_KEY", "hidden"),
    ];
    let in_home = [("HOME", home.path().to_str().expect("text"))];
    let mut settings = only(CredentialPlace::Environment);
    settings.environment = environment(&keys);
    let told = |settings: &CredentialSettings| settings.origin.get().expect("found");
    assert_eq!(settings.origin.get(), None);
    find_s3(&settings).await.expect("found");
    let variables = "the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    assert_eq!(told(&settings), variables);
    settings.order = vec![CredentialPlace::PasswordFile];
    settings.password_file = Some(passwords.clone());
    find_s3(&settings).await.expect("found");
    assert_eq!(
        told(&settings),
        format!("the password file {}", passwords.display())
    );
    settings.order = vec![CredentialPlace::Profiles];
    settings.profile = Some("dev".to_owned());
    settings.environment = environment(&in_home).with("ALIBABA_CLOUD_PROFILE", "other");
    find_s3(&settings).await.expect("found");
    assert_eq!(
        told(&settings),
        format!("the profile `dev` of {}", aws.display())
    );
    // The setting is stronger than the variable.
    find_oss(&settings).await.expect("found");
    assert_eq!(
        told(&settings),
        format!("the profile `dev` of {}", aliyun.display())
    );
}

#[tokio::test]
async fn password_files_prefer_the_buckets_own_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("passwd");
    write(
        &path,
        "# comment\nid:secret\nbucket:id2:secret2\nother:id3:secret3\n",
        0o600,
    );
    let settings = CredentialSettings {
        password_file: Some(path.clone()),
        ..only(CredentialPlace::PasswordFile)
    };
    for found in [find_oss(&settings).await, find_s3(&settings).await] {
        assert_eq!(found.expect("found").key_id, "id2");
    }
    let general = read_password_file(&path, "elsewhere").expect("readable");
    assert_eq!(general.expect("found").key_id, "id");
    write(&path, "OSSAccessKeyId=id4\nOSSSecretKey=secret4\n", 0o600);
    assert_eq!(find_oss(&settings).await.expect("found").key_id, "id4");
}

#[test]
fn password_files_must_be_private_and_well_formed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("passwd");
    for (text, mode, part) in [
        ("id:secret", 0o644, "chmod 600"),
        ("id:secret", 0o640, "chmod 600"),
        ("id:secret", 0o700, "chmod 600"),
        ("id: secret", 0o600, "line 1"),
        ("id:secret\n[default]", 0o600, "line 2"),
        ("just-one-word", 0o600, "line 1"),
        ("a:b:c:d", 0o600, "line 1"),
        ("id:hidden\nid:hidden", 0o600, "two entries"),
        ("x:a:hidden\nx:b:hidden\nid:hidden", 0o600, "two entries"),
        ("OSSAccessKeyId=id\n", 0o600, "only one of"),
        ("id:secret", 0o620, "chmod 600"),
    ] {
        write(&path, text, mode);
        let error = read_password_file(&path, "bucket")
            .expect_err(text)
            .to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert!(!error.contains("hidden"), "{error}");
    }
}

#[tokio::test]
async fn a_password_file_that_is_named_must_have_an_entry() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("passwd");
    write(&path, "other:id:secret\n", 0o600);
    let settings = CredentialSettings {
        password_file: Some(path),
        ..only(CredentialPlace::PasswordFile)
    };
    let error = find_oss(&settings).await.expect_err("another bucket's");
    let error = error.to_string();
    assert!(
        error.contains("no entry for the bucket `bucket`"),
        "{error}"
    );
}

#[tokio::test]
async fn usual_password_files_come_after_the_environment() {
    let home = tempfile::tempdir().expect("a directory");
    let at_home = home.path().to_str().expect("text");
    write(&home.path().join(".passwd-ossfs"), "home:secret\n", 0o600);
    write(&home.path().join("named"), "named:secret\n", 0o600);
    let named = format!("{at_home}/named");
    let mut settings = CredentialSettings {
        environment: environment(&[("HOME", at_home)]),
        ..CredentialSettings::default()
    };
    assert_eq!(find_oss(&settings).await.expect("found").key_id, "home");
    let with_named = [("HOME", at_home), ("OSS_CREDENTIAL_FILE", named.as_str())];
    settings.environment = environment(&with_named);
    assert_eq!(find_oss(&settings).await.expect("found").key_id, "named");
    let keys = [("OSSACCESSKEYID", "variable"), ("OSSSECRETACCESSKEY", "s")];
    settings.environment = environment(&[&with_named[..], &keys[..]].concat());
    assert_eq!(find_oss(&settings).await.expect("found").key_id, "variable");
    settings.environment = environment(&[("OSS_CREDENTIAL_FILE", "/no/such/file")]);
    settings.order = vec![CredentialPlace::UsualPasswordFiles];
    let error = find_oss(&settings).await.expect_err("it must exist");
    assert!(error.to_string().contains("/no/such/file"), "{error}");
}

#[tokio::test]
async fn a_program_prints_credentials() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("print");
    let run = async |script: &str| {
        write(&program, &format!("#!/bin/sh\n{script}\n"), 0o700);
        let settings = CredentialSettings {
            process: Some(format!("{} argument", program.display())),
            ..only(CredentialPlace::Process)
        };
        find_s3(&settings).await
    };
    let found = run(
        "echo '{\"Version\":1,\"AccessKeyId\":\"'$1'\",\"SecretAccessKey\":\"s\",\
         \"SessionToken\":\"t\",\"Expiration\":\"2100-01-01T00:00:00Z\"}'",
    );
    let found = found.await.expect("printed");
    assert_eq!(
        (found.key_id.as_str(), found.secret.expose()),
        ("argument", "s")
    );
    assert!(found.expires.is_some_and(|time| time > clock::wall_time()));
    for (script, part) in [
        ("echo '{\"SecretAccessKey\":\"hidden\"}'", "did not print"),
        ("echo hidden >&2; exit 3", "status 3"),
        ("head -c 2000000 /dev/zero", "more than 1 MiB"),
    ] {
        let error = run(script).await.expect_err(script).to_string();
        assert!(error.contains(part), "{script}: {error}");
        assert!(!error.contains("hidden"), "{error}");
    }
    let mut settings = only(CredentialPlace::Process);
    settings.process = Some("print".to_owned());
    let error = find_s3(&settings).await.expect_err("relative").to_string();
    assert!(error.contains("absolute"), "{error}");
}

/// A place that makes up credentials which live for a while.
#[derive(Debug)]
struct Minting {
    life: Duration,
    minted: AtomicUsize,
}

#[async_trait]
impl Place for Arc<Minting> {
    async fn look(&self) -> Result<Found, Nothing> {
        let count = self.minted.fetch_add(1, Ordering::Relaxed) + 1;
        clock::sleep(Duration::from_millis(20)).await;
        let expires = clock::wall_time() + self.life;
        Ok(Found {
            credentials: credentials(&count.to_string(), Some(expires)),
            origin: "a mint".to_owned(),
        })
    }
}

fn credentials(key_id: &str, expires: Option<SystemTime>) -> Credentials {
    Credentials {
        key_id: key_id.to_owned(),
        secret: Secret::new("secret"),
        token: None,
        expires,
    }
}

fn minting(life: Duration) -> (Arc<Minting>, Arc<CredentialSource>) {
    let place = Arc::new(Minting {
        life,
        minted: AtomicUsize::new(0),
    });
    let mut chain = Chain::new(&CredentialOrigin::default());
    chain.push("minting", Arc::clone(&place));
    (place, CredentialSource::new(chain))
}

async fn key_id(source: &Arc<CredentialSource>) -> String {
    let found = source.current().await.expect("minted");
    found.expect("signed").key_id.clone()
}

#[tokio::test]
async fn one_looks_while_all_wait() {
    let (place, source) = minting(Duration::from_secs(3600));
    let asking = (0..20).map(|_| key_id(&source));
    let found = futures_util::future::join_all(asking).await;
    assert!(found.iter().all(|key_id| key_id == "1"), "{found:?}");
    assert_eq!(place.minted.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn aging_credentials_are_renewed_behind_the_requests() {
    let (place, source) = minting(Duration::from_secs(3600));
    assert_eq!(key_id(&source).await, "1");
    source.age();
    for _ in 0..5 {
        assert_eq!(key_id(&source).await, "1", "nobody waits");
    }
    clock::sleep(Duration::from_millis(200)).await;
    assert_eq!(key_id(&source).await, "2");
    assert_eq!(
        place.minted.load(Ordering::Relaxed),
        2,
        "one task renewed them"
    );
}

#[tokio::test]
async fn expired_credentials_are_not_handed_out() {
    let (_place, source) = minting(Duration::from_secs(30));
    assert_eq!(key_id(&source).await, "1");
    assert_eq!(key_id(&source).await, "2");
}

#[tokio::test]
async fn what_the_store_calls_expired_is_fetched_anew() {
    let (_place, source) = minting(Duration::from_secs(3600));
    let first = source.current().await.expect("minted").expect("signed");
    source.forget(&first);
    assert_eq!(key_id(&source).await, "2");
    source.forget(&first);
    assert_eq!(
        key_id(&source).await,
        "2",
        "only the old ones are forgotten"
    );
}

#[tokio::test]
async fn nothing_found_says_where_it_was_looked_for() {
    let settings = CredentialSettings {
        order: vec![CredentialPlace::Environment, CredentialPlace::Profiles],
        ..CredentialSettings::default()
    };
    let error = find_s3(&settings).await.expect_err("nothing is there");
    assert_eq!(error.kind, ErrorKind::NoCredentials);
    assert!(error.message.contains("environment: none"), "{error}");
}

mod chains;
mod profiles;
mod proxies;
mod renewal;

mod services {
    //! Metadata and token services, played by a server on this machine.

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// Answers each path of `pages` with its text, and records the request lines.
    async fn serve(pages: &'static [(&'static str, &'static str)]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = vec![0; 64 << 10];
                let count = stream.read(&mut head).await.expect("a request");
                let head = String::from_utf8_lossy(&head[..count]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let page = pages.iter().find(|(known, _)| path.starts_with(known));
                let (status, text) = page.map_or((404, ""), |(_, text)| (200, *text));
                let length = text.len();
                let answer = format!(
                    "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
                );
                stream
                    .write_all(answer.as_bytes())
                    .await
                    .expect("it is read");
            }
        });
        format!("http://{address}")
    }

    #[tokio::test]
    async fn a_container_has_a_credentials_service() {
        let url = serve(&[(
            "/creds",
            r#"{"AccessKeyId":"id","SecretAccessKey":"s","Token":"t","Expiration":"2100-01-01T00:00:00Z"}"#,
        )])
        .await;
        let mut settings = only(CredentialPlace::Metadata);
        settings.environment = environment(&[
            (
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                &format!("{url}/creds"),
            ),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "please"),
        ]);
        let found = find_s3(&settings).await.expect("found");
        assert_eq!(
            (found.key_id.as_str(), found.token),
            ("id", Some(Secret::new("t")))
        );
        assert!(found.expires.is_some());
    }

    #[tokio::test]
    async fn an_instance_has_a_role() {
        let url = serve(&[
            ("/latest/api/token", "metadata-token"),
            (
                "/latest/meta-data/ram/security-credentials/role",
                r#"{"Code":"Success","AccessKeyId":"id","AccessKeySecret":"s","SecurityToken":"t","Expiration":"2100-01-01T00:00:00Z"}"#,
            ),
        ])
        .await;
        let settings = CredentialSettings {
            ram_role: Some(format!(
                "{url}/latest/meta-data/ram/security-credentials/role"
            )),
            ..only(CredentialPlace::Metadata)
        };
        let found = find_oss(&settings).await.expect("found");
        assert_eq!((found.key_id.as_str(), found.secret.expose()), ("id", "s"));
        assert!(found.expires.is_some());
    }

    #[tokio::test]
    async fn a_role_may_be_any_service_that_answers() {
        let url = serve(&[(
            "/keys",
            r#"{"Code":"Success","AccessKeyId":"id","AccessKeySecret":"s","SecurityToken":"t","Expiration":"2100-01-01T00:00:00Z"}"#,
        )])
        .await;
        let settings = CredentialSettings {
            ram_role: Some(format!("{url}/keys")),
            ..only(CredentialPlace::Metadata)
        };
        let found = find_oss(&settings).await.expect("found");
        assert_eq!((found.key_id.as_str(), found.secret.expose()), ("id", "s"));
    }

    #[tokio::test]
    async fn a_role_is_assumed_with_what_was_found() {
        let url = serve(&[(
            "/",
            r#"{"Credentials":{"AccessKeyId":"role-id","AccessKeySecret":"s","SecurityToken":"t","Expiration":"2100-01-01T00:00:00Z"}}"#,
        )])
        .await;
        let settings = CredentialSettings {
            fixed: Some(credentials("base", None)),
            role: Some(RoleSettings {
                arn: "acs:ram::1:role/x".to_owned(),
                sts_endpoint: Some(url),
            }),
            ..only(CredentialPlace::Fixed)
        };
        let found = find_oss(&settings).await.expect("assumed");
        assert_eq!(found.key_id, "role-id");
    }
}
