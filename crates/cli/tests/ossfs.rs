//! The command line of ossfs 1.91 against a local server: the options that its documents write,
//! password files, lines of fstab, the utility mode, signals.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use penstock_devserver::{Credentials, Operation, Server, Settings};
use support::{
    BUCKET, Ended, Foreground, KEY_ID, REGION, SECRET, Scratch, run, strict_server, succeed,
    umount, wait_until,
};

/// A password file with these permissions.
fn passwords(scratch: &Scratch, name: &str, text: &str, mode: u32) -> PathBuf {
    let file = scratch.file(name, text);
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("ours");
    file
}

fn general_passwords(scratch: &Scratch) -> PathBuf {
    passwords(scratch, "passwd", &format!("{KEY_ID}:{SECRET}\n"), 0o600)
}

/// `ossfs bucket-test MOUNTPOINT -ourl=...`.
fn ossfs(scratch: &Scratch, server: &Server, mountpoint: &Path) -> Command {
    let mut command = scratch.called("ossfs");
    command
        .arg(BUCKET)
        .arg(mountpoint)
        .arg(format!("-ourl={}", server.url()));
    command
}

fn with_passwords<'a>(command: &'a mut Command, file: &Path) -> &'a mut Command {
    command.arg(format!("-opasswd_file={}", file.display()))
}

/// The options that the documents of ossfs 1.91 write, word for word, and which of them are warned
/// about as long as files are not staged.
fn documented(cache: &Path) -> Vec<(Vec<String>, &'static [&'static str])> {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let cache = format!("-o use_cache={}", cache.display());
    vec![
        (words("-o readdir_optimize"), &[]),
        (words("-o readdir_optimize -o listobjectsv2"), &[]),
        (
            words("-o readdir_optimize -o symlink_in_meta"),
            &["symlink_in_meta"],
        ),
        (words("-o direct_read"), &[]),
        (
            words("-o direct_read -o direct_read_prefetch_limit=128"),
            &[],
        ),
        (
            words("-o direct_read -o direct_read_prefetch_chunks=0"),
            &[],
        ),
        (words("-o kernel_cache"), &[]),
        (words(&cache), &[]),
        (words(&format!("{cache} -o direct_read")), &["use_cache"]),
        (words("-o max_stat_cache_size=0"), &[]),
        // Going back to what 1.88 did.
        (
            words("-o stat_cache_expire=-1 -o multipart_threshold=5120 -o max_dirty_data=-1"),
            &["stat_cache_expire", "multipart_threshold", "max_dirty_data"],
        ),
        (words("-o multipart_size=30 -o parallel_count=20"), &[]),
        (words("-o multipart_size=10 -o parallel_count=5"), &[]),
        (words("--profile ack"), &[]),
    ]
}

#[test]
fn documented_options_are_taken_word_for_word() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let file = general_passwords(&scratch);
    let cache = scratch.folder("path/to/cache");
    for (number, (options, may_warn)) in documented(&cache).into_iter().enumerate() {
        let mountpoint = scratch.folder(&format!("mnt{number}"));
        let mut command = ossfs(&scratch, &server, &mountpoint);
        let ended = run(with_passwords(&mut command, &file).args(&options));
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (Some(0), ""),
            "{options:?}: {ended:#?}"
        );
        assert!(may_warn.iter().any(|name| ended.err.contains(name)) || ended.err.is_empty());
        if may_warn.is_empty() {
            assert_eq!(ended.err, "", "{options:?}");
        }
        let name = format!("dir{number}/file");
        fs::create_dir(mountpoint.join(format!("dir{number}"))).expect("writable");
        fs::write(mountpoint.join(&name), "data").expect("writable");
        assert_eq!(fs::read(mountpoint.join(&name)).expect("readable"), b"data");
        let listed = fs::read_dir(mountpoint.join(format!("dir{number}")));
        assert_eq!(listed.expect("a directory").count(), 1);
        assert_eq!(
            server.data().get(BUCKET, &name).as_deref(),
            Some(&b"data"[..])
        );
        umount(&mountpoint);
    }
}

