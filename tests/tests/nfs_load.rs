//! `penstock bench nfs-load` against mount targets of ours: what it counts, what it makes, and what it says when an answer is
//! wrong, or none comes. Nothing here is timed.

#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    rc::Rc,
};

use penstock_tests::{
    Fileset, Finished, MountTarget, Patience, Scratch, free_address, penstock, run_within,
};
use serde_json::Value;

const PATIENCE: Patience = Patience::seconds(180);

/// A target of a directory of this machine, with these options.
fn of_directory(directory: &Path, more: &'static [&str]) -> MountTarget {
    let source = format!("file://{}", directory.display());
    MountTarget::new(move || {
        let mut command = penstock();
        command.args(["serve", &source]).args(more);
        command
    })
}

fn load(address: &str, arguments: &str) -> Command {
    let mut command = penstock();
    command
        .args(["bench", "nfs-load", address, "--json"])
        .args(arguments.split(' '));
    command
}

fn run(target: &MountTarget, arguments: &str) -> Finished {
    run_within(
        PATIENCE,
        &mut load(&target.address().to_string(), arguments),
    )
}

/// The figures of a run that succeeds.
#[track_caller]
fn figures(finished: Finished) -> Value {
    let output = finished.expect_success().stdout;
    serde_json::from_str(output.lines().last().expect("a line")).expect("JSON")
}

/// What a run complains of that ends with an error: one line.
#[track_caller]
fn complaint(finished: &Finished) -> &str {
    assert_eq!(finished.code, Some(1), "{finished:#?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:#?}");
    &finished.stderr
}

/// Whether each word of a file is its offset.
fn holds_offsets(path: &Path, size: usize) -> bool {
    let bytes = fs::read(path).expect("it was made");
    let words = bytes.as_chunks::<8>().0.iter().enumerate();
    let mut words = words.map(|(index, word)| (index as u64 * 8, u64::from_be_bytes(*word)));
    bytes.len() == size && words.all(|(offset, word)| word == offset)
}

/// The files of a directory bucket, without the marker of the directory itself.
fn listed(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).expect("it was made");
    let paths = entries.map(|entry| entry.expect("listed").path());
    paths.filter(|path| path.is_dir() || path.metadata().is_ok_and(|file| file.len() > 0))
}

#[test]
fn each_operation_is_counted_and_costs_time() {
    let fileset = Rc::new(Fileset::new("nfs-load"));
    let served = Rc::clone(&fileset);
    let target = MountTarget::new(move || served.command("serve"));
    let pid = target.pid();
    for (operation, size) in [
        ("read", 65_536),
        ("read", 4_096),
        ("write", 8_192),
        ("getattr", 0),
        ("lookup", 0),
        ("create", 0),
        ("create", 4_096),
    ] {
        let told = figures(run(
            &target,
            &format!(
                "--operation {operation} --size {size} --file-size 1MiB --connections 3 --depth 5 \
                 --operations 331 --server-pid {pid}"
            ),
        ));
        assert_eq!(told["operations"], 331, "{told:#}");
        assert_eq!(told["bytes"], 331 * size, "{told:#}");
        let latency = |name: &str| told["latency_seconds"][name].as_f64().expect("a number");
        assert!(
            latency("p50") > 0.0 && latency("p50") <= latency("p99"),
            "{told:#}"
        );
        assert!(
            latency("p99") <= latency("max") && latency("mean") <= latency("max"),
            "{told:#}"
        );
        let cost = &told["server_cpu_seconds_per_operation"];
        assert!(cost.as_f64().expect("a number") > 1e-6, "{told:#}");
    }
}

