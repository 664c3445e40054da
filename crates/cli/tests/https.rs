//! What the command says of HTTPS: whom it trusts and why, and who does not trust it.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{
    io::{BufRead, BufReader},
    net::Ipv4Addr,
    path::PathBuf,
    process::{Command, Stdio},
};

use penstock_devserver::{Identity, Server, Settings};
use support::{BUCKET, Background, Ended, Scratch, run, server_with, with_access};

/// A server that speaks HTTPS, and the file of the authority that vouches for it.
struct Bed {
    scratch: Scratch,
    server: Server,
    authority: PathBuf,
}

impl Bed {
    fn new() -> Self {
        let scratch = Scratch::new();
        let identity = Identity::generate(Ipv4Addr::LOCALHOST.into()).expect("randomness");
        let authority = scratch.file("authority.pem", identity.authority());
        let server = server_with(|settings| settings.identity = Some(identity));
        Self {
            scratch,
            server,
            authority,
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.scratch.penstock();
        with_access(&mut command, &self.server).args(words);
        command
    }

    fn list(&self) -> Command {
        self.command(&["ls", &format!("s3://{BUCKET}")])
    }

    /// The row of TLS in what `check` prints.
    fn row(&self, words: &[&str]) -> String {
        let source = format!("s3://{BUCKET}");
        let ended = run(self.command(&["check", "--no-write", &source]).args(words));
        let row = ended.out.lines().find(|line| line.contains("  tls  "));
        assert!(row.is_some(), "{ended:#?}");
        row.unwrap_or_default().to_owned()
    }
}

#[test]
fn check_tells_protocol_cipher_certificate_and_who_vouches_for_it() {
    let bed = Bed::new();
    let file = bed.authority.display().to_string();
    let row = bed.row(&["--ca-file", &file]);
    assert!(row.starts_with("ok "), "{row}");
    for part in [
        "TLS 1.3",
        "TLS13_AES_128_GCM_SHA256",
        "CN=penstock-devserver",
        "CN=authority of a penstock-devserver",
        "until ",
        &format!("ca-file {file}"),
    ] {
        assert!(row.contains(part), "{part}: {row}");
    }
    let row = bed.row(&[]);
    assert!(row.starts_with("FAILED"), "{row}");
    assert!(
        row.contains("signed by nobody who is trusted here"),
        "{row}"
    );
}

#[test]
fn check_has_no_row_of_tls_where_none_is_spoken() {
    let (scratch, server) = (Scratch::new(), support::strict_server());
    let mut command = scratch.penstock();
    with_access(&mut command, &server).args(["check", "--no-write", &format!("s3://{BUCKET}")]);
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(!ended.out.contains("  tls  "), "{ended:#?}");
}

#[test]
fn the_file_of_the_tools_of_aws_is_trusted_where_no_other_is_named() {
    let bed = Bed::new();
    let bundle = ("AWS_CA_BUNDLE", &bed.authority);
    assert_eq!(run(&mut bed.list()).code, Some(1));
    assert_eq!(run(bed.list().env(bundle.0, bundle.1)).code, Some(0));
    let parent = bed.authority.parent().expect("a folder");
    let mut relative = bed.list();
    relative.current_dir(parent).env(bundle.0, "authority.pem");
    assert_eq!(run(&mut relative).code, Some(0));

    let other = Identity::generate(Ipv4Addr::LOCALHOST.into()).expect("randomness");
    let other = bed.scratch.file("other.pem", other.authority());
    let mut overridden = bed.list();
    overridden
        .env(bundle.0, bundle.1)
        .arg("--ca-file")
        .arg(&other);
    let ended = run(&mut overridden);
    assert!(ended.err.contains("is not trusted"), "{ended:#?}");

    let ended = run(bed.list().env(bundle.0, "/no/such/file"));
    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert!(ended.err.contains("AWS_CA_BUNDLE"), "{ended:#?}");
    let source = format!("s3://{BUCKET}");
    let ended = run(bed
        .command(&["check", "--no-write", &source])
        .env(bundle.0, bundle.1));
    assert!(ended.out.contains("AWS_CA_BUNDLE "), "{ended:#?}");
}

/// A mount in the background leaves the directory that it was started in, and so the names that count from there.
#[test]
fn what_the_system_trusts_is_trusted_after_other_files_were_read_again() {
    let bed = Bed::new();
    let other = || Identity::generate(Ipv4Addr::LOCALHOST.into()).expect("randomness");
    let other_file = bed.scratch.file("other.pem", other().authority());
    let mountpoint = bed.scratch.folder("mnt");
    let source = format!("s3://{BUCKET}");
    let mut mount = bed.command(&["mount", &source, "--ca-file"]);
    mount.arg(&other_file).arg(&mountpoint);
    mount.env("SSL_CERT_FILE", "authority.pem");
    mount.current_dir(bed.authority.parent().expect("a folder"));
    let ended = run(&mut mount);
    assert_eq!(ended.code, Some(0), "{ended:#?}");

    std::fs::write(&other_file, other().authority()).expect("writable");
    let settings = Settings {
        address: bed.server.address(),
        ..bed.server.settings().clone()
    };
    let _server = Server::start_with(bed.server.stop(), settings).expect("the same port");
    let listed = std::fs::read_dir(&mountpoint).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let unmounted = run(bed.scratch.penstock().arg("umount").arg(&mountpoint));
    listed.expect("it is trusted");
    assert_eq!(unmounted.code, Some(0), "{unmounted:#?}");
}

#[test]
fn certificates_for_an_endpoint_without_tls_are_warned_of_once() {
    let (scratch, server) = (Scratch::new(), support::strict_server());
    let file = scratch.file("authority.pem", "");
    let told = |command: &mut Command| {
        with_access(command, &server);
        let ended = run(command);
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        ended.err.matches("ca-file does nothing").count()
    };
    let source = format!("s3://{BUCKET}");
    let mut list = scratch.penstock();
    list.args(["ls", &source, "--ca-file"]).arg(&file);
    assert_eq!(told(&mut list), 1);
    let mut check = scratch.penstock();
    check.args(["check", &source, "--ca-file"]).arg(&file);
    assert_eq!(told(&mut check), 1);
    let mut mount = scratch.penstock();
    let mountpoint = scratch.folder("mnt");
    mount
        .args(["mount", &source])
        .arg(&mountpoint)
        .arg("--ca-file")
        .arg(&file);
    assert_eq!(told(&mut mount), 1);
    let ended = run(scratch.penstock().arg("umount").arg(&mountpoint));
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let mut bundle = scratch.penstock();
    bundle.args(["ls", &source]).env("AWS_CA_BUNDLE", &file);
    assert_eq!(told(&mut bundle), 0);
}

#[test]
fn certificates_below_the_mount_point_are_refused() {
    let scratch = Scratch::new();
    let mountpoint = scratch.folder("mnt");
    let inside = scratch.file("mnt/own.pem", "");
    // What is typed is below it, whatever that leads to.
    let link = scratch.path("mnt/link.pem");
    std::os::unix::fs::symlink(scratch.file("outside.pem", ""), &link).expect("a link");
    // As is what leads there by another name of the mount point, or comes by on its way.
    let other_name = scratch.path("other");
    std::os::unix::fs::symlink(&mountpoint, &other_name).expect("a link");
    let by_other_name = other_name.join("link.pem");
    let first = scratch.path("first.pem");
    std::os::unix::fs::symlink(&link, &first).expect("a link");
    for (option, file) in [
        ("--ca-file", &inside),
        ("--ca-file", &link),
        ("--ca-file", &by_other_name),
        ("--ca-file", &first),
        ("--client-cert", &inside),
        ("--client-key", &inside),
    ] {
        let mut mount = scratch.penstock();
        mount
            .args(["mount", &format!("s3://{BUCKET}")])
            .arg(&mountpoint)
            .args(["--endpoint=https://localhost:1", "--nonempty", option])
            .arg(file);
        let ended = run(&mut mount);
        assert_ne!(ended.code, Some(0), "{ended:#?}");
        assert!(ended.err.contains("inside the mount point"), "{ended:#?}");
    }
}

/// What `openssl req` makes: a certificate that signed itself, and its key, in one file.
fn certificate(scratch: &Scratch, name: &str) -> Option<PathBuf> {
    let (file, key) = (scratch.path(name), scratch.path("key"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&file)
        .output();
    made.ok().filter(|made| made.status.success())?;
    let both = [&file, &key].map(|path| std::fs::read_to_string(path).expect("written"));
    Some(scratch.file(name, &both.concat()))
}

/// OpenSSL's server, which lets in only whom its own certificate vouches for, and its port.
fn strict_openssl(own: &PathBuf, version: &str) -> (Background, u16) {
    let mut server = Command::new("openssl");
    server
        .args([
            "s_server",
            "-accept",
            "127.0.0.1:0",
            "-naccept",
            "20",
            version,
        ])
        .args(["-Verify", "1", "-verify_return_error", "-www", "-cert"])
        .arg(own)
        .arg("-CAfile")
        .arg(own)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut server = Background(server.spawn().expect("openssl is here"));
    let out = server.0.stdout.as_mut().expect("piped");
    let lines = BufReader::new(out).lines().map_while(Result::ok);
    let port = lines.filter_map(|line| {
        line.strip_prefix("ACCEPT ")?
            .rsplit(':')
            .next()?
            .parse()
            .ok()
    });
    let port = port.take(1).next().expect("it says where it listens");
    (server, port)
}

#[test]
fn a_client_certificate_that_the_server_refuses_is_told_as_that() {
    let scratch = Scratch::new();
    let (Some(own), Some(other)) = (certificate(&scratch, "own"), certificate(&scratch, "other"))
    else {
        return penstock_skips::skipped("openssl is not here");
    };
    for version in ["-tls1_2", "-tls1_3"] {
        let (_server, port) = strict_openssl(&own, version);
        let ask = |shown: Option<&PathBuf>| -> Ended {
            let mut command = scratch.penstock();
            command
                .args(["ls", &format!("s3://{BUCKET}"), "--endpoint"])
                .arg(format!("https://localhost:{port}"))
                .arg("--ca-file")
                .arg(&own)
                .env("AWS_ACCESS_KEY_ID", "id")
                .env("AWS_SECRET_ACCESS_KEY", "secret");
            command.args(shown.map(|file| format!("--client-cert={}", file.display())));
            run(&mut command)
        };
        let none = ask(None);
        let wrong = ask(Some(&other));
        for (ended, parts) in [
            (
                &none,
                &["wants a certificate of its client", "--client-cert"][..],
            ),
            (
                &wrong,
                &[
                    "refused the client certificate of `--client-cert`",
                    other.to_str().expect("plain"),
                    "does not trust the authority",
                    "have the server trust",
                ],
            ),
        ] {
            assert_eq!(ended.code, Some(1), "{version} {ended:#?}");
            for part in parts {
                assert!(ended.err.contains(part), "{version} {part}: {ended:#?}");
            }
            for wrong in ["access key", "credentials", "is not trusted"] {
                assert!(!ended.err.contains(wrong), "{version} {wrong}: {ended:#?}");
            }
        }
        let right = ask(Some(&own));
        assert!(!right.err.contains("--client-cert"), "{version} {right:#?}");
    }
}
