//! Handshakes that fail, and what is said of them.

use std::{net::Ipv4Addr, path::PathBuf};

use rustls::version::{TLS12, TLS13};

use super::{misbehaving::strict_host_of, *};

const CLOSE_NOTIFY: u8 = 0;
const INTERNAL_ERROR: u8 = 80;
const HANDSHAKE_FAILURE: u8 = 40;
const UNRECOGNIZED_NAME: u8 = 112;
const BAD_CERTIFICATE: u8 = 42;

/// What a client says of a server that answers its hello so.
async fn refusal<F>(script: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> HttpError
where
    F: Future<Output = ()> + Send,
{
    refusal_within(Duration::from_secs(15), script).await
}

/// The same of a client that waits for so long.
async fn refusal_within<F>(
    patience: Duration,
    script: impl Fn(TcpStream) -> F + Send + Sync + 'static,
) -> HttpError
where
    F: Future<Output = ()> + Send,
{
    let script = Arc::new(script);
    let (plain, _server) = serve(move |_, mut stream| {
        let script = Arc::clone(&script);
        async move {
            let _ = stream.read(&mut [0; 4096]).await;
            script(stream).await;
        }
    })
    .await;
    let origin = Origin::parse(&format!("https://localhost:{}", plain.port)).expect("valid");
    let client = client_with(HttpSettings {
        connect_timeout: patience,
        ..HttpSettings::default()
    });
    // The system's certificates are read before the time runs.
    client.prepare(&origin).expect("certificates");
    let origin = Arc::new(origin);
    let answer = get(&client, &origin);
    let answer = clock::deadline(Duration::from_secs(20), answer).await;
    answer
        .expect("it is given up long before")
        .expect_err("no handshake")
}

/// A server that is refused by the alert `what` as its whole answer.
async fn refusal_by(what: u8) -> HttpError {
    refusal(move |mut stream| async move {
        let _ = stream.write_all(&[21, 3, 3, 0, 2, 2, what]).await;
        let _ = stream.read(&mut [0; 16]).await;
    })
    .await
}

#[track_caller]
fn says(error: &HttpError, kind: ErrorKind, parts: &[&str]) {
    assert_eq!(error.kind, kind, "{error}");
    for part in parts.iter().chain(&["https://localhost:"]) {
        assert!(error.message.contains(part), "{part} in {error}");
    }
}

/// A server that fails may work next time; one that wants something else will want it then, too.
#[tokio::test]
async fn an_alert_is_told_as_what_the_server_means() {
    let failed = refusal_by(INTERNAL_ERROR).await;
    says(&failed, ErrorKind::Unavailable, &["InternalError"]);
    let closed = refusal_by(CLOSE_NOTIFY).await;
    says(&closed, ErrorKind::Unavailable, &["CloseNotify"]);
    let nothing_in_common = refusal_by(HANDSHAKE_FAILURE).await;
    let parts = ["in common", "HandshakeFailure"];
    says(&nothing_in_common, ErrorKind::Untrusted, &parts);
    let wrong_name = refusal_by(UNRECOGNIZED_NAME).await;
    says(
        &wrong_name,
        ErrorKind::Untrusted,
        &["name", "check the endpoint"],
    );
    let stranger = refusal_by(BAD_CERTIFICATE).await;
    says(
        &stranger,
        ErrorKind::ClientUntrusted,
        &["wants a certificate of its client", "--client-cert"],
    );
}

/// Somebody who ends the connection proves nothing: it is tried again.
#[tokio::test]
async fn a_handshake_that_is_cut_is_told_as_one() {
    let ended = refusal(|stream| async move { drop(stream) }).await;
    says(&ended, ErrorKind::Unavailable, &["middle of the handshake"]);
    let reset = refusal(|stream| async move {
        stream.set_zero_linger().expect("a socket");
        drop(stream);
    })
    .await;
    says(
        &reset,
        ErrorKind::Unavailable,
        &["middle of the handshake", "reset"],
    );
    let half = refusal(|mut stream| async move {
        let _ = stream
            .write_all(&[22, 3, 3, 0, 42, 2, 0, 0, 38, 3, 3, 7])
            .await;
    })
    .await;
    says(&half, ErrorKind::Unavailable, &["middle of the handshake"]);
    let announced = refusal(|mut stream| async move {
        let _ = stream.write_all(&[21, 3, 3, 0, 2, 1, 0]).await;
    })
    .await;
    says(
        &announced,
        ErrorKind::Unavailable,
        &["middle of the handshake"],
    );
}

/// A server that is there and does not go on is given up, whatever it does meanwhile.
#[tokio::test]
async fn a_handshake_that_stalls_is_given_up() {
    let little = Duration::from_millis(500);
    let silent = refusal_within(little, |mut stream| async move {
        let _ = stream.read(&mut [0; 16]).await;
    })
    .await;
    says(&silent, ErrorKind::Unavailable, &["no TLS within 500ms"]);
    let trickling = refusal_within(little, |mut stream| async move {
        let mut hello = vec![22, 3, 3, 0x40, 0, 2, 0, 0x3f, 0xfc];
        hello.resize(5 + 0x4000, 0);
        for byte in hello {
            if stream.write_all(&[byte]).await.is_err() {
                return;
            }
            clock::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    says(&trickling, ErrorKind::Unavailable, &["no TLS within 500ms"]);
}

/// Certificates without end are not collected.
#[tokio::test]
async fn a_handshake_without_end_is_refused() {
    let endless = refusal(|mut stream| async move {
        // A message of 16 MiB in records of 16 KiB.
        let mut record = vec![22, 3, 3, 0x40, 0, 2, 0xff, 0xff, 0xff];
        record.resize(5 + 0x4000, 0);
        while stream.write_all(&record).await.is_ok() {
            record[5..].fill(0);
        }
    })
    .await;
    says(
        &endless,
        ErrorKind::Untrusted,
        &["HandshakePayloadTooLarge"],
    );
}

/// What a client that asks `127.0.0.1` says to a certificate for `name`.
async fn ask_an_address(name: &str) -> Result<Vec<u8>, HttpError> {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("generated");
    let (origin, _server) = serve_as(&made).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), made.cert.pem()).expect("written");
    let client = client_with(HttpSettings::trusting(file.path()));
    let origin = origin.with_host(Ipv4Addr::LOCALHOST.to_string());
    get(&client, &Arc::new(origin)).await
}

/// An address must be in the certificate as an address (RFC 2818, section 3.1).
#[tokio::test]
async fn an_address_is_verified_as_one() {
    let right = ask_an_address("127.0.0.1").await;
    assert_eq!(right.expect("trusted"), b"secret");
    for other in ["127.0.0.2", "localhost"] {
        let error = ask_an_address(other).await.expect_err("another's");
        assert_eq!(error.kind, ErrorKind::Untrusted, "{error}");
        let told = format!("is not for `127.0.0.1` but for {other};");
        assert!(error.message.contains(&told), "{error}");
    }
}

/// A name is sent, an address is not (RFC 6066, section 3).
#[tokio::test]
async fn an_address_is_not_sent_as_a_name() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let origin = Origin::parse(&format!("https://127.0.0.1:{port}")).expect("valid");
    let heard = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut hello = vec![0; 4096];
        let count = stream.read(&mut hello).await.expect("a hello");
        hello.truncate(count);
        hello
    };
    let (client, origin) = (client(), Arc::new(origin));
    let (hello, _) = tokio::join!(heard, get(&client, &origin));
    assert!(hello.len() > 100, "a hello");
    assert!(!hello.windows(9).any(|nine| nine == b"127.0.0.1"));
}