#[test]
fn a_path_that_does_not_exist_can_be_mounted() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let file = general_passwords(&scratch);
    let mountpoint = scratch.folder("mnt");
    let mut command = scratch.called("ossfs");
    command
        .arg(format!("{BUCKET}:/not/there/yet"))
        .arg(&mountpoint)
        .args(["-o", &format!("url={}", server.url())]);
    succeed(with_passwords(&mut command, &file));
    assert_eq!(fs::read_dir(&mountpoint).expect("a directory").count(), 0);
    server.reset_counters();
    fs::write(mountpoint.join("x"), "1").expect("writable");
    assert_eq!(
        server.counters().operation(Operation::PutObject),
        1,
        "no empty object first"
    );
    assert_eq!(server.data().keys(BUCKET), ["not/there/yet/x"]);
    umount(&mountpoint);
}

/// Mounts, and unmounts again if that succeeds.
fn try_to_mount(command: &mut Command, mountpoint: &Path) -> Ended {
    let ended = run(command);
    if ended.code == Some(0) {
        umount(mountpoint);
    }
    ended
}

#[test]
fn password_files_have_three_forms() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = scratch.folder("mnt");
    for (number, text) in [
        format!("{KEY_ID}:{SECRET}\n"),
        format!("# all of them\nwrong:wrong\nother:a:b\n{BUCKET}:{KEY_ID}:{SECRET}\n"),
        format!("OSSAccessKeyId={KEY_ID}\nOSSSecretKey={SECRET}\n"),
    ]
    .iter()
    .enumerate()
    {
        let file = passwords(&scratch, &format!("passwd{number}"), text, 0o600);
        let mut command = ossfs(&scratch, &server, &mountpoint);
        let ended = try_to_mount(with_passwords(&mut command, &file), &mountpoint);
        assert_eq!(ended.code, Some(0), "{text}: {ended:#?}");
    }
}

#[test]
fn password_files_that_cannot_be_used_are_named_with_the_reason() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = scratch.folder("mnt");
    let good = format!("{KEY_ID}:{SECRET}\n");
    for (number, (text, mode, reason)) in [
        (good.as_str(), 0o644, "chmod 600"),
        (good.as_str(), 0o640, "chmod 600"),
        (good.as_str(), 0o700, "chmod 600"),
        ("id: hidden\n", 0o600, "line 1"),
        ("[default]\n", 0o600, "line 1"),
        ("b:x:hidden\nb:x:hidden\n", 0o600, "two entries"),
        ("OSSAccessKeyId=x\n", 0o600, "only one of"),
        ("other:x:hidden\n", 0o600, "no entry for the bucket"),
    ]
    .iter()
    .enumerate()
    {
        let file = passwords(&scratch, &format!("passwd{number}"), text, *mode);
        let mut command = ossfs(&scratch, &server, &mountpoint);
        // Other places are not looked in when a file is named.
        command
            .env("OSSACCESSKEYID", KEY_ID)
            .env("OSSSECRETACCESSKEY", SECRET);
        let ended = try_to_mount(with_passwords(&mut command, &file), &mountpoint);
        assert_eq!(ended.code, Some(1), "{text}: {ended:#?}");
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
        assert!(ended.err.contains(reason), "{}", ended.err);
        assert!(!ended.err.contains("hidden") && !ended.err.contains(SECRET));
    }
}

#[test]
fn credentials_are_looked_for_in_the_order_of_the_program() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let mountpoint = scratch.folder("mnt");
    let good = format!("{KEY_ID}:{SECRET}\n");
    let mount = |variables: &[(&str, &str)]| {
        let mut command = ossfs(&scratch, &server, &mountpoint);
        command.envs(variables.iter().copied());
        let ended = try_to_mount(&mut command, &mountpoint);
        (ended.code, ended.err)
    };
    let (code, complaint) = mount(&[]);
    assert_eq!(code, Some(1));
    assert!(
        complaint.contains("no credentials were found"),
        "{complaint}"
    );
    assert_eq!(complaint.matches("credentials were found").count(), 1);

    for [id, secret] in [
        ["OSSACCESSKEYID", "OSSSECRETACCESSKEY"],
        ["OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET"],
    ] {
        assert_eq!(mount(&[(id, KEY_ID), (secret, SECRET)]).0, Some(0), "{id}");
    }
    // Each place beats the next one.
    let wrong = [("OSSACCESSKEYID", "wrong"), ("OSSSECRETACCESSKEY", "wrong")];
    passwords(&scratch, ".passwd-ossfs", &good, 0o600);
    assert_eq!(mount(&[]).0, Some(0));
    let (code, complaint) = mount(&wrong);
    assert!(
        code == Some(1) && complaint.contains("refuses the credentials"),
        "{complaint}"
    );
    passwords(&scratch, ".passwd-ossfs", "wrong:wrong\n", 0o600);
    let named = passwords(&scratch, "named", &good, 0o600);
    let named = named.to_str().expect("plain");
    assert_eq!(mount(&[("OSS_CREDENTIAL_FILE", named)]).0, Some(0));
    assert_eq!(
        mount(&[("OSS_CREDENTIAL_FILE", "/no/such/file")]).0,
        Some(1)
    );
}

