//! Quotas of a fileset that the kernel has mounted, and of one that nobody has.

#![allow(clippy::unwrap_used)]

use std::{fs, path::Path, process::Command};

use penstock_tests::{Fileset, Finished, Mount, Patience, run_within};

const NOBODY: &str = "65534";

/// What `list --json` says.
#[track_caller]
fn listed(fileset: &Fileset) -> Vec<serde_json::Value> {
    let listed = fileset.quota("list", &["--json"]).expect_success();
    serde_json::from_str(&listed.stdout).unwrap()
}

fn mounted_for_all(fileset: &Fileset) -> Mount {
    let mount = fileset.mount_with(&fileset.options().option("allow-other", "on"));
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(mount.join(""), all).unwrap();
    mount
}

/// Runs a script in a directory as somebody who is limited.
fn as_nobody(directory: &Path, script: &str) -> Finished {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
        .args(["sh", "-c", script])
        .current_dir(directory);
    run_within(Patience::seconds(60), &mut command)
}

#[test]
fn a_user_is_told_of_the_quota_at_the_write_that_exceeds_it() {
    let fileset = Fileset::new("quota-user");
    let mount = mounted_for_all(&fileset);
    let directory = mount.join("");
    as_nobody(&directory, "head -c 300000 /dev/zero > before").expect_success();
    let limits = ["--user", NOBODY, "--hard", "1MiB", "--inodes-hard", "4"];
    fileset.quota("set", &limits).expect_success();
    let fits = "dd if=/dev/zero of=fits bs=4096 count=100";
    as_nobody(&directory, fits).expect_success();
    // The write says it, and not the close behind it.
    let refused = as_nobody(&directory, "dd if=/dev/zero of=large bs=4096 count=1000");
    assert!(
        refused.stderr.contains("error writing"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("quota"), "{}", refused.stderr);
    let written = fs::metadata(mount.join("large")).unwrap().len();
    assert_eq!(written, ((1 << 20) - 300_000 - 409_600) / 4096 * 4096);
    let refused = as_nobody(&directory, "fallocate -n -l 100M large");
    assert!(refused.stderr.contains("quota"), "{}", refused.stderr);
    as_nobody(&directory, "touch fourth").expect_success();
    let refused = as_nobody(&directory, "touch fifth");
    assert!(refused.stderr.contains("quota"), "{}", refused.stderr);
    let refused = as_nobody(&directory, "mkdir fifth");
    assert!(refused.stderr.contains("quota"), "{}", refused.stderr);
    as_nobody(&directory, "rm large && touch fifth").expect_success();
    fs::write(mount.join("of root"), vec![1; 2 << 20]).unwrap();
    let quota = &listed(&fileset)[0];
    assert_eq!(
        (&quota["kind"], &quota["number"]),
        (&"user".into(), &65534.into())
    );
    assert_eq!(quota["bytes"]["hard"], 1 << 20);
    assert_eq!(quota["state"], "ready");
    fileset
        .quota("remove", &["--user", NOBODY])
        .expect_success();
    as_nobody(&directory, "head -c 3000000 /dev/zero > large").expect_success();
    let missing = fileset.quota("remove", &["--user", NOBODY]);
    assert!(
        missing.stderr.contains("no such quota"),
        "{}",
        missing.stderr
    );
    mount.unmount();
    fileset.run("check", &[]).expect_success();
}

#[test]
fn a_quota_of_the_file_system_is_what_df_shows_and_holds_when_it_is_mounted_later() {
    let fileset = Fileset::made_with("quota-size", &["--durability=store"]);
    let limits = ["--hard", "1MiB", "--inodes-soft", "100"];
    fileset.quota("set", &limits).expect_success();
    let mount = fileset.mount();
    fs::write(mount.join("file"), vec![1; 524_288]).unwrap();
    let shown = blocks(&mount.join(""));
    assert_eq!(shown, (256, 128));
    let refused = fs::write(mount.join("more"), vec![1; 600_000]);
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(28));
    mount.unmount();
    let text = fileset.quota("list", &[]).expect_success().stdout;
    assert!(
        text.contains("file system") && text.contains("1.00 MiB"),
        "{text}"
    );
    fileset.quota("set", &["--hard", "2MiB"]).expect_success();
    let mount = fileset.mount();
    fs::write(mount.join("more"), vec![1; 600_000]).unwrap();
    mount.unmount();
    fileset.run("check", &[]).expect_success();
}

#[test]
fn a_directory_is_limited_and_mv_copies_into_it() {
    let fileset = Fileset::new("quota-directory");
    let mount = fileset.mount();
    fs::create_dir_all(mount.join("projects/one/below")).unwrap();
    fs::write(mount.join("projects/one/below/file"), vec![1; 300_000]).unwrap();
    let limits = ["--path", "projects/one", "--hard", "1MiB"];
    fileset.quota("set", &limits).expect_success();
    let refused = fs::write(mount.join("projects/one/large"), vec![1; 800_000]);
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(122));
    fs::remove_file(mount.join("projects/one/large")).unwrap();
    assert_eq!(blocks(&mount.join("projects/one/below")).0, 256);
    fs::write(mount.join("outside"), vec![2; 100_000]).unwrap();
    let moved = mount.join("projects/one/moved");
    let renamed = fs::rename(mount.join("outside"), &moved);
    assert_eq!(renamed.unwrap_err().raw_os_error(), Some(18));
    let mut command = Command::new("mv");
    command.args([&mount.join("outside"), &moved]);
    run_within(Patience::seconds(60), &mut command).expect_success();
    assert!(fs::read(&moved).unwrap() == vec![2; 100_000]);
    mount.unmount();
    let quota = &listed(&fileset)[0];
    assert_eq!(quota["path"], "/projects/one");
    assert_eq!(
        (&quota["bytes"]["used"], &quota["files"]["used"]),
        (&400_000.into(), &4.into())
    );
    let missing = fileset.quota("set", &["--path", "/no/such", "--hard", "1G"]);
    assert!(
        missing.stderr.contains("no such directory"),
        "{}",
        missing.stderr
    );
    fileset
        .quota("remove", &["--path", "/projects/one"])
        .expect_success();
    assert!(listed(&fileset).is_empty());
    fileset.run("check", &[]).expect_success();
}

/// Blocks of a file system, and those that are free.
fn blocks(path: &Path) -> (u64, u64) {
    let mut command = Command::new("stat");
    command.args(["-f", "-c", "%b %f %S"]).arg(path);
    let shown = run_within(Patience::seconds(10), &mut command).expect_success();
    let numbers: Vec<u64> = shown
        .stdout
        .split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect();
    (
        numbers[0] * numbers[2] / 4096,
        numbers[1] * numbers[2] / 4096,
    )
}

#[test]
fn what_is_wrong_on_the_command_line_is_said() {
    let fileset = Fileset::new("quota-wrong");
    let none = fileset.quota("list", &[]).expect_success();
    assert_eq!(none.stdout.trim(), "there are no quotas");
    let above = fileset.quota("set", &["--soft", "2G", "--hard", "1G"]);
    assert!(
        above.stderr.contains("not above the hard one"),
        "{}",
        above.stderr
    );
    let nobody = fileset.quota("set", &["--user", "no-such-user", "--hard", "1G"]);
    assert!(nobody.stderr.contains("no-such-user"), "{}", nobody.stderr);
    assert!(!fileset.quota("set", &["--user", "1"]).succeeded());
    let both = fileset.quota("set", &["--user", "1", "--group", "1", "--hard", "1G"]);
    assert!(!both.succeeded());
}
