//! Many readers and writers in a budget that is far too small for them: nothing fails, nothing
//! waits for ever, and the budget is never exceeded.

mod support;

use std::time::Duration;

use bytes::Bytes;
use penstock_base::{KIB, MIB, clock};
use penstock_object::PutOptions;
use penstock_transfer::{ObjectVersion, TransferSettings, WriteStart};
use proptest::prelude::*;
use support::{Bench, Network, TestStore, key, pattern};

const MEMORY: u64 = 16 * MIB;
const OBJECT: u64 = 24 * MIB;

/// Everything ends within this simulated time, far below the wait for memory of the settings.
const PATIENCE: Duration = Duration::from_secs(50);

#[derive(Debug, Clone)]
enum ReadStep {
    /// Reads on, so many times so many KiB.
    Run(u64, u64),
    /// Reads somewhere.
    Jump(u64),
    /// Does nothing for so many milliseconds, holding what was fetched ahead.
    Pause(u64),
}

#[derive(Debug, Clone)]
enum WriteStep {
    /// Writes so many pieces of so many KiB.
    Write(u64, u64),
    Pause(u64),
    Sync,
}

fn read_step() -> impl Strategy<Value = ReadStep> {
    prop_oneof![
        4 => (1u64..12, prop_oneof![Just(4u64), Just(128), Just(1024)])
            .prop_map(|(count, size)| ReadStep::Run(count, size)),
        2 => (0..OBJECT).prop_map(ReadStep::Jump),
        1 => (0u64..400).prop_map(ReadStep::Pause),
    ]
}

fn write_step() -> impl Strategy<Value = WriteStep> {
    prop_oneof![
        6 => (1u64..10, prop_oneof![Just(4u64), Just(128), Just(700), Just(1024)])
            .prop_map(|(count, size)| WriteStep::Write(count, size)),
        1 => (0u64..200).prop_map(WriteStep::Pause),
        1 => Just(WriteStep::Sync),
    ]
}

async fn run_reader(bench: &Bench, version: ObjectVersion, steps: Vec<ReadStep>) {
    let reader = bench.transfer.reader(version);
    let mut position = 0;
    for step in steps {
        match step {
            ReadStep::Jump(offset) => position = offset,
            ReadStep::Pause(millis) => clock::sleep(Duration::from_millis(millis)).await,
            ReadStep::Run(count, kib) => {
                for _ in 0..count {
                    let read = reader
                        .read(position, (kib * KIB) as u32)
                        .await
                        .expect("read");
                    let end = OBJECT.min(position + kib * KIB);
                    assert!(
                        read.to_vec() == pattern(position..end),
                        "wrong at {position}"
                    );
                    position = end % OBJECT;
                }
            }
        }
    }
}

async fn run_writer(bench: &Bench, name: &str, steps: Vec<WriteStep>) {
    let start = WriteStart::Empty;
    let mut writer = bench
        .transfer
        .writer(key(name), start, PutOptions::default());
    for step in steps {
        match step {
            WriteStep::Pause(millis) => clock::sleep(Duration::from_millis(millis)).await,
            WriteStep::Sync => {
                writer.sync().await.expect("synced");
            }
            WriteStep::Write(count, kib) => {
                for _ in 0..count {
                    let data = pattern(writer.size()..writer.size() + kib * KIB);
                    writer.write(Bytes::from(data)).await.expect("written");
                }
            }
        }
    }
    let finished = writer.finish().await.expect("finished");
    let content = bench.store.content(&key(name)).await.expect("there");
    assert!(
        content == pattern(0..finished.size),
        "{name} is not what was written"
    );
}

