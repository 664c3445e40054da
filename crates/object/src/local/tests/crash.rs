//! Processes that are killed at any moment.
//!
//! The test starts its own binary again as a writer, kills it with SIGKILL and looks at what is
//! there. Every object carries its own checksum, and the writer says what it has finished.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
};

use crc_fast::{CrcAlgorithm, checksum};

use super::*;

/// Tells the test that it is the writer, and where to write.
const DIRECTORY: &str = "PENSTOCK_TEST_DIRECTORY";

const ROUNDS: u64 = 12;

/// A body that carries its checksum.
fn sealed(seed: u64, length: usize) -> Vec<u8> {
    let content: Vec<u8> = (0..length)
        .map(|index| (seed as usize * 31 + index / 7) as u8)
        .collect();
    let sum = checksum(CrcAlgorithm::Crc64Xz, &content);
    [&sum.to_be_bytes()[..], &content].concat()
}

fn is_whole(body: &[u8]) -> bool {
    let Some((sum, content)) = body.split_at_checked(8) else {
        return false;
    };
    checksum(CrcAlgorithm::Crc64Xz, content).to_be_bytes() == sum
}

/// What the process does that is killed.
async fn write_until_killed(directory: &Path) {
    let store = open(directory);
    let run = penstock_base::random::number() % 1_000_000;
    for count in 0_u64.. {
        let length = (penstock_base::random::number() % 300_000) as usize;
        let contested = ["c", "c/d", "c/d/e"][count as usize % 3];
        let whole = Payload::from(sealed(count, length));
        let options = PutOptions::default();
        let written = store
            .put(&key(contested), whole.clone(), options.clone())
            .await;
        written.expect("the put succeeds");
        let kept = format!("kept/{run}-{count}");
        store
            .put(&key(&kept), whole, options)
            .await
            .expect("the put succeeds");
        report(&kept);
        if count.is_multiple_of(2) {
            store.delete(&key(contested)).await.expect("deleting works");
        }
        assemble(&store, run, count).await;
        grow(&store, run, count).await;
    }
}

fn report(name: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "done {name}").expect("the parent listens");
    out.flush().expect("the parent listens");
}

async fn assemble(store: &LocalStore, run: u64, count: u64) {
    let name = format!("parts/{run}-{count}");
    let whole = sealed(count, 100_000);
    let upload = store
        .create_upload(&key(&name), PutOptions::default())
        .await;
    let upload = upload.expect("it begins");
    let mut parts = Vec::new();
    for (index, piece) in whole.chunks(30_000).enumerate() {
        let piece = Payload::from(piece.to_vec());
        let number = index as u32 + 1;
        let part = store.upload_part(&key(&name), &upload, number, piece).await;
        parts.push(part.expect("it is taken"));
    }
    let options = CompleteOptions::default();
    let completed = store
        .complete_upload(&key(&name), &upload, &parts, options)
        .await;
    completed.expect("it completes");
    report(&name);
}

/// Appends pieces of a thousand bytes, each of one value.
async fn grow(store: &LocalStore, run: u64, count: u64) {
    let name = key(&format!("log/{run}"));
    let piece = Payload::from(vec![count as u8; 1000]);
    let options = PutOptions::default();
    store
        .append(&name, count * 1000, piece, options)
        .await
        .expect("it grows");
}

#[allow(clippy::disallowed_methods)]
fn start_writer(directory: &Path) -> Child {
    let binary = std::env::current_exe().expect("the test knows its binary");
    Command::new(binary)
        .args(["--exact", "--nocapture"])
        .arg("local::tests::crash::killed_writers_leave_whole_objects_and_no_garbage")
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the writer starts")
}

/// Lets a writer run for a while, kills it, and returns what it said it had finished. Every
/// other one lives at least until it has finished something, however slow the machine is.
async fn run_and_kill(directory: &Path, round: u64) -> Vec<String> {
    let mut writer = start_writer(directory);
    let output = BufReader::new(writer.stdout.take().expect("it is piped"));
    let lines = output.lines().map_while(Result::ok);
    let mut finished = lines.filter_map(|line| Some(line.split_once("done ")?.1.to_owned()));
    let first = if round.is_multiple_of(2) {
        finished.next()
    } else {
        None
    };
    let life = Duration::from_millis(penstock_base::random::number() % 120);
    penstock_base::clock::sleep(life).await;
    writer.kill().expect("it can be killed");
    writer.wait().expect("it ends");
    first.into_iter().chain(finished).collect()
}

async fn check(directory: &Path, finished: &[String]) {
    let store = open(directory);
    let mut options = ListOptions::default();
    let mut present = Vec::new();
    loop {
        let page = store.list(options.clone()).await.expect("listing works");
        for object in page.objects {
            let mut body = Vec::new();
            let got = store
                .get(&key(&object.key), GetOptions::default(), &mut body)
                .await;
            got.expect("what is listed can be read");
            if object.key.starts_with("log/") {
                let same = |piece: &[u8]| piece.iter().all(|byte| *byte == piece[0]);
                assert!(
                    body.len() % 1000 == 0 && body.chunks(1000).all(same),
                    "{}",
                    object.key
                );
            } else {
                assert!(is_whole(&body), "`{}` is not whole", object.key);
            }
            present.push(object.key);
        }
        options.continuation = page.continuation;
        if options.continuation.is_none() {
            break;
        }
    }
    for name in finished {
        assert!(
            present.binary_search(name).is_ok(),
            "`{name}` was finished and is gone"
        );
    }
    for garbage in ["staging", "appends"] {
        // A writer that was killed early made neither.
        let garbage = directory.join(".penstock").join(garbage);
        if garbage.exists() {
            let left = paths(&garbage);
            assert!(left.is_empty(), "{garbage:?}: {left:?}");
        }
    }
}

#[tokio::test]
#[allow(clippy::disallowed_methods)]
async fn killed_writers_leave_whole_objects_and_no_garbage() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return write_until_killed(Path::new(&directory)).await;
    }
    let directory = tempfile::tempdir().expect("a directory can be made");
    let mut finished = Vec::new();
    for round in 0..ROUNDS {
        finished.extend(run_and_kill(directory.path(), round).await);
        check(directory.path(), &finished).await;
    }
    assert!(
        finished.len() as u64 >= ROUNDS / 2,
        "the writers get somewhere"
    );
    println!("{} writes were finished in {ROUNDS} lives", finished.len());
}
