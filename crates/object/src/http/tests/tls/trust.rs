//! Whom the client trusts, and what it says of the others.

use rcgen::{BasicConstraints, CertificateParams, CertifiedKey, IsCa, KeyPair, date_time_ymd};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use super::*;

/// What `openssl req -x509` makes: a certificate that signed itself and may sign others.
fn of_an_authority(name: &str, last_year: i32) -> CertifiedKey<KeyPair> {
    signed_by_itself(
        name,
        IsCa::Ca(BasicConstraints::Unconstrained),
        2000..last_year,
    )
}

/// A certificate that holds from the first day of a year to the first of another.
fn signed_by_itself(name: &str, is_ca: IsCa, years: std::ops::Range<i32>) -> CertifiedKey<KeyPair> {
    let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
    params.is_ca = is_ca;
    params.not_before = date_time_ymd(years.start, 1, 1);
    params.not_after = date_time_ymd(years.end, 1, 1);
    let signing_key = KeyPair::generate().expect("a key");
    let cert = params.self_signed(&signing_key).expect("a certificate");
    CertifiedKey { cert, signing_key }
}

/// What a client that trusts `authorities` gets from a server that shows `shown`.
async fn ask(
    shown: &CertifiedKey<KeyPair>,
    authorities: &[&CertifiedKey<KeyPair>],
) -> Result<Vec<u8>, HttpError> {
    let (origin, _server) = serve_as(shown).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text: String = authorities.iter().map(|made| made.cert.pem()).collect();
    std::fs::write(file.path(), text).expect("written");
    let client = client_with(HttpSettings::trusting(file.path()));
    get(&client, &origin).await
}

fn untrusted(outcome: Result<Vec<u8>, HttpError>, parts: &[&str]) {
    let error = outcome.expect_err("not trusted");
    assert_eq!(error.kind, ErrorKind::Untrusted, "{error}");
    for part in parts {
        assert!(error.message.contains(part), "{part} in {error}");
    }
}

#[tokio::test]
async fn a_certificate_of_an_authority_that_is_named_itself_is_trusted() {
    let shown = of_an_authority("localhost", 2100);
    let other = of_an_authority("localhost", 2100);
    assert_eq!(ask(&shown, &[&shown]).await.expect("trusted"), b"secret");
    assert_eq!(
        ask(&shown, &[&other, &shown]).await.expect("trusted"),
        b"secret"
    );
    untrusted(ask(&shown, &[&other]).await, &["--ca-file", "SHA-256 is "]);
}

/// A leaf and the authority that signed it.
fn signed_by_an_authority(years: std::ops::Range<i32>) -> CertifiedKey<KeyPair> {
    let authority = of_an_authority("authority.example", 2100);
    let issuer = CertificateParams::new(["authority.example".to_owned()]).expect("a name");
    let issuer = rcgen::Issuer::new(issuer, authority.signing_key);
    let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    params.not_before = date_time_ymd(years.start, 1, 1);
    params.not_after = date_time_ymd(years.end, 1, 1);
    let signing_key = KeyPair::generate().expect("a key");
    let cert = params
        .signed_by(&signing_key, &issuer)
        .expect("a certificate");
    CertifiedKey { cert, signing_key }
}