#[test]
fn it_goes_on_for_a_time_and_deeper_than_there_are_operations() {
    let directory = Scratch::new();
    let target = of_directory(directory.path(), &[]);
    let told = figures(run(&target, "--operation getattr --seconds 1"));
    assert!(
        told["seconds"].as_f64().expect("a number") >= 1.0,
        "{told:#}"
    );
    assert!(
        told["operations"].as_u64().expect("a number") > 64,
        "{told:#}"
    );
    assert_eq!(told["server_cpu_seconds_per_operation"], Value::Null);
    let few = figures(run(
        &target,
        "--operation lookup --operations 3 --depth 100",
    ));
    assert_eq!(few["operations"], 3, "{few:#}");
}

#[test]
fn what_it_makes_is_there_and_what_it_reads_is_compared() {
    let directory = Scratch::new();
    let mut target = of_directory(directory.path(), &["--export", "/some/export"]);
    let place = directory.path().join("nfs-load");
    let in_export = |arguments: &str| {
        let arguments = format!("{arguments} --export /some/export");
        run(&target, &arguments)
    };
    figures(in_export(
        "--operation create --size 8192 --operations 20 --connections 2",
    ));
    let directories: Vec<PathBuf> = listed(&place).filter(|path| path.is_dir()).collect();
    let made: Vec<PathBuf> = directories.iter().flat_map(|path| listed(path)).collect();
    assert_eq!((directories.len(), made.len()), (2, 20));
    assert!(made.iter().all(|path| holds_offsets(path, 8192)));
    let read = "--operation read --size 8KiB --file-size 3000KiB --operations 1000 --connections 2";
    figures(in_export(read));
    let file = place.join("read-3072000");
    assert!(holds_offsets(&file, 3_072_000));
    let middle = 8192 * 180;
    let opened = fs::File::options().write(true).open(&file).expect("there");
    opened.write_all_at(&[1], middle).expect("damaged");
    target.kill();
    target.start();
    let finished = run(&target, &format!("{read} --export /some/export"));
    let wrong = format!("READ returned other bytes than were written at {middle}");
    assert!(complaint(&finished).contains(&wrong), "{finished:#?}");
}

#[test]
fn ports_are_asked_for() {
    let directory = Scratch::new();
    let port_mapper = free_address();
    let source = format!("file://{}", directory.path().display());
    let target = MountTarget::new(move || {
        let mut command = penstock();
        command.args(["serve", &source, "--portmap", &port_mapper.to_string()]);
        command
    });
    let asked = "--operation getattr --operations 100";
    let by_port_mapper = format!("{asked} --portmap");
    let mut command = load(&port_mapper.to_string(), &by_port_mapper);
    figures(run_within(PATIENCE, &mut command));
    let by_number = format!("{asked} --mount-port {}", target.address().port());
    figures(run(&target, &by_number));
}

#[test]
fn what_a_server_refuses_is_one_clear_line() {
    let directory = Scratch::new();
    let target = of_directory(directory.path(), &["--read-only"]);
    let asked = "--operation getattr --operations 1";
    let elsewhere = run(&target, &format!("{asked} --export /elsewhere"));
    let why = "the server does not let /elsewhere be mounted: MNT3ERR_NOENT";
    assert!(complaint(&elsewhere).contains(why), "{elsewhere:#?}");
    let refused = run(&target, asked);
    let why = "MKDIR of nfs-load failed with NFS3ERR_ROFS; export it writable";
    assert!(complaint(&refused).contains(why), "{refused:#?}");
}

#[test]
fn a_server_that_dies_ends_the_run() {
    let directory = Scratch::new();
    let mut target = of_directory(directory.path(), &[]);
    let arguments = "--operation create --seconds 3600";
    let mut command = load(&target.address().to_string(), arguments);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let running = command.spawn().expect("it was just built");
    let place = directory.path().join("nfs-load");
    let has_made_files = || {
        let made = fs::read_dir(&place).into_iter().flatten().flatten();
        made.map(|entry| fs::read_dir(entry.path()).map_or(0, Iterator::count))
            .any(|count| count > 10)
    };
    PATIENCE.until("it makes files", has_made_files);
    target.kill();
    let output = running.wait_with_output().expect("our own child");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("the connection to the server has ended"),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1, "{told}");
}
