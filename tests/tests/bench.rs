//! `penstock bench` as users run it, with tiny sizes: what it reports, what a client that hangs
//! does to it, and what is left when it is killed. Nothing here is timed.

#![allow(clippy::disallowed_methods, clippy::panic)]

use std::{
    fs,
    io::Read,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use penstock_tests::{Fileset, Finished, Patience, Scratch, penstock, run_within, stream::Sent};
use serde_json::Value;

const PATIENCE: Patience = Patience::seconds(180);
/// Small enough for every quantity to be its least.
const TINY: &str = "0.002";

/// A `bench` command whose temporary files lie in `scratch`.
fn bench(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = penstock();
    command
        .env("TMPDIR", scratch.folder("tmp"))
        .arg("bench")
        .args(arguments);
    command
}

/// Runs a tiny smoke and returns its report.
fn smoke(scratch: &Scratch, arguments: &[&str]) -> (Finished, Value) {
    let file = scratch.path().join("report.json");
    let file_name = file.to_str().expect("plain").to_owned();
    let common = [
        "run", "--suite", "smoke", "--scale", TINY, "--json", &file_name,
    ];
    let finished = run_within(
        PATIENCE,
        &mut bench(scratch, &[&common[..], arguments].concat()),
    );
    let finished = finished.expect_success();
    let text = fs::read_to_string(&file).expect("a report");
    let report = serde_json::from_str(&text).expect("JSON");
    assert_nothing_left(scratch);
    (finished, report)
}

fn rows(report: &Value) -> &Vec<Value> {
    report["tables"][0]["rows"].as_array().expect("rows")
}

fn row<'a>(report: &'a Value, name: &str) -> &'a Value {
    let found = rows(report).iter().find(|row| row["workload"] == name);
    found.unwrap_or_else(|| panic!("no row {name}: {report:#}"))
}

fn sample(row: &Value) -> &Value {
    &row["cells"][0]["samples"][0]
}

/// Programs that run with this scratch folder in their environment: all that the benchmark
/// started, and what those did.
fn programs(scratch: &Scratch) -> Vec<u32> {
    let needle = format!("{}/", scratch.path().display());
    let entries = fs::read_dir("/proc").expect("Linux").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .windows(needle.len())
            .any(|part| part == needle.as_bytes())
    })
    .collect()
}

fn mounts(scratch: &Scratch) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("Linux");
    let folder = scratch.path().display().to_string();
    let lines = table.lines().filter(|line| line.contains(&folder));
    lines.map(str::to_owned).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn assert_nothing_left(scratch: &Scratch) {
    Patience::seconds(60).until("every program of a benchmark to go", || {
        programs(scratch).is_empty()
    });
    assert_eq!(mounts(scratch), Vec::<String>::new());
    assert_eq!(files(&scratch.folder("tmp")), Vec::<PathBuf>::new());
}