/// A client with a certificate of whom the server trusts is let in; another, or none, is told. With TLS 1.2 the server says in
/// the middle of the handshake whom it does not let in, with TLS 1.3 behind it.
#[tokio::test]
async fn a_server_that_wants_a_certificate_gets_the_one_that_was_named() {
    for version in [&TLS12, &TLS13] {
        let made = certificate("localhost");
        let host = strict_host_of(version, &made).await.trusting(&made);
        let refused = host.get().await.expect_err("refused");
        is_refused(
            &refused,
            &["wants a certificate of its client", "--client-cert"],
        );
        let shown = tempfile::NamedTempFile::new().expect("a file");
        let client = host.client_showing(shown.path());
        write(shown.path(), &made);
        get(&client, &host.origin).await.expect("let in");

        write(shown.path(), &certificate("other"));
        let client = host.client_showing(shown.path());
        let refused = get(&client, &host.origin).await.expect_err("refused");
        let path = shown.path().to_str().expect("plain");
        is_refused(
            &refused,
            &[
                "refused the client certificate",
                path,
                "(DecryptError)",
                "have the server trust",
            ],
        );
    }
}

/// Who renews the files has new connections use them; what cannot be used changes nothing.
#[tokio::test]
async fn certificates_are_read_again_when_their_files_changed() {
    let (made, other) = (certificate("localhost"), certificate("other"));
    let host = strict_host_of(&TLS13, &made).await.trusting(&made);
    let shown = tempfile::NamedTempFile::new().expect("a file");
    write(shown.path(), &other);
    let client = host.client_showing(shown.path());
    let refused = get(&client, &host.origin).await.expect_err("refused");
    is_refused(&refused, &["refused the client certificate"]);
    write(shown.path(), &made);
    get(&client, &host.origin).await.expect("let in");

    // All who connect at that moment use them.
    write(shown.path(), &other);
    client.forget_idle(&host.origin);
    get(&client, &host.origin).await.expect_err("refused");
    write(shown.path(), &made);
    let all = (0..8).map(|_| get(&client, &host.origin));
    for got in futures_util::future::join_all(all).await {
        got.expect("let in");
    }

    for useless in ["nothing".to_owned(), made.cert.pem()] {
        std::fs::write(shown.path(), useless).expect("written");
        client.forget_idle(&host.origin);
        get(&client, &host.origin).await.expect("as before");
    }
    std::fs::remove_file(shown.path()).expect("removed");
    client.forget_idle(&host.origin);
    get(&client, &host.origin).await.expect("as before");
    // The file of a secret of Kubernetes is a link, which leads elsewhere at once.
    let renewed = tempfile::NamedTempFile::new().expect("a file");
    write(renewed.path(), &other);
    std::os::unix::fs::symlink(renewed.path(), shown.path()).expect("linked");
    client.forget_idle(&host.origin);
    let refused = get(&client, &host.origin).await.expect_err("refused");
    is_refused(&refused, &["refused the client certificate"]);
}

