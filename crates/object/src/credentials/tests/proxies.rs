//! What is asked for through a proxy, and what never is.

use std::sync::Mutex;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::{
    chains::{Service, keys},
    *,
};
use crate::http::Origin;

/// A proxy that leads every tunnel to one token service, and all that it can read.
struct Proxy {
    settings: HttpSettings,
    read: Arc<Mutex<String>>,
    _authority: tempfile::NamedTempFile,
}

impl Proxy {
    async fn new(name: &str, answer: &'static str) -> Self {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("generated");
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.expect("a key"))
            .expect("a certificate");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let read = Arc::<Mutex<String>>::default();
        let log = Arc::clone(&read);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = vec![0; 64 << 10];
                let count = stream.read(&mut head).await.expect("a request");
                let text = String::from_utf8_lossy(&head[..count]).into_owned();
                log.lock().expect("whole").push_str(&text);
                if !text.starts_with("CONNECT ") {
                    continue;
                }
                let connected = b"HTTP/1.1 200 Connected\r\n\r\n";
                stream.write_all(connected).await.expect("it is read");
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let _ = stream.read(&mut head).await;
                let length = answer.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{answer}"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        let authority = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(authority.path(), made.cert.pem()).expect("written");
        let proxy = Origin::parse(&format!("http://{address}")).expect("valid");
        let settings = HttpSettings {
            proxy: Some(proxy),
            ca_file: Some(authority.path().to_owned()),
            ..HttpSettings::default()
        };
        Self {
            settings,
            read,
            _authority: authority,
        }
    }

    fn read(&self) -> String {
        self.read.lock().expect("whole").clone()
    }

    fn bridge(&self, settings: &CredentialSettings) -> Bridge {
        Bridge::new(&self.settings, settings.environment.clone())
    }

    async fn find_s3(&self, settings: &CredentialSettings) -> Result<Credentials, CredentialError> {
        let bridge = self.bridge(settings);
        let chain = s3_chain(settings, "bucket", "us-east-1", &bridge);
        chain.find().await
    }

    async fn find_oss(
        &self,
        settings: &CredentialSettings,
    ) -> Result<Credentials, CredentialError> {
        let bridge = self.bridge(settings);
        oss_chain(settings, "bucket", &bridge).find().await
    }
}

#[tokio::test]
async fn services_on_this_machine_and_its_link_are_asked_without_the_proxy() {
    let proxy = Proxy::new("nobody", "").await;
    let service = Service::new().await;
    service.set("/creds", 200, &keys("id"));
    let uri = format!("{}/creds", service.url);
    let mut settings = only(CredentialPlace::Metadata);
    settings.environment = environment(&[
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &uri),
        ("ALIBABA_CLOUD_CREDENTIALS_URI", &uri),
    ]);
    assert_eq!(proxy.find_s3(&settings).await.expect("found").key_id, "id");
    assert_eq!(proxy.find_oss(&settings).await.expect("found").key_id, "id");
    // Whatever is at these addresses here, if anything, the proxy is not asked for it.
    for (variable, value) in [
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/creds"),
        (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "https://169.254.170.23/creds",
        ),
        (
            "AWS_EC2_METADATA_SERVICE_ENDPOINT",
            "http://[fd00:ec2::254]",
        ),
        (
            "AWS_EC2_METADATA_SERVICE_ENDPOINT",
            "http://169.254.169.254",
        ),
    ] {
        settings.environment = environment(&[(variable, value)]);
        proxy.find_s3(&settings).await.expect_err("nobody is there");
    }
    settings.environment = Environment::default();
    proxy
        .find_oss(&settings)
        .await
        .expect_err("nobody is there");
    assert_eq!(proxy.read(), "");
}

#[tokio::test]
async fn credentials_pass_no_proxy_in_clear() {
    let proxy = Proxy::new("nobody", "").await;
    let mut settings = only(CredentialPlace::Metadata);
    settings.environment = environment(&[
        (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "http://keys.invalid/creds",
        ),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "hidden"),
        ("ALIBABA_CLOUD_CREDENTIALS_URI", "http://keys.invalid/creds"),
    ]);
    let aws = proxy.find_s3(&settings).await.expect_err("no such host");
    let oss = proxy.find_oss(&settings).await.expect_err("no such host");
    for error in [aws, oss] {
        assert!(error.message.contains("https://"), "{error}");
    }
    assert_eq!(proxy.read(), "");
}

#[tokio::test]
async fn token_services_are_asked_through_a_tunnel() {
    let token = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(token.path(), "hidden").expect("written");
    let path = token.path().to_str().expect("text");
    let aws = Proxy::new(
        "sts.amazonaws.com",
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
         <AccessKeyId>role-id</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
         <SessionToken>t</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration>\
         </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
    )
    .await;
    let mut settings = only(CredentialPlace::WebIdentity);
    settings.environment = environment(&[
        ("AWS_WEB_IDENTITY_TOKEN_FILE", path),
        ("AWS_ROLE_ARN", "arn"),
        ("ALIBABA_CLOUD_OIDC_TOKEN_FILE", path),
        ("ALIBABA_CLOUD_ROLE_ARN", "arn"),
        ("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "provider"),
    ]);
    let found = aws.find_s3(&settings).await.expect("assumed");
    assert_eq!(found.key_id, "role-id");
    let oss = Proxy::new(
        "sts.aliyuncs.com",
        r#"{"Credentials":{"AccessKeyId":"role-id","AccessKeySecret":"s","SecurityToken":"t","Expiration":"2100-01-01T00:00:00Z"}}"#,
    )
    .await;
    let found = oss.find_oss(&settings).await.expect("assumed");
    assert_eq!(found.key_id, "role-id");
    for read in [aws.read(), oss.read()] {
        assert!(read.starts_with("CONNECT sts.a"), "{read}");
        assert!(!read.contains("hidden"), "{read}");
    }
}