#[test]
#[allow(clippy::too_many_lines, reason = "one story")]
fn smoke_reports_every_row_checked() {
    let scratch = Scratch::new();
    let html = scratch.path().join("report.html");
    let pictures = scratch.path().join("pictures");
    let arguments = ["--clients", "penstock,ossfs,no-such", "--html"];
    let table = scratch.path().join("clients.toml");
    fs::write(
        &table,
        "[no-such]\nprogram = \"no-such-program\"\nmount = []\nget = \"nowhere\"\n",
    )
    .expect("written");
    let paths = [
        html.to_str(),
        Some("--svg"),
        pictures.to_str(),
        Some("--config"),
        table.to_str(),
    ]
    .map(|path| path.expect("plain"));
    let (finished, report) = smoke(&scratch, &[&arguments[..], &paths[..]].concat());

    assert_eq!(report["format"], 1);
    let no_such = &report["clients"][2];
    assert_eq!(
        no_such["missing"],
        "`no-such-program` is not on PATH; get it: nowhere"
    );
    assert!(
        finished.stdout.contains("get it: nowhere"),
        "{}",
        finished.stdout
    );
    assert!(rows(&report).len() >= 8);
    for row in rows(&report) {
        if row["unavailable"].is_string() {
            // fio or sysbench is not installed here, and the report says so.
            continue;
        }
        let sample = sample(row);
        assert_eq!(sample["failure"], Value::Null, "{row:#}");
        assert_eq!(sample["verified"], true, "{row:#}");
        assert!(
            sample["seconds"].as_f64().expect("a number") > 0.0,
            "{row:#}"
        );
        assert!(
            sample["client_cpu_seconds"].as_f64().expect("a number") > 0.0,
            "{row:#}"
        );
        assert!(
            sample["peak_resident_bytes"].as_u64().expect("a number") > 1 << 20,
            "{row:#}"
        );
        assert!(
            !sample["requests"]
                .as_object()
                .expect("an object")
                .is_empty(),
            "{row:#}"
        );
    }
    let read = sample(row(&report, "small-read"));
    assert_eq!(read["operations"], 8);
    assert_eq!(read["requests"]["GetObject"], 8);
    assert_eq!(
        read["server_sent_bytes"]
            .as_u64()
            .map(|bytes| bytes >= 8 << 17),
        Some(true)
    );
    let page = fs::read_to_string(html).expect("a page");
    assert!(page.contains("small-read"));
    let picture = fs::read_to_string(pictures.join("smoke-small-read-lan.svg"));
    let picture = picture.expect("a picture");
    assert!(picture.starts_with("<svg ") && picture.contains("penstock"));
    let scratch = scratch.path().to_str().expect("plain");
    assert!(!picture.contains(scratch), "{picture}");
}

#[test]
fn a_mounted_directory_is_measured_and_left_as_it_was() {
    let scratch = Scratch::new();
    let measured = scratch.folder("measured");
    fs::write(measured.join("mine"), "kept").expect("written");
    let directory = measured.to_str().expect("plain");
    let arguments = [
        "--rows",
        "small-write,small-read,ls,find",
        "--dir",
        directory,
    ];
    let (_, report) = smoke(&scratch, &arguments);
    for row in rows(&report) {
        let sample = sample(row);
        assert_eq!(sample["failure"], Value::Null, "{row:#}");
        assert_eq!(sample["verified"], true, "{row:#}");
        assert_eq!(row["profile"], "as is");
    }
    assert_eq!(files(&measured), [measured.join("mine")]);
}

/// Clients that do not do what clients should.
const BAD_CLIENTS: &str = r#"
[never]
program = "sh"
mount = ["sh", "-c", "exec sleep 1000"]
ready_seconds = 1

[dies]
program = "sh"
mount = ["sh", "-c", "echo no bucket today >&2; exit 3"]

[hangs]
program = "{penstock}"
mount = ["sh", "-c", "trap '' TERM; \"$@\" & while ! mountpoint -q \"$0\"; do sleep 0.02; done; kill -STOP $!; wait", "{mountpoint}", "{program}", "mount", "s3://{bucket}", "{mountpoint}", "--endpoint", "{endpoint}", "-f", "--region", "{region}"]

[hangs.environment]
AWS_ACCESS_KEY_ID = "{access_key}"
AWS_SECRET_ACCESS_KEY = "{secret_key}"
"#;

#[test]
fn clients_that_hang_or_die_are_ended_and_reported() {
    let scratch = Scratch::new();
    let table = scratch.path().join("clients.toml");
    fs::write(&table, BAD_CLIENTS).expect("written");
    let arguments = [
        "--clients",
        "never,dies,hangs,penstock",
        "--rows",
        "ls",
        "--timeout",
        "8s",
        "--config",
        table.to_str().expect("plain"),
    ];
    let (_, report) = smoke(&scratch, &arguments);
    let cells = row(&report, "ls")["cells"].as_array().expect("cells");
    let failures: Vec<_> = cells
        .iter()
        .map(|cell| cell["samples"][0]["failure"].as_str().unwrap_or_default())
        .collect();
    assert!(
        failures[0].starts_with("was not mounted within 1s"),
        "{failures:?}"
    );
    assert!(
        failures[1].contains("exit status: 3: no bucket today"),
        "{failures:?}"
    );
    assert!(
        failures[2].contains("did not end within 8s"),
        "{failures:?}"
    );
    assert_eq!(failures[3], "");
}

