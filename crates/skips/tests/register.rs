//! What is skipped is counted, although the harness calls it passed.

#![allow(clippy::disallowed_methods)]

use std::{
    env, fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use penstock_skips::{REGISTER_VARIABLE, skipped};

/// Set for the test below when it runs by itself.
const LACKING: &str = "PENSTOCK_TEST_LACKING";

/// Runs a test of this program by itself, as a machine that lacks something would.
fn run_alone(test: &str, register: Option<&Path>) -> Output {
    let mut program = Command::new(env::current_exe().expect("it runs"));
    program.args(["--exact", test]).env(LACKING, "yes");
    match register {
        Some(register) => program.env(REGISTER_VARIABLE, register),
        None => program.env_remove(REGISTER_VARIABLE),
    };
    let output = program.output().expect("it runs once more");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("1 passed"), "the harness knows no other word");
    output
}

#[test]
fn a_test_that_lacks_something_is_registered_by_its_name() {
    const NAME: &str = "a_test_that_lacks_something_is_registered_by_its_name";
    if env::var_os(LACKING).is_some() {
        return skipped("there is no\nsuch thing");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let register = folder.path().join("skips");
    for _ in 0..2 {
        let output = run_alone(NAME, Some(&register));
        assert_eq!(output.stderr, b"", "it would tear the harness's lines");
    }
    let line = format!("register::{NAME}: there is no such thing\n");
    let registered = fs::read_to_string(&register).expect("it was made");
    assert_eq!(registered, line.repeat(2));
    let shown = run_alone(NAME, None).stderr;
    assert_eq!(shown, format!("skipped {line}").as_bytes());
}

/// Where a script of the repository lies.
fn path_of(name: &str) -> String {
    format!("{}/../../scripts/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// What `scripts/results.sh` says of a log and a register, in its last line, and all lines.
fn result(log: &str, register: &str) -> (String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let [log_path, register_path] = ["log", "register"].map(|name| folder.path().join(name));
    fs::write(&log_path, log).expect("written");
    fs::write(&register_path, register).expect("written");
    let output = Command::new("bash")
        .args(["-euc", "source \"$0\"; print_result \"$1\" \"$2\""])
        .arg(path_of("results.sh"))
        .args([&log_path, &register_path])
        .output()
        .expect("there is a bash");
    let text = String::from_utf8(output.stdout).expect("text");
    let last = text.lines().last().expect("a result").to_owned();
    let has_failed = !last.contains(", 0 failed,");
    assert_eq!(output.status.code(), Some(has_failed.into()), "{text}");
    (last, text)
}

const LOG: &str = "\
     Running tests/one.rs (target/debug/deps/one-00)
test a ... ok
test b ... ok
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/two.rs (target/debug/deps/two-00)
test c ... ok
test d ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

#[test]
fn what_was_skipped_has_not_passed() {
    let (last, all) = result(LOG, "one::a: there is no fsx\ntwo::c: there is no rclone\n");
    assert_eq!(last, "1 passed, 1 failed, 2 skipped");
    assert!(all.contains("skipped: one::a: there is no fsx"), "{all}");
    assert!(all.contains("failed: d"), "{all}");
}

#[test]
fn what_a_failed_test_said_is_repeated_at_the_end_without_its_backtrace() {
    let said = "\
failures:

---- d stdout ----
panicked: there was none
stack backtrace:
   0: rust_begin_unwind
             at /rustc/library/std/src/panicking.rs:689:5

failures:
    d

";
    let log = LOG.replacen(
        "test result: FAILED",
        &format!("{said}test result: FAILED"),
        1,
    );
    let (_, all) = result(&log, "one::a: there is no fsx\n");
    let end =
        "---- d stdout ----\npanicked: there was none\nstack backtrace:\n\n2 passed, 1 failed";
    assert!(all.contains(end), "{all}");
}

#[test]
fn a_test_that_says_it_twice_is_skipped_once() {
    let twice = "one::a: there is no fsx\none::a: there is no rclone\n";
    assert_eq!(result(LOG, twice).0, "2 passed, 1 failed, 1 skipped");
}

#[test]
fn a_check_that_is_no_test_is_skipped_without_a_test_less() {
    let check = "check: advisories cannot be fetched\n";
    assert_eq!(result(LOG, check).0, "3 passed, 1 failed, 1 skipped");
}

#[test]
fn a_test_that_failed_after_it_said_so_is_not_taken_off_twice() {
    let (last, _) = result(LOG, "two::d: there is no rclone\n");
    assert_eq!(last, "3 passed, 1 failed, 0 skipped");
}

#[test]
fn a_test_that_was_skipped_is_not_one_of_its_name_that_failed_elsewhere() {
    let (last, all) = result(LOG, "one::d: there is no rclone\n");
    assert_eq!(last, "2 passed, 1 failed, 1 skipped");
    assert!(all.contains("skipped: one::d"), "{all}");
}

#[test]
fn an_ignored_test_is_skipped() {
    let ignored = "     Running tests/three.rs (target/debug/deps/three-00)\n\
        test e ... ignored, takes hours\n\
        test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
    let (last, all) = result(&format!("{LOG}{ignored}"), "");
    assert_eq!(last, "3 passed, 1 failed, 1 skipped");
    assert!(all.contains("skipped: three::e: ignored"), "{all}");
}

#[test]
fn a_target_that_crashed_has_failed() {
    let crash = "     Running tests/three.rs (target/debug/deps/three-00)\n\
        error: test failed, to rerun pass `-p x --test three`\n";
    let (last, _) = result(&format!("{LOG}{crash}"), "");
    assert_eq!(last, "3 passed, 2 failed, 0 skipped");
}

/// A log and the failures of targets that `scripts/test-target.sh` runs, and what the whole run of them
/// would say and end with.
fn targets(scripts: &[&str], patience: &str) -> (String, Option<i32>) {
    let folder = tempfile::tempdir().expect("a folder");
    let [log, failures] = ["log", "failures"].map(|name| folder.path().join(name));
    let skips = folder.path().join("skips");
    fs::write(&skips, "").expect("written");
    let mut printed = String::new();
    for (number, script) in scripts.iter().enumerate() {
        let program = folder.path().join(format!("target{number}-0"));
        fs::write(&program, format!("#!/bin/bash\n{script}\n")).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, mode).expect("ours");
        let target = format!("{}\t{}", folder.path().display(), program.display());
        let output = Command::new("bash")
            .arg(path_of("test-target.sh"))
            .args([&log, &failures])
            .arg(target)
            .env("TARGET_PATIENCE", patience)
            .output()
            .expect("there is a bash");
        assert!(output.status.success(), "{output:?}");
        printed.push_str(&String::from_utf8_lossy(&output.stdout));
    }
    let output = Command::new("bash")
        .arg("-euc")
        .arg("source \"$0\"; print_result \"$1\" \"$2\"")
        .arg(path_of("results.sh"))
        .args([&log, &skips])
        .output()
        .expect("there is a bash");
    printed.push_str(&String::from_utf8_lossy(&output.stdout));
    (printed, output.status.code())
}

const ENDED: &str = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured'";

#[test]
fn targets_that_end_with_a_result_have_ended_well() {
    let (told, code) = targets(&[ENDED, ENDED], "20m");
    assert!(
        told.ends_with("\n4 passed, 0 failed, 0 skipped\n"),
        "{told}"
    );
    assert_eq!(code, Some(0), "{told}");
}

#[test]
fn a_target_that_ends_well_without_a_result_has_failed_and_so_has_the_run() {
    let (told, code) = targets(&[ENDED, "exit 0"], "20m");
    assert!(
        told.ends_with("\n2 passed, 1 failed, 0 skipped\n"),
        "{told}"
    );
    assert_eq!(code, Some(1), "{told}");
}

#[test]
fn a_target_that_hangs_is_ended_with_what_began_in_it_and_has_failed() {
    let begun = std::time::Instant::now();
    let hangs = "printf 'test slow ... '; sleep 600 & sleep 600";
    let (told, code) = targets(&[hangs, ENDED], "1s");
    assert!(begun.elapsed().as_secs() < 60, "{told}");
    let named = told
        .find("target0 begins")
        .expect("it is named when it begins");
    let output = told.find("test slow ... ").expect("its output is told");
    assert!(named < output, "{told}");
    assert!(told.contains("ended after 1s"), "{told}");
    assert!(
        told.ends_with("\n2 passed, 1 failed, 0 skipped\n"),
        "{told}"
    );
    assert_eq!(code, Some(1), "{told}");
}

#[test]
fn lanes_that_share_a_queue_run_each_of_its_targets_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let [log, failures, queue] = ["log", "failures", "queue"].map(|name| folder.path().join(name));
    let target = |number| {
        let program = folder.path().join(format!("target{number}-0"));
        fs::write(&program, format!("#!/bin/bash\nsleep 0.1; {ENDED}\n")).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, mode).expect("ours");
        format!("{}\t{}\n", folder.path().display(), program.display())
    };
    fs::write(&queue, (0..7).map(target).collect::<String>()).expect("written");
    let lane = |how: &[&str]| {
        let mut lane = Command::new("bash");
        let lane = lane.arg(path_of("test-lane.sh")).args([&log, &failures]);
        // What it prints would be taken for results of this target.
        let lane = lane.args(how).arg(&queue).stdout(Stdio::null());
        lane.spawn().expect("there is a bash")
    };
    for mut lane in [lane(&[]), lane(&[]), lane(&["--when-idle"])] {
        assert!(lane.wait().expect("our own child").success());
    }
    let told = fs::read_to_string(&log).expect("a log");
    for number in 0..7 {
        let ran = told.matches(&format!("target{number}-0)")).count();
        assert_eq!(ran, 1, "{told}");
    }
    assert!(!failures.exists());
}