async fn run_all(readers: Vec<Vec<ReadStep>>, writers: Vec<Vec<WriteStep>>) {
    let network = Network {
        latency: Duration::from_millis(7),
        bandwidth: Some(500.0 * MIB as f64),
    };
    let bench = Bench::new(TestStore::new(network), MEMORY, TransferSettings::default());
    let version = bench.store.fill("source", OBJECT).await;
    let reading = readers
        .into_iter()
        .map(|steps| run_reader(&bench, version.clone(), steps));
    let names: Vec<_> = (0..writers.len())
        .map(|index| format!("target{index}"))
        .collect();
    let writing = writers
        .into_iter()
        .zip(&names)
        .map(|(steps, name)| run_writer(&bench, name, steps));
    let all = futures_util::future::join(
        futures_util::future::join_all(reading),
        futures_util::future::join_all(writing),
    );
    clock::deadline(PATIENCE, all)
        .await
        .expect("nobody waits for ever");
    assert!(bench.budget().peak() <= MEMORY);
    assert_eq!(bench.store.uploads().await, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn eight_readers_and_four_writers_share_sixteen_mebibytes(
        readers in prop::collection::vec(prop::collection::vec(read_step(), 1..10), 8),
        writers in prop::collection::vec(prop::collection::vec(write_step(), 1..8), 4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("built");
        runtime.block_on(run_all(readers, writers));
    }
}

#[tokio::test(start_paused = true)]
async fn writers_that_together_need_more_than_there_is_take_turns() {
    let writers = vec![vec![WriteStep::Write(22, 1024)]; 12];
    run_all(Vec::new(), writers).await;
}

#[tokio::test(start_paused = true)]
async fn small_writes_take_turns_too() {
    let writers = vec![vec![WriteStep::Write(2000, 4)]; 6];
    run_all(vec![vec![ReadStep::Run(24, 1024)]; 4], writers).await;
}

#[tokio::test(start_paused = true)]
async fn readers_get_on_beside_writers_that_hold_everything_and_do_nothing() {
    let bench = Bench::new(
        TestStore::new(Network::default()),
        MEMORY,
        TransferSettings::default(),
    );
    let version = bench.store.fill("source", OBJECT).await;
    let mut idle = Vec::new();
    for index in 0..4 {
        let name = key(&format!("idle{index}"));
        let mut writer = bench
            .transfer
            .writer(name, WriteStart::Empty, PutOptions::default());
        for _ in 0..2 {
            writer
                .write(Bytes::from(vec![1; 1 << 20]))
                .await
                .expect("written");
        }
        idle.push(writer);
    }
    assert_eq!(bench.budget().available(), 0);
    run_reader(&bench, version, vec![ReadStep::Run(24, 1024)]).await;
    for writer in idle {
        writer.finish().await.expect("finished");
    }
}

/// Programs that wrote a little and then pause, one of them while it was its turn.
#[tokio::test(start_paused = true)]
async fn writers_that_are_idle_for_good_do_not_keep_others_from_progress() {
    const IDLE: usize = 6;
    let network = Network {
        latency: Duration::from_millis(7),
        bandwidth: Some(500.0 * MIB as f64),
    };
    let bench = Bench::new(
        TestStore::new(network),
        2 * MEMORY,
        TransferSettings::default(),
    );
    let mut idle = Vec::new();
    for index in 0..IDLE {
        let name = key(&format!("idle{index}"));
        let start = WriteStart::Empty;
        let mut writer = bench.transfer.writer(name, start, PutOptions::default());
        for number in 0..4 {
            let data = Bytes::from(pattern(number * MIB..(number + 1) * MIB));
            writer.write(data).await.expect("written");
        }
        idle.push(writer);
    }
    // Together the others need nine times of what is left.
    let names: Vec<_> = (0..8).map(|index| format!("active{index}")).collect();
    let steps = vec![
        WriteStep::Write(9, 1024),
        WriteStep::Sync,
        WriteStep::Write(9, 700),
    ];
    let active = names
        .iter()
        .map(|name| run_writer(&bench, name, steps.clone()));
    clock::deadline(PATIENCE, futures_util::future::join_all(active))
        .await
        .expect("nobody waits for ever");
    for (index, writer) in idle.into_iter().enumerate() {
        writer.finish().await.expect("finished");
        let content = bench.store.content(&key(&format!("idle{index}"))).await;
        assert!(content.expect("there") == pattern(0..4 * MIB), "{index}");
    }
    assert!(bench.budget().peak() <= 2 * MEMORY);
    assert_eq!(bench.store.uploads().await, 0);
}