/// The report of a tiny run of the suite of stream volumes.
fn strmvol(scratch: &Scratch, rows: &str, clients: &str) -> Value {
    let file = scratch.path().join("report.json");
    let file_name = file.to_str().expect("plain").to_owned();
    let arguments = [
        "run",
        "--suite",
        "strmvol",
        "--scale",
        "0.00001",
        "--profiles",
        "lan",
        "--rows",
        rows,
        "--clients",
        clients,
        "--json",
        &file_name,
    ];
    run_within(PATIENCE, &mut bench(scratch, &arguments)).expect_success();
    assert_nothing_left(scratch);
    let text = fs::read_to_string(&file).expect("a report");
    serde_json::from_str(&text).expect("JSON")
}

/// The first sample of a client.
fn sample_of<'a>(row: &'a Value, client: &str) -> &'a Value {
    let cells = row["cells"].as_array().expect("cells");
    let cell = cells.iter().find(|cell| cell["client"] == client);
    &cell.unwrap_or_else(|| panic!("no {client}: {row:#}"))["samples"][0]
}

fn sent(sample: &Value) -> Sent {
    let number = |value: &Value| value.as_u64().expect("a number");
    Sent {
        gets: number(&sample["requests"]["GetObject"]),
        bytes: number(&sample["server_sent_bytes"]),
    }
}

#[test]
fn stream_volumes_are_measured_beside_bucket_mounts() {
    let scratch = Scratch::new();
    let rows = "random-16,sequential-256,stat";
    let clients = "penstock-stream,penstock-stream-direct,penstock-stream-fuse,penstock";
    let report = strmvol(&scratch, rows, clients);
    for name in rows.split(',') {
        for client in clients.split(',') {
            let sample = sample_of(row(&report, name), client);
            assert_eq!(sample["failure"], Value::Null, "{name} {client}");
            assert_eq!(sample["verified"], true, "{name} {client}");
            assert_eq!(sample["operations"], 64, "{name} {client}");
        }
    }
    let direct = sample_of(row(&report, "random-16"), "penstock-stream-direct");
    let bytes = direct["bytes"].as_u64().expect("bytes");
    sent(direct).assert_one_get_each(Sent::default(), 64, bytes);
    let names = sample_of(row(&report, "stat"), "penstock-stream");
    assert_eq!(names["requests"], serde_json::json!({}), "names are local");
}

/// A tiny run of some rows of the suite of POSIX file systems, twice.
fn posix(scratch: &Scratch, rows: &str, clients: &str) -> Value {
    let file = scratch.path().join("report.json");
    let arguments = [
        "run",
        "--suite",
        "posix",
        "--scale",
        TINY,
        "--profiles",
        "lan",
        "--repeat",
        "2",
        "--rows",
        rows,
        "--clients",
        clients,
        "--json",
    ];
    let mut command = bench(scratch, &arguments);
    run_within(PATIENCE, command.arg(&file)).expect_success();
    assert_nothing_left(scratch);
    let text = fs::read_to_string(&file).expect("a report");
    serde_json::from_str(&text).expect("JSON")
}

/// Every run of a report must have succeeded, with content compared.
fn assert_all_verified(report: &Value) {
    for row in rows(report) {
        for cell in row["cells"].as_array().expect("cells") {
            let samples = cell["samples"].as_array().expect("samples");
            assert_eq!(samples.len(), 2, "{row:#}");
            for sample in samples {
                assert_eq!(sample["failure"], Value::Null, "{row:#}");
                assert_eq!(sample["verified"], true, "{row:#}");
            }
        }
    }
}