#[tokio::test]
async fn a_certificate_that_is_named_itself_is_trusted_with_any_signature() {
    let shown = signed_by_an_authority(2000..2100);
    assert_eq!(ask(&shown, &[&shown]).await.expect("trusted"), b"secret");
    let other = signed_by_an_authority(2000..2100);
    untrusted(ask(&shown, &[&other]).await, &["--ca-file", "in between"]);
    let expired = signed_by_an_authority(2000..2001);
    untrusted(ask(&expired, &[&expired]).await, &["expired", "clock"]);
    // Others may have the name of who signed it, with a key of its kind or another one.
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let mut params = CertificateParams::new(["authority.example".to_owned()]).expect("a name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let cert = params.self_signed(&key).expect("a certificate");
    let of_another_kind = CertifiedKey {
        cert,
        signing_key: key,
    };
    for namesake in [of_an_authority("authority.example", 2100), of_another_kind] {
        let known = ask(&shown, &[&namesake, &shown]).await;
        assert_eq!(known.expect("trusted"), b"secret");
        untrusted(ask(&shown, &[&namesake]).await, &["signed by nobody"]);
    }
}

/// Neither by a new handshake nor by a ticket of an old one.
#[tokio::test]
async fn what_was_taken_out_of_the_file_is_not_trusted_any_more() {
    let (shown, other) = (
        of_an_authority("localhost", 2100),
        of_an_authority("localhost", 2100),
    );
    let (origin, _server) = serve_as(&shown).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), shown.cert.pem()).expect("written");
    let client = client_with(HttpSettings::trusting(file.path()));
    assert_eq!(get(&client, &origin).await.expect("trusted"), b"secret");
    std::fs::write(file.path(), other.cert.pem()).expect("written");
    client.forget_idle(&origin);
    untrusted(get(&client, &origin).await, &["--ca-file"]);
}

/// Who names a server's certificate trusts that server, and no other that its key says something of.
#[tokio::test]
async fn a_certificate_of_no_authority_vouches_for_itself_alone() {
    let named = signed_by_itself("named.example", IsCa::NoCa, 2000..2100);
    let issuer = CertificateParams::new(["named.example".to_owned()]).expect("a name");
    let issuer = rcgen::Issuer::new(issuer, &named.signing_key);
    let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let signing_key = KeyPair::generate().expect("a key");
    let cert = params
        .signed_by(&signing_key, &issuer)
        .expect("a certificate");
    let shown = CertifiedKey { cert, signing_key };
    untrusted(ask(&shown, &[&named]).await, &["signed by nobody"]);
}

/// What a server sends beside it may be anything.
#[tokio::test]
async fn a_certificate_that_is_named_itself_needs_none_of_those_in_between() {
    let shown = signed_by_an_authority(2000..2100);
    let expired = of_an_authority("authority.example", 2001);
    let key = PrivateKeyDer::try_from(shown.signing_key.serialize_der()).expect("a key");
    let chain = vec![shown.cert.der().clone(), expired.cert.der().clone()];
    let (origin, _server) = serve_certificates(chain, key).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), shown.cert.pem()).expect("written");
    let client = client_with(HttpSettings::trusting(file.path()));
    assert_eq!(get(&client, &origin).await.expect("trusted"), b"secret");
}

#[tokio::test]
async fn a_certificate_without_names_is_told_as_one() {
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("no name");
    let name = (rcgen::DnType::CommonName, "localhost");
    params.distinguished_name.push(name.0, name.1);
    let signing_key = KeyPair::generate().expect("a key");
    let cert = params.self_signed(&signing_key).expect("a certificate");
    let shown = CertifiedKey { cert, signing_key };
    let parts = ["names no host", "-addext subjectAltName=DNS:localhost"];
    untrusted(ask(&shown, &[&shown]).await, &parts);
}

#[tokio::test]
async fn names_and_dates_count_for_a_certificate_that_is_named_itself() {
    let kinds = [IsCa::NoCa, IsCa::Ca(BasicConstraints::Unconstrained)];
    for is_ca in kinds {
        let signed = |name, years| signed_by_itself(name, is_ca, years);
        let elsewhere = signed("elsewhere.example", 2000..2100);
        let parts = [
            "is not for `localhost` but for elsewhere.example;",
            "endpoint",
        ];
        untrusted(ask(&elsewhere, &[&elsewhere]).await, &parts);
        let expired = signed("localhost", 2000..2001);
        untrusted(ask(&expired, &[&expired]).await, &["expired", "clock"]);
        let early = signed("localhost", 2099..2100);
        untrusted(ask(&early, &[&early]).await, &["not valid yet", "clock"]);
    }
}