#[test]
fn temporary_credentials_come_with_their_token() {
    let scratch = Scratch::new();
    let mut settings = Settings::with_bucket(BUCKET);
    settings.credentials = vec![Credentials {
        token: Some("the-token".to_owned()),
        ..Credentials::new(KEY_ID, SECRET)
    }];
    settings.verify_signatures = true;
    let server = Server::start(settings).expect("a free port");
    let mountpoint = scratch.folder("mnt");
    let mut command = ossfs(&scratch, &server, &mountpoint);
    command
        .arg("-ouse_session_token")
        .env("OSSACCESSKEYID", KEY_ID)
        .env("OSSSECRETACCESSKEY", SECRET);
    let ended = try_to_mount(&mut command, &mountpoint);
    assert_eq!(ended.code, Some(2), "{ended:#?}");
    command.env("OSSSESSIONTOKEN", "the-token");
    let ended = try_to_mount(&mut command, &mountpoint);
    assert_eq!(ended.code, Some(0), "{ended:#?}");

    let program = passwords(
        &scratch,
        "print",
        &format!(
            "#!/bin/sh\necho '{{\"AccessKeyId\":\"{KEY_ID}\",\"AccessKeySecret\":\"{SECRET}\",\
             \"SecurityToken\":\"the-token\",\"Expiration\":\"2100-01-01T00:00:00Z\"}}'\n"
        ),
        0o700,
    );
    let mut command = ossfs(&scratch, &server, &mountpoint);
    command.arg(format!("-ocredential_process={}", program.display()));
    let ended = try_to_mount(&mut command, &mountpoint);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
}

#[test]
fn both_versions_of_signatures_are_chosen_by_name() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let file = general_passwords(&scratch);
    let mountpoint = scratch.folder("mnt");
    for (options, code) in [
        (format!("-osigv4,region={REGION}"), 0),
        ("-osigv4,region=us-elsewhere-1".to_owned(), 1),
        // Version 1 signs for no region.
        ("-osigv1,region=us-elsewhere-1".to_owned(), 0),
        ("-osigv4".to_owned(), 2),
    ] {
        let mut command = ossfs(&scratch, &server, &mountpoint);
        let command = with_passwords(&mut command, &file).arg(&options);
        let ended = try_to_mount(command, &mountpoint);
        assert_eq!(ended.code, Some(code), "{options}: {ended:#?}");
    }
}

#[test]
fn lines_of_fstab_are_mounted() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let file = general_passwords(&scratch);
    let mountpoint = scratch.folder("mnt");
    let words = format!(
        "rw,_netdev,allow_other,noauto,x-systemd.automount,url={},passwd_file={},umask=0022",
        server.url(),
        file.display()
    );
    for (name, source) in [
        ("mount.fuse.ossfs", BUCKET),
        ("mount.ossfs", BUCKET),
        // What mount.fuse(8) makes of `ossfs#BUCKET` and of the type fuse.ossfs.
        ("ossfs", BUCKET),
        ("ossfs", &format!("ossfs#{BUCKET}")),
    ] {
        let mut command = scratch.called(name);
        command.arg(source).arg(&mountpoint).args(["-o", &words]);
        succeed(&mut command);
        fs::write(mountpoint.join("x"), name).expect("writable");
        let mode = fs::metadata(mountpoint.join("x"))
            .expect("there")
            .permissions();
        // That of the file which the program made, as the object keeps it.
        assert_eq!(mode.mode() & 0o777, 0o666 & !process_umask());
        umount(&mountpoint);
    }
}

/// The bits that this process takes from what it makes.
fn process_umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").expect("always there");
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    u32::from_str_radix(line.expect("since Linux 4.7").trim(), 8).expect("octal")
}