#[test]
fn clients_with_a_layout_of_their_own_are_set_up_anew_for_each_store() {
    let scratch = Scratch::new();
    // Somebody on this machine may have one of that name.
    let is_taken = Fileset::state("bench").exists();
    let clients = "penstock-fileset,penstock-fileset-store";
    let report = posix(&scratch, "store-16,remove-1", clients);
    assert_eq!(rows(&report).len(), 2);
    assert_all_verified(&report);
    assert_eq!(
        Fileset::state("bench").exists(),
        is_taken,
        "it was to lie elsewhere"
    );
}

#[test]
fn ext4_on_this_machine_stands_beside_the_clients() {
    let scratch = Scratch::new();
    let report = posix(&scratch, "create-hot,rm", "ext4");
    if let Some(why) = report["clients"][0]["missing"].as_str() {
        return penstock_skips::skipped(why);
    }
    assert_all_verified(&report);
    assert_eq!(loop_devices(&scratch), Vec::<PathBuf>::new());
}

#[test]
fn an_index_is_built_by_who_keeps_one() {
    let scratch = Scratch::new();
    let clients = "penstock-stream,penstock-stream-ext4,penstock-stream-fuse,penstock";
    let report = strmvol(&scratch, "index-100k", clients);
    let row = row(&report, "index-100k");
    for client in clients.split(',').take(3) {
        let sample = sample_of(row, client);
        assert_eq!(sample["failure"], Value::Null, "{client}");
        assert_eq!(sample["verified"], true, "{client}");
        for figure in ["seconds", "client_cpu_seconds"] {
            assert!(sample[figure].as_f64() > Some(0.0), "{client} {figure}");
        }
        assert!(sample["requests"]["ListObjectsV2"].as_u64() > Some(0));
    }
    assert_eq!(
        sample_of(row, "penstock")["failure"],
        "not available: it keeps no index"
    );
}

#[test]
fn what_can_only_be_read_is_not_written_to() {
    let scratch = Scratch::new();
    let arguments = [
        "--clients",
        "penstock-stream-fuse",
        "--rows",
        "small-write,ls",
    ];
    let (_, report) = smoke(&scratch, &arguments);
    let refused = sample(row(&report, "small-write"));
    assert_eq!(
        refused["failure"],
        "not available: its volumes are read-only"
    );
    assert_eq!(sample(row(&report, "ls"))["failure"], Value::Null);
}

/// Volumes with block devices, alive or dead, that are mounted below `scratch`, by their processes.
fn volumes(scratch: &Scratch) -> Vec<u64> {
    let mut command = penstock();
    command.args(["stream", "list", "--json"]);
    let listed = run_within(PATIENCE, &mut command).expect_success().stdout;
    let volumes: Value = serde_json::from_str(&listed).unwrap_or_default();
    let folder = scratch.path().display().to_string();
    let is_ours = |volume: &&Value| {
        let place = volume["mount_point"].as_str();
        place.is_some_and(|place| place.starts_with(&folder))
    };
    let volumes = volumes.as_array().into_iter().flatten().filter(is_ours);
    volumes
        .filter_map(|volume| volume["pid"].as_u64())
        .collect()
}

/// Loop devices whose files lie in `scratch`.
fn loop_devices(scratch: &Scratch) -> Vec<PathBuf> {
    let folder = scratch.path().display().to_string();
    let mut devices = files(Path::new("/sys/block"));
    devices.retain(|device| {
        let file = fs::read_to_string(device.join("loop/backing_file"));
        file.is_ok_and(|file| file.starts_with(&folder))
    });
    devices
}

fn assert_no_volume_left(scratch: &Scratch) {
    assert_nothing_left(scratch);
    assert_eq!(volumes(scratch), Vec::<u64>::new());
    assert_eq!(loop_devices(scratch), Vec::<PathBuf>::new());
}