/// What it sees of the processors comes from an `awk` of ours.
#[test]
fn a_lane_that_waits_for_idleness_takes_targets_then_and_not_before() {
    for (unused, runs) in [(60, 1), (40, 0)] {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let program = |name: &str, text: String| {
            fs::write(at(name), format!("#!/bin/bash\n{text}\n")).expect("written");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(at(name), mode).expect("ours");
        };
        let count = at("count").display().to_string();
        let script =
            format!("echo >>{count}; n=$(wc -l <{count}); echo $((n * {unused})) $((n * 100))");
        program("awk", script);
        program("target-0", ENDED.to_owned());
        let target = format!(
            "{}\t{}\n",
            folder.path().display(),
            at("target-0").display()
        );
        fs::write(at("queue"), target).expect("written");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut lane = Command::new("bash");
        lane.arg(path_of("test-lane.sh"))
            .args([at("log"), at("failures"), "--when-idle".into(), at("queue")])
            .env("PATH", format!("{}:{path}", folder.path().display()))
            .stdout(Stdio::null());
        let mut lane = lane.spawn().expect("there is a bash");
        let looks = || fs::read_to_string(at("count")).unwrap_or_default().len();
        while looks() < 3 && lane.try_wait().expect("our own child").is_none() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        // Whoever waits ends with the queue.
        fs::write(at("queue"), "").expect("written");
        assert!(lane.wait().expect("our own child").success());
        let told = fs::read_to_string(at("log")).unwrap_or_default();
        assert_eq!(told.matches("target-0)").count(), runs, "{unused}: {told}");
    }
}

#[test]
fn a_target_is_in_one_queue() {
    let all = ["bench", "stream", "stream_faults", "streaming", "faults"];
    let lines = all.map(|name| format!("/tests\t/target/{name}-0a1b\n"));
    let queue = |name: &str| {
        let mut ask = Command::new("bash");
        ask.args(["-euc", "source \"$0\"; test_queue \"$1\" <<<\"$2\""]);
        ask.args([&path_of("results.sh"), name, lines.concat().trim_end()]);
        let told = ask.output().expect("there is a bash").stdout;
        String::from_utf8(told).expect("text")
    };
    assert_eq!(queue("alone"), lines[0]);
    assert_eq!(queue("volumes"), lines[1..3].concat());
    assert_eq!(queue("any"), lines[3..].concat());
}