/// A file server may be away for as long as it likes.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_certificates_that_do_not_answer_hold_nobody_up() {
    let made = certificate("localhost");
    let host = strict_host_of(&TLS13, &made).await.trusting(&made);
    let folder = tempfile::tempdir().expect("a directory");
    let shown = folder.path().join("shown");
    write(&shown, &made);
    // No longer than a look may take, which the server does not pay for.
    let client = client_with(HttpSettings {
        connect_timeout: Duration::from_secs(1),
        ..host.settings_showing(&shown)
    });
    get(&client, &host.origin).await.expect("let in");
    // Reading it waits for a writer.
    std::fs::remove_file(&shown).expect("removed");
    make_pipe(&shown);
    let held_up = async {
        for _ in 0..10 {
            client.forget_idle(&host.origin);
            get(&client, &host.origin).await?;
        }
        Ok::<_, HttpError>(())
    };
    // The first waits for a second, the others for nothing.
    let held_up = clock::deadline(Duration::from_secs(8), held_up).await;
    // Lets the look end.
    free(&shown);
    held_up.expect("in time").expect("as before");
}

/// Who puts a file in the place of a pipe need not start the mount again.
#[tokio::test]
async fn a_look_at_files_that_never_ends_is_not_the_last() {
    let made = certificate("localhost");
    let host = strict_host_of(&TLS13, &made).await.trusting(&made);
    let folder = tempfile::tempdir().expect("a directory");
    let shown = folder.path().join("shown");
    write(&shown, &made);
    let client = host.client_showing(&shown);
    get(&client, &host.origin).await.expect("let in");
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    std::fs::rename(&pipe, &shown).expect("renamed");
    let other_name = folder.path().join("other name");
    std::fs::hard_link(&shown, &other_name).expect("linked");
    client.forget_idle(&host.origin);
    get(&client, &host.origin).await.expect("as before");
    // Another identity, so that it shows which one is used.
    let renewed = folder.path().join("renewed");
    write(&renewed, &certificate("other"));
    std::fs::rename(&renewed, &shown).expect("renamed");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    client.forget_idle(&host.origin);
    let asked = get(&client, &host.origin).await;
    // The look that is lost holds nobody up from then on.
    write(&shown, &made);
    let asked_again = get(&client, &host.origin).await;
    // Lets the look end.
    free(&other_name);
    is_refused(
        &asked.expect_err("refused"),
        &["refused the client certificate"],
    );
    asked_again.expect("let in");
}