fn start_long_stream_run(scratch: &Scratch) -> Background {
    let arguments = [
        "run",
        "--suite",
        "strmvol",
        "--rows",
        "random-16",
        "--scale",
        "0.0002",
        "--profiles",
        "far",
        "--clients",
        "penstock-stream",
        "--repeat",
        "100",
    ];
    let mut command = bench(scratch, &arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Background(command.spawn().expect("penstock runs"))
}

#[test]
fn killed_while_a_stream_volume_is_mounted_it_leaves_nothing() {
    for (round, signals_client) in [(0, false), (1, true)] {
        let scratch = Scratch::new();
        let mut child = start_long_stream_run(&scratch);
        Patience::seconds(60).until("a volume", || !volumes(&scratch).is_empty());
        thread::sleep(Duration::from_millis(200 * round));
        if signals_client {
            // It cannot end by itself then: what it leaves has to be found.
            for pid in volumes(&scratch) {
                let stopped = Command::new("kill")
                    .args(["-STOP", &pid.to_string()])
                    .status();
                assert!(stopped.expect("kill runs").success());
            }
        }
        signal(&child.0, "-KILL");
        drop(child.0.wait());
        assert_no_volume_left(&scratch);
    }
}

/// Starts a run of many samples, in the background.
fn start_long_run(scratch: &Scratch) -> Background {
    let report = scratch.path().join("report.json");
    let arguments = [
        "run",
        "--clients",
        "penstock",
        "--repeat",
        "100",
        "--scale",
        TINY,
        "--json",
    ];
    let mut command = bench(scratch, &arguments);
    command
        .arg(report)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Background(command.spawn().expect("penstock runs"))
}

/// A benchmark in the background that ends with its test, also when that fails.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        // It has ended by itself when the test went well. Its watchdog cleans up.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(status.expect("kill runs").success());
}

#[test]
fn killed_at_any_moment_it_leaves_nothing() {
    // How often; a person who doubts it may ask for more.
    let rounds = std::env::var("PENSTOCK_BENCH_KILLS").ok();
    let rounds = rounds.and_then(|text| text.parse().ok()).unwrap_or(4_u64);
    for round in 0..rounds {
        let scratch = Scratch::new();
        let mut child = start_long_run(&scratch);
        let moment = 100 + 4000 * (round * 7919 % 97) / 97;
        thread::sleep(Duration::from_millis(moment));
        signal(&child.0, "-KILL");
        drop(child.0.wait());
        assert_nothing_left(&scratch);
    }
}

#[test]
fn without_its_watchdog_it_cleans_up_itself() {
    let scratch = Scratch::new();
    let mut child = start_long_run(&scratch);
    Patience::seconds(60).until("a mount", || !mounts(&scratch).is_empty());
    let is_watchdog = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words
            .split(|byte| *byte == 0)
            .any(|word| word == b"watchdog")
    };
    let watchdog = programs(&scratch).into_iter().find(is_watchdog);
    let pid = watchdog.expect("there is a watchdog").to_string();
    let killed = Command::new("kill").args(["-KILL", &pid]).status();
    assert!(killed.expect("kill runs").success());
    signal(&child.0, "-INT");
    let status = Patience::seconds(60).find(|| child.0.try_wait().expect("our child"));
    assert_eq!(status.and_then(|status| status.code()), Some(1));
    assert_nothing_left(&scratch);
}

#[test]
fn interrupted_it_reports_what_was_measured() {
    let scratch = Scratch::new();
    let mut child = start_long_run(&scratch);
    let mounted = || {
        let mounts = mounts(&scratch);
        (!mounts.is_empty()).then_some(mounts)
    };
    let first = Patience::seconds(60).find(mounted).expect("a mount");
    // Each run has a mount of its own: what the first one measured is kept when the next begins.
    Patience::seconds(120).until("the next run", || {
        mounted().is_some_and(|next| next != first)
    });
    signal(&child.0, "-INT");
    let mut stdout = child.0.stdout.take().expect("piped");
    let output = thread::spawn(move || {
        let mut text = String::new();
        drop(stdout.read_to_string(&mut text));
        text
    });
    let status = Patience::seconds(60).find(|| child.0.try_wait().expect("our child"));
    assert_eq!(status.and_then(|status| status.code()), Some(1));
    assert!(output.join().expect("reads").contains("stopped"));
    let report = fs::read_to_string(scratch.path().join("report.json")).expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let samples = row(&report, "write-1")["cells"][0]["samples"].as_array();
    assert!(!samples.expect("samples").is_empty());
    assert_nothing_left(&scratch);
}