/// mount(8) and its helper for FUSE look for programs in the system's folders only, so one of them
/// is covered by a folder of ours, where nobody else sees it.
#[test]
fn mount_8_finds_the_program_by_its_type() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let helper = ["/sbin/mount.fuse", "/usr/sbin/mount.fuse"];
    let may = Command::new("unshare").args(["-m", "true"]).status();
    if !helper.iter().any(|path| Path::new(path).exists()) || !may.is_ok_and(|may| may.success()) {
        penstock_skips::skipped("there is no mount.fuse, or no mount name space of one's own");
        return;
    }
    let file = general_passwords(&scratch);
    let mountpoint = scratch.folder("mnt");
    let programs = scratch.folder("programs");
    let mut copy = Command::new("cp");
    let program = env!("CARGO_BIN_EXE_penstock");
    succeed(copy.arg(program).arg(programs.join("ossfs")));
    let log = scratch.path("log");
    let words = format!(
        "_netdev,allow_other,url={},passwd_file={},logfile={}",
        server.url(),
        file.display(),
        log.display()
    );
    for (source, kind) in [
        (BUCKET, "fuse.ossfs"),
        (&*format!("ossfs#{BUCKET}:/sub"), "fuse"),
    ] {
        let place = mountpoint.display();
        let line = format!("{source} {place} {kind} {words} 0 0\n");
        let table = scratch.file("fstab", &line);
        let script = format!(
            "mount --bind {} /usr/local/bin && mount -T {} {place} && echo {kind} > {place}/x \
             && umount {place}",
            programs.display(),
            table.display()
        );
        succeed(Command::new("unshare").args(["-m", "sh", "-ec", &script]));
        let key = if kind == "fuse" { "sub/x" } else { "x" };
        wait_until("it is written", || {
            let written = server.data().get(BUCKET, key);
            written.is_some_and(|bytes| bytes == format!("{kind}\n").as_bytes())
        });
    }
}

/// A mount that is killed while it streams a large file.
fn leave_an_upload(scratch: &Scratch, server: &Server, file: &Path) {
    let mountpoint = scratch.folder("writing");
    let mut command = scratch.penstock();
    command.args(["mount", "-f", &format!("oss://{BUCKET}")]);
    command.arg(&mountpoint).args(["--endpoint", &server.url()]);
    command.arg("--password-file").arg(file);
    let mut mounted = Foreground::start(&mut command, &mountpoint);
    let mut half = File::create(mountpoint.join("half-written")).expect("writable");
    half.write_all(&vec![1; 25 << 20]).expect("taken");
    wait_until("the upload began", || {
        !server.data().uploads(BUCKET).is_empty()
    });
    mounted.signal(libc::SIGKILL);
    mounted.end();
}

#[test]
fn the_utility_mode_lists_and_removes_unfinished_uploads() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let file = general_passwords(&scratch);
    let utility = |argument: &str| {
        let mut command = scratch.called("ossfs");
        command.args([argument, BUCKET, &format!("-ourl={}", server.url())]);
        succeed(with_passwords(&mut command, &file))
    };
    assert_eq!(utility("-u"), "0 unfinished\n");
    leave_an_upload(&scratch, &server, &file);
    assert!(utility("--incomplete-mpu-list").ends_with("half-written\n1 unfinished\n"));
    // It is younger than a day, so it may still be in use.
    assert_eq!(utility("--incomplete-mpu-abort"), "0 removed\n");
    assert_eq!(utility("--incomplete-mpu-abort=1D"), "0 removed\n");
    assert!(utility("--incomplete-mpu-abort=all").ends_with("1 removed\n"));
    assert!(server.data().uploads(BUCKET).is_empty());
}

#[test]
fn the_utility_mode_reads_the_section_of_its_bucket() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let passwords = general_passwords(&scratch);
    let section = format!(
        "[volume.data]\nsource = \"oss://{BUCKET}\"\nendpoint = \"{}\"\n",
        server.url()
    );
    let config = scratch.file("penstock.toml", &section);
    let mut command = scratch.called("ossfs");
    command.args(["-u", BUCKET]).env("PENSTOCK_CONFIG", config);
    command.env("OSS_CREDENTIAL_FILE", passwords);
    assert_eq!(succeed(&mut command), "0 unfinished\n");
}