/// Who names a pipe that nobody writes to is told.
#[tokio::test]
async fn a_store_is_not_opened_by_files_that_do_not_answer() {
    let folder = tempfile::tempdir().expect("a directory");
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    let settings = HttpSettings {
        connect_timeout: Duration::from_millis(300),
        ..HttpSettings::trusting(&pipe)
    };
    let (told, ends) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(refused_at_once(settings)));
    let prepared = ends.recv_timeout(Duration::from_secs(10));
    free(&pipe);
    let refused = prepared.expect("in time");
    assert_eq!(refused.kind, ErrorKind::InvalidRequest, "{refused}");
    for part in [
        "`--ca-file`",
        "nobody writes",
        pipe.to_str().expect("plain"),
    ] {
        assert!(refused.message.contains(part), "{part} in {refused}");
    }
}

/// What comes through a pipe, as of `<(...)`, serves.
#[tokio::test]
async fn certificates_come_through_a_pipe() {
    let made = certificate("localhost");
    let host = strict_host_of(&TLS13, &made).await.trusting(&made);
    let folder = tempfile::tempdir().expect("a directory");
    let (shown, key) = (folder.path().join("shown"), folder.path().join("key"));
    make_pipe(&shown);
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let mut settings = host.settings_showing(&shown);
    settings.client_certificate = Some(crate::ClientCertificate {
        certificate: shown.clone(),
        key,
    });
    let written = made.cert.pem();
    let to = shown.clone();
    let writer = std::thread::spawn(move || std::fs::write(to, written));
    let client = client_with(settings);
    client.prepare(&host.origin).expect("certificates");
    writer.join().expect("no panic").expect("written");
    get(&client, &host.origin).await.expect("let in");
    // Nothing more comes, so nobody waits for it: who would write finds no reader.
    use rustix::fs::{Mode, OFlags};
    let writer = rustix::fs::open(&shown, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
    assert_eq!(writer.expect_err("no reader"), rustix::io::Errno::NXIO);
    // A second reader, as the process of a mount in the background, is told why it finds nothing.
    let read = std::path::Path::new("/proc/self/fd").join(empty_pipe().to_string());
    let refused = refused_at_once(HttpSettings::trusting(read));
    assert!(refused.message.contains("read before"), "{refused}");
}

/// They are read again while a mount is up, which must not cost it its memory.
#[tokio::test]
async fn files_of_certificates_are_of_bounded_length() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 40).expect("sparse");
    let refused = refused_at_once(HttpSettings::trusting(file.path()));
    assert!(refused.message.contains("longer than 4 MiB"), "{refused}");
}