/// Starts a run of two rows in a process group of its own, as a shell does, and waits until the first row is kept.
fn start_two_rows(scratch: &Scratch) -> Background {
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let arguments = [
        "run",
        "--clients",
        "penstock",
        "--rows",
        "small-read,ls",
        "--repeat",
        "8",
        "--scale",
        TINY,
    ];
    let mut command = bench(scratch, &arguments);
    command.args([
        "--json",
        &path("report.json"),
        "--html",
        &path("report.html"),
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = Background(command.process_group(0).spawn().expect("penstock runs"));
    Patience::seconds(120).until("a row to be kept", || {
        scratch.path().join("report.json").exists()
    });
    child
}

/// How many runs of its only client each row has, once the benchmark is gone.
fn kept_runs(scratch: &Scratch) -> Vec<usize> {
    assert_nothing_left(scratch);
    let report = fs::read_to_string(scratch.path().join("report.json")).expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let runs = |row: &Value| row["cells"][0]["samples"].as_array().map_or(0, Vec::len);
    rows(&report).iter().map(runs).collect()
}

#[test]
fn one_wish_to_stop_may_come_as_several_signals() {
    let scratch = Scratch::new();
    let mut child = start_two_rows(&scratch);
    // What `timeout -s INT` does: once to the program, once to all of its group.
    let group = format!("-{}", child.0.id());
    let both = ["-INT", "--", &child.0.id().to_string(), &group];
    let told = Command::new("kill").args(both).status();
    assert!(told.expect("kill runs").success());
    let status = Patience::seconds(60).find(|| child.0.try_wait().expect("our child"));
    assert_eq!(status.and_then(|status| status.code()), Some(1));
    let runs = kept_runs(&scratch);
    assert!(runs[0] == 8 && runs[1] < 8, "{runs:?}");
    let page = fs::read_to_string(scratch.path().join("report.html")).expect("a page");
    assert!(page.contains("small-read") && page.ends_with("</html>\n"));
}

#[test]
fn killed_it_has_kept_every_complete_row() {
    let scratch = Scratch::new();
    let mut child = start_two_rows(&scratch);
    signal(&child.0, "-KILL");
    drop(child.0.wait());
    assert_eq!(kept_runs(&scratch), [8, 0]);
}

#[test]
fn the_time_until_all_is_stored_is_told_beside_the_programs_own() {
    let scratch = Scratch::new();
    let file = scratch.path().join("report.json");
    let file_name = file.to_str().expect("plain").to_owned();
    let mut arguments = vec!["run", "--suite", "worktree", "--scale", TINY, "--json"];
    arguments.extend([file_name.as_str(), "--rows", "untar", "--profiles", "lan"]);
    arguments.extend(["--clients", "penstock-behind"]);
    run_within(PATIENCE, &mut bench(&scratch, &arguments)).expect_success();
    let text = fs::read_to_string(&file).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let sample = sample(row(&report, "untar"));
    assert_eq!(sample["failure"], Value::Null, "{sample:#}");
    assert_eq!(sample["verified"], true, "{sample:#}");
    let [ended, stored] = ["seconds", "stored_seconds"].map(|name| sample[name].as_f64());
    assert!(ended < stored, "it saves behind the close: {sample:#}");
    let files = sample["operations"].as_u64().expect("a number");
    assert!(sample["requests"]["PutObject"].as_u64() >= Some(files));
    assert_nothing_left(&scratch);
}

#[test]
fn everything_that_can_be_run_is_listed() {
    let scratch = Scratch::new();
    let finished = run_within(PATIENCE, &mut bench(&scratch, &["list"])).expect_success();
    for word in [
        "smoke",
        "ossfs2",
        "random-1024",
        "penstock-stream-direct",
        "geesefs",
    ] {
        assert!(finished.stdout.contains(word), "{word}");
    }
}
