//! The mount commands of other programs, as their documents write them, against a local server.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use support::{BUCKET, KEY_ID, SECRET, Scratch, run, strict_server, succeed, umount};

fn mode(path: &Path) -> u32 {
    let metadata = fs::metadata(path).expect("it is there");
    metadata.permissions().mode() & 0o777
}

fn use_it(mountpoint: &Path, server: &penstock_devserver::Server) {
    fs::create_dir(mountpoint.join("fio")).expect("writable");
    fs::write(mountpoint.join("fio/file"), "data").expect("writable");
    let text = fs::read_to_string(mountpoint.join("fio/file"));
    assert_eq!(text.expect("readable"), "data");
    let saved = server.data().get(BUCKET, "fio/file");
    assert_eq!(saved.as_deref(), Some(&b"data"[..]));
}

#[test]
fn ossfs2_mounts_with_its_file() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = scratch.folder("mnt/ossfs2");
    let file = scratch.file(
        "ossfs2.conf",
        &format!(
            "# Endpoint of the bucket's region\n--oss_endpoint={}\n\n# Name of the bucket\n\
             --oss_bucket={BUCKET}\n\n# Access key\n--oss_access_key_id={KEY_ID}\n\
             --oss_access_key_secret={SECRET}\n\n# Part size in bytes\n\
             --upload_buffer_size=33554432\n",
            server.url()
        ),
    );
    let mut command = scratch.called("ossfs2");
    command.env_remove("PENSTOCK_LOG_FILE");
    command
        .arg("mount")
        .arg(format!("{}/", mountpoint.display()));
    command
        .arg("-c")
        .arg(&file)
        .arg(format!("--log_dir={}", scratch.path("logs").display()));
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(ended.err, "");
    let shown = mountpoint.display();
    assert_eq!(ended.out, format!("oss://{BUCKET} is mounted on {shown}\n"));
    assert_eq!(mode(&mountpoint), 0o777);
    use_it(&mountpoint, &server);
    assert_eq!(mode(&mountpoint.join("fio/file")), 0o777);
    assert!(scratch.path("logs/tester/ossfs2.log").exists());

    let shown = succeed(scratch.called("ossfs2").args(["stats", "show"]));
    assert!(shown.contains("memory "), "{shown}");
    umount(&mountpoint);
}

#[test]
fn ossfs2_signs_with_version_4_when_it_knows_a_region() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = scratch.folder("mnt");
    let list = format!(
        "_netdev,nofail,rw,oss_endpoint={},oss_region={},attr_timeout=5",
        server.url(),
        support::REGION
    );
    let mut command = scratch.called("ossfs2");
    command
        .env("OSS_ACCESS_KEY_ID", KEY_ID)
        .env("OSS_ACCESS_KEY_SECRET", SECRET);
    command.arg(BUCKET).arg(&mountpoint).args(["-o", &list]);
    succeed(&mut command);
    use_it(&mountpoint, &server);
    umount(&mountpoint);
}

#[test]
fn goofys_mounts_with_its_options() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = scratch.folder("mnt/goofys");
    let mut command = scratch.called("goofys");
    command
        .env("AWS_ACCESS_KEY_ID", KEY_ID)
        .env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.args(["--endpoint", &server.url(), "--region", support::REGION]);
    command.args(["--subdomain", BUCKET, "--stat-cache-ttl", "60s"]);
    command.args(["--type-cache-ttl", "60s"]).arg(&mountpoint);
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
    use_it(&mountpoint, &server);
    assert_eq!(mode(&mountpoint), 0o755);
    assert_eq!(mode(&mountpoint.join("fio/file")), 0o644);
    umount(&mountpoint);
}

#[test]
fn goofys_mounts_a_prefix_and_warns_once_of_what_means_nothing() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = scratch.folder("mnt");
    let mut command = scratch.penstock();
    command
        .env("AWS_ACCESS_KEY_ID", KEY_ID)
        .env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.args([
        "as",
        "goofys",
        "--endpoint",
        &server.url(),
        "--region",
        support::REGION,
    ]);
    command.args(["--cheap", "--acl", "public-read", "--use-content-type"]);
    command
        .arg(format!("{BUCKET}:some/prefix"))
        .arg(&mountpoint);
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    assert!(ended.err.contains("acl (") && ended.err.contains("use-content-type ("));
    fs::write(mountpoint.join("x"), "").expect("writable");
    assert_eq!(server.data().keys(BUCKET), ["some/prefix/x"]);
    umount(&mountpoint);
}

#[test]
fn ossfs_mounts_with_its_words() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = scratch.folder("mnt/ossfs");
    let file = scratch.file("passwd", &format!("{BUCKET}:{KEY_ID}:{SECRET}\n"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("ours");
    let mut command = scratch.called("ossfs");
    command
        .arg(BUCKET)
        .arg(&mountpoint)
        .arg(format!("-ourl={}", server.url()));
    command.args(["-odirect_read", "-oreaddir_optimize"]);
    command.arg(format!("-opasswd_file={}", file.display()));
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
    use_it(&mountpoint, &server);
    umount(&mountpoint);
}

#[test]
fn unknown_options_are_errors() {
    let scratch = Scratch::new();
    let mountpoint = scratch.folder("mnt");
    for (program, arguments) in [
        ("ossfs2", &["mount", "MNT", "--no_such=1"][..]),
        ("goofys", &["--no-such", "bucket", "MNT"]),
        ("ossfs", &["bucket", "MNT", "-ono_such"]),
    ] {
        let mut command = scratch.called(program);
        for argument in arguments {
            match *argument {
                "MNT" => command.arg(&mountpoint),
                other => command.arg(other),
            };
        }
        let ended = run(&mut command);
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        assert!(
            ended.err.contains("no_such") || ended.err.contains("no-such"),
            "{ended:#?}"
        );
        assert_eq!(ended.err.lines().count(), 1);
    }
}