/// Each of the forms that others write keys in is told as what it is.
#[tokio::test]
async fn files_without_a_key_that_serves_are_told_by_what_they_lack() {
    let folder = tempfile::tempdir().expect("a directory");
    let at = |name: &str| folder.path().join(name);
    let made = certificate("localhost");
    std::fs::write(at("own"), made.cert.pem()).expect("written");
    std::fs::write(at("key.der"), made.signing_key.serialize_der()).expect("written");
    std::fs::write(at("own.der"), made.cert.der()).expect("written");
    let enciphered = |head: &str, lines: &str| {
        format!("-----BEGIN {head}-----\n{lines}TUlJ\n-----END {head}-----\n")
    };
    let lines = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n";
    let old = enciphered("EC PRIVATE KEY", lines);
    std::fs::write(at("old"), old).expect("written");
    let new = enciphered("ENCRYPTED PRIVATE KEY", "");
    std::fs::write(at("new"), new).expect("written");
    std::fs::write(at("text"), "no key").expect("written");
    for (certificate, key, parts) in [
        (
            "own",
            "own",
            ["`--client-cert`", "has no key", "by `--client-key`"],
        ),
        (
            "own",
            "old",
            ["`--client-key`", "passphrase", "openssl pkey"],
        ),
        (
            "own",
            "new",
            ["`--client-key`", "passphrase", "openssl pkey"],
        ),
        (
            "own",
            "key.der",
            ["`--client-key`", "key in DER", "-inform der"],
        ),
        (
            "own.der",
            "key.der",
            ["`--client-cert`", "certificate in DER", "-inform der"],
        ),
        ("own", "text", ["`--client-key`", "no PEM key", "text"]),
    ] {
        let refused = refused_at_once(showing(at(certificate), at(key)));
        for part in parts {
            assert!(refused.message.contains(part), "{part} in {refused}");
        }
    }
}

/// The certificate is not at fault.
#[tokio::test]
async fn a_key_of_a_kind_that_is_not_supported_is_told_as_one() {
    let folder = tempfile::tempdir().expect("a directory");
    let at = |name: &str| folder.path().join(name);
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:secp521r1", "-nodes", "-subj", "/CN=us"])
        .arg("-keyout")
        .arg(at("key"))
        .arg("-out")
        .arg(at("own"))
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        penstock_skips::skipped("openssl is not here");
        return;
    }
    let refused = refused_at_once(showing(at("own"), at("key")));
    for part in ["--client-key", "not supported", "P-256"] {
        assert!(refused.message.contains(part), "{part} in {refused}");
    }
}

/// What is said of settings with which no store can be opened.
#[track_caller]
fn refused_at_once(settings: HttpSettings) -> HttpError {
    let origin = Origin::parse("https://localhost:1").expect("valid");
    let prepared = client_with(settings).prepare(&origin);
    prepared.expect_err("of no use")
}

fn showing(certificate: PathBuf, key: PathBuf) -> HttpSettings {
    HttpSettings {
        client_certificate: Some(crate::ClientCertificate { certificate, key }),
        ..HttpSettings::default()
    }
}

#[track_caller]
fn is_refused(error: &HttpError, parts: &[&str]) {
    assert_eq!(error.kind, ErrorKind::ClientUntrusted, "{error}");
    for part in parts {
        assert!(error.message.contains(part), "{part} in {error}");
    }
    assert!(!error.message.contains("connection broke"), "{error}");
}

fn certificate(name: &str) -> rcgen::CertifiedKey<rcgen::KeyPair> {
    rcgen::generate_simple_self_signed([name.to_owned()]).expect("generated")
}

fn write(path: &std::path::Path, made: &rcgen::CertifiedKey<rcgen::KeyPair>) {
    let both = made.cert.pem() + &made.signing_key.serialize_pem();
    std::fs::write(path, both).expect("written");
}

/// What a reader finds at the end of a pipe that another one has read.
fn empty_pipe() -> std::os::fd::RawFd {
    use std::os::fd::IntoRawFd;
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(writer);
    reader.into_raw_fd()
}

/// In the place of a file whose reader waits for a writer.
fn make_pipe(path: &std::path::Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo").success());
}

/// Has those go on who wait for a writer.
fn free(pipe: &std::path::Path) {
    let ends = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(pipe);
    drop(ends.expect("a pipe"));
}