#[tokio::test]
async fn a_certificate_that_is_named_itself_is_one_for_servers() {
    use rcgen::ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
    let kinds = [IsCa::NoCa, IsCa::Ca(BasicConstraints::Unconstrained)];
    for is_ca in kinds {
        let made = |usages: &[rcgen::ExtendedKeyUsagePurpose]| {
            let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
            params.is_ca = is_ca;
            params.extended_key_usages = usages.to_vec();
            let signing_key = KeyPair::generate().expect("a key");
            let cert = params.self_signed(&signing_key).expect("a certificate");
            CertifiedKey { cert, signing_key }
        };
        let shown = made(&[ServerAuth, ClientAuth]);
        assert_eq!(ask(&shown, &[&shown]).await.expect("trusted"), b"secret");
        for usage in [ClientAuth, Any] {
            let shown = made(&[usage]);
            untrusted(ask(&shown, &[&shown]).await, &["not one for servers"]);
        }
    }
}

#[tokio::test]
async fn a_server_without_tls_is_told_as_one() {
    let (plain, _server) = serve(|_, mut stream| async move {
        let mut hello = vec![0; 4096];
        let _ = stream.read(&mut hello).await;
        answer(&mut stream, "HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let origin = Origin::parse(&format!("https://localhost:{}", plain.port)).expect("valid");
    let outcome = get(&client(), &Arc::new(origin)).await;
    untrusted(outcome, &["speaks no TLS", "http://"]);
}

/// Not that its authority is unknown, which the file has.
#[tokio::test]
async fn an_authority_whose_signatures_nobody_can_verify_is_told_as_one() {
    let folder = tempfile::tempdir().expect("a directory");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let script = format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:secp521r1 -nodes -days 2 -subj /CN=Corp -sha512 \
           -keyout {key} -out {authority} && \
         openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost -keyout {own_key} \
           -out {request} && printf 'subjectAltName=DNS:localhost\n' >{extensions} && for hash in sha256 sha512; do \
         openssl x509 -req -in {request} -CA {authority} -CAkey {key} -CAcreateserial -days 2 -$hash -extfile {extensions} \
           -out {own}.$hash || exit; done",
        key = at("authority.key"),
        authority = at("authority.pem"),
        own_key = at("own.key"),
        request = at("request"),
        extensions = at("extensions"),
        own = at("own"),
    );
    let made = std::process::Command::new("sh")
        .args(["-c", &script])
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        penstock_skips::skipped("openssl is not here");
        return;
    }
    for hash in ["sha256", "sha512"] {
        let shown = CertificateDer::from_pem_file(at(&format!("own.{hash}"))).expect("made");
        let key = PrivateKeyDer::from_pem_file(at("own.key")).expect("a key");
        let (origin, _server) = serve_certificates(vec![shown], key).await;
        let client = client_with(HttpSettings::trusting(at("authority.pem")));
        untrusted(
            get(&client, &origin).await,
            &["not supported here", "P-384"],
        );
    }
}

/// The certificate that guides tell people to make.
#[tokio::test]
async fn what_openssl_makes_is_trusted_where_it_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let (key, certificate) = (directory.path().join("key"), directory.path().join("cert"));
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext"])
        .args(["subjectAltName=DNS:localhost", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        penstock_skips::skipped("openssl is not here");
        return;
    }
    let shown = CertificateDer::from_pem_file(&certificate).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(&key).expect("a key");
    let (origin, _server) = serve_certificates(vec![shown], key).await;
    let trusting = client_with(HttpSettings::trusting(certificate));
    assert_eq!(get(&trusting, &origin).await.expect("trusted"), b"secret");
    // The server serves one connection at a time.
    drop(trusting);
    untrusted(get(&client(), &origin).await, &["--ca-file", "SHA-256 is "]);
}

/// A leaf, and its authority, which is made as `change` says.
fn signed_by_one(
    change: impl FnOnce(&mut CertificateParams),
) -> (CertifiedKey<KeyPair>, CertifiedKey<KeyPair>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = rcgen::DistinguishedName::new();
    let name = &mut params.distinguished_name;
    name.push(rcgen::DnType::CommonName, "The Authority");
    change(&mut params);
    let key = || KeyPair::generate().expect("a key");
    let signing_key = key();
    let cert = params.self_signed(&signing_key).expect("a certificate");
    let authority = CertifiedKey { cert, signing_key };
    let issuer = rcgen::Issuer::from_params(&params, &authority.signing_key);
    let leaf = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let signing_key = key();
    let cert = leaf.signed_by(&signing_key, &issuer);
    let cert = cert.expect("a certificate");
    (CertifiedKey { cert, signing_key }, authority)
}

/// The library asks an authority for its name and its key alone, where curl asks for its dates and its purpose.
#[tokio::test]
async fn an_authority_that_may_not_vouch_for_servers_vouches_for_none() {
    use rcgen::ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
    let (shown, authority) = signed_by_one(|_| ());
    assert_eq!(
        ask(&shown, &[&authority]).await.expect("trusted"),
        b"secret"
    );
    for usage in [vec![ServerAuth], vec![ClientAuth, ServerAuth], vec![Any]] {
        let (shown, authority) = signed_by_one(|params| params.extended_key_usages = usage);
        assert_eq!(
            ask(&shown, &[&authority]).await.expect("trusted"),
            b"secret"
        );
    }
    let dated = |first: i32, last: i32| {
        signed_by_one(|params| {
            params.not_before = date_time_ymd(first, 1, 1);
            params.not_after = date_time_ymd(last, 1, 1);
        })
    };
    let for_clients = signed_by_one(|params| params.extended_key_usages = vec![ClientAuth]);
    let no_signer = signed_by_one(|params| {
        params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
    });
    let (_, old) = signed_by_one(|params| {
        params.not_after = date_time_ymd(2001, 1, 1);
        let name = &mut params.distinguished_name;
        name.push(rcgen::DnType::OrganizationName, "Old");
    });
    for ((shown, authority), what) in [
        (dated(2000, 2001), "has expired"),
        (dated(2100, 2101), "not valid yet"),
        (for_clients, "not one for servers"),
        (no_signer, "may not sign others"),
    ] {
        // Of several the one is named that signed it.
        let asked = ask(&shown, &[&old, &authority, &old]).await;
        untrusted(asked, &["CN=The Authority, which", what]);
        let asked = ask(&shown, &[&authority]).await;
        untrusted(asked, &["CN=The Authority", "--ca-file", what]);
        // Others are not disturbed, and one that stands there itself needs nobody.
        let (sound, its_own) = signed_by_one(|_| ());
        let asked = ask(&sound, &[&authority, &its_own]).await;
        assert_eq!(asked.expect("trusted"), b"secret");
        let asked = ask(&shown, &[&authority, &shown]).await;
        assert_eq!(asked.expect("trusted"), b"secret");
    }
}

/// What the server should renew is the one in between.
#[tokio::test]
async fn what_is_wrong_with_one_in_between_is_told_of_that_one() {
    let made = |years: std::ops::Range<i32>, is_ca: bool, name: &str| {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.distinguished_name = rcgen::DistinguishedName::new();
        let text = format!("is {name}");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, text);
        params.not_before = date_time_ymd(years.start, 1, 1);
        params.not_after = date_time_ymd(years.end, 1, 1);
        if is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params
    };
    let key = || KeyPair::generate().expect("a key");
    let (root, root_key) = (made(2000..2100, true, "root.example"), key());
    let (between, between_key) = (made(2000..2001, true, "between.example"), key());
    let (leaf, leaf_key) = (made(2000..2100, false, "localhost"), key());
    let root_cert = root.self_signed(&root_key).expect("a certificate");
    let issuer = rcgen::Issuer::from_params(&root, &root_key);
    let between_cert = between
        .signed_by(&between_key, &issuer)
        .expect("a certificate");
    let issuer = rcgen::Issuer::from_params(&between, &between_key);
    let leaf_cert = leaf.signed_by(&leaf_key, &issuer).expect("a certificate");
    let chain = vec![leaf_cert.der().clone(), between_cert.der().clone()];
    let leaf_key = PrivateKeyDer::try_from(leaf_key.serialize_der()).expect("a key");
    let (origin, _server) = serve_certificates(chain, leaf_key).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), root_cert.pem()).expect("written");
    let client = client_with(HttpSettings::trusting(file.path()));
    let asked = get(&client, &origin).await;
    untrusted(
        asked,
        &["signed by one in between that has expired", "send another"],
    );
}