#[test]
fn use_cache_keeps_what_was_read_until_del_cache() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let file = general_passwords(&scratch);
    let cache = scratch.folder("cache");
    let mountpoint = scratch.folder("mnt");
    let bytes = vec![7; 3 << 20];
    server.data().put(BUCKET, "big", &bytes).expect("room");
    let read_again = |more: &str| {
        server.reset_counters();
        let mut command = ossfs(&scratch, &server, &mountpoint);
        command.arg(format!("-ouse_cache={}{more}", cache.display()));
        // However full the disk of this machine is.
        command.arg("-oensure_diskfree=20");
        succeed(with_passwords(&mut command, &file));
        assert_eq!(fs::read(mountpoint.join("big")).expect("readable"), bytes);
        umount(&mountpoint);
        wait_until("the cache is let go of", || cache_is_free(&scratch, &cache));
        server.counters().operation(Operation::GetObject)
    };
    assert!(read_again("") > 0);
    assert_eq!(read_again(",check_cache_dir_exist"), 0);
    assert!(read_again(",del_cache") > 0);
    assert!(read_again("") > 0, "nothing was left");
}

fn cache_is_free(scratch: &Scratch, cache: &Path) -> bool {
    let mut command = scratch.penstock();
    command
        .args(["cache", "show", "--json"])
        .arg(cache.join(format!("{BUCKET}.penstock")));
    succeed(&mut command).contains("\"pid\":null")
}

#[test]
fn objects_are_read_from_the_read_endpoint() {
    let (scratch, main) = (Scratch::new(), strict_server());
    let reads = Server::start_with(main.data().clone(), main.settings().clone());
    let reads = reads.expect("a free port");
    let file = general_passwords(&scratch);
    let mountpoint = scratch.folder("mnt");
    let mount = |read_url: &str| {
        let mut command = ossfs(&scratch, &main, &mountpoint);
        command.arg(format!("-oread_endpoint={read_url}"));
        run(with_passwords(&mut command, &file))
    };
    assert_eq!(mount(&reads.url()).code, Some(0));
    reads.reset_counters();
    for (key, bytes) in [("x", b"data"), ("y", b"more")] {
        main.data().put(BUCKET, key, bytes).expect("room");
    }
    assert_eq!(fs::read(mountpoint.join("x")).expect("readable"), b"data");
    assert_eq!(fs::read_dir(&mountpoint).expect("a directory").count(), 2);
    assert_eq!(main.counters().operation(Operation::GetObject), 0);
    assert_eq!(reads.counters().operation(Operation::GetObject), 1);
    assert_eq!(reads.counters().total(), 1, "nothing but objects");
    // It goes away; the main endpoint answers.
    drop(reads.stop());
    assert_eq!(fs::read(mountpoint.join("y")).expect("readable"), b"more");
    umount(&mountpoint);

    let ended = mount("http://127.0.0.1:1");
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.err.contains("read-endpoint"), "{}", ended.err);
}

#[test]
fn signals_report_and_change_the_log() {
    let (scratch, server) = (Scratch::new(), strict_server());
    let file = general_passwords(&scratch);
    let mountpoint = scratch.folder("mnt");
    let log = scratch.path("ossfs.log");
    let mut command = ossfs(&scratch, &server, &mountpoint);
    command
        .env_remove("PENSTOCK_LOG_FILE")
        .arg(format!("-ologfile={}", log.display()));
    let command = with_passwords(&mut command, &file).arg("-f");
    let mut mounted = Foreground::start(command, &mountpoint);
    let said = |what: &str| fs::read_to_string(&log).is_ok_and(|text| text.contains(what));
    mounted.signal(libc::SIGUSR1);
    wait_until("the counters are written", || said("memory_total_bytes"));
    // Errors only, at first.
    assert!(!said("INFO") && !said("WARN"));
    mounted.signal(libc::SIGUSR2);
    wait_until("there are warnings", || said("log level is now warn"));
    mounted.signal(libc::SIGUSR2);
    wait_until("there is more", || said("log level is now info"));
    mounted.signal(libc::SIGHUP);
    wait_until("it is opened again", || said("opened again"));
    mounted.signal(libc::SIGTERM);
    assert_eq!(mounted.end().0, Some(0));
}

#[test]
fn help_lists_every_option_and_what_it_is_here() {
    let scratch = Scratch::new();
    let own = succeed(scratch.called("ossfs").arg("-h"));
    let ours = succeed(scratch.penstock().args(["help", "ossfs"]));
    assert!(own.ends_with(&ours), "{own}");
    for name in ["direct_read_prefetch_limit", "use_cache", "ensure_diskfree"] {
        assert!(ours.contains(&format!("\n{name} ")), "{name}");
    }
    let version = succeed(scratch.called("ossfs").arg("--version"));
    assert!(
        version.starts_with("ossfs command line of penstock "),
        "{version}"
    );
}
